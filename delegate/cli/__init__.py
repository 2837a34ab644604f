"""The `delegate` command. Results go to stdout, progress to stderr, and an error is one line on stderr.

Exit codes: 0 if every verdict is PASS (a task without criteria must have completed), 1 if any work is bad, any child
didn't complete or `--out` couldn't copy a file, 2 for invalid usage or settings, 3 if no work is bad but a child
couldn't run or its work couldn't be examined, 130 if interrupted before there was a result. See `exits.py`.
"""

import contextlib
import io
import logging
import os
import re
import signal
import sys
from importlib import import_module
from importlib.util import find_spec
from types import FrameType
from typing import Any, NoReturn

PROGRAM = "delegate"
OLDEST_PYTHON = (3, 11)
"""As `requires-python` in pyproject.toml."""


def main() -> None:
    """Run the command line and exit the process. Shows a traceback only under `python -X dev`."""
    if sys.version_info < OLDEST_PYTHON:  # pip refuses it, but not everybody runs what pip installed
        _exit_for_old_python()
    from delegate.cli.ci import logs  # no older Python reads its patterns

    arguments = sys.argv[1:]
    _set_up_process()
    if arguments[:1] != ["mcp"]:  # its stdout is for a client
        logs.guard()
    try:
        status = _run(arguments)
        sys.exit(status if isinstance(status, int) else 0)
    except SystemExit as end:
        if end.code == 130:
            _print_error("interrupted")
        raise
    except KeyboardInterrupt:
        _print_error("interrupted")
        sys.exit(130)
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        text, status = _told(error)
        _print_error(text)
        sys.exit(status)
    finally:
        try:
            logs.finish()
            sys.stdout.flush()
        except BrokenPipeError:  # its reader has closed the pipe (`| head`), which is fine
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> object:
    """Run the command. An MCP server that can't start lets its client's calls be answered with the reason."""
    from delegate.cli.app import app

    if dashed := next((one for one in arguments if re.fullmatch("[–—]+[a-z][a-z-]*", one)), None):
        from delegate.types.errors import ConfigError

        raise ConfigError(f"{dashed} begins with a typographic dash: type --{dashed.strip('–—')}")
    try:
        # Without arguments, it prints the help. In any other case, it is left to us to print errors in one line.
        return app(prog_name=PROGRAM, standalone_mode=not arguments)
    except Exception as error:
        if terminations:  # while something was imported that turns KeyboardInterrupt into an error of its own
            raise KeyboardInterrupt from error
        is_server = arguments[:1] == ["mcp"] and not {"install", "--http"} & {*arguments} and not sys.stdin.isatty()
        if not is_server or find_spec("mcp") is None:
            raise
        text, _ = _told(error)
        _print_error(text)
        import_module("delegate.cli.commands.mcp").serve_problem(text)
        return 2


def _exit_for_old_python() -> NoReturn:
    version, needed = (".".join(map(str, numbers[:2])) for numbers in (sys.version_info, OLDEST_PYTHON))
    fix = f"make an environment with a newer one, such as `python{needed} -m venv .venv`"
    print(f"{PROGRAM}: this is Python {version}, but {PROGRAM} needs {needed} or newer; {fix}", file=sys.stderr)
    sys.exit(2)


def _usage_text(error: Any) -> str:
    from delegate._util.similar import most_similar

    if find_errors := getattr(error.__cause__, "errors", None):  # of pydantic
        from delegate.types.faults import problem_of

        (detail, *_) = find_errors()
        error.message = f"{problem_of(detail)}, got {detail['input']!r:.60}"
    text = error.format_message().rstrip(". ")
    if possible := getattr(error, "possibilities", None):
        meant = most_similar(getattr(error, "option_name", ""), possible) or possible[0]
        text = f"{error.message}; did you mean {meant}?"
    elif "unexpected extra argument" in text:
        text += "; put an argument with spaces in quotes"
    elif hasattr(error, "option_name"):
        text += "; put a command with options in quotes, and `--` before a text that begins with a dash"
    context = getattr(error, "ctx", None)
    return f"{text} (see `{context.command_path if context else PROGRAM} --help`)"


def _told(error: Exception) -> tuple[str, int]:
    """What is said of an error, and the exit code."""
    if hasattr(error, "format_message"):  # of the parser, whose exceptions differ between versions of typer
        return _usage_text(error), 2
    if type(error).__name__ == "Abort":  # no answer to a question
        return "interrupted", 1
    from delegate.types.errors import CallError, DelegateError  # with pydantic, which help and version go without

    if isinstance(error, CallError):
        subject = f"{error.field}: " if error.field and error.message.startswith("it ") else ""
        return f"{subject}{error.message}" + (f" ({error.hint})" if error.hint else ""), 2
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return "the working folder was removed: go to another one", 1
    if isinstance(error, (DelegateError, OSError)):
        return str(error), 2 if isinstance(error, DelegateError) else 1
    return f"internal error, {type(error).__name__}: {error} (run `python -X dev -m delegate …` for a traceback)", 1


def _set_up_process() -> None:
    """Make the streams accept any text, print warnings as single lines, and treat SIGTERM like Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    logging.getLogger().addHandler(_OneLine(logging.WARNING))
    # Cancels the running work, which then cleans up. The default handler would leave commands running.
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, _as_interrupt)


terminations: list[int] = []
"""The SIGTERMs that this process got so far."""


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    terminations.append(number)
    signal.raise_signal(signal.SIGINT)


class _OneLine(logging.Handler):
    """Prints each warning as one line to the current `sys.stderr`, which a live display may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        _print_error(record.getMessage() + (f": {type(problem).__name__}: {problem}" if problem else ""))


def _print_error(text: str) -> None:
    from delegate._util.fencing import clean
    from delegate._util.redaction import redactor

    print(f"{PROGRAM}: {' '.join(redactor.text(clean(text).text).split())}", file=sys.stderr)

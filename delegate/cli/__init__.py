"""The `delegate` command. Results go to stdout, progress to stderr, and whatever goes wrong is one line on stderr.

Exit codes: 0 every verdict is PASS (a task without criteria has completed), 1 any FAIL or any child that didn't
complete, 2 the command or its settings can't be used as they are, 130 interrupted before there was a report.
"""

import contextlib
import io
import logging
import os
import signal
import sys
from types import FrameType

from delegate.errors import CallError, DelegateError

PROGRAM = "delegate"


def main() -> None:
    """Run the command line. Ends the process; never with a traceback, except under `python -X dev`."""
    _prepare()
    from delegate.cli.app import app

    try:
        app(prog_name=PROGRAM)
    except SystemExit as end:
        if end.code == 130:
            _say("interrupted")
        _flush()
        raise
    except KeyboardInterrupt:
        _say("interrupted")
        sys.exit(130)
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        _say(_in_words(error))
        sys.exit(2 if isinstance(error, DelegateError) else 1)


def _flush() -> None:
    """Write out what is left. A reader that has gone (`| head`) is no error, though Python would call it one."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _in_words(error: Exception) -> str:
    if isinstance(error, CallError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    if isinstance(error, (DelegateError, OSError)):
        return str(error)
    return f"internal error, {type(error).__name__}: {error} (`python -X dev -m delegate …` shows where)"


def _prepare() -> None:
    """Streams that any text can be written to, warnings in one line each, and an end that takes the children along."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    logging.getLogger().addHandler(_OneLine(logging.WARNING))
    # As on Ctrl-C: the running work is cancelled and cleans up, where the default would leave commands behind.
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, _as_interrupt)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


class _OneLine(logging.Handler):
    """Says each warning in one line, on what `sys.stderr` is at that moment: a live display may have replaced it."""

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        _say(record.getMessage() + (f": {type(problem).__name__}: {problem}" if problem else ""))


def _say(text: str) -> None:
    from delegate._util.fencing import clean

    print(f"{PROGRAM}: {' '.join(clean(text).text.split())}", file=sys.stderr)

"""A child that is any command line agent, or any program: `claude -p`, `codex exec -`, `gemini -p …`, a script.

    command, prompt ──▶ the program, in the task's workspace ──▶ what it printed: the report

The program is one that the operator chose, and it is trusted as such. It needs the network and its own configuration,
so it runs as an ordinary process: the settings `sandbox` and `commands` are about command lines that models write, and
don't apply to it; bubblewrap would hide from it just the folders where such agents keep their logins. What it gets is
what other commands get as well: an environment without keys, limits, and an end to all that it started.
"""

import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

from delegate.child.cli_output import CliOutput, read_cli_output
from delegate.child.job import Job
from delegate.errors import ConfigError, ToolError
from delegate.sandbox import confinement
from delegate.sandbox.confinement import Confinement
from delegate.sandbox.environment import command_environment
from delegate.sandbox.process import ProcessResult
from delegate.types import ChildRun, ErrorDetail, Usage

OutputForm = Literal["text", "json"]

STDERR_CHARS = 1_000
"""How much of the end of stderr stands in an error."""
OUTPUT_BYTES: Mapping[OutputForm, int] = {"text": 400_000, "json": 8_000_000}
"""How much of the end of stdout is kept. Streams of events are long."""
_LONGEST_SECONDS = 86_400
"""The deadline is kept by whoever cancels the run; this only bounds a program's CPU time, and that it waits at all."""

_PLACE = re.compile(r"(--?[\w-]+=)?\{(prompt|goal)\}")
"""A placeholder is an argument by itself, or the value of an option. Inside a script it would be run as code."""
_ANY_PLACE = re.compile(r"\{(?:prompt|goal)\}")


class CommandRunner:
    """Runs each child as one process of `command`, in the task's workspace.

    The program reads `job.prompt` (rules, criteria, goal and context in one text) on stdin. With an argument
    `{prompt}` it gets that text there, and an empty stdin; `{goal}` is the goal alone. What it prints is the child's
    report, and what it leaves in its folder are the artifacts, as for every child. Another exit code than 0 is a failed
    run. Its tool calls are not recorded.

    At the deadline, and when the call is cancelled, the program and all that it started are killed.

    Args:
        command: the command line, as text (split as a POSIX shell splits it; nothing in it is run by a shell) or as
            arguments. The program is looked for now, relative paths from here; other relative paths are the child's.
        output: `text`, or `json` for what `printed.py` knows, with usage and cost where the program tells them.
        env: names of variables to pass on beside the usual harmless ones, such as `ANTHROPIC_API_KEY`. Nothing else
            that looks like a key is passed. Their values are taken out of all that is recorded.

    Raises:
        ConfigError: the command can't be read, the program or a variable isn't there, or a placeholder stands inside
            a longer argument.
    """

    needs_model = False
    records_tools = False

    def __init__(self, command: str | Sequence[str], *, output: OutputForm = "text", env: Sequence[str] = ()) -> None:
        if sys.platform == "win32":
            raise ConfigError("a runner's command runs on Linux and macOS only; on Windows, run delegate inside WSL")
        if output not in get_args(OutputForm):
            raise ConfigError(f"the runner's output {output!r} must be one of {', '.join(get_args(OutputForm))}")
        arguments = _split(command)
        _refuse_inner_places(arguments)
        self._named = Path(arguments[0]).name
        self._argv = (_found(arguments[0]), *arguments[1:])
        self._output: OutputForm = output
        self._env = command_environment(os.environ) | _passed(env)
        self.secret_variables = frozenset(env)
        """Variables whose values are secrets, whatever their names are."""
        self._confinement: Confinement | None = None

    async def run(self, job: Job) -> ChildRun:
        """Run the program to its end and take its report."""
        whole = job.prompt
        with _as_file("" if "{prompt}" in _places(self._argv) else whole) as stdin:
            try:
                ended = await confinement.execute(self._job(job, stdin, whole), await self._confined())
            except (OSError, ValueError, ToolError) as problem:
                return _failed(job, "not_started", f"`{self._named}` can't be run: {problem}")
        if ended.exit_code != 0:
            return _failed(job, "exit_code", self._why(ended), output=ended.stdout)
        if self._output == "text":
            return job.recorder.finish("completed", output=ended.stdout.strip())
        return self._as_printed(job, ended)

    def _job(self, job: Job, stdin: Path, whole: str) -> confinement.CommandSpec:
        arguments = [_filled(argument, goal=job.task.goal, prompt=whole) for argument in self._argv]
        return confinement.CommandSpec(
            argv=["/bin/sh", "-c", 'exec "$@" < "$0"', str(stdin), *arguments],
            cwd=job.workspace,
            env=self._env,
            timeout_seconds=_LONGEST_SECONDS,
            max_output_bytes=OUTPUT_BYTES[self._output],
        )

    async def _confined(self) -> Confinement:
        """Under the subreaper, where that works: it also ends what left the program's process group."""
        if self._confinement is None:
            under = Confinement(bubblewrap=False, subreaper=True)
            self._confinement = under if await confinement.works(under) else Confinement(False, False)
        return self._confinement

    def _why(self, ended: ProcessResult) -> str:
        said = ended.stderr.strip()[-STDERR_CHARS:]
        how = "was stopped after a day" if ended.timed_out else f"ended with exit code {ended.exit_code}"
        return f"`{self._named}` {how}" + (f": {said}" if said else ", and said nothing on stderr")

    def _as_printed(self, job: Job, ended: ProcessResult) -> ChildRun:
        try:
            printed = read_cli_output(ended.stdout)
        except ValueError as problem:
            message = f"`{self._named}` was to print JSON, but {problem}"
            return _failed(job, "unreadable_output", message, output=ended.stdout)
        _book(job, printed)
        if printed.problem is not None:
            message = f"`{self._named}` reports: {printed.problem[-STDERR_CHARS:]}"
            return _failed(job, "reported_failure", message, output=printed.text)
        return job.recorder.finish("completed", output=printed.text.strip())


def _split(command: str | Sequence[str]) -> list[str]:
    try:
        arguments = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as problem:
        raise ConfigError(f"the runner's command {command!r} can't be read: {problem}") from None
    if not arguments or not arguments[0].strip():
        raise ConfigError("the runner's command is empty; name a program, such as `claude -p`")
    return arguments


def _refuse_inner_places(arguments: Sequence[str]) -> None:
    for argument in arguments:
        if _ANY_PLACE.search(argument) and not _PLACE.fullmatch(argument):
            raise ConfigError(
                f"the runner's argument {argument!r} has a placeholder inside: give it an argument of its own, or let "
                "the program read stdin. In a script, the text would be run as code"
            )


def _found(program: str) -> str:
    """The absolute path, so that a program beside the caller is found from any workspace."""
    if (path := shutil.which(program)) is None:
        mend = "install it, or name it by its path"
        raise ConfigError(f"the runner's program {program!r} was not found, or can't be executed: {mend}")
    return os.path.abspath(path)


def _passed(names: Sequence[str]) -> dict[str, str]:
    for name in names:
        if name not in os.environ:
            raise ConfigError(f"the variable {name!r} is to be passed to the runner, but isn't set")
    return {name: os.environ[name] for name in names}


def _places(arguments: Sequence[str]) -> set[str]:
    return {f"{{{place[2]}}}" for argument in arguments if (place := _PLACE.fullmatch(argument))}


def _filled(argument: str, *, goal: str, prompt: str) -> str:
    """The argument with its text. A text that would be taken for an option gets a blank before it."""
    place = _PLACE.fullmatch(argument)
    if place is None:
        return argument
    option, text = place[1] or "", goal if place[2] == "goal" else prompt
    return f" {text}" if text.startswith("-") and not option else option + text


@contextmanager
def _as_file(text: str) -> Generator[Path]:
    """A file that only this user can read, gone at the end."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="replace", prefix="delegate-") as file:
        file.write(text)
        file.flush()
        yield Path(file.name)


def _book(job: Job, printed: CliOutput) -> None:
    if printed.usage is not None or printed.cost_usd is not None:
        usage = printed.usage or Usage()
        job.record_usage(usage, printed.cost_usd, provenance="estimated", model=printed.model)


def _failed(job: Job, code: str, message: str, *, output: str = "") -> ChildRun:
    return job.recorder.finish("failed", output=output, error=ErrorDetail(code=code, message=message))

"""Runs a command line agent or any other program as the child: `claude -p`, `codex exec -`, `gemini -p …`, a script.

    command, prompt ──▶ the program, in the task's workspace ──▶ its output: the report

The operator chooses the program, so it is trusted. It needs the network and its own configuration, so it runs as an
ordinary process: the settings `sandbox` and `commands` are for command lines that models write and don't apply to it,
and bubblewrap would hide the folders where such agents keep their logins. As for other commands, its environment has
no keys, its resources are limited, and everything that it started is terminated.
"""

import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from delegate._util.threads import run_in_thread_if
from delegate.budget.nested import child_environment
from delegate.child.cli_output import read_cli_output
from delegate.child.command_line import PLACEHOLDER, parse_command, variables
from delegate.child.job import Job, failed
from delegate.records.recorder import LARGE_CHARS
from delegate.sandbox.commands import confinement
from delegate.sandbox.commands.confinement import Confinement
from delegate.sandbox.processes.environment import command_environment
from delegate.sandbox.processes.process import ProcessResult
from delegate.types import ChildRun, Usage
from delegate.types.codes import ChildCode
from delegate.types.errors import ConfigError, ToolError

OutputForm = Literal["text", "json"]

STDERR_CHARS = 1_000
"""How much of the end of stderr is included in an error."""
OUTPUT_BYTES: Mapping[OutputForm, int] = {"text": 400_000, "json": 8_000_000}
"""How much of the end of stdout is kept. Event streams are long."""
MAX_SECONDS = 86_400
"""The caller enforces the task's deadline by cancelling `run`; this only limits the CPU and wall time without one."""

_NO_KEY = re.compile(
    r"(?i)not logged in|/login\b|log ?in (?:again|first)|(?:no|missing|invalid|set) \S*.?api.key|_API_KEY\b|\b401\b"
)


class AgentFault(Exception):
    """An ACP agent didn't do what the protocol asks for, or reports that it couldn't."""

    def __init__(self, code: ChildCode, message: str) -> None:
        super().__init__(message)
        self.code: ChildCode = code


class AgentEnded(Exception):
    """An ACP agent closed the connection."""


class CommandRunner:
    """Runs each child as one process of `command`, in the task's workspace.

    The program reads `job.prompt` (rules, criteria, goal and context in one text) on stdin. If an argument is
    `{prompt}`, it gets the text there instead, and an empty stdin; `{goal}` is the goal alone. Its output is the
    child's report, and the files it leaves in its folder are the artifacts, as for every child. An exit code other than
    0 is a failed run. Its tool calls are not recorded.

    At the deadline, and when the call is cancelled, the program and everything that it started are killed.

    Args:
        command: The command line, as text (split like a POSIX shell does; no shell runs it) or as arguments. The
            program is looked up now, relative to the current folder; other relative paths are relative to the
            workspace.
        output: `text`, or `json` for the formats that `cli_output.py` reads, with usage and cost if the program
            reports them.
        env: Names of environment variables to pass on besides the usual harmless ones, such as `ANTHROPIC_API_KEY`.
            Nothing else that looks like a key is passed. Their values are redacted from everything that is recorded.

    Raises:
        ConfigError: The command can't be parsed, the program or a variable doesn't exist, or a placeholder is part of a
            longer argument.
    """

    needs_model = False
    records_tools = False

    def __init__(self, command: str | Sequence[str], *, output: OutputForm = "text", env: Sequence[str] = ()) -> None:
        if sys.platform == "win32":
            raise ConfigError("a runner's command runs on Linux and macOS only; on Windows, run delegate inside WSL")
        if output not in get_args(OutputForm):
            raise ConfigError(f"the runner's output {output!r} must be one of {', '.join(get_args(OutputForm))}")
        self._argv = parse_command(command)
        self._name = Path(self._argv[0]).name
        self._output: OutputForm = output
        self._env = command_environment(os.environ) | variables(env)
        self.secret_variables = frozenset(env)
        self._confinement: Confinement | None = None

    async def run(self, job: Job) -> ChildRun:
        """Run the program until it ends, and take its output as the report."""
        prompt = job.prompt
        matches = [PLACEHOLDER.fullmatch(argument) for argument in self._argv]
        is_argument = any(match is not None and match[2] == "prompt" for match in matches)
        # A file that only this user can read.
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="replace", prefix="delegate-") as stdin:
            stdin.write("" if is_argument else prompt)
            stdin.flush()
            arguments = [_fill(argument, goal=job.task.goal, prompt=prompt) for argument in self._argv]
            spec = confinement.CommandSpec(
                argv=["/bin/sh", "-c", 'exec "$@" < "$0"', stdin.name, *arguments],
                cwd=job.working_folder,
                env={**self._env, **child_environment()},
                timeout_seconds=MAX_SECONDS,
                max_output_bytes=OUTPUT_BYTES[self._output],
            )
            try:
                result = await confinement.execute(spec, await self._working_confinement())
            except (OSError, ValueError, ToolError) as problem:
                return failed(job, "not_started", f"`{self._name}` can't be run: {problem}")
        is_long = len(result.stdout) + len(result.stderr) > LARGE_CHARS
        return await run_in_thread_if(is_long, partial(self._run_of, job, result))

    async def _working_confinement(self) -> Confinement:
        """The subreaper where it works: it also terminates processes that left the program's process group."""
        if self._confinement is None:
            subreaper = Confinement(None, subreaper=True)
            self._confinement = subreaper if await confinement.works(subreaper) else Confinement(None, subreaper=False)
        return self._confinement

    def _failure(self, job: Job, result: ProcessResult) -> str:
        stderr = result.stderr.strip()[-STDERR_CHARS:]
        how = "was stopped after a day" if result.timed_out else f"ended with exit code {result.exit_code}"
        message = f"`{self._name}` {how}" + (f": {stderr}" if stderr else ", without output on stderr")
        message += key_hint(result.stdout[-STDERR_CHARS:] + stderr)
        for name in self._argv[1:]:
            if os.path.isfile(name) and not os.path.lexists(job.workspace / name):
                message += f"\n{name} is a file here but not in the task's folder, where the program runs: "
                message += f"give it as {os.path.abspath(name)}"
        return message

    def _run_of(self, job: Job, result: ProcessResult) -> ChildRun:
        if result.exit_code != 0:
            return failed(job, "exit_code", self._failure(job, result), report=result.stdout)
        if self._output == "text":
            return job.recorder.finish("completed", report=result.stdout.strip())
        try:
            output = read_cli_output(result.stdout)
        except ValueError as problem:
            message = f"`{self._name}` was expected to print JSON, but {problem}"
            return failed(job, "unreadable_output", message, report=result.stdout)
        if output.usage is not None or output.cost_usd is not None:
            usage = output.usage or Usage()
            job.record_usage(usage, output.cost_usd, provenance="estimated", model=output.model)
        if output.problem is not None:
            problem = output.problem[-STDERR_CHARS:]
            message = f"`{self._name}` reports: {problem}{key_hint(problem)}"
            return failed(job, "reported_failure", message, report=output.text)
        return job.recorder.finish("completed", report=output.text.strip())


def key_hint(text: str) -> str:
    """What to do where a program says that it has no login or key: it gets no variable that looks like a key."""
    if not _NO_KEY.search(text):
        return ""
    return "; log in to it as this user, or pass the variable that has its key with --runner-env NAME (`env` in Python)"


def _fill(argument: str, *, goal: str, prompt: str) -> str:
    """Replace a placeholder by its text. A text that would be read as an option gets a leading space."""
    match = PLACEHOLDER.fullmatch(argument)
    if match is None:
        return argument
    option, text = match[1] or "", goal if match[2] == "goal" else prompt
    return f" {text}" if text.startswith("-") and not option else option + text

"""Runs an agent of the Agent Client Protocol as the child, such as `gemini --acp`: needs the extra `acp`.

    the agent, an ordinary process ──▶ fs/*, terminal/* ──▶ the task's folder and its commands: receipts
                                   ──▶ session/request_permission ──▶ policy and approvals
                                   ──▶ session/update: the report, and what it says of tools of its own: no receipts

The operator chooses the program, as for `CommandRunner`. What it does by itself isn't confined, and isn't on record.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, cast

from delegate._util.threads import run_in_thread
from delegate.budget.nested import child_environment
from delegate.child.command import MAX_SECONDS, STDERR_CHARS, AgentEnded, AgentFault, CommandRunner, key_hint
from delegate.child.command_line import PLACEHOLDER
from delegate.child.job import Job, failed
from delegate.sandbox.commands import confinement
from delegate.types import ChildRun
from delegate.types.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from delegate.child import acp_connection

_CLOSE_SECONDS = 1.0
"""How long an agent may take to exit after its turn, before it is killed."""


class AcpRunner(CommandRunner):
    """Runs each child as one process of an ACP agent, in the task's workspace, for one turn.

    The agent is sent `job.prompt`, and what it says last is the report. The files that it reads and writes through the
    protocol are those of the workspace, and its terminals are commands as the built-in child has them: confined, under
    the policy, and recorded as `read_file`, `write_file` and `run_shell`. Its requests for permission go through the
    policy, and are refused for what is outside the workspace. Calls of its own tools are kept as what it said; they
    are no receipts.

    At the deadline, and when the call is cancelled, the agent is asked to stop, and it and everything that it started
    are killed.

    Args:
        command: The command line, as for `CommandRunner`, without placeholders.
        env: Names of environment variables to pass on, as for `CommandRunner`.

    Raises:
        ConfigError: The command can't be parsed, the program or a variable doesn't exist, or the extra `acp` isn't
            installed.
    """

    records_some_tools = True
    asks_permission = True

    def __init__(self, command: str | Sequence[str], *, env: Sequence[str] = ()) -> None:
        super().__init__(command, env=env)
        if any(map(PLACEHOLDER.fullmatch, self._argv)):
            raise ConfigError("an ACP agent is sent its task by the protocol: leave out {prompt} and {goal}")
        if find_spec("acp") is None:
            raise ConfigError("a runner `acp:…` needs `agent-client-protocol`: install delegate with the extra `acp`")

    async def run(self, job: Job) -> ChildRun:
        """Run the agent for one turn."""
        load = partial(import_module, "delegate.child.acp_connection")
        session = cast("acp_connection.AcpSession", (await run_in_thread(load)).AcpSession(job))
        with ExitStack() as files:
            stdin, to_agent = _pipe(files)
            from_agent, stdout = _pipe(files)
            spec = confinement.CommandSpec(
                argv=["/bin/sh", "-c", 'exec "$@"', "sh", *self._argv],
                cwd=job.working_folder,
                env={**self._env, **child_environment()},
                timeout_seconds=MAX_SECONDS,
                max_output_bytes=4 * STDERR_CHARS,
                stdio=(stdin, stdout),
            )
            agent = asyncio.ensure_future(confinement.execute(spec, await self._working_confinement()))
            agent.add_done_callback(lambda _: stdout.close())  # also if it couldn't be started
            try:
                run = await session.run(from_agent, to_agent)
                await asyncio.wait([agent], timeout=_CLOSE_SECONDS)
                return run
            except AgentFault as fault:
                message = f"`{self._name}` {fault}"
                return failed(job, fault.code, message + key_hint(message))
            except AgentEnded:
                await asyncio.wait([agent], timeout=_CLOSE_SECONDS)
                if not agent.done():
                    return failed(job, "unreadable_output", f"`{self._name}` closed its output before its turn ended")
                try:
                    result = agent.result()
                except (OSError, ValueError, ToolError) as problem:
                    return failed(job, "not_started", f"`{self._name}` can't be run: {problem}")
                return failed(job, "exit_code", f"{self._failure(job, result)}\nIt had not ended its turn")
            finally:
                agent.cancel()
                await asyncio.wait([agent])
                if not agent.cancelled():
                    agent.exception()


def _pipe(files: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    read, write = os.pipe()
    return files.enter_context(os.fdopen(read, "rb", 0)), files.enter_context(os.fdopen(write, "wb", 0))

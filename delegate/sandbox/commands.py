"""Runs a command line for a child or for a check, under the settings `sandbox` and `commands`.

    command ──▶ policy: may this author run it here? ──▶ bubblewrap, where it works ──▶ limits ──▶ process

Without bubblewrap the mechanism is `process`: a process group of its own, an environment without keys, kernel limits,
and a kill of the whole group at the end. That keeps accidents in; it is no wall against a hostile command.
"""

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from delegate.errors import ToolDenied, ToolError
from delegate.sandbox import bubblewrap
from delegate.sandbox.environment import command_environment
from delegate.sandbox.limits import limited
from delegate.sandbox.process import Finished, run_process

Mechanism = Literal["bubblewrap", "process"]
Network = Literal["host", "none"]
Author = Literal["model", "person"]
RefusalCode = Literal["commands_not_allowed", "sandbox_unavailable", "network_isolation_unavailable"]

PROBE_SECONDS = 5.0
MEND = 'install bubblewrap, or set commands = "allow" in delegate.toml (or DELEGATE_COMMANDS=allow)'


class CommandsNotAllowed(ToolDenied):
    """The settings forbid this command here. `code` is stable; the text names the setting and the mend."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.code: RefusalCode = code


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. `exit_code` is None after a timeout; the streams are tails, marked where they are cut."""

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    seconds: float
    sandbox: Mechanism

    @property
    def output(self) -> str:
        """Both streams in one text, as a model reads them."""
        if not self.stderr:
            return self.stdout
        between = "" if self.stdout.endswith("\n") or not self.stdout else "\n"
        return f"{self.stdout}{between}[stderr]\n{self.stderr}"


class Commands:
    """Runs commands under one policy. Whether bubblewrap works is tried once, when it is first needed.

    `sandbox`: `auto` uses bubblewrap where it works, `require` refuses where it doesn't, `off` never uses it.
    `commands`: what a model's commands may do: `sandboxed` runs them only inside bubblewrap, `allow`, `deny`.
    """

    def __init__(
        self,
        *,
        sandbox: Literal["auto", "require", "off"] = "auto",
        commands: Literal["sandboxed", "allow", "deny"] = "sandboxed",
        max_output_bytes: int = 64_000,
    ) -> None:
        self._sandbox = sandbox
        self._commands = commands
        self._max_output_bytes = max_output_bytes
        self._probed: dict[Network, bool] = {}

    async def mechanism(self) -> Mechanism | None:
        """What confines a command here. None: the settings require bubblewrap, and it doesn't work."""
        if self._sandbox != "off" and await self._bubblewrap_works("host"):
            return "bubblewrap"
        return None if self._sandbox == "require" else "process"

    async def run(
        self, command: str, *, cwd: Path, timeout_seconds: float, author: Author, network: Network = "host"
    ) -> CommandResult:
        """Run `command` in a shell, in `cwd`, and wait for its end; nothing of it survives this call.

        Raises `CommandsNotAllowed` where the settings forbid it, `ToolError` where it can't be started.
        """
        mechanism = await self._permitted(author, network)
        started = time.monotonic()
        try:
            finished = await self._execute(_shell(command), mechanism, cwd, timeout_seconds, network)
        except (OSError, ValueError) as problem:
            raise ToolError(f"the command can't be started: {problem}") from problem
        return CommandResult(
            exit_code=finished.exit_code,
            stdout=finished.stdout,
            stderr=finished.stderr,
            timed_out=finished.timed_out,
            seconds=time.monotonic() - started,
            sandbox=mechanism,
        )

    async def _permitted(self, author: Author, network: Network) -> Mechanism:
        """The mechanism to run under, or `CommandsNotAllowed`."""
        if author == "model" and self._commands == "deny":
            raise CommandsNotAllowed("commands_not_allowed", 'commands = "deny" forbids commands written by a model.')
        mechanism = await self.mechanism()
        if mechanism is None:
            raise CommandsNotAllowed(
                "sandbox_unavailable",
                'sandbox = "require", but bubblewrap does not work here: install it, or set sandbox = "auto" in '
                "delegate.toml (or DELEGATE_SANDBOX=auto).",
            )
        if author == "model" and self._commands == "sandboxed" and mechanism != "bubblewrap":
            why = 'sandbox = "off"' if self._sandbox == "off" else "no working bubblewrap here"
            raise CommandsNotAllowed(
                "commands_not_allowed",
                f'commands = "sandboxed" runs a model\'s commands only inside a sandbox, and there is {why}: {MEND}.',
            )
        if network == "none" and not (mechanism == "bubblewrap" and await self._bubblewrap_works("none")):
            raise CommandsNotAllowed(
                "network_isolation_unavailable",
                'network = "none" needs bubblewrap with network namespaces, which does not work here; '
                'install it, or use network = "host".',
            )
        return mechanism

    async def _bubblewrap_works(self, network: Network) -> bool:
        if network not in self._probed:
            self._probed[network] = await self._probe(network)
        return self._probed[network]

    async def _probe(self, network: Network) -> bool:
        """Run `true` inside it: many containers and distributions forbid what it needs, and only trying tells."""
        if bubblewrap.installed() is None:
            return False
        try:
            finished = await self._execute(["true"], "bubblewrap", Path("/"), PROBE_SECONDS, network)
        except OSError:
            return False
        return finished.exit_code == 0

    async def _execute(
        self, argv: Sequence[str], mechanism: Mechanism, cwd: Path, timeout_seconds: float, network: Network
    ) -> Finished:
        env = command_environment(os.environ)
        cwd = cwd.resolve()  # noqa: ASYNC240 - a few lstat calls
        bwrap = bubblewrap.installed() if mechanism == "bubblewrap" else None
        if mechanism == "bubblewrap":
            if bwrap is None:
                raise FileNotFoundError("bubblewrap is gone")
            argv = bubblewrap.wrap(argv, bwrap=bwrap, cwd=cwd, env=env, network=network)
        return await run_process(
            limited(argv, timeout_seconds=timeout_seconds),
            cwd=cwd,
            env=env,
            timeout_seconds=timeout_seconds,
            max_output_bytes=self._max_output_bytes,
        )


def _shell(command: str) -> list[str]:
    """Models write bash; where it is missing, sh has to do."""
    return [shutil.which("bash") or "/bin/sh", "-c", command]

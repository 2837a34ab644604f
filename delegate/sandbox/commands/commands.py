"""Runs a command line for a child or for a check, under the settings `sandbox` and `commands`.

    command ──▶ policy: may this author run it here? ──▶ confinement: subreaper, limits, sandbox ──▶ process

The sandbox is bubblewrap or, where that isn't installed or permitted, Landlock. Without either the mechanism is
`process`: an environment without keys, kernel limits, and the termination of everything that the command started (on
Linux by the subreaper, on macOS only what stayed in its process group). That contains accidents; it is not a security
boundary against a hostile command. `delegate doctor --security` tries attacks
on each mechanism and shows which ones get through.
"""

import itertools
import os
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from delegate._util.threads import run_in_thread
from delegate.sandbox.commands import bubblewrap
from delegate.sandbox.commands.confinement import CommandSpec, Confinement, Network, Sandbox, execute, shell, works
from delegate.sandbox.commands.launcher import landlock_is_available
from delegate.sandbox.filesystem.paths import own_program
from delegate.sandbox.processes.environment import WITHOUT_NETWORK, command_environment
from delegate.sandbox.processes.limits import COMMAND_LIMITS, ProcessLimits
from delegate.sandbox.tampering.git_files import Repository
from delegate.types import Author
from delegate.types.errors import ToolDenied, ToolError

Mechanism = Literal[Sandbox, "process"]
SANDBOXES: tuple[Sandbox, ...] = ("bubblewrap", "landlock")
"""The mechanisms that protect against a hostile command, best first."""
RefusalCode = Literal[
    "commands_not_allowed", "network_not_allowed", "sandbox_unavailable", "network_isolation_unavailable",
]  # fmt: skip
_SandboxPolicy = Literal["auto", "require", "off"]
_NetworkPolicy = Literal["off", "loopback", "open"]
_Probe = Literal["host", "none", "loopback"]
"""A network that a command is to have: `loopback` is `none` with a loopback of the command's own."""
_WANTED: Mapping[_NetworkPolicy, _Probe] = {"off": "none", "loopback": "loopback", "open": "host"}

Approve = Callable[[str], Awaitable[str | None]]
"""Asks a person about a command that nothing would confine. Returns why it must not run, or None if it may."""

_ALLOW = 'set commands = "allow" in delegate.toml (or DELEGATE_COMMANDS=allow)'
_NO_NETWORK = re.compile(
    r"EAI_AGAIN|ENETUNREACH|Temporary failure in name resolution|Name or service not known|Network is unreachable"
    r"|(?i:could not resolve (?:host|proxy)|failed to lookup address|the network was disabled)"
    r"|No matching distribution found"
)
"""What programs say that can't reach the network."""
_NOTED_CHARS = 4_000
_NETWORK_NOTE = """
[commands have no network here: use what is installed; an operator can set network = "open" in delegate.toml]
"""
_NO_UNIX_SOCKETS = re.compile(r"listen E(?:PERM|ACCES)\b|(?i:denied permission to use its unix socket)")
"""What Node.js and tools on it say that can't listen on a Unix socket."""
_SOCKET_NOTE = """
[commands have no Unix sockets here, which this program needs: use another way, such as `node --import tsx` for `tsx`]
"""


class CommandsNotAllowed(ToolDenied):
    """The settings forbid this command here. `code` is stable; the text names the setting and how to fix it."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.code: RefusalCode = code


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. `exit_code` is None after a timeout. Streams keep their end, with a note where cut."""

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    seconds: float
    sandbox: Mechanism

    @property
    def output(self) -> str:
        """Both streams as one text for a model."""
        if not self.stderr:
            return self.stdout
        between = "" if self.stdout.endswith("\n") or not self.stdout else "\n"
        return f"{self.stdout}{between}[stderr]\n{self.stderr}"


class Commands:
    """Runs commands under one policy. The sandboxes and the subreaper are probed once, when first needed.

    `sandbox`: `auto` uses a sandbox where one works, `require` refuses to run without one, `off` never uses one.
    `commands`: the policy for commands written by a model: `sandboxed` runs them only inside a sandbox, `ask` without
    one if it is approved, `allow` anywhere, `deny` never.
    `network`: what commands in a sandbox have unless they ask for something else: `off` none, `loopback` one that ends
    at their own loopback, `open` the machine's. Without a sandbox, they can't be cut off.
    `hidden`: folders that a sandbox hides, except for a command's own folder inside one.
    `limits`: the most that a command may use of the machine.
    """

    def __init__(
        self,
        *,
        sandbox: _SandboxPolicy = "auto",
        commands: Literal["sandboxed", "ask", "allow", "deny"] = "sandboxed",
        network: _NetworkPolicy = "off",
        max_output_bytes: int = 64_000,
        hidden: Sequence[Path] = (),
        limits: ProcessLimits = COMMAND_LIMITS,
    ) -> None:
        self._sandbox: _SandboxPolicy = sandbox
        self._commands = commands
        self.network: _NetworkPolicy = network
        self._max_output_bytes = max_output_bytes
        self._hidden = tuple(hidden)
        self._limits = limits
        self._probed: dict[tuple[Confinement, _Probe], bool] = {}
        self._has_wanted_network = False
        """Whether the sandbox that was found can do what `network` says."""
        self._is_probed = sandbox == "off"
        self._found: Mechanism | None = "process" if self._is_probed else None

    async def mechanism(self) -> Mechanism | None:
        """What confines a command here. None if nothing may run, without the required sandbox."""
        if self._is_probed:
            return self._found
        networks: list[_Probe] = [_WANTED[self.network], "host"]
        for network, sandbox in itertools.product(networks, SANDBOXES):
            if await self._works(sandbox, network):
                self._found, self._has_wanted_network = sandbox, network == networks[0]
                break
        else:
            self._found = None if self._sandbox == "require" else "process"
        self._is_probed = True
        return self._found

    async def probe(self) -> None:
        """Find out what `refusal` needs to know. Takes a moment where Landlock isn't available."""
        known = self._sandbox != "off" and self.network != "loopback" and landlock_is_available()
        if self._commands != "deny" and not known:
            await self.mechanism()

    def known_mechanism(self) -> Mechanism | None:
        """What confines a command here, without a probe. None if nothing may run, or if a probe hasn't shown it yet."""
        return self._found

    def confines(self) -> bool:
        """Whether a command of a model may run here, and only in a sandbox, as far as that is known without a probe."""
        if self.refusal("model") is not None:
            return False
        return self._found in SANDBOXES if self._is_probed else landlock_is_available()

    def refusal(self, author: Author, *, can_ask: bool = False) -> CommandsNotAllowed | None:
        """Why every command of `author` is refused here, or None if one may run, as far as that is known.

        Starts nothing: what works here is known only after `probe` or a command. `can_ask` says that a person can be
        asked.
        """
        if not self._is_probed and not (author == "model" and self._commands == "deny"):
            return None
        return self._why_refused(author, self._found, None, can_ask=can_ask)

    async def run(
        self,
        command: str,
        *,
        cwd: Path,
        timeout_seconds: float,
        author: Author,
        network: Network | None = None,
        has_repository: bool = False,
        approve: Approve | None = None,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run `command` in a shell in `cwd` and wait until it ends; no process of it outlives this call.

        `network` is None for what the setting says. With `has_repository`, a command in a sandbox can't change what git
        runs in `cwd`. `approve` is asked where the settings say so; None if nobody is there. `env` has more variables.

        Raises `CommandsNotAllowed` if the settings forbid it, `ToolError` if it can't be started, and its subclasses
        `SandboxFailed` if the sandbox fails before the command ends, and `ResourceLimit` if it uses too much.
        """
        mechanism, allowed = await self._permitted(command, author, network, approve)
        spec = self._spec(command, cwd, timeout_seconds, allowed)
        spec = replace(spec, env={**spec.env, **(env or {})})
        return await self._run(mechanism, await _with_repository(spec) if has_repository else spec)

    async def run_check(
        self,
        command: str,
        *,
        cwd: Path,
        timeout_seconds: float,
        author: Author,
        network: Network | None = None,
        by_child: bool = True,
        copy: Path | None = None,
        approve: Approve | None = None,
    ) -> CommandResult:
        """Like `run`, for a check. No compiled Python file of the workspace is used, which may not be what it is
        compiled from.

        `by_child` says that a child worked in `cwd`. The command then runs what a model wrote, also if a person typed
        it, and needs a sandbox unless `commands` is `allow`, or an approval if it is `ask`.

        With `copy`, the command runs in this copy of `cwd`, without compiled files: at the path of `cwd` where
        `mounts_copies`, otherwise with that path replaced in the command and the environment. Raises as `run` does.
        """
        mechanism, allowed = await self._permitted(command, author, network, approve, by_child=by_child)
        spec = self._spec(command, cwd, timeout_seconds, allowed)
        if copy is None:
            with _compiled_files(mechanism) as folder:
                env = {**spec.env, "PYTHONPYCACHEPREFIX": folder}
                spec = replace(spec, env=env, writable=(Path(folder),))
                return await self._run(mechanism, await _with_repository(spec))
        spec = replace(spec, env={**spec.env, "PYTHONDONTWRITEBYTECODE": "1"})
        if await self.mounts_copies():
            return await self._run(mechanism, replace(spec, content=copy))
        env = {name: value.replace(str(cwd), str(copy)) for name, value in spec.env.items()}
        argv = shell(command.replace(str(cwd), str(copy)))
        hidden = (*spec.hidden, spec.cwd)  # the copy must not depend on what the child left
        return await self._run(mechanism, replace(spec, argv=argv, cwd=copy, env=env, hidden=hidden))

    async def mounts_copies(self) -> bool:
        """Whether a command that runs in a copy of its folder sees it under the folder's own path."""
        found = await self.mechanism()
        return found == "bubblewrap" or (found == "landlock" and await self._works("landlock", "loopback"))

    async def _run(self, mechanism: Mechanism, spec: CommandSpec) -> CommandResult:
        confinement = Confinement(None if mechanism == "process" else mechanism, await self._works(None))
        started = time.monotonic()
        try:
            finished = await execute(spec, confinement)
        except (OSError, ValueError) as problem:
            raise ToolError(f"the command can't be started: {problem}") from problem
        ended = finished.stdout[-_NOTED_CHARS:] + finished.stderr[-_NOTED_CHARS:]
        code, note = finished.exit_code, ""
        if spec.network == "none" and code not in (0, None):
            note = _NETWORK_NOTE if _NO_NETWORK.search(ended) else ""
            note += _SOCKET_NOTE if _NO_UNIX_SOCKETS.search(ended) else ""
        seconds = time.monotonic() - started
        return CommandResult(code, finished.stdout, finished.stderr + note, finished.timed_out, seconds, mechanism)

    async def _permitted(
        self, command: str, author: Author, asked: Network | None, approve: Approve | None, *, by_child: bool = False
    ) -> tuple[Mechanism, Network]:
        """The mechanism to run under, and the command's network. Raises `CommandsNotAllowed`.

        Where the settings say so, a person is asked about the command last, when nothing else forbids it.
        """
        denied = author == "model" and self._commands == "deny"  # nothing needs to be probed for it
        mechanism = None if denied else await self.mechanism()
        can_ask = approve is not None
        if refusal := self._why_refused(author, mechanism, asked, by_child=by_child, can_ask=can_ask):
            raise refusal
        assert mechanism is not None
        allowed = await self._network(asked, mechanism)
        is_free = mechanism != "process" or self._commands == "allow" or (author == "person" and not by_child)
        if not is_free and (why := await approve(command) if approve else "nobody is there to approve it"):
            raise CommandsNotAllowed("commands_not_allowed", f'commands = "{self._commands}": {why}')
        return mechanism, allowed

    async def _network(self, asked: Network | None, mechanism: Mechanism) -> Network:
        if asked is None:
            return "host" if mechanism == "process" or self.network == "open" else "none"
        if asked == "none" and (mechanism == "process" or not await self._works(mechanism, "none")):
            raise CommandsNotAllowed(
                "network_isolation_unavailable",
                'network = "none" needs a sandbox that can take the network away, which does not work here; '
                'install bubblewrap, or use network = "host".',
            )
        return asked

    def _why_refused(
        self,
        author: Author,
        mechanism: Mechanism | None,
        asked: Network | None,
        *,
        by_child: bool = False,
        can_ask: bool = False,
    ) -> CommandsNotAllowed | None:
        """Why a command of `author` may not run under `mechanism`, the one that works here, whatever a person says, or
        not with the network that it asked for, or the setting's if that is None.
        """
        if author == "model" and self._commands == "deny":
            return CommandsNotAllowed(
                "commands_not_allowed",
                'commands = "deny" forbids commands written by a model; commands = "sandboxed" in delegate.toml (or '
                "DELEGATE_COMMANDS=sandboxed) runs them inside a sandbox.",
            )
        if mechanism is None:
            return CommandsNotAllowed(
                "sandbox_unavailable",
                f'sandbox = "require", but neither bubblewrap nor Landlock works here: {how_to_get_sandbox()}, or set '
                'sandbox = "auto" in delegate.toml (or DELEGATE_SANDBOX=auto).',
            )
        is_free = self._commands == "allow" or (self._commands == "ask" and can_ask)
        if mechanism == "process" and not is_free and (author == "model" or by_child):
            what = "a model's commands" if author == "model" else "commands on what a child left, also a person's,"
            why = "none that works here" if self._sandbox != "off" else 'sandbox = "off"'
            nobody = " and nobody is there to approve anything else" if self._commands == "ask" else ""
            return CommandsNotAllowed(
                "commands_not_allowed",
                f'commands = "{self._commands}" runs {what} only inside a sandbox, and there is {why}{nobody}: '
                f"{how_to_get_sandbox(self._sandbox)}, or {_ALLOW}.",
            )
        if asked == "host" and author == "model" and self.network != "open":
            return CommandsNotAllowed(
                "network_not_allowed",
                f'the criterion asks for "network": "host", but the setting network = "{self.network}" allows a '
                'model\'s commands no network: leave it out, or set network = "open" in delegate.toml (or '
                "DELEGATE_NETWORK=open).",
            )
        if asked is None and mechanism in SANDBOXES and not self._has_wanted_network:
            missing = "a loopback of their own" if self.network == "loopback" else "no network"
            other = 'network = "off"' if self.network == "loopback" else 'network = "open"'
            return CommandsNotAllowed(
                "network_isolation_unavailable",
                f'network = "{self.network}" gives commands {missing}, for which {mechanism} needs user namespaces, '
                f"which do not work here: permit them, or set {other} in delegate.toml.",
            )
        return None

    async def _works(self, sandbox: Sandbox | None, network: _Probe = "host") -> bool:
        """Whether a command runs in a sandbox with such a network; without one, whether it runs under the subreaper."""
        confinement = Confinement(sandbox, subreaper=sandbox is None or await self._works(None))
        if (confinement, network) not in self._probed:
            own_loopback, asked = network == "loopback", "none" if network == "loopback" else network
            self._probed[confinement, network] = await works(confinement, asked, own_loopback=own_loopback)
        return self._probed[confinement, network]

    def _spec(self, command: str, cwd: Path, timeout_seconds: float, network: Network) -> CommandSpec:
        real = cwd.resolve()
        return CommandSpec(
            argv=shell(command),
            cwd=real,
            env=command_environment(os.environ) | (WITHOUT_NETWORK if network == "none" else {}),
            timeout_seconds=timeout_seconds,
            max_output_bytes=self._max_output_bytes,
            network=network,
            hidden=self._hidden,
            program=own_program(real),
            limits=self._limits,
        )


def how_to_get_sandbox(setting: _SandboxPolicy = "auto") -> str:
    """What an operator does to have a sandbox here, in words."""
    if setting == "off":
        return 'set sandbox = "auto"'
    if not sys.platform.startswith("linux"):
        return "use a Linux machine or container, where sandboxes work"
    if bubblewrap.installed() is not None:
        return "permit user namespaces, which the installed bubblewrap needs"
    return "install bubblewrap"


async def _with_repository(spec: CommandSpec) -> CommandSpec:
    return replace(spec, repository=await run_in_thread(partial(Repository.of, spec.cwd)))


@contextmanager
def _compiled_files(mechanism: Mechanism) -> Generator[str]:
    """A folder for the compiled files of one check: writable, since `python -m py_compile` fails without, and empty."""
    if mechanism == "bubblewrap":  # its /tmp is empty, and gone with the command
        yield "/tmp/pycache"  # noqa: S108
        return
    with tempfile.TemporaryDirectory(prefix="delegate-pycache-", ignore_cleanup_errors=True) as folder:
        yield folder

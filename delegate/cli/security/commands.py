"""What a hostile command may try, tried out on this machine under each mechanism that works here.

Each attack is bounded and harmless: it aims at a stand-in for the host (a process with a key in its environment), at a
home folder made for it, and at folders that are gone afterwards; what it leaves running is found by its name and ended.
None touches its own parent where that is delegate's process.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from delegate.sandbox.confinement import CommandSpec, Confinement, Network, SandboxFailed, execute, shell, works
from delegate.sandbox.environment import command_environment
from delegate.sandbox.limits import MAX_DATA_BYTES, MAX_FILE_BYTES
from delegate.sandbox.process import ProcessResult

AttackOutcome = Literal["stopped", "possible", "n/a"]
"""`n/a`: a program that the attack needs isn't on this machine."""

ATTACK_SECONDS = 5.0
AT_ONCE = 4
FORKS = 300
_SETTLE_SECONDS = 0.5
"""How long what a mechanism killed may take to leave the process table."""


class Row(NamedTuple):
    """One attack under one mechanism, and how it ended here."""

    kind: str
    attack: str
    mechanism: str
    outcome: AttackOutcome
    note: str


class MechanismUnderTest(NamedTuple):
    """A way to run commands, as the settings make it."""

    name: str
    confinement: Confinement
    network: Network


@dataclass(frozen=True, slots=True)
class CommandScene:
    """What an attack finds: a folder to work in, and around it what it is not supposed to reach."""

    place: Path
    host: subprocess.Popen[bytes]
    """Stands in for the process that delegate runs in."""
    port: int
    """Something listens there, on 127.0.0.1."""
    canary: str
    marker: str
    """A number of seconds that nothing else on this machine sleeps for."""

    @property
    def work(self) -> Path:
        """The command's own folder, inside delegate's home."""
        return self.delegate_home / "workspaces" / "own"

    @property
    def home(self) -> Path:
        """The user's home folder."""
        return self.place / "home"

    @property
    def delegate_home(self) -> Path:
        """Where records and the workspaces of all children lie."""
        return self.home / ".local" / "share" / "delegate"

    def words(self) -> dict[str, object]:
        """What a command's `{words}` stand for."""
        return {
            "marker": self.marker,
            "host": self.host.pid,
            "port": self.port,
            "outside": self.place,
            "data": MAX_DATA_BYTES + 1,
            "file": MAX_FILE_BYTES,
            "forks": FORKS,
            "self": os.getpid(),
        }


Look = Callable[[CommandScene, ProcessResult], bool]
"""Whether the attack got what it was after."""


@dataclass(frozen=True, slots=True)
class CommandAttack:
    """A command, and how to see that it got through. `stopped` and `possible` say why, for the table's reader."""

    name: str
    command: str
    got_through: Look
    stopped: str
    possible: str = ""
    needs: tuple[str, ...] = ()
    """Programs without which it can't be tried."""
    timeout_seconds: float = ATTACK_SECONDS
    about_network: bool = False


# ----------------------------------------------------------------------------------------- how to see that it worked


def _survives(scene: CommandScene, finished: ProcessResult) -> bool:
    deadline = time.monotonic() + _SETTLE_SECONDS
    while found := _sleepers(scene.marker):
        if time.monotonic() > deadline:
            return bool(found)
        time.sleep(0.02)  # looked at in a thread
    return False


def _holds_up(scene: CommandScene, finished: ProcessResult) -> bool:
    return finished.timed_out or _survives(scene, finished)


def _overruns(scene: CommandScene, finished: ProcessResult) -> bool:
    return finished.seconds > ATTACK_SECONDS or _survives(scene, finished)


def _shows_canary(scene: CommandScene, finished: ProcessResult) -> bool:
    return scene.canary in finished.stdout + finished.stderr


def _succeeds(scene: CommandScene, finished: ProcessResult) -> bool:
    return finished.exit_code == 0


def _writes_outside(scene: CommandScene, finished: ProcessResult) -> bool:
    return (scene.place / "written").exists()


def _kills_host(scene: CommandScene, finished: ProcessResult) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        scene.host.wait(0.1)
    return scene.host.returncode is not None


def _forges(scene: CommandScene, finished: ProcessResult) -> bool:
    return finished.exit_code != 3


def _floods(scene: CommandScene, finished: ProcessResult) -> bool:
    return len(finished.stdout) > 100_000


def _makes_large_file(scene: CommandScene, finished: ProcessResult) -> bool:
    large = scene.work / "large"
    return large.exists() and large.stat().st_size > MAX_FILE_BYTES


_WAIT = "n=0; until [ -e up ] || [ $n -ge 100 ]; do sleep 0.02; n=$((n+1)); done"
"""Until a daemon has left the group, or an attack that was too slow would look as if it had been stopped."""
_ENDED = "all that a command started is ended with it"
_ENVIRONMENT = "a command sees a list of allowed variables"
_OWN_PROCESSES = "inside bubblewrap there are no processes but the command's own"
_ALL_PROCESSES = "it runs as the user, and sees the user's processes"
_READ_ONLY = "inside bubblewrap everything but the workspace is read-only"
_COVERED = "bubblewrap covers it"
_AS_USER = "it runs as the user, and reads what the user may read"

ATTACKS = (
    CommandAttack("a background process that holds the output open", "sleep {marker} & echo done", _holds_up, _ENDED),
    CommandAttack("a background process", "sleep {marker} >/dev/null 2>&1 &", _survives, _ENDED),
    CommandAttack(
        "a daemon in a session of its own",
        "setsid sh -c ': > up; exec sleep {marker}' >/dev/null 2>&1 & " + _WAIT,
        _survives, _ENDED, "without the subreaper, only the process group is ended", ("setsid",),
    ),
    CommandAttack(
        "a daemon that forked twice",
        "(setsid sh -c '(: > up; exec sleep {marker}) & exit' >/dev/null 2>&1 &) ; " + _WAIT,
        _survives, _ENDED, "without the subreaper, only the process group is ended", ("setsid",),
    ),
    CommandAttack(
        "a daemon that ends what watches it",
        "setsid sh -c ': > up; exec sleep {marker}' >/dev/null 2>&1 & " + _WAIT + "; "
        "[ $PPID = {self} ] || kill -9 $PPID; sleep 0.2",
        _survives, "inside bubblewrap what watches can't be seen",
        "it runs as the user, and may kill the subreaper; the command is then an error, never met", ("setsid",),
    ),
    CommandAttack(
        "a command that ignores every signal it can",
        "trap '' TERM INT HUP QUIT; while :; do sleep {marker}; done",
        _overruns, "at its deadline it is killed", timeout_seconds=0.3,
    ),
    CommandAttack(
        "300 processes left behind",
        "i=0; while [ $i -lt {forks} ]; do sleep {marker} & i=$((i+1)); done",
        _survives, _ENDED,
    ),
    CommandAttack(
        "300 processes at the same time",
        "i=0; while [ $i -lt {forks} ]; do sleep {marker} & i=$((i+1)); done; kill -0 $!",
        _succeeds, "a limit of the machine", "the number of processes isn't limited; the deadline ends them",
    ),
    CommandAttack("a key in its environment", "env; cat /proc/self/environ", _shows_canary, _ENVIRONMENT),
    CommandAttack(
        "a key in the environment of another process",
        "grep -aho 'canary[0-9a-f]*' /proc/[0-9]*/environ",
        _shows_canary, _OWN_PROCESSES, _ALL_PROCESSES,
    ),
    CommandAttack("a file known to hold secrets", "cat ~/.ssh/id ~/.netrc", _shows_canary, _COVERED, _AS_USER),
    CommandAttack(
        "delegate's records, and what other children wrote",
        "cat ../../records ../other/notes",
        _shows_canary, _COVERED, _AS_USER,
    ),
    CommandAttack(
        "any other file of the user",
        "cat ~/notes",
        _shows_canary, "the workspace is all there is", "toolchains lie there, so only known secrets are covered",
    ),
    CommandAttack(
        "a file written outside", "echo > {outside}/written", _writes_outside, _READ_ONLY, "it runs as the user"
    ),
    CommandAttack(
        "a connection to this machine",
        "exec 3<>/dev/tcp/127.0.0.1/{port}",
        _succeeds, 'network = "none" leaves it no network', 'network = "host": checks ask local servers',
        ("bash",), about_network=True,
    ),
    CommandAttack(
        "more memory than a process may have",
        "dd if=/dev/null of=/dev/null bs={data} count=1",
        _succeeds, "the kernel's limit on a process's memory", "no limit here", ("dd",),
    ),
    CommandAttack(
        "a file larger than any should be",
        "dd if=/dev/zero of=large bs=1 count=1 seek={file}",
        _makes_large_file, "the kernel's limit on a file's size", "no limit here", ("dd",),
    ),
    CommandAttack(
        "output without end", "yes", _floods, "all is read, its end is kept", timeout_seconds=0.3, needs=("yes",)
    ),
    CommandAttack("the host process killed", "kill -9 {host}", _kills_host, _OWN_PROCESSES, _ALL_PROCESSES),
    CommandAttack(
        "a forged exit code",
        "[ $PPID = {self} ] && exit 3; "
        "for way in /proc/self/fd/* /proc/$PPID/fd/*; do "
        "[ ${{way##*/}} -gt 2 ] && echo '{{\"exit-code\": 0}}' > $way; done 2>/dev/null; exit 3",
        _forges, "what is reported must equal what the kernel says",
    ),
    CommandAttack("the user's terminal", ": < /dev/tty", _succeeds, "a command has a session without a terminal"),
    CommandAttack(
        "a mount",
        "unshare --mount mount -t tmpfs none .",  # in a mount namespace, so that this machine isn't changed
        _succeeds, "only root may, and bubblewrap takes the right from root", "delegate runs as root here",
        ("unshare", "mount"),
    ),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------- trying them


async def shell_attacks(under: Sequence[MechanismUnderTest] | None = None) -> list[Row]:
    """Try all attacks under each mechanism, by default those that work here; takes a few seconds."""
    few = asyncio.Semaphore(AT_ONCE)
    chosen = await mechanisms() if under is None else under
    tries = [_try(attack, mechanism, few) for mechanism in chosen for attack in ATTACKS if _concerns(attack, mechanism)]
    return await asyncio.gather(*tries)


async def mechanisms() -> list[MechanismUnderTest]:
    """What works here, the strongest first."""
    if sys.platform == "win32":
        return []
    subreaper = await works(Confinement(bubblewrap=False, subreaper=True))
    inside = Confinement(bubblewrap=True, subreaper=subreaper)
    networks: tuple[Network, ...] = ("host", "none")
    found = [
        MechanismUnderTest("bubblewrap" if network == "host" else "bubblewrap, no network", inside, network)
        for network in networks
        if await works(inside, network)
    ]
    return [*found, MechanismUnderTest("process", Confinement(bubblewrap=False, subreaper=subreaper), "host")]


def _concerns(attack: CommandAttack, mechanism: MechanismUnderTest) -> bool:
    return attack.about_network or mechanism.network == "host"


async def _try(attack: CommandAttack, mechanism: MechanismUnderTest, few: asyncio.Semaphore) -> Row:
    for program in attack.needs:
        if shutil.which(program) is None:
            return Row("shell", attack.name, mechanism.name, "n/a", f"there is no {program} here")
    async with few, _scene() as scene:
        finished = await _run(attack, mechanism, scene)
        got_through = await asyncio.to_thread(attack.got_through, scene, finished)
    if got_through:
        return Row("shell", attack.name, mechanism.name, "possible", attack.possible)
    return Row("shell", attack.name, mechanism.name, "stopped", attack.stopped)


async def _run(attack: CommandAttack, mechanism: MechanismUnderTest, scene: CommandScene) -> ProcessResult:
    secrets_of_host = {"OPENAI_API_KEY": scene.canary, "LC_TOKEN": scene.canary}
    job = CommandSpec(
        argv=shell(attack.command.format(**scene.words())),
        cwd=scene.work,
        env=command_environment(os.environ | secrets_of_host | {"HOME": str(scene.home)}),
        timeout_seconds=attack.timeout_seconds,
        max_output_bytes=64_000,
        network=mechanism.network,
        hidden=(scene.delegate_home,),
    )
    try:
        return await execute(job, mechanism.confinement)
    except SandboxFailed as failure:
        return ProcessResult(None, "", str(failure), timed_out=False, seconds=0)


# --------------------------------------------------------------------------------------------------------- the scene


@asynccontextmanager
async def _scene() -> AsyncGenerator[CommandScene]:
    canary, marker = f"canary{secrets.token_hex(8)}", f"9{secrets.randbelow(10**8):08d}"
    with tempfile.TemporaryDirectory(prefix=_prefix(), dir=_visible_folder()) as place, _host(canary) as host:
        server = await asyncio.start_server(_hang_up, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            scene = CommandScene(Path(place).resolve(), host, port, canary, marker)  # noqa: ASYNC240 - a few lstat calls
            _furnish(scene)
            try:
                yield scene
            finally:
                for pid in _sleepers(marker):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


def _visible_folder() -> str | None:
    """A place that is not /tmp, which bubblewrap covers as a whole: all in it would look safe."""
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else None  # noqa: S108 - random names below it


def _prefix() -> str:
    return f"delegate-attacks-{os.getpid()}-"


@contextmanager
def _host(canary: str) -> Generator[subprocess.Popen[bytes]]:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "OPENAI_API_KEY": canary}
    with subprocess.Popen(["sleep", "60"], env=environment, stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def _furnish(scene: CommandScene) -> None:
    scene.work.mkdir(parents=True)
    for file in (
        scene.home / ".ssh" / "id",
        scene.home / ".netrc",
        scene.home / "notes",
        scene.delegate_home / "records",
        scene.delegate_home / "workspaces" / "other" / "notes",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(scene.canary)


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def _sleepers(marker: str) -> list[int]:
    """Processes that still sleep for `marker` seconds."""
    if Path("/proc/self/cmdline").exists():
        # Not by `glob`, which asks each path whether it exists, and fails where its process ends meanwhile.
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if _sleeps(Path(f"/proc/{pid}/cmdline"), marker)]
    listed = subprocess.run(["ps", "-axo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if line.split()[1:] == ["sleep", marker]]


def _sleeps(cmdline: Path, marker: str) -> bool:
    with contextlib.suppress(OSError):  # gone meanwhile
        return cmdline.read_bytes() == f"sleep\0{marker}\0".encode()
    return False

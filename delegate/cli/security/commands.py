"""Runs attacks by shell commands on this machine, under each mechanism for running commands that works here.

The attacks are limited and harmless. Their targets are a process that stands in for the host, with a key in its
environment, and temporary folders that stand in for the user's home. Processes that they leave running are found by
their arguments and killed. No attack signals its parent if that is delegate's process.
"""

import asyncio
import contextlib
import ctypes
import os
import re
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

from delegate.sandbox.commands import SANDBOXES
from delegate.sandbox.confinement import (
    CommandSpec,
    Confinement,
    Network,
    ResourceLimit,
    SandboxFailed,
    execute,
    shell,
    works,
)
from delegate.sandbox.environment import command_environment
from delegate.sandbox.git_files import Repository
from delegate.sandbox.launcher import interpreter
from delegate.sandbox.limits import COMMAND_LIMITS, MAX_FILE_BYTES, Limits
from delegate.sandbox.process import ProcessResult
from delegate.sandbox.system_calls import DENIED

AttackOutcome = Literal["stopped", "possible", "n/a"]
"""`n/a`: a program that the attack needs is not installed."""

ATTACK_SECONDS = 5.0
CONCURRENCY = 4
FORKS = 300
_SETTLE_SECONDS = 0.5
"""How long killed processes may take to leave the process table."""


class Row(NamedTuple):
    """The outcome of one attack under one mechanism on this machine."""

    kind: str
    attack: str
    mechanism: str
    outcome: AttackOutcome
    note: str


class MechanismUnderTest(NamedTuple):
    """A mechanism for running commands, as selected by the settings."""

    name: str
    confinement: Confinement
    network: Network
    only_network: bool = False
    """Whether to try only attacks that use the network."""


@dataclass(frozen=True, slots=True)
class CommandScene:
    """The environment of an attack: a folder to work in, and targets outside it that must be out of reach."""

    folder: Path
    """The temporary folder that contains all others."""
    host: subprocess.Popen[bytes]
    """Stands in for the process that runs delegate."""
    port: int
    """Port of a server on 127.0.0.1."""
    terminal: str
    """Path of a terminal that the user has open."""
    canary: str
    """The secret that attacks try to read."""
    marker: str
    """A number of seconds that no other process on this machine sleeps for."""

    @property
    def work(self) -> Path:
        """The workspace of the command, inside delegate's home."""
        return self.delegate_home / "workspaces" / "own"

    @property
    def home(self) -> Path:
        """The user's home folder."""
        return self.folder / "home"

    @property
    def service(self) -> Path:
        """The Unix socket of a service on this machine."""
        return self.folder / "service"

    @property
    def delegate_home(self) -> Path:
        """The folder with the records and the workspaces of all children."""
        return self.home / ".local" / "share" / "delegate"

    def placeholders(self) -> dict[str, object]:
        """Values for the `{placeholders}` in commands."""
        return {
            "marker": self.marker,
            "host": self.host.pid,
            "port": self.port,
            "outside": self.folder,
            "data": _TOO_MUCH_BYTES,
            "file": MAX_FILE_BYTES,
            "forks": FORKS,
            "self": os.getpid(),
            "canary": self.canary,
            "terminal": self.terminal,
            "new": _CREATE_SHARED_MEMORY,
            "python": interpreter() or "python3",
            "service": self.service,
            "add_key": DENIED["add_key"][os.uname().machine == "aarch64"],
        }


_TOO_MUCH_BYTES = 200_000_000
Succeeded = Callable[[CommandScene, ProcessResult], bool]
"""Whether an attack succeeded."""


@dataclass(frozen=True, slots=True)
class CommandAttack:
    """A command and how to detect that it succeeded. `stopped` and `possible` explain the outcomes in the table."""

    name: str
    command: str
    succeeded: Succeeded
    stopped: str
    possible: str = ""
    needs: tuple[str, ...] = ()
    """Programs that the attack needs."""
    timeout_seconds: float = ATTACK_SECONDS
    uses_network: bool = False
    limits: Limits = COMMAND_LIMITS
    """An attack tries lower limits than commands have, so that it doesn't take the machine's memory."""


# ------------------------------------------------------------------------------------------------- detecting success


def _survives(scene: CommandScene, finished: ProcessResult) -> bool:
    deadline = time.monotonic() + _SETTLE_SECONDS
    while found := _sleepers(scene.marker):
        if time.monotonic() > deadline:
            return bool(found)
        time.sleep(0.02)  # runs in a thread
    return False


def _goes_on(scene: CommandScene, finished: ProcessResult) -> bool:
    counted = scene.work / "forks"
    size = counted.stat().st_size
    time.sleep(_SETTLE_SECONDS)  # runs in a thread
    return counted.stat().st_size > size


def _holds_up(scene: CommandScene, finished: ProcessResult) -> bool:
    return finished.timed_out or _survives(scene, finished)


def _overruns(scene: CommandScene, finished: ProcessResult) -> bool:
    return finished.seconds > ATTACK_SECONDS or _survives(scene, finished)


def _shows_canary(scene: CommandScene, finished: ProcessResult) -> bool:
    return scene.canary in finished.stdout + finished.stderr


def _plants(scene: CommandScene, finished: ProcessResult) -> bool:
    git = scene.work / ".git"
    hooks = [path for path in git.glob("hooks/*") if path.name != "hook.sample"]
    return bool(hooks) or (git / "commondir").exists() or "monitor" in (git / "config").read_text()


def _links(scene: CommandScene, finished: ProcessResult) -> bool:
    return any((scene.work / ".git" / name).is_symlink() for name in ("logs/HEAD", "COMMIT_EDITMSG"))


def _adds_unnoticed(scene: CommandScene, finished: ProcessResult) -> bool:
    repository = Repository.of(scene.work, nested=True)
    return repository is None or scene.work / "sub" / "config" not in repository.state


def _exits_with_0(scene: CommandScene, finished: ProcessResult) -> bool:
    return finished.exit_code == 0


def _writes_outside(scene: CommandScene, finished: ProcessResult) -> bool:
    return (scene.folder / "written").exists()


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


def _changes_host(scene: CommandScene, finished: ProcessResult) -> bool:
    limits = Path(f"/proc/{scene.host.pid}/limits")  # there is no such command where there is no such file
    has_new_limit = limits.exists() and re.search(r"^Max open files +64 ", limits.read_text(), re.MULTILINE)
    return bool(has_new_limit) or os.getpriority(os.PRIO_PROCESS, scene.host.pid) == 19


def _changes_notes(scene: CommandScene, finished: ProcessResult) -> bool:
    found = (scene.home / "notes").stat()
    return found.st_mode & 0o777 == 0o604 or found.st_mtime == 1


def _leaves_memory(scene: CommandScene, finished: ProcessResult) -> bool:
    kernel = ctypes.CDLL(None)
    if (found := kernel.shmget(int(scene.marker), 0, 0)) >= 0:
        kernel.shmctl(found, 0, None)  # removes it
    return found >= 0


def _makes_setuid(scene: CommandScene, finished: ProcessResult) -> bool:
    return any(path.stat().st_mode & 0o6000 for path in scene.work.glob("program*"))


_CONNECT = """
import socket
for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
    try: socket.socket(socket.AF_UNIX, kind).connect("{service}")
    except ConnectionRefusedError: pass  # nobody waits for it any more
    except OSError: continue
    print("{canary}")
try: socket.socketpair(type=socket.SOCK_DGRAM)[0].connect("{service}")
except OSError as error: print("{canary}" * (error.errno == 91))  # EPROTOTYPE: it is there, for streams
"""
# In a keyring of the process's own, which ends with it.
_STORE_KEY = """
import ctypes, sys
kernel = ctypes.CDLL(None)
sys.exit(kernel.syscall({add_key}, b"user", b"delegate", b"x", 1, -2) < 0)
"""
_CHAINS = """
import os, time
os.fork(), os.fork(), os.fork()
end = time.monotonic() + 4
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
    os.write(1, b"x")
"""
_SHARE_MEMORY = """
import ctypes, sys
sys.exit(ctypes.CDLL(None).shmget({marker}, 4096, {new}) < 0)
"""
_CREATE_SHARED_MEMORY = 0o1600
_WAIT = "n=0; until [ -e up ] || [ $n -ge 100 ]; do sleep 0.02; n=$((n+1)); done"
"""Waits until a daemon has left the process group; a slow attack would otherwise look stopped."""
_KILLED = "all processes of a command are killed when it ends"
_ENVIRONMENT = "commands get only allowed environment variables"
_OWN_PROCESSES = "the sandbox keeps it from all other processes"
_ALL_PROCESSES = "the command runs as the user and can access the user's processes"
_READ_ONLY = "the sandbox makes everything except the workspace read-only"
_HIDDEN = "the sandbox hides these files"
_GIT = "what git runs is read-only in the sandbox, or put back when the command ends"
_CHANGES = "the command runs as the user and can change the user's files"
_AS_USER = "the command runs as the user and can read the user's files"
_CALLS = "the sandbox denies this system call"
_AS_ROOT = "delegate runs as root on this machine"

ATTACKS = (
    CommandAttack("a background process that keeps the output open", "sleep {marker} & echo done", _holds_up, _KILLED),
    CommandAttack("a background process", "sleep {marker} >/dev/null 2>&1 &", _survives, _KILLED),
    CommandAttack(
        "a daemon in its own session",
        "setsid sh -c ': > up; exec sleep {marker}' >/dev/null 2>&1 & " + _WAIT,
        _survives, _KILLED, "without a subreaper, only the process group is killed", ("setsid",),
    ),
    CommandAttack(
        "a double-forked daemon",
        "(setsid sh -c '(: > up; exec sleep {marker}) & exit' >/dev/null 2>&1 &) ; " + _WAIT,
        _survives, _KILLED, "without a subreaper, only the process group is killed", ("setsid",),
    ),
    CommandAttack(
        "a daemon that kills its supervisor",
        "setsid sh -c ': > up; exec sleep {marker}' >/dev/null 2>&1 & " + _WAIT + "; "
        "[ $PPID = {self} ] || kill -9 $PPID; sleep 0.2",
        _survives, "the sandbox keeps it from the supervisor",
        "the command runs as the user and can kill the subreaper; the check is then an error, never met", ("setsid",),
    ),
    CommandAttack(
        "chains of forks, each in a session of its own", "{python} -S -c '" + _CHAINS + "' > forks & sleep 0.2",
        _goes_on, "the kernel kills all processes of the command's namespace",
        "they start faster than they can be found; the check is then an error, never met", ("python3",),
        timeout_seconds=0.5,
    ),
    CommandAttack(
        "a command that ignores all signals",
        "trap '' TERM INT HUP QUIT; while :; do sleep {marker}; done",
        _overruns, "it is killed at its deadline", timeout_seconds=0.3,
    ),
    CommandAttack(
        "300 background processes",
        "i=0; while [ $i -lt {forks} ]; do sleep {marker} & i=$((i+1)); done",
        _survives, _KILLED,
    ),
    CommandAttack(
        "too many concurrent processes",
        "i=0; while [ $i -lt {forks} ]; do sleep {marker} & i=$((i+1)); done; sleep 3; kill -0 $!",
        _exits_with_0, "what runs too many is ended", "no limit on this machine", limits=Limits(processes=FORKS // 2),
    ),
    CommandAttack("reading a key from its own environment", "env; cat /proc/self/environ", _shows_canary, _ENVIRONMENT),
    CommandAttack(
        "reading a key from another process's environment",
        "grep -aho 'canary[0-9a-f]*' /proc/[0-9]*/environ",
        _shows_canary, _OWN_PROCESSES, _ALL_PROCESSES,
    ),
    CommandAttack(
        "reading a file that usually holds secrets", "cat ~/.ssh/id ~/.netrc", _shows_canary, _HIDDEN, _AS_USER
    ),
    CommandAttack(
        "reading delegate's records and other children's files",
        "cat ../../records ../other/notes",
        _shows_canary, _HIDDEN, _AS_USER,
    ),
    CommandAttack(
        "reading other files of the user",
        "cat ~/notes",
        _shows_canary, "only the workspace is visible",
        "toolchains are in the home folder, so only known secrets are hidden",
    ),
    CommandAttack(
        "writing a file outside the workspace", "echo > {outside}/written",
        _writes_outside, _READ_ONLY, "the command runs as the user",
    ),
    CommandAttack(
        "connecting to localhost",
        "exec 3<>/dev/tcp/127.0.0.1/{port}",
        _exits_with_0, "commands in a sandbox have no network", "the command has the machine's network",
        ("bash",), uses_network=True,
    ),
    CommandAttack(
        "reaching other machines",
        "exec 3<>/dev/udp/192.0.2.1/9",  # sends nothing: it only asks the kernel for a route to a test address
        _exits_with_0, "commands in a sandbox have no network, or this machine has none",
        "the command has the machine's network", ("bash",), uses_network=True,
    ),
    CommandAttack(
        "planting a git hook",
        "echo 'exit 0' > .git/hooks/pre-commit; rm -rf .git/hooks; mkdir -p .git/hooks; echo > .git/hooks/pre-push",
        _plants, _GIT, _CHANGES,
    ),
    CommandAttack(
        "naming a program in git's configuration",
        "echo '[core] fsmonitor = x' >> .git/config; echo '[core] fsmonitor = x' > new && mv -f new .git/config",
        _plants, _GIT, _CHANGES,
    ),
    CommandAttack(
        "putting another git repository in place",
        "mkdir -p evil/hooks; echo > evil/hooks/pre-commit; echo '[core] fsmonitor = x' > evil/config; "
        "echo ../evil > .git/commondir; mv .git old; mv evil .git",
        _plants, _GIT, _CHANGES,
    ),
    CommandAttack(
        "linking what git writes to a file outside",
        "mkdir .git/logs; ln -s {outside}/written .git/logs/HEAD; ln -s {outside}/written .git/COMMIT_EDITMSG",
        _links, "links in git's folder are removed when the command ends",
        "the command runs as the user; such links are removed only when the child ends",
    ),
    CommandAttack(
        "hiding a bare git repository in a folder",
        "mkdir -p sub/objects sub/refs; cp .git/HEAD sub; echo '[core] fsmonitor = x' > sub/config",
        _adds_unnoticed, "it isn't removed, but the verdict names it (`git_changed`)",
    ),
    CommandAttack(
        "reading a password in git's configuration", "cat .git/config",
        _shows_canary, "the sandbox shows the configuration without it", _AS_USER,
    ),
    CommandAttack(
        "allocating too much memory",
        "head -c {data} /dev/zero | tail -c {data} | sleep 3",  # which holds it
        _exits_with_0, "what uses too much is ended", "no limit on this machine", ("head", "tail"),
        timeout_seconds=5, limits=Limits(memory_bytes=_TOO_MUCH_BYTES // 2),
    ),
    CommandAttack(
        "allocating too much memory in several processes",
        "for i in 1 2 3 4; do head -c {data} /dev/zero | tail -c {data} | sleep 3 & done; wait",
        _exits_with_0, "what uses too much is ended", "no limit on this machine", ("head", "tail"),
        timeout_seconds=5, limits=Limits(total_memory_bytes=3 * _TOO_MUCH_BYTES),
    ),
    CommandAttack(
        "writing a huge file",
        "dd if=/dev/zero of=large bs=1 count=1 seek={file}",
        _makes_large_file, "the kernel limits the size of a file", "no limit on this machine", ("dd",),
    ),
    CommandAttack(
        "endless output", "yes",
        _floods, "all output is read, and only its end is kept", timeout_seconds=0.3, needs=("yes",),
    ),
    CommandAttack("killing the host process", "kill -9 {host}", _kills_host, _OWN_PROCESSES, _ALL_PROCESSES),
    CommandAttack(
        "forging the exit code",
        "[ $PPID = {self} ] && exit 3; "
        "for way in /proc/self/fd/* /proc/$PPID/fd/*; do "
        "[ ${{way##*/}} -gt 2 ] && echo '{{\"exit-code\": 0}}' > $way; done 2>/dev/null; exit 3",
        _forges, "a reported exit code must equal that of the kernel",
    ),
    CommandAttack(
        "opening the user's terminal", ": < /dev/tty", _exits_with_0, "commands run in a session without a terminal"
    ),
    CommandAttack(
        "mounting a file system",
        "unshare --mount mount -t tmpfs none .",  # in a mount namespace, so that nothing changes on this machine
        _exits_with_0, "only root can mount, and the sandbox drops that privilege", _AS_ROOT,
        ("unshare", "mount"),
    ),
    CommandAttack(
        "changing a setting of the kernel", "exec 3<>/proc/sys/vm/swappiness",  # opens it, and writes nothing
        _exits_with_0, "only root can change them, and they are read-only in the sandbox", _AS_ROOT,
    ),
    CommandAttack(
        "reading which keys the kernel holds", "grep -q . /proc/keys",
        _exits_with_0, "the sandbox shows the usual files of the kernel", "they belong to the user",
    ),
    CommandAttack(
        "storing a key in the kernel", "{python} -S -c '" + _STORE_KEY + "'",
        _exits_with_0, _CALLS, "the command runs as the user", ("python3",),
    ),
    CommandAttack(
        "making a program setuid", "cp /bin/true program; chmod 4755 program; install -m 2755 /bin/true program2",
        _makes_setuid, _CALLS, "the command runs as the user", ("install",),
    ),
    CommandAttack(
        "changing mode and times of the user's file", "chmod 604 ~/notes; touch -d @1 ~/notes",
        _changes_notes, "all but the workspace is mounted read-only",
        "without user namespaces, Landlock doesn't restrict them", ("touch",),
    ),
    CommandAttack(
        "reading another terminal", "exec 3< {terminal}",
        _exits_with_0, "the sandbox shows only the command's own terminals", "they belong to the user",
    ),
    CommandAttack(
        "leaving shared memory behind", "{python} -S -c '" + _SHARE_MEMORY + "'",
        _leaves_memory, "it is the command's own, or denied", "it stays until the machine is restarted", ("python3",),
    ),
    CommandAttack(
        "changing limits and priority of the host process",
        "prlimit --pid {host} --nofile=64:64; renice -n 19 -p {host}",
        _changes_host, _OWN_PROCESSES, _ALL_PROCESSES, ("prlimit", "renice"),
    ),
    CommandAttack(
        "connecting to a service on this machine", "{python} -S -c '" + _CONNECT + "'",
        _shows_canary, "commands without the network have no sockets for it", "the command runs as the user",
        ("python3",),
    ),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------ running the attacks


async def shell_attacks(under: Sequence[MechanismUnderTest] | None = None) -> list[Row]:
    """Run all attacks under each mechanism, by default those that work on this machine. Takes a few seconds."""
    semaphore = asyncio.Semaphore(CONCURRENCY)
    chosen = await mechanisms() if under is None else under
    tries = [
        _try(attack, mechanism, semaphore)
        for mechanism in chosen
        for attack in ATTACKS
        if attack.uses_network or not mechanism.only_network
    ]
    return await asyncio.gather(*tries)


async def mechanisms() -> list[MechanismUnderTest]:
    """The mechanisms that work on this machine, strongest first."""
    if sys.platform == "win32":
        return []
    subreaper = await works(Confinement(None, subreaper=True))
    found: list[MechanismUnderTest] = []
    for sandbox in SANDBOXES:
        inside = Confinement(sandbox, subreaper)
        cut_off = await works(inside, "none")
        found += [MechanismUnderTest(sandbox, inside, "none")] if cut_off else []
        if await works(inside, "host"):
            found.append(MechanismUnderTest(f"{sandbox}, open network", inside, "host", only_network=cut_off))
    return [*found, MechanismUnderTest("process", Confinement(None, subreaper), "host")]


async def _try(attack: CommandAttack, mechanism: MechanismUnderTest, semaphore: asyncio.Semaphore) -> Row:
    for program in attack.needs:
        if shutil.which(program) is None:
            return Row("shell", attack.name, mechanism.name, "n/a", f"{program} is not installed")
    async with semaphore, _scene() as scene:
        finished = await _run(attack, mechanism, scene)
        succeeded = await asyncio.to_thread(attack.succeeded, scene, finished)
    if succeeded:
        return Row("shell", attack.name, mechanism.name, "possible", attack.possible)
    return Row("shell", attack.name, mechanism.name, "stopped", attack.stopped)


async def _run(attack: CommandAttack, mechanism: MechanismUnderTest, scene: CommandScene) -> ProcessResult:
    host_secrets = {"OPENAI_API_KEY": scene.canary, "LC_TOKEN": scene.canary}
    spec = CommandSpec(
        argv=shell(attack.command.format(**scene.placeholders())),
        cwd=scene.work,
        env=command_environment(os.environ | host_secrets | {"HOME": str(scene.home)}),
        timeout_seconds=attack.timeout_seconds,
        limits=attack.limits,
        max_output_bytes=64_000,
        network=mechanism.network,
        hidden=(scene.delegate_home,),
        repository=Repository.of(scene.work),
    )
    try:
        return await execute(spec, mechanism.confinement)
    except (SandboxFailed, ResourceLimit) as failure:
        return ProcessResult(None, "", str(failure), timed_out=False, seconds=0)


# --------------------------------------------------------------------------------------------------------- the scene


@asynccontextmanager
async def _scene() -> AsyncGenerator[CommandScene]:
    prefix = f"delegate-attacks-{os.getpid()}-"
    canary, marker = f"canary{secrets.token_hex(8)}", f"9{secrets.randbelow(10**8):08d}"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=_visible_folder()) as folder, _host(canary) as host:
        server = await asyncio.start_server(_hang_up, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            terminal, other_end = os.openpty()
            root = Path(folder).resolve()  # noqa: ASYNC240 - a few lstat calls
            scene = CommandScene(root, host, port, os.ttyname(other_end), canary, marker)
            _create_targets(scene)
            service = await asyncio.start_unix_server(_hang_up, scene.service)
            try:
                yield scene
            finally:
                service.close()
                os.close(terminal)
                os.close(other_end)
                for pid in _sleepers(marker):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


def _visible_folder() -> str | None:
    """A folder outside /tmp: the sandboxes hide all of /tmp, so everything in it would look safe."""
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else None  # noqa: S108 - random names below it


@contextmanager
def _host(canary: str) -> Generator[subprocess.Popen[bytes]]:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "OPENAI_API_KEY": canary}
    with subprocess.Popen(["sleep", "60"], env=environment, stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def _create_targets(scene: CommandScene) -> None:
    for folder in ("objects", "refs", "hooks"):
        (scene.work / ".git" / folder).mkdir(parents=True)
    (scene.work / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    login = f"https://user:{scene.canary}@git.example/x.git"
    (scene.work / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {login}\n')
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
    """Ids of the processes that sleep for `marker` seconds."""
    if Path("/proc/self/cmdline").exists():
        # `glob` would check whether each path exists, and fail if its process ends in the meantime.
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if _sleeps(Path(f"/proc/{pid}/cmdline"), marker)]
    listed = subprocess.run(["ps", "-axo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if line.split()[1:] == ["sleep", marker]]


def _sleeps(cmdline: Path, marker: str) -> bool:
    with contextlib.suppress(OSError):  # the process has ended
        return cmdline.read_bytes() == f"sleep\0{marker}\0".encode()
    return False

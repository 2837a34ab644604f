"""What attacks by commands run in: a workspace, and targets outside it that must be out of reach.

The targets are a process that stands in for the host, with a key in its environment, and temporary folders that stand
in for the user's home. Processes that attacks leave running are found by their arguments and killed.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from delegate.sandbox.commands.launcher import interpreter

_VISIBLE = os.path.realpath("/var/tmp")  # noqa: S108 - random names below it
"""Outside /tmp: the sandboxes hide all of /tmp, so everything in it would look safe."""
_ZERO = (1, 5)
"""The numbers of the device /dev/zero on Linux."""


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
    temporary: Path
    """A temporary file of another program."""
    pipe: int
    """A descriptor of the other end of `folder / "pipe"`."""
    canary: str
    """The secret that attacks try to read."""
    marker: str
    """A number of seconds that no other process on this machine sleeps for."""

    @property
    def work(self) -> Path:
        """The workspace of the command, inside delegate's home."""
        return self.delegate_home / "workspaces" / "own"

    @property
    def program(self) -> Path:
        """Stands in for the environment that runs delegate, in the workspace."""
        return self.work / "tool" / "env"

    @property
    def home(self) -> Path:
        """The user's home folder."""
        return self.folder / "home"

    @property
    def service(self) -> Path:
        """The Unix socket of a service on this machine."""
        return self.folder / "service"

    @property
    def abstract(self) -> str:
        """The name of a Unix socket that is no file, without the NUL byte in front."""
        return f"delegate-attacks-{self.marker}"

    @property
    def left(self) -> tuple[Path, ...]:
        """Where an attack leaves files for other programs."""
        return tuple(Path(folder, self.abstract) for folder in ("/tmp", "/dev/shm"))  # noqa: S108 - a random name

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
            "self": os.getpid(),
            "terminal": self.terminal,
            "python": f"{interpreter() or 'python3'} -S",
            "probe": f"{interpreter() or 'python3'} -S probes.py",
            "service": self.service,
            "abstract": self.abstract,
            "temporary": self.temporary,
            "left": " ".join(map(str, self.left)),
        }


@asynccontextmanager
async def open_scene() -> AsyncGenerator[CommandScene]:
    """A new scene, which is removed afterwards, with the processes that an attack left."""
    prefix = f"delegate-attacks-{os.getpid()}-"
    canary, marker = f"canary{secrets.token_hex(8)}", f"9{secrets.randbelow(10**8):08d}"
    async with contextlib.AsyncExitStack() as stack:
        visible = _VISIBLE if os.access(_VISIBLE, os.W_OK) else None
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, dir=visible)))
        temporary = stack.enter_context(tempfile.NamedTemporaryFile(prefix=prefix))  # noqa: SIM115 - the stack closes it
        os.mkfifo(root / "pipe")
        pipe = os.open(root / "pipe", os.O_RDWR | os.O_NONBLOCK)
        for descriptor in (pipe, *(pair := os.openpty())):
            stack.callback(os.close, descriptor)
        server = await stack.enter_async_context(await asyncio.start_server(_hang_up, "127.0.0.1", 0))
        port, terminal = server.sockets[0].getsockname()[1], os.ttyname(pair[1])
        host = stack.enter_context(_host(canary, marker))
        stack.callback(host.kill)
        scene = CommandScene(root, host, port, terminal, Path(temporary.name), pipe, canary, marker)
        _create_targets(scene)
        for address in (str(scene.service), f"\0{scene.abstract}")[: 2 if sys.platform == "linux" else 1]:
            await stack.enter_async_context(await asyncio.start_unix_server(_hang_up, address))
        try:
            yield scene
        finally:
            for path in scene.left:
                path.unlink(missing_ok=True)
            for pid in sleepers(marker):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _host(canary: str, marker: str) -> subprocess.Popen[bytes]:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "OPENAI_API_KEY": canary}
    return subprocess.Popen(["sleep", f"60.{marker}"], env=environment, stdin=subprocess.DEVNULL)


def _create_targets(scene: CommandScene) -> None:
    git = scene.work / ".git"
    for folder in ("objects", "refs", "hooks"):
        (git / folder).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    login = f"https://user:{scene.canary}@git.example/x.git"
    (git / "config").write_text(
        f'[core]\n\thooksPath = .husky\n[include]\n\tpath = ../included\n[remote "origin"]\n\turl = {login}\n'
    )
    (scene.work / ".husky").mkdir()
    (scene.work / ".husky" / "pre-commit").write_text("exit 0\n")
    (scene.work / "included").write_text("[user]\n\tname = A\n")
    shutil.copy(Path(__file__).with_name("probes.py"), scene.work)
    scene.program.mkdir(parents=True)
    (scene.program / "main.py").touch()
    scene.temporary.write_text(scene.canary)
    for file in (
        scene.home / ".ssh" / "id",
        scene.home / ".netrc",
        scene.home / ".bash_history",
        scene.home / "notes",
        scene.home / "sealed",
        scene.delegate_home / "records",
        scene.delegate_home / "workspaces" / "other" / "notes",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(scene.canary)
    (scene.home / "sealed").chmod(0)
    with contextlib.suppress(OSError):  # only root can
        os.mknod(scene.folder / "device", stat.S_IFCHR | 0o600, os.makedev(*_ZERO))


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def sleepers(marker: str) -> list[int]:
    """Ids of the processes that sleep for `marker` seconds."""
    if Path("/proc/self/cmdline").exists():
        # `glob` would check whether each path exists, and fail if its process ends in the meantime.
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if _sleeps(Path(f"/proc/{pid}/cmdline"), marker)]
    processes = subprocess.run(["ps", "-axo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in processes.splitlines() if line.split()[1:] == ["sleep", marker]]


def _sleeps(cmdline: Path, marker: str) -> bool:
    with contextlib.suppress(OSError):  # the process has ended
        return cmdline.read_bytes() == f"sleep\0{marker}\0".encode()
    return False

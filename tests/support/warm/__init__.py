"""Python processes that have imported everything already, for tests that run hundreds of programs.

An interpreter that imports delegate and an SDK works for a second before it does anything. Here one process imports
them once and forks for every program: `PYTHON` and `DELEGATE` are commands like `python` and `delegate`, with their own
process, environment, streams, signals and exit code. What differs is that modules are loaded before the program runs,
so tests of imports and of start-up use `sys.executable`.

On Linux only; elsewhere they are the real commands. Commands with options for the interpreter, or with variables that
it reads when it starts, run in a real interpreter too. Of its options, `-Xdev` is supported as far as warnings and
asyncio's debug mode go: such a program ends as the interpreter does, which others leave out.
"""

import atexit
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.support import leaks

HERE = Path(__file__).parent
_client = (HERE / "client.py").read_text(encoding="utf-8")


class _Warm:
    """The forking process of this test process, started on first use."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lock = threading.Lock()

    def folder(self) -> Path | None:
        """A folder with `bin/delegate`, and `python`, which isn't in `bin`: commands in a sandbox must not find it."""
        with self._lock:
            if sys.platform == "linux" and self._folder is None:
                self._folder = self._start()
            return self._folder

    def _start(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="warm", dir="/tmp"))
        address = folder / "socket"
        (folder / "bin").mkdir()
        for name, program in (("python", folder / "python"), ("delegate", folder / "bin" / "delegate")):
            call = f"main({sys.executable!r}, {str(address)!r}, {name!r})"
            program.write_text(f"#!{sys.executable} -IS\n{_client}\n\n{call}\n", encoding="utf-8")
            program.chmod(0o755)
        # A process that dies with this one: it ends when the other end of its stdin is closed.
        self._alive, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(str(address))
            listening.listen(64)
            command = [sys.executable, str(HERE / "server.py"), str(listening.fileno())]
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,  # not those of who is first to need it, and may wait for their end
                stderr=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
                cwd=HERE.parents[2],
                start_new_session=True,
            )
        leaks.shared_pids.add(self._process.pid)
        atexit.register(self._stop, folder)
        return folder

    def _stop(self, folder: Path) -> None:
        self._alive.close()
        self._process.wait()
        shutil.rmtree(folder, ignore_errors=True)


_warm = _Warm()
folder = _warm.folder


def path() -> list[str]:
    """The folders of a PATH where a shell finds `delegate`, and the real `python`."""
    there, installed = folder(), str(Path(sys.executable).parent)
    return [installed] if there is None else [str(there / "bin"), installed]


def python() -> list[str]:
    """The command `python`."""
    there = folder()
    return [sys.executable] if there is None else [str(there / "python")]


def delegate() -> list[str]:
    """The command `delegate`."""
    there = folder()
    return [sys.executable, "-m", "delegate"] if there is None else [str(there / "bin" / "delegate")]

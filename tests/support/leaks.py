"""Finds resources that a test leaves behind. The check runs after every test and takes a tenth of a millisecond.

Only if it finds something does it check more closely, and wait a moment for it to disappear.

Processes and open files are found on Linux only.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

PATIENCE_SECONDS = 15.0
"""Maximum wait for resources that are being released."""
LINUX = sys.platform == "linux"
_PR_SET_CHILD_SUBREAPER = 36
_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
_SHARED = "/judging/checks/worker_main.py"
"""The program of the processes that checks share, which live as long as their host."""
shared_pids = set[int]()
"""Processes that tests share, which live as long as this process."""


class Watch:
    """Created before a test. `left` describes the resources that exist after it but didn't before.

    `home` is where the test's results name workspaces, and `scratch` its folder for temporary files. What is only slow
    to go is waited for.
    """

    def __init__(self, home: Path, scratch: Path, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._home = home
        self._scratch = scratch
        self._patience = patience_seconds
        self._threads = frozenset(threading.enumerate())
        self._files = _open_files()
        self._temporary = frozenset(os.listdir(scratch))
        _children.begin()

    def left(self) -> list[str]:
        """Return all resources that are left."""
        return [
            *self._once_quiet(self._left_threads),
            *self._once_quiet(_children.left),
            *self._once_quiet(self._left_files),
            *(f"temporary: {name}" for name in os.listdir(self._scratch) if name not in self._temporary),
            *_unnamed_workspaces(self._home),
        ]

    def left_of_ours(self) -> list[str]:
        """Return what only delegate can have left, and no tested framework: processes and workspaces."""
        return [*self._once_quiet(_children.left), *_unnamed_workspaces(self._home)]

    def _once_quiet(self, look: Callable[[], list[str]]) -> list[str]:
        until = time.monotonic() + self._patience
        while (found := look()) and time.monotonic() < until:
            time.sleep(0.01)
        return found

    def _left_threads(self) -> list[str]:
        return [f"thread: {thread.name}" for thread in threading.enumerate() if thread not in self._threads]

    def _left_files(self) -> list[str]:
        new = [fd for fd, file in _open_files().items() if self._files.get(fd) != file]
        return [what for fd in new if (what := _in_words(fd))]


async def left_tasks() -> list[str]:
    """Return the tasks of the running loop, except the current one."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    return [f"task: {task.get_name()}, {task.get_coro()}" for task in left]


# ----------------------------------------------------------------------------------------------------------- processes


class _Children:
    """The child processes of this process. They are only checked if one was started since the last check."""

    def __init__(self) -> None:
        self.started = 0
        self._looked_at = -1
        """The value of `started` at the last check; initially none."""
        self._known = frozenset[int]()

    def begin(self) -> None:
        """Ignore the processes that exist now, such as those of a module's fixture."""
        if self.started != self._looked_at:
            self._known, self._looked_at = frozenset(_running_children()), self.started

    def left(self) -> list[str]:
        """Return the processes that didn't exist before."""
        if self.started == self._looked_at:
            return []
        new = {pid: command for pid in _running_children() if pid not in self._known and (command := _command(pid))}
        return [f"process: {pid} {command}" for pid, command in new.items() if _SHARED not in command]

    def end(self) -> None:
        """Kill the processes that are left, so that only one test fails."""
        for line in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line.split()[1]), signal.SIGKILL)


_children = _Children()
end_children = _children.end


def children() -> list[str]:
    """Return the commands of all child processes that aren't shared, with those that ended and weren't waited for."""
    commands = (_command(pid) or f"zombie {pid}" for pid, _ in _own_children())
    return [command for command in commands if _SHARED not in command]


def note(event: str) -> None:
    """Record the start of a process, for an audit hook."""
    if event in _STARTS:
        _children.started += 1


def adopt_orphans() -> None:
    """Make orphaned processes of tests children of this process, so that they are found."""
    if LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _running_children() -> Iterator[int]:
    """Yield running child processes, and reap those that have ended, since nothing else reaps orphans."""
    for pid, is_zombie in _own_children():
        if is_zombie:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        else:
            yield pid


def _own_children() -> Iterator[tuple[int, bool]]:
    """Yield each child process, and whether it has ended, but for those in `shared_pids`."""
    for name in filter(str.isdigit, os.listdir("/proc") if LINUX else ()):
        with contextlib.suppress(ChildProcessError):  # another process's: asking is faster than reading /proc/PID/stat
            ended = os.waitid(os.P_PID, int(name), os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if int(name) not in shared_pids:
                yield int(name), ended is not None


def _command(pid: int) -> str:
    """The command of a process. Empty if there is none with this pid."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
    return words or "(starting)"  # the system fills it in a moment after the start


# --------------------------------------------------------------------------------------------------- files and folders


def _open_files() -> dict[str, tuple[int, int]]:
    """Return the device and inode of every file descriptor."""
    found: dict[str, tuple[int, int]] = {}
    for fd in os.listdir("/proc/self/fd") if LINUX else ():
        with contextlib.suppress(OSError):  # the listing's own
            file = os.fstat(int(fd))
            found[fd] = file.st_dev, file.st_ino
    return found


def _in_words(fd: str) -> str:
    """Describe a descriptor. Empty for closed and allowed ones: one end of a socket pair, as of the shared worker."""
    try:
        target = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""
    if not target.startswith("socket:"):
        return f"open file: {target}"
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(fd))) as one:
        if one.family != socket.AF_UNIX:
            return f"socket: {one.getsockname()}"
    return ""


def _unnamed_workspaces(home: Path) -> list[str]:
    """Return workspaces that no result names, except for one per task whose process was killed."""
    try:
        there = {name.removesuffix(".diff").removesuffix(".start") for name in os.listdir(home / "workspaces")}
    except FileNotFoundError:
        return []
    results = _results(home / "records.sqlite3") if there else []
    named = {Path(json.loads(result)["workspace"] or "").name for result in results if result}
    unnamed = sorted(there - named)
    return [f"workspace: {name}" for name in unnamed] if len(unnamed) > results.count(None) else []


def _results(path: Path) -> list[str | None]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as records:
        return [result for (result,) in records.execute("SELECT result FROM tasks")]

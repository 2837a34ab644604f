"""Commands that start processes which never end, and a check for those that are still running."""

import os
import secrets
import select
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

PATIENCE_SECONDS = 20


class Tree:
    """Commands to run in the new folder `folder`. They signal when all their processes are running."""

    def __init__(self, folder: Path) -> None:
        if sys.platform != "linux":
            pytest.skip("processes are looked for in /proc")
        self.folder = folder
        self._processes = 1
        self._mark = f"9{secrets.randbelow(10**9):09d}"
        folder.mkdir()
        os.mkfifo(folder / "up")
        self._up = os.open(folder / "up", os.O_RDWR | os.O_NONBLOCK)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._up)

    @property
    def command(self) -> str:
        """A command with one process in its own session."""
        self._processes = 2
        return f"(setsid sleep {self._mark} >/dev/null 2>&1 &); {self.without_daemon}"

    @property
    def without_daemon(self) -> str:
        """A command with all processes in one group."""
        return f"sleep {self._mark} & echo up > up; wait"

    def wait_until_up(self) -> None:
        """Block until all processes are running. In a coroutine: `await asyncio.to_thread(…)`."""
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            ready, _, _ = select.select([self._up], [], [], 0.02)
            # A check runs in a copy of the folder, where the pipe isn't.
            if ready or sum(line.startswith("sleep\0") for line in self.left()) >= self._processes:
                return
        raise AssertionError("the command didn't start")

    def left(self) -> list[str]:
        """Return the command lines of the processes that are still running."""
        return [line for line in map(_command_line, os.listdir("/proc")) if self._mark in line]

    def soon_gone(self) -> bool:
        """Return whether all processes end within some seconds, for processes that nothing waits for."""
        until = time.monotonic() + PATIENCE_SECONDS
        while (left := self.left()) and time.monotonic() < until:
            time.sleep(0.01)
        return not left


def _command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text() if pid.isdigit() else ""
    except OSError:
        return ""

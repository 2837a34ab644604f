"""Starts commands under the subreaper, and reads the status that the subreaper and bubblewrap report.

Each of them reports on a pipe of its own. Without that, a failed setup would look like the command's exit code 1, and
a criterion that wants exit code 1 would be met by a command that never ran.
"""

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_PROGRAM = Path(__file__).with_name("subreaper.py")
_REPORT_BYTES = 4_096


def interpreter() -> str | None:
    """The Python that runs the subreaper; None where it can't work, or if `sys.executable` is another application."""
    if not sys.platform.startswith("linux") or not _PROGRAM.is_file():
        return None
    program = sys.executable or ""
    return program if re.fullmatch(r"python[\d.]*t?", Path(program).name) else None


def under_subreaper(argv: Sequence[str], *, status_fd: int) -> list[str]:
    """The command line that runs `argv` (an absolute program) under the subreaper. Raises FileNotFoundError."""
    if (python := interpreter()) is None:
        raise FileNotFoundError("no Python interpreter to run the subreaper with was found")
    return [python, "-I", "-S", str(_PROGRAM), str(status_fd), str(os.getpid()), *argv]


class StatusPipe:
    """The pipe that the launcher `name` reports on. Pass it `fd`, and read `exit_code` when it has ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._read_fd, self.fd = os.pipe()
        self._reported: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._read_fd)
        os.close(self.fd)

    @property
    def exit_code(self) -> int | None:
        """The command's own exit code. None if it never started, or didn't end by itself."""
        return self._value("exit-code")

    def kill_leftovers(self) -> None:
        """Kill the command's process group, for a launcher that was killed before it could do so itself."""
        if (group := self._value("child-pid")) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def _value(self, name: str) -> int | None:
        self._read()
        value = self._reported.get(name)
        return value if isinstance(value, int) else None

    def _read(self) -> None:
        os.set_blocking(self._read_fd, False)
        with contextlib.suppress(BlockingIOError, ValueError):
            for line in os.read(self._read_fd, _REPORT_BYTES).splitlines():
                self._reported |= json.loads(line)

"""Starts commands under the subreaper and in Landlock, and reads the status that they and bubblewrap report.

Each of them reports on a pipe of its own. Without that, a failed setup would look like the command's exit code 1, and
a criterion that wants exit code 1 would be met by a command that never ran.
"""

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from delegate.sandbox.commands.system_calls import INTERNET, is_supported, system_call_filter
from delegate.sandbox.processes.environment import CACHES

_FOLDER = Path(__file__).parent
_IS_INSTALLED = (_FOLDER / "subreaper.py").is_file()
_START = "import os, sys; sys.path.append(sys.argv[1]); import subreaper; os._exit(subreaper.main(sys.argv[2:]))"
"""Runs the launcher. Python keeps what it compiles of a module that it imports, but compiles a script at every start.
The interpreter's own shutdown has nothing to clean up and is skipped.
"""
_REPORT_BYTES = 4_096


def interpreter() -> str | None:
    """The Python that runs the launcher; None where it can't work, or if `sys.executable` is another application."""
    is_python = re.fullmatch(r"python[\d.]*t?", os.path.basename(sys.executable or ""))
    return sys.executable if is_python and _IS_INSTALLED and sys.platform.startswith("linux") else None


def under_subreaper(argv: Sequence[str], limits: Sequence[int], *, status_fd: int) -> list[str]:
    """The command line that runs `argv` (an absolute program, or what `in_landlock` returns) under the subreaper and
    `kernel_limits`. Raises FileNotFoundError.
    """
    if (python := interpreter()) is None:
        raise FileNotFoundError("no Python interpreter to start the command with was found")
    return [python, "-I", "-S", "-c", _START, str(_FOLDER), *map(str, (status_fd, os.getpid(), *limits)), *argv]


def in_landlock(
    argv: Sequence[str],
    *,
    write: Iterable[Path],
    read: Iterable[Path],
    hidden: Iterable[Path],
    network: bool,
    pinned: Iterable[Path] = (),
    read_only: Mapping[Path, Path] = MappingProxyType({}),
    placed: Mapping[Path, Path] = MappingProxyType({}),
    masked: Iterable[str] = (),
    cache: Path | None = None,
    status_fd: int,
) -> list[str]:
    """What has the subreaper run `argv` (an absolute program) restricted by Landlock. Raises OSError on a machine
    without a filter of system calls.

    The command can change only the `write` folders, and can't read `hidden` paths except for the `read` folders in
    them. It has the network only if `network` says so. Where namespaces are permitted, it can't move `pinned` folders,
    nor change the paths of `read_only`, which show what they stand for, as those of `placed` do; the kernel's files in
    `masked` are empty; and what it changes in the folder `cache` is gone when it ends.
    """
    paths = {"write": write, "read": read, "hidden": hidden, "pinned": pinned, "masked": masked}
    rules = [f"{name}={path}" for name, values in paths.items() for path in values]
    rules += [rule for path, source in read_only.items() for rule in (f"read_only={path}", f"source={source}")]
    rules += [rule for path, source in placed.items() for rule in (f"place={path}", f"content={source}")]
    rules += ["network=host"] if network else []
    rules += [f"cache={cache}", *(f"cached={name}={folder}" for name, folder in CACHES.items())] if cache else []
    rules += [
        f"calls={system_call_filter(sockets=sockets, own_processes=processes, own_queues=queues).hex()}"
        for sockets, processes, queues in (
            (INTERNET, True, True),
            (INTERNET, False, True),
            (INTERNET if network else (), False, False),
        )
    ]
    return ["landlock", str(status_fd), *rules, "--", *argv]


def landlock_is_available() -> bool:
    """Whether this kernel has Landlock, and there is a Python to start it with. Takes no more than a system call."""
    return interpreter() is not None and is_supported() and _kernel_has_landlock()


@cache
def _kernel_has_landlock() -> bool:
    from delegate.sandbox.commands import landlock  # imports ctypes

    return landlock.abi() >= landlock.MIN_ABI


class StatusPipe:
    """The pipe that `name`, which confines a command, reports on. Pass it `fd`, and read `exit_code` at the end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._read_fd, self.fd = os.pipe()
        self._reported: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self._read_fd)
        os.close(self.fd)

    @property
    def exit_code(self) -> int | None:
        """The command's own exit code. None if it never started, or didn't end by itself."""
        if self.name == "landlock" and not self.restricted:
            return None
        code = self._value("exit-code")
        return code if isinstance(code, int) else None

    @property
    def restricted(self) -> bool:
        """Whether Landlock's restrictions are in force."""
        return self._value("restricted") is True

    @property
    def became_command(self) -> bool:
        """Whether the reporting process has become the command, so that nothing else can report its exit code."""
        return self.restricted and self._value("waited") is False

    @property
    def temporary(self) -> str:
        """The folder for temporary files that was made and has to be removed; empty if there is none."""
        path = str(self._value("temporary") or "")
        return path if path.startswith("/tmp/delegate-tmp-") and "/.." not in path else ""  # noqa: S108

    def kill_leftovers(self) -> None:
        """Kill the command's process group, for a launcher that was killed before it could do so itself."""
        if isinstance(group := self._value("child-pid"), int):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def _value(self, name: str) -> Any:
        os.set_blocking(self._read_fd, False)
        with contextlib.suppress(BlockingIOError, ValueError):
            for line in os.read(self._read_fd, _REPORT_BYTES).splitlines():
                self._reported |= json.loads(line)
        return self._reported.get(name)

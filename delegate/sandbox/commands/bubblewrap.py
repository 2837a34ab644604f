"""Builds the command line of bubblewrap: a read-only machine, one writable folder, no secrets, no other processes.

`$HOME` stays visible: hiding it would hide the user's toolchains (pyenv, nvm, cargo …), and a different version of a
program would run without notice. Paths that are known to hold secrets are covered instead.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from delegate.sandbox.commands.kernel_files import CONTROLS, unusual_kernel_paths
from delegate.sandbox.filesystem.secret_paths import hidden_paths
from delegate.sandbox.processes.environment import find_program

_TMP = Path("/tmp")  # noqa: S108 - the folder itself is meant
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the folder itself is meant
TEMPORARY_BYTES = 1 << 30
"""Most bytes in `/tmp` and in shared memory, each: both are memory."""
_COVER_BYTES = 1 << 20
"""Most bytes in a folder that hides another one; a program may write there, and not fill the memory."""
_SIZE_SINCE = (0, 7)
_PROBE_SECONDS = 5
ALWAYS = (
    "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
    "--cap-drop", "ALL", "--ro-bind", "/", "/",
)  # fmt: skip


def installed() -> str | None:
    """The path of `bwrap`, or None. An installed `bwrap` may still be forbidden by the kernel."""
    return find_program("bwrap")


def covers(env: Mapping[str, str], hidden: Iterable[Path], bwrap: str) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """What a command must not see or change, and the options that cover it: the machine's devices and processes, other
    programs' files, secrets and `hidden` folders.
    """
    sized = _version(bwrap) >= _SIZE_SINCE

    def empty(folder: str, size: int) -> tuple[str, ...]:
        return (*(("--size", str(size)) if sized else ()), "--tmpfs", folder)

    yield Path("/dev"), ("--dev", "/dev", *empty(_SHARED_MEMORY, TEMPORARY_BYTES), "--remount-ro", "/dev")
    yield Path("/proc"), ("--proc", "/proc", "--ro-bind-try", CONTROLS, CONTROLS)
    tools = [option for folder in tools_in_tmp(env) for option in ("--ro-bind", str(folder), str(folder))]
    yield _TMP, (*empty(str(_TMP), TEMPORARY_BYTES), *tools)
    kernel = map(Path, unusual_kernel_paths(harmful=True))  # of many more files, the mounts would take 5 ms
    for path in (*kernel, *hidden_paths(env, hidden)):
        if path.is_dir():
            yield path, empty(str(path), _COVER_BYTES)
        elif path.exists():
            yield path, ("--ro-bind", "/dev/null", str(path))


@lru_cache(4)
def _version(bwrap: str) -> tuple[int, ...]:
    """The version of an installed bubblewrap, such as (0, 8, 0); empty if it doesn't say."""
    with suppress(OSError, subprocess.SubprocessError):
        process = subprocess.run(
            [bwrap, "--version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
        if match := re.search(r"(\d+(?:\.\d+)+)", process.stdout):
            return tuple(map(int, match[1].split(".")))
    return ()


def tools_in_tmp(env: Mapping[str, str]) -> Iterator[Path]:
    """The folders in /tmp with programs on the PATH, such as a virtual environment. They have to stay reachable."""
    for entry in env.get("PATH", "").split(os.pathsep):
        folder = Path(entry)
        prefix = folder.parent if folder.name == "bin" and folder.parent != _TMP else folder
        if prefix.is_relative_to(_TMP) and prefix != _TMP and prefix.is_dir():
            yield prefix

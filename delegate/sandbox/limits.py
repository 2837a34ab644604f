"""Limits what a command uses of the machine: kernel limits, by a shell's `ulimit` before it starts, and what is looked
up while it runs.

A `preexec_fn` would do the same, but Python warns against using it with threads, and it disables the cheap vfork. The
kernel limits no memory that is really used: with `ulimit -d` and `-v`, programs that reserve more of it than any
machine has can't start, such as the sanitizers of compilers, which race detectors use too. So it is looked up.
"""

import itertools
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_BYTES = 1 << 30
"""Per file: more than a build writes, less than a disk holds."""
MAX_MEMORY_BYTES = 8 << 30
"""Per process, of what it has written to: more than a test needs, less than a machine has."""
MAX_TOTAL_MEMORY_BYTES = 32 << 30
MAX_PROCESSES = 2_000
DISK_RESERVE_BYTES = 1 << 30
INODE_RESERVE = 10_000

# A limit that is already lower stays: the shell can't raise it, and ignores the error.
# If the machine's memory is used up, the kernel ends the command before anything else.
_SCRIPT = (
    '{ ulimit -c 0; ulimit -f "$1"; ulimit -t "$2"; echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null; '
    'shift 2; exec "$@"'
)
_RESIDENT = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)
_SHARE = re.compile(r"^Pss_Anon:\s+(\d+) kB", re.MULTILINE)


def limited(argv: Sequence[str], *, timeout_seconds: float) -> list[str]:
    """The command line that runs `argv` under limits per process: no core files; file size and CPU time.

    The CPU limit only ends processes that outlive the timeout: until then, all processors may be busy.
    """
    cpu_seconds = math.ceil(timeout_seconds) * (os.cpu_count() or 1) + 5
    numbers = (MAX_FILE_BYTES // 512, cpu_seconds)
    return ["/bin/sh", "-c", _SCRIPT, "sh", *map(str, numbers), *argv]


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a command may use at a time. Lower ones are for tests."""

    memory_bytes: int = MAX_MEMORY_BYTES
    """Of each process."""
    total_memory_bytes: int = MAX_TOTAL_MEMORY_BYTES
    """Of all processes together, or four fifths of the machine's memory if that is less."""
    processes: int = MAX_PROCESSES
    disk_reserve_bytes: int = DISK_RESERVE_BYTES
    """What is left on the disk of the workspace, if there was twice as much when the command started."""
    inode_reserve: int = INODE_RESERVE


COMMAND_LIMITS = Limits()


class Watch:
    """Looks how much a command uses. Finds nothing outside Linux, but for what is left on the disk."""

    def __init__(self, limits: Limits, folder: Path) -> None:
        self._limits, self._folder = limits, folder
        self._total_bytes = min(limits.total_memory_bytes, _machine_memory() * 4 // 5)
        space, inodes = _left_on_disk(folder)
        self._reserve = limits.disk_reserve_bytes if space >= 2 * limits.disk_reserve_bytes else 0
        self._inode_reserve = limits.inode_reserve if inodes >= 2 * limits.inode_reserve else 0

    def exceeded(self, pid: int) -> str:
        """Which limit is exceeded by `pid` with all that it started, in words; empty for none. Blocks for some ms."""
        found = list(itertools.islice(_with_children(pid), self._limits.processes + 1))
        if len(found) > self._limits.processes:
            return f"it ran more than {self._limits.processes:,} processes at a time"
        memory = [_memory(one, "status", _RESIDENT) for one in found]
        if max(memory) > self._limits.memory_bytes:
            return f"a process used more than {self._limits.memory_bytes / 1e9:.2g} GB of memory"
        # What processes share since a fork is counted for each of them; only if it matters, it is divided.
        if sum(memory) > self._total_bytes < sum(_memory(one, "smaps_rollup", _SHARE) for one in found):
            return f"its processes used more than {self._total_bytes / 1e9:.2g} GB of memory"
        space, inodes = _left_on_disk(self._folder)
        if space < self._reserve or inodes < self._inode_reserve:
            return "the disk of the workspace was almost full"
        return ""


def _machine_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return MAX_TOTAL_MEMORY_BYTES * 2


def _left_on_disk(folder: Path) -> tuple[float, float]:
    """Bytes and files that can be written to the disk of `folder`."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return math.inf, math.inf
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else math.inf  # btrfs counts no files


def _memory(pid: int, file: str, line: re.Pattern[str]) -> int:
    with suppress(OSError):
        if found := line.search(Path(f"/proc/{pid}/{file}").read_text()):
            return int(found[1]) * 1024
    return 0


def _with_children(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        yield (one := waiting.pop())
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{one}/task"):
                waiting += map(int, Path(f"/proc/{one}/task/{thread}/children").read_text().split())

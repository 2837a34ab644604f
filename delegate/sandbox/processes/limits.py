"""Limits what a command uses of the machine: kernel limits, which the subreaper or a shell sets before it starts, and
what is looked up while it runs.

A `preexec_fn` would do the same, but Python warns against using it with threads, and it disables the cheap vfork. The
kernel limits no memory that is really used: with `ulimit -d` and `-v`, programs that reserve more of it than any
machine has can't start, such as the sanitizers of compilers, which race detectors use too. So it is looked up.
"""

import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_BYTES = 1 << 30
"""Per file: more than a build writes, less than a disk holds."""
MAX_THREADS = 4_096
"""Of all processes together: a kernel has as few as 32,768 numbers for them."""

# A limit that is already lower stays: the shell can't raise it, and ignores the error.
# If the machine's memory is used up, the kernel ends the command before anything else.
_SCRIPT = (
    '{ ulimit -c "$1"; ulimit -f "$(($2 / 512))"; ulimit -t "$3"; ulimit -u "$4" || ulimit -p "$4"; '
    'echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null; shift 4; exec "$@"'
)
_RESIDENT = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)
_MEMINFO = "meminfo"
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB", re.MULTILINE)
_SHARE = re.compile(r"^Pss_Anon:\s+(\d+) kB", re.MULTILINE)


def kernel_limits(timeout_seconds: float) -> tuple[int, int, int, int]:
    """Limits per process: no core files, the bytes of a file, seconds of CPU time, and how many threads the user may
    have, which the kernel doesn't limit for root.

    The CPU limit only ends processes that outlive the timeout: until then, all processors may be busy.
    """
    cpu_seconds = math.ceil(timeout_seconds) * (os.cpu_count() or 1) + 5
    running_threads = 2 * MAX_THREADS
    with suppress(OSError, IndexError, ValueError):  # of all users, which are at least as many as those of this one
        running_threads = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    return 0, MAX_FILE_BYTES, cpu_seconds, running_threads + MAX_THREADS


def limited(argv: Sequence[str], limits: Sequence[int]) -> list[str]:
    """The command line that runs `argv` under `kernel_limits` where no subreaper can set them."""
    return ["/bin/sh", "-c", _SCRIPT, "sh", *map(str, limits), *argv]


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """The most that a command may use at a time. Lower ones are for tests."""

    memory_bytes: int = 8 << 30
    """Of each process, of what it has written to: more than a test needs, less than a machine has."""
    total_memory_bytes: int = 32 << 30
    """Of all processes together, or four fifths of the machine's memory if that is less."""
    memory_reserve_bytes: int = 512 << 20
    """What is left of the machine's memory, if there was twice as much when the command started. Files in memory belong
    to no process."""
    processes: int = 2_000
    threads: int = MAX_THREADS
    disk_reserve_bytes: int = 1 << 30
    """What is left on the disk of the workspace, if there was twice as much when the command started."""
    inode_reserve: int = 10_000


COMMAND_LIMITS = ProcessLimits()


class Watch:
    """Looks how much a command uses. Finds nothing outside Linux, but for what is left on the disk."""

    def __init__(self, limits: ProcessLimits, folder: Path) -> None:
        self._limits, self._folder = limits, folder
        self._total_bytes = limits.total_memory_bytes
        with suppress(OSError, ValueError):
            machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            self._total_bytes = min(self._total_bytes, machine * 4 // 5)
        available = _memory(_MEMINFO, _AVAILABLE, math.inf)
        self._memory_reserve = limits.memory_reserve_bytes if available >= 2 * limits.memory_reserve_bytes else 0
        space, inodes = _left_on_disk(folder)
        self._reserve = limits.disk_reserve_bytes if space >= 2 * limits.disk_reserve_bytes else 0
        self._inode_reserve = limits.inode_reserve if inodes >= 2 * limits.inode_reserve else 0

    def exceeded(self, pid: int) -> str:
        """Which limit is exceeded by `pid` with all that it started, in words; empty for none. Blocks for some ms."""
        pids, threads = list[int](), 0
        for child, its_threads in _with_children(pid):
            pids.append(child)
            threads += its_threads
            if len(pids) > self._limits.processes:
                return f"it ran more than {self._limits.processes:,} processes at a time"
            if threads > self._limits.threads:
                return f"it ran more than {self._limits.threads:,} threads at a time"
        memory = [_memory(f"{child}/status", _RESIDENT) for child in pids]
        if max(memory) > self._limits.memory_bytes:
            return f"a process used more than {self._limits.memory_bytes / 1e9:.2g} GB of memory"
        # What processes share since a fork is counted for each of them; only if it matters, it is divided.
        if sum(memory) > self._total_bytes < sum(_memory(f"{child}/smaps_rollup", _SHARE) for child in pids):
            return f"its processes used more than {self._total_bytes / 1e9:.2g} GB of memory"
        if _memory(_MEMINFO, _AVAILABLE, math.inf) < self._memory_reserve:
            return "the machine's memory was almost used up"
        space, inodes = _left_on_disk(self._folder)
        if space < self._reserve or inodes < self._inode_reserve:
            return "the disk of the workspace was almost full"
        return ""


def _left_on_disk(folder: Path) -> tuple[float, float]:
    try:
        status = os.statvfs(folder)
    except OSError:
        return math.inf, math.inf
    return status.f_bavail * status.f_frsize, status.f_favail if status.f_files else math.inf  # btrfs counts no files


def _memory(file: str, line: re.Pattern[str], otherwise: float = 0) -> float:
    """The bytes that a file of /proc says in kB."""
    with suppress(OSError):
        if match := line.search(Path("/proc", file).read_text()):
            return int(match[1]) * 1024
    return otherwise


def _with_children(pid: int) -> Iterator[tuple[int, int]]:
    """A process and all that it started, each with the number of its threads."""
    waiting = [pid]
    while waiting:
        process, threads = waiting.pop(), list[str]()
        with suppress(OSError):
            threads = os.listdir(f"/proc/{process}/task")
        yield process, len(threads)
        for thread in threads:
            with suppress(OSError):
                waiting += map(int, Path(f"/proc/{process}/task/{thread}/children").read_text().split())

"""Limits what a command uses of the machine: kernel limits, by a shell's `ulimit` before it starts, and its memory.

A `preexec_fn` would do the same, but Python warns against using it with threads, and it disables the cheap vfork. The
kernel limits no memory that is really used: with `ulimit -d` and `-v`, programs that reserve more of it than any
machine has can't start, such as the sanitizers of compilers, which race detectors use too. So it is looked up.
"""

import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

MAX_FILE_BYTES = 1 << 30
"""Per file: more than a build writes, less than a disk holds."""
MAX_MEMORY_BYTES = 8 << 30
"""Per process, of what it has written to: more than a test needs, less than a machine has."""

# A limit that is already lower stays: the shell can't raise it, and ignores the error.
# If the machine's memory is used up, the kernel ends the command before anything else.
_SCRIPT = (
    '{ ulimit -c 0; ulimit -f "$1"; ulimit -t "$2"; echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null; '
    'shift 2; exec "$@"'
)
_RESIDENT = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)


def limited(argv: Sequence[str], *, timeout_seconds: float) -> list[str]:
    """The command line that runs `argv` under limits per process: no core files; file size and CPU time.

    The CPU limit only ends processes that outlive the timeout: until then, all processors may be busy.
    """
    cpu_seconds = math.ceil(timeout_seconds) * (os.cpu_count() or 1) + 5
    numbers = (MAX_FILE_BYTES // 512, cpu_seconds)
    return ["/bin/sh", "-c", _SCRIPT, "sh", *map(str, numbers), *argv]


def largest_memory(pid: int) -> int:
    """The memory of the process that uses most, of this one and those that it started, in bytes. 0 outside Linux."""
    return max((_memory(one) for one in _with_children(pid)), default=0)


def _memory(pid: int) -> int:
    with suppress(OSError):
        if found := _RESIDENT.search(Path(f"/proc/{pid}/status").read_text()):
            return int(found[1]) * 1024
    return 0


def _with_children(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        yield (one := waiting.pop())
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{one}/task"):
                waiting += map(int, Path(f"/proc/{one}/task/{thread}/children").read_text().split())

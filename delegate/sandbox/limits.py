"""Kernel limits on a command, set by a shell's `ulimit` before it starts.

A `preexec_fn` would do the same, but Python warns against it beside threads, and it turns the cheap vfork off.
"""

import math
import os
from collections.abc import Sequence

MAX_FILE_BYTES = 1 << 30
"""One file: more than a build leaves behind, less than a disk."""
MAX_DATA_BYTES = 8 << 30
"""Memory that one process can write to. The address space as a whole isn't limited: V8, Go and the sanitizers reserve
far more of it than any machine has."""

# A limit that is already lower stays; raising it is refused, and that is fine.
_SCRIPT = '{ ulimit -c 0; ulimit -f "$1"; ulimit -d "$2"; ulimit -t "$3"; } 2>/dev/null; shift 3; exec "$@"'


def limited(argv: Sequence[str], *, timeout_seconds: float) -> list[str]:
    """`argv` under limits: no core files, bounded file size, memory and CPU time (per process).

    The CPU limit only matters to a process that outlives its time: all processors busy until the timeout are allowed.
    """
    cpu_seconds = math.ceil(timeout_seconds) * (os.cpu_count() or 1) + 5
    numbers = (MAX_FILE_BYTES // 512, MAX_DATA_BYTES // 1024, cpu_seconds)
    return ["/bin/sh", "-c", _SCRIPT, "sh", *map(str, numbers), *argv]

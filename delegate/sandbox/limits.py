"""Sets kernel limits on a command, by a shell's `ulimit` before it starts.

A `preexec_fn` would do the same, but Python warns against using it with threads, and it disables the cheap vfork.
"""

import math
import os
from collections.abc import Sequence

MAX_FILE_BYTES = 1 << 30
"""Per file: more than a build writes, less than a disk holds."""
MAX_DATA_BYTES = 8 << 30
"""Writable memory of one process. The whole address space isn't limited: V8, Go and the sanitizers reserve far more of
it than any machine has."""

# A limit that is already lower stays: the shell can't raise it, and ignores the error.
_SCRIPT = '{ ulimit -c 0; ulimit -f "$1"; ulimit -d "$2"; ulimit -t "$3"; } 2>/dev/null; shift 3; exec "$@"'


def limited(argv: Sequence[str], *, timeout_seconds: float) -> list[str]:
    """The command line that runs `argv` under limits per process: no core files; file size, memory and CPU time.

    The CPU limit only ends processes that outlive the timeout: until then, all processors may be busy.
    """
    cpu_seconds = math.ceil(timeout_seconds) * (os.cpu_count() or 1) + 5
    numbers = (MAX_FILE_BYTES // 512, MAX_DATA_BYTES // 1024, cpu_seconds)
    return ["/bin/sh", "-c", _SCRIPT, "sh", *map(str, numbers), *argv]

"""Identifies processes, so that a later process can tell whether one is still running."""

import os
from functools import cache
from pathlib import Path


def this_process() -> str:
    """The identity of the current process. Not a constant, since a forked process has another one."""
    return _identity_now(os.getpid())


def is_alive(process: object) -> bool:
    """Whether the process is running on this machine (inside a container: in the same container).

    What isn't an identity, such as a damaged one, is that of no process.
    """
    if process == this_process():
        return True
    if not isinstance(process, str):
        return False
    start = process.partition("/")[0]
    if not start.isdecimal() or len(start) > 9:
        return False
    pid = int(start)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return _identity(pid) == process


def _identity(pid: int) -> str:
    """The process ID with the process's start time and the boot ID, since process IDs are reused; outside Linux, the
    process ID alone.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{pid}/{fields[18] if state not in 'ZX' else 'dead'}/{boot}"
    except (OSError, IndexError):  # not Linux
        return f"{pid}/"


_identity_now = cache(_identity)

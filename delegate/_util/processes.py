"""Which process did something, so that it can be told later whether that process is still there."""

import os
import sys
from functools import cache
from pathlib import Path


def this_process() -> str:
    """Number and start of the process that asks. Asked each time, since a fork goes on with another number."""
    return _own(os.getpid())


def is_alive(process: str) -> bool:
    """Whether it runs on this machine; seen from within a container, in the same one."""
    if process == this_process():
        return True
    if sys.platform == "win32":  # where a signal would not only look
        return False
    pid = int(process.partition("/")[0])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return _process(pid) == process


@cache
def _own(pid: int) -> str:
    return _process(pid)


def _process(pid: int) -> str:
    """Numbers are given again, so the start goes with it. Where that isn't told, the number stands alone."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{pid}/{fields[18] if state not in 'ZX' else 'dead'}/{boot}"
    except (OSError, IndexError):  # not Linux
        return f"{pid}/"

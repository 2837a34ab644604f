"""What commands in a sandbox see of /proc and /sys: the files that ordinary programs read, and none that controls the
machine.

As root without capabilities, a program may still write what belongs to root: `/proc/sys/kernel/core_pattern` names a
program that the kernel runs outside any sandbox.
"""

import itertools
import os
from collections.abc import Sequence
from functools import lru_cache

_PROC = "/proc"
_USUAL = frozenset({
    "cgroups", "cpuinfo", "devices", "diskstats", "filesystems", "loadavg", "meminfo", "misc", "modules", "mounts",
    "net", "partitions", "pressure", "self", "stat", "swaps", "sys", "sysvipc", "thread-self", "tty", "uptime",
    "version", "vmstat", "zoneinfo",
})  # fmt: skip
"""In /proc, besides the folders of processes."""
_REVEALING = frozenset({
    "acpi", "kcore", "keys", "kpagecgroup", "kpagecount", "kpageflags", "latency_stats", "sched_debug", "scsi",
    "timer_list",
})  # fmt: skip
"""In /proc: what shows memory, keys or what other programs do."""
_IN_SYS = ("/sys/firmware", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/fs/bpf", "/sys/fs/pstore")
CONTROLS = "/proc/sys"
"""The kernel's settings, which commands only read."""


def unusual_kernel_paths(*, harmful: bool = False) -> Sequence[str]:
    """Files and folders in /proc and /sys that no ordinary program reads; with `harmful`, those of them that some user
    may write, or that reveal much.
    """
    with os.scandir(_PROC) as entries:
        # The kernel lists processes last. Going through thousands of them would take longer than starting a command.
        names = itertools.takewhile(lambda name: not name.isdigit(), (entry.name for entry in entries))
        return _unusual(tuple(name for name in names if name not in _USUAL), harmful)


@lru_cache(4)
def _unusual(names: Sequence[str], harmful: bool) -> Sequence[str]:
    paths: list[str] = []
    for name in names:
        path = f"{_PROC}/{name}"
        is_folder = os.path.isdir(path)
        if _has_entries(path) if is_folder else not harmful or name in _REVEALING or _is_writable(path):
            paths.append(path)
    return (*paths, *filter(_has_entries, _IN_SYS))


def _has_entries(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except OSError:  # not permitted to a command either
        return False


def _is_writable(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & 0o222)  # unlike `os.access`, which root always passes
    except OSError:
        return False

"""What a command may use: memory and processes, each and together, and the disk."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from delegate.sandbox.commands.confinement import CommandSpec, Confinement, ResourceLimit, execute, shell
from delegate.sandbox.processes.limits import MAX_THREADS, ProcessLimits, Watch

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks in /proc")
NO_SANDBOX = Confinement(None, subreaper=True)
MEGABYTES = 1_000_000


def spec(command: str, folder: Path, limits: ProcessLimits) -> CommandSpec:
    return CommandSpec(shell(command), folder, dict(os.environ), 20, 5_000, limits=limits)


def holding(megabytes: int) -> str:
    """A command that holds so much memory until its input ends."""
    code = f'import sys; held = b"x" * {megabytes} * 1000000; sys.stdin.read()'
    return f"{sys.executable} -S -c '{code}'"


def threads(number: int) -> str:
    code = f"import threading as t, time; [t.Thread(target=time.sleep, args=(9,)).start() for _ in range({number})]"
    return f"{sys.executable} -S -c '{code}'"


@pytest.mark.parametrize(
    ("command", "limits", "reason"),
    [
        (
            holding(120) + " < <(sleep 9)",
            ProcessLimits(memory_bytes=100 * MEGABYTES),
            "a process used more than 0.1 GB",
        ),
        (
            f"{holding(60)} < <(sleep 9) & {holding(60)} < <(sleep 9)",
            ProcessLimits(memory_bytes=100 * MEGABYTES, total_memory_bytes=100 * MEGABYTES),
            "its processes used more than 0.1 GB",
        ),
        ("for i in 1 2 3 4 5 6 7 8 9; do sleep 9 & done; wait", ProcessLimits(processes=8), "more than 8 processes"),
        (threads(20), ProcessLimits(threads=15), "more than 15 threads"),
    ],
    ids=["memory of one", "memory of all", "processes", "threads"],
)
async def test_a_command_that_uses_too_much_is_ended(
    tmp_path: Path, command: str, limits: ProcessLimits, reason: str
) -> None:
    with pytest.raises(ResourceLimit, match=reason) as raised:
        await execute(spec(f"echo started; {command}", tmp_path, limits), NO_SANDBOX)
    assert raised.value.code == "resource_limit"
    assert "started" in str(raised.value)


async def test_memory_that_processes_share_is_counted_once(tmp_path: Path) -> None:
    code = "import os, time; held = b'x' * 60_000_000; [os.fork() for _ in range(2)]; time.sleep(0.6)"
    limits = ProcessLimits(memory_bytes=100 * MEGABYTES, total_memory_bytes=150 * MEGABYTES)
    ran = await execute(spec(f'{sys.executable} -S -c "{code}"', tmp_path, limits), NO_SANDBOX)
    assert ran.exit_code == 0


def test_the_last_of_the_memory_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from files in memory, which belong to no process."""
    watch = Watch(ProcessLimits(memory_reserve_bytes=1 << 20, disk_reserve_bytes=0, inode_reserve=0), tmp_path)
    assert watch.exceeded(os.getpid()) == ""
    little = tmp_path / "meminfo"
    little.write_text("MemTotal:       24000000 kB\nMemAvailable:       1023 kB\n")
    monkeypatch.setattr("delegate.sandbox.processes.limits._MEMINFO", little)  # of a machine whose memory is used up
    assert "memory was almost used up" in watch.exceeded(os.getpid())


async def test_a_user_has_only_so_many_threads(tmp_path: Path) -> None:
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    ran = await execute(spec("ulimit -u", tmp_path, ProcessLimits()), NO_SANDBOX)
    assert abs(int(ran.stdout) - running - MAX_THREADS) < 2_000, "the machine runs other programs"


def test_the_last_of_the_disk_is_left(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path)
    some = ProcessLimits(disk_reserve_bytes=1, inode_reserve=0)
    assert Watch(some, tmp_path).exceeded(os.getpid()) == ""
    bytes_left = free.f_bavail * free.f_frsize
    half = Watch(replace(some, disk_reserve_bytes=bytes_left // 3), tmp_path)
    assert half.exceeded(os.getpid()) == ""
    half._folder = Path("/proc")  # pyright: ignore[reportPrivateUsage] - a file system on which nothing is free
    assert "almost full" in half.exceeded(os.getpid())
    full = Watch(replace(some, disk_reserve_bytes=bytes_left), tmp_path)
    assert full.exceeded(os.getpid()) == "", "as it was before the command"

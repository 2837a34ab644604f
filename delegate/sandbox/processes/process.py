"""Runs one program with a deadline and bounded output, and leaves no process of its group running.

`asyncio.create_subprocess_exec` isn't used: its `wait()` hangs for as long as a grandchild holds a pipe open. Here the
run ends when the group's *leader* ends; the rest of the group is killed, and the pipes get a short time to drain. A
leader that terminates other processes itself (`graceful`) gets SIGTERM first, and is killed only if it doesn't exit.
"""

import asyncio
import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from delegate._util.threads import run_in_thread
from delegate.sandbox.processes.limits import Watch

DRAIN_SECONDS = 0.2
"""How long pipes may take to drain after the group is dead. A daemon that left the group can hold them forever."""
DEATH_SECONDS = 2.0
"""How long to wait for a leader to exit; a killed one takes longer only if it is stuck in the kernel."""
CHUNK_BYTES = 65_536
WATCH_SECONDS = 0.25
"""How often it is looked how much is used; sooner in the beginning, since a fork bomb doubles all the time."""
Stdio = tuple[IO[bytes], IO[bytes]]
"""The ends of two pipes that are a program's stdin and stdout."""


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a program ended. `exit_code` is None after a timeout, and 128 + n after signal n, as in shells."""

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    seconds: float
    processes_left: bool = False
    """Whether a leader that terminates what it started (`graceful`) didn't manage to, and had to be killed."""
    exceeded: str = ""
    """Why it was ended before its time: what it used too much of."""


async def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_seconds: float,
    max_output_bytes: int,
    pass_fds: Sequence[int] = (),
    graceful: bool = False,
    watch: Watch | None = None,
    stdio: Stdio | None = None,
) -> ProcessResult:
    """Run `argv` and wait for it. Keeps the last `max_output_bytes` of each stream.

    It is killed when `watch` finds that it uses too much. `stdio` are its stdin and stdout, closed here once it has
    started; the result then has no `stdout`.

    However the run ends, cancellation included, the whole process group is killed and the leader is reaped. With
    `graceful` the leader gets SIGTERM first, and terminates what it started by itself. Raises OSError or ValueError if
    the program can't be started.
    """
    loop = asyncio.get_running_loop()
    started = time.monotonic()
    process = subprocess.Popen(  # noqa: ASYNC220 - starts without waiting; see the module docstring
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL if stdio is None else stdio[0],
        stdout=subprocess.PIPE if stdio is None else stdio[1],
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=pass_fds,
    )
    for file in stdio or ():
        file.close()
    assert process.stderr is not None
    stderr = _Pipe(loop, process.stderr, max_output_bytes)
    stdout = _Pipe(loop, process.stdout, max_output_bytes) if process.stdout is not None else None
    pipes = [pipe for pipe in (stdout, stderr) if pipe is not None]
    ended = _watch(loop, process)
    try:
        in_time, exceeded = await _ended_in(ended, process.pid, timeout_seconds, watch)
        _stop(process, graceful=graceful)
        await asyncio.wait([ended], timeout=DEATH_SECONDS)
        await asyncio.wait([pipe.closed for pipe in pipes], timeout=DRAIN_SECONDS)
    finally:
        _stop(process, graceful=graceful)
        for pipe in pipes:
            pipe.close()
        gone, _ = await asyncio.wait([ended], timeout=DEATH_SECONDS)
        if (left := not gone) and not graceful:  # otherwise the leader goes on ending what it started, as only it can
            _stop(process, graceful=False)
            await asyncio.wait([ended], timeout=DEATH_SECONDS)
    code = process.returncode
    exit_code = None if not in_time or code is None else 128 - code if code < 0 else code
    seconds = time.monotonic() - started
    said = stdout.text() if stdout is not None else ""
    return ProcessResult(exit_code, said, stderr.text(), not in_time, seconds, left and graceful, exceeded)


async def _ended_in(ended: asyncio.Future[None], pid: int, seconds: float, watch: Watch | None) -> tuple[bool, str]:
    """Whether the leader ended in time, or has to be ended because of what the second value says."""
    until, each = time.monotonic() + seconds, math.inf if watch is None else WATCH_SECONDS / 4
    while (remaining := until - time.monotonic()) > 0:
        finished, _ = await asyncio.wait([ended], timeout=min(remaining, each))
        if finished:
            return True, ""
        if watch is not None and (exceeded := await run_in_thread(partial(watch.exceeded, pid))):
            return True, exceeded
        each = min(2 * each, WATCH_SECONDS) if watch is not None else each
    return ended.done(), ""


class _Pipe:
    """Reads one pipe as it fills and keeps the end. It never stops reading, since the writer would block."""

    def __init__(self, loop: asyncio.AbstractEventLoop, file: IO[bytes], limit: int) -> None:
        self._loop, self._file, self._limit = loop, file, limit
        self._kept = bytearray()
        self._seen = 0
        self.closed: asyncio.Future[None] = loop.create_future()
        os.set_blocking(file.fileno(), False)
        loop.add_reader(file.fileno(), self._read)

    def _read(self) -> None:
        try:
            chunk = os.read(self._file.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self.close()
            return
        self._seen += len(chunk)
        self._kept += chunk
        if len(self._kept) > 2 * self._limit:
            del self._kept[: -self._limit]

    def close(self) -> None:
        if not self._file.closed:
            self._loop.remove_reader(self._file.fileno())
            self._file.close()
        if not self.closed.done():
            self.closed.set_result(None)

    def text(self) -> str:
        tail = bytes(self._kept[-self._limit :]).decode(errors="replace")
        cut = self._seen - min(self._seen, self._limit)
        return f"[… the first {cut:,} bytes are cut …]\n{tail}" if cut else tail


def _watch(loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes]) -> asyncio.Future[None]:
    """A future that is done when the leader has exited, its group is killed and it is reaped, in this order.

    The order matters: until the leader is reaped, its pid isn't reused, so the kill can't hit an unrelated process. It
    runs in a callback, so that it also happens if the waiting task is cancelled twice.
    """
    ended: asyncio.Future[None] = loop.create_future()

    def finish(pidfd: int | None = None) -> None:
        if pidfd is not None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        _signal_group(process.pid)
        process.wait()
        if not ended.done():
            ended.set_result(None)

    def wait_in_thread() -> None:
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:  # macOS before Python 3.13 can't wait without reaping
            process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits for the process
            loop.call_soon_threadsafe(finish)

    try:
        pidfd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # macOS, old kernels, some containers
        threading.Thread(target=wait_in_thread, daemon=True).start()
        return ended
    loop.add_reader(pidfd, finish, pidfd)
    return ended


def _stop(process: subprocess.Popen[bytes], *, graceful: bool) -> None:
    if process.returncode is None and graceful:  # `process.terminate` isn't used: it may reap, see `_watch`
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGCONT)  # it may have been stopped by SIGSTOP
    elif process.returncode is None:
        _signal_group(process.pid)


def _signal_group(pid: int) -> None:
    # macOS returns EPERM if only zombies are left in the group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)

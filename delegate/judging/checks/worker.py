"""Worker processes for what can hang or exhaust memory: one request and one answer per line.

A worker is killed and replaced when its answer takes too long. An idle worker is reused, shared by all event loops and
owned by none: between two requests nothing of it is registered anywhere. Every kind of work has a pool of its own, so a
hostile JSON Schema costs other kinds nothing.
"""

import asyncio
import atexit
import json
import os
import socket
import subprocess
import sys
import time
import weakref
from typing import Any

from delegate.judging.checks import worker_main
from delegate.types.errors import DelegateError

MAX_REQUEST_BYTES = 20_000_000
START_SECONDS = 20.0
"""For a worker to start on a busy machine; not counted against a request."""
RETIRE_SECONDS = worker_main.CPU_SECONDS / 2
"""Of work, after which a worker is replaced: before its limit of CPU time can end it during a harmless request."""


class WorkerError(DelegateError):
    """The worker can't be started, or it died over the request, usually because that needs too much memory."""


class WorkerPool:
    """Workers for one kind of work. `module` is the path of a Python file that defines `prepare` and `answer`.

    One request at a time per event loop: three hundred children don't start as many workers.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._idle: list[_Worker] = []
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
        _pools.append(self)

    async def ask(self, request: bytes, timeout_seconds: float) -> dict[str, Any]:
        """The answer to `request`, which is one line. Raises TimeoutError and WorkerError."""
        if len(request) > MAX_REQUEST_BYTES:
            raise WorkerError(f"the request is larger than {MAX_REQUEST_BYTES:,} bytes")
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            worker = await self._take()
            try:
                async with asyncio.timeout(timeout_seconds):
                    answer = await worker.ask(request)
            except BaseException as problem:
                # An interrupted worker still owes an answer, which the next request would get: it can't be reused.
                worker.close()
                if isinstance(problem, (OSError, ValueError)) and not isinstance(problem, TimeoutError):
                    raise WorkerError("it needs more than the worker may use") from problem
                raise
            if worker.busy_seconds < RETIRE_SECONDS:
                self._idle.append(worker)
            else:
                worker.close()
        return answer

    def close(self) -> None:
        """End the idle workers; the next request starts another."""
        while self._idle:
            self._idle.pop().close()

    async def _take(self) -> "_Worker":
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive():
                return worker
            worker.close()
        try:
            worker = _Worker(self._module)
        except OSError as problem:
            raise WorkerError(f"the worker process can't be started: {problem}") from problem
        try:
            async with asyncio.timeout(START_SECONDS):
                await worker.read_line()  # it prints one when it is ready
        except BaseException as problem:
            worker.close()
            if isinstance(problem, OSError):  # TimeoutError is one
                raise WorkerError("the worker process doesn't start") from problem
            raise
        return worker


class _Worker:
    def __init__(self, module: str) -> None:
        self.busy_seconds = 0.0
        self._received = bytearray()
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        # No keys, but the same path to import from, whatever put the libraries on this process's path.
        environment = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        with theirs:
            # -P: otherwise the folder of the program comes first on its path, and with it our own module names.
            self._process = subprocess.Popen(
                [sys.executable, "-P", worker_main.__file__, module],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    async def ask(self, request: bytes) -> dict[str, Any]:
        start = time.monotonic()
        await asyncio.get_running_loop().sock_sendall(self._socket, request + b"\n")
        answer = json.loads(await self.read_line())
        self.busy_seconds += time.monotonic() - start
        return answer

    async def read_line(self) -> bytes:
        while b"\n" not in self._received:
            chunk = await asyncio.get_running_loop().sock_recv(self._socket, 65_536)
            if not chunk:
                raise ConnectionError("the worker is gone")
            self._received += chunk
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received[:] = rest
        return line

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


_pools: list[WorkerPool] = []


@atexit.register
def close_workers() -> None:
    """End all idle workers of this process; the next request that needs one starts another."""
    for pool in _pools:
        pool.close()

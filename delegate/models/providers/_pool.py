"""Shares one client per endpoint, since each client needs its own TLS context and connections."""

import asyncio
import atexit
import threading
import weakref
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, Protocol

from delegate._util import forking
from delegate.models.providers._connect import connect
from delegate.models.providers._endpoint import Endpoint
from delegate.types.ports import ChatClient


class Connect(Protocol):
    """A client factory: `connect`, or a custom function with the same signature."""

    def __call__(self, endpoint: Endpoint, *, timeout_seconds: float | None) -> ChatClient: ...


class _LoopClients:
    """The clients of one event loop. They are closed with the loop, if not before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.clients: dict[Endpoint, ChatClient] = {}
        self._until_loop_ends = self._close_at_end()
        _open.add(self)
        # Started without an `await`, since nothing in it waits. From now on, the loop finishes it when it shuts down
        # its asynchronous generators, as `asyncio.run` does at its end.
        with suppress(StopIteration):
            self._until_loop_ends.asend(None).send(None)

    async def aclose(self) -> None:
        """Close the clients, on their loop."""
        await self._close()
        await self._until_loop_ends.aclose()

    def close_soon(self) -> None:
        """Close the clients as soon as the loop gets to it. Safe to call from any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(lambda: _in_background(self.loop, self._close()))

    def close_without_loop(self) -> None:
        """Close the clients after their loop was closed, or at the end of the process, when no loop runs anymore."""
        if self.loop.is_running():
            return
        if not self.loop.is_closed():
            self.loop.run_until_complete(self.aclose())
            self.loop.close()
            return
        closing = self._close()
        try:
            _in_background(asyncio.get_running_loop(), closing)
        except RuntimeError:
            asyncio.run(closing)

    async def _close(self) -> None:
        _open.discard(self)
        async with AsyncExitStack() as stack:
            while self.clients:
                stack.push_async_callback(self.clients.popitem()[1].aclose)

    async def _close_at_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self._close()


def _in_background(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    task = loop.create_task(work)
    _closing.add(task)
    task.add_done_callback(_closing.discard)


_open: set[_LoopClients] = set()
"""The clients of all pools, also of those that are no longer used."""
_closing: set[asyncio.Task[None]] = set()


def _close_all(loops: dict[asyncio.AbstractEventLoop, _LoopClients]) -> None:
    for clients in tuple(loops.values()):
        clients.close_soon()


@atexit.register
def _close_at_exit() -> None:
    for pool in tuple(_open):
        with suppress(Exception):
            pool.close_without_loop()


class ClientPool:
    """Clients by endpoint and running event loop, since connections belong to a loop.

    No client outlives its loop. Safe to use from several event loops and threads.
    """

    def __init__(self, connect: Connect = connect, timeout_seconds: float | None = None) -> None:
        self._connect = connect
        self._seconds = timeout_seconds
        self._loops: dict[asyncio.AbstractEventLoop, _LoopClients] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, self._loops).atexit = False
        forking.watch(self)

    def client(self, endpoint: Endpoint) -> ChatClient:
        """The running loop's client for `endpoint`, created on first use. Raises `ConfigError` as `connect` does."""
        loop = asyncio.get_running_loop()
        with self._lock:
            here = self._loops.get(loop)
        if here is None:
            self._forget_closed_loops()
            here = _LoopClients(loop)
            with self._lock:
                self._loops[loop] = here
        if endpoint not in here.clients:
            here.clients[endpoint] = self._connect(endpoint, timeout_seconds=self._seconds)
        return here.clients[endpoint]

    async def aclose(self) -> None:
        """Close the running loop's clients. The pool may be used again."""
        self._forget_closed_loops()
        with self._lock:
            here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is not None:
            await here.aclose()

    def close_soon(self) -> None:
        """Close the running loop's clients without waiting for it. The pool may be used again at once."""
        loop = asyncio.get_running_loop()
        with self._lock:
            here = self._loops.pop(loop, None)
        if here is not None:
            _in_background(loop, here.aclose())

    def after_fork(self) -> None:
        """Start over. The parent process uses the connections, which must not be closed here."""
        self._lock = threading.Lock()
        forking.abandon(dict(self._loops))
        self._loops.clear()
        _open.clear()

    def _forget_closed_loops(self) -> None:
        with self._lock:
            closed = [loop for loop in self._loops if loop.is_closed()]
            clients = [self._loops.pop(loop) for loop in closed]
        for client in clients:
            client.close_without_loop()

"""Shares one client per endpoint, since each client needs its own TLS context and connections."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress
from typing import Protocol

from delegate._util import forking
from delegate.models.providers._connect import connect
from delegate.models.providers._endpoint import Endpoint
from delegate.ports import ChatClient


class Connect(Protocol):
    """A client factory: `connect`, or a custom function with the same signature."""

    def __call__(self, endpoint: Endpoint, *, timeout_seconds: float | None) -> ChatClient: ...


class _LoopClients:
    """The clients of one event loop. They are closed with the loop, if not before."""

    def __init__(self) -> None:
        self.clients: dict[Endpoint, ChatClient] = {}
        self._until_loop_ends = self._close_at_end()
        # Started without an `await`, since nothing in it waits. From now on, the loop finishes it when it shuts down
        # its asynchronous generators, as `asyncio.run` does at its end.
        with suppress(StopIteration):
            self._until_loop_ends.asend(None).send(None)

    async def aclose(self) -> None:
        await self._until_loop_ends.aclose()

    def abandon(self) -> None:
        """Close the clients after their loop was closed. Nothing on it can be awaited anymore."""
        for client in self.clients.values():
            closing = client.aclose()
            with suppress(Exception, asyncio.CancelledError):
                closing.__await__().send(None)
            with suppress(RuntimeError):
                closing.close()
        self.clients.clear()

    async def _close_at_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            async with AsyncExitStack() as stack:
                while self.clients:
                    stack.push_async_callback(self.clients.popitem()[1].aclose)


class ClientPool:
    """Clients by endpoint and running event loop, since connections belong to a loop.

    No client outlives its loop. Safe to use from several event loops and threads.
    """

    def __init__(self, connect: Connect = connect, timeout_seconds: float | None = None) -> None:
        self._connect = connect
        self._seconds = timeout_seconds
        self._loops: dict[asyncio.AbstractEventLoop, _LoopClients] = {}
        self._lock = threading.Lock()
        forking.watch(self)

    def client(self, endpoint: Endpoint) -> ChatClient:
        """The running loop's client for `endpoint`, created on first use. Raises `ConfigError` as `connect` does."""
        loop = asyncio.get_running_loop()
        with self._lock:
            here = self._loops.get(loop)
        if here is None:
            self._forget_closed_loops()
            here = _LoopClients()
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

    def after_fork(self) -> None:
        """Start over. The parent process uses the connections, which must not be closed here."""
        self._lock = threading.Lock()
        forking.abandon(self._loops)
        self._loops = {}

    def _forget_closed_loops(self) -> None:
        with self._lock:
            closed = [loop for loop in self._loops if loop.is_closed()]
            found = [self._loops.pop(loop) for loop in closed]
        for one in found:
            one.abandon()

"""Shares one client per endpoint, since each client needs its own TLS context and connections."""

import asyncio
import threading
from contextlib import AsyncExitStack
from typing import Protocol
from weakref import WeakKeyDictionary

from delegate.models.providers._connect import connect
from delegate.models.providers._endpoint import Endpoint
from delegate.ports import ChatClient


class Connect(Protocol):
    """A client factory: `connect`, or a custom function with the same signature."""

    def __call__(self, endpoint: Endpoint, *, timeout_seconds: float | None) -> ChatClient: ...


class ClientPool:
    """Clients by endpoint and running event loop, since connections belong to a loop.

    Safe to use from several event loops and threads.
    """

    def __init__(self, connect: Connect = connect, timeout_seconds: float | None = None) -> None:
        self._connect = connect
        self._seconds = timeout_seconds
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Endpoint, ChatClient]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def client(self, endpoint: Endpoint) -> ChatClient:
        """The running loop's client for `endpoint`, created on first use. Raises `ConfigError` as `connect` does."""
        loop = asyncio.get_running_loop()
        with self._lock:
            clients = self._clients.setdefault(loop, {})
        if endpoint not in clients:
            clients[endpoint] = self._connect(endpoint, timeout_seconds=self._seconds)
        return clients[endpoint]

    async def aclose(self) -> None:
        """Close the running loop's clients. The pool may be used again."""
        with self._lock:
            clients = self._clients.pop(asyncio.get_running_loop(), {})
        async with AsyncExitStack() as stack:
            for client in clients.values():
                stack.push_async_callback(client.aclose)

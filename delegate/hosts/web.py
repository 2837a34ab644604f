"""What the servers of this package share: the listening socket, the token, and a uvicorn that is stopped in order.

A web page in a browser on this machine can reach a loopback port. It doesn't have the token.
"""

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Scope

from delegate._util.cancellation import run_to_completion
from delegate._util.slow_clients import SlowClients
from delegate.types.errors import ConfigError

UNAUTHORIZED = "send the header `Authorization: Bearer TOKEN` with the server's token"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_SHUTDOWN_SECONDS = 10
"""How long calls that are stopped by the server's shutdown may take to end, and clients to read their answers."""


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Port 0 means any free port.

    Raises:
        ConfigError: the address can't be used.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise ConfigError(f"can't listen on {host}, port {port}: {reason}; choose another --port or --host") from None


def client_of(scope: Scope, tokens: Mapping[str, str]) -> str | None:
    """The name of the client whose token a request has. The time tells nothing about where tokens differ, nor which."""
    scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
    sent = token.strip().encode() if scheme.lower() == "bearer" else b""
    known = [name for name, expected in tokens.items() if secrets.compare_digest(sent, expected.encode())]
    return known[0] if known else None


class OpenRequests:
    """Counts requests that are being answered, except for those of event streams, which have no end."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()

    @contextmanager
    def one(self) -> Generator[None]:
        """A request is being answered inside the block."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            self._idle.set()

    async def none(self) -> None:
        """Wait until there is none."""
        while self._count:
            self._idle.clear()
            await self._idle.wait()


class WebServer(uvicorn.Server):
    """A uvicorn server that leaves signals to the program that runs it."""

    def __init__(self, app: ASGIApp, requests: OpenRequests) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        super().__init__(config)
        self._requests = requests
        self._slow = SlowClients[Any]()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture no signals."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Close the connections of clients that don't send a whole request. uvicorn calls this ten times a second."""
        if counter % 10 == 0:
            # Those that wait for a request, or for the rest of one. An event stream that is open has its whole request.
            waiting: dict[Any, object] = {
                one: one.cycle
                for one in cast("Iterable[Any]", self.server_state.connections)
                if one.transport is not None
                and (one.cycle is None or one.cycle.more_body or one.cycle.response_complete)
            }
            for connection in self._slow.to_close(waiting):
                connection.transport.abort()
        return await super().on_tick(counter)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until canceled. uvicorn alone would leave the sockets to the event loop if the task is canceled."""
        await run_to_completion(super().serve(sockets), self)

    def cancel(self) -> None:
        """Stop accepting requests, send the last answers, and exit."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait until the last answers have been sent, and end the event streams only then: an answer may be on one."""
        ending = asyncio.ensure_future(super().shutdown(sockets))
        answered = asyncio.ensure_future(self._requests.none())
        try:
            await asyncio.wait([ending, answered], return_when=asyncio.FIRST_COMPLETED)
            self.handle_exit(signal.SIGTERM, None)  # ends all event streams
            await ending
        finally:
            ending.cancel()
            answered.cancel()

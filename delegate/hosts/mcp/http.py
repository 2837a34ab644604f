"""Streamable HTTP: the SDK's own transport behind a door that wants a bearer token.

A web page in a browser on this machine can reach a loopback port. It hasn't the token, and the SDK refuses its Origin,
and a Host under which a foreign name was made to lead here.
"""

import os
import secrets
import signal
import socket
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from delegate._util.cancellation import Cancellation
from delegate.errors import ConfigError
from delegate.hosts.mcp.sdk import GONE

PATH = "/mcp"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_LAST_ANSWERS_SECONDS = 3
"""How long clients may take to read the answers of calls that were stopped with the server."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Port 0 means any free one. Raises ConfigError."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise ConfigError(f"can't listen on {host}, port {port}: {why}") from None


async def serve_http(
    server: Server[Any],
    listener: socket.socket,
    *,
    token: str,
    names: Sequence[str] = LOOPBACK,
    cancellation: Cancellation | None = None,
) -> None:
    """Serve at `PATH` of `listener`, and close it, when `cancellation` ends it and all calls that are under way.

    Args:
        server: what `server()` made.
        listener: from `listen`.
        token: what clients send as `Authorization: Bearer …`.
        names: under which clients may call this machine: what their Host header says, without a port.
        cancellation: ends it.
    """
    manager = StreamableHTTPSessionManager(server, security_settings=_known_as(names))
    stopping = cancellation or Cancellation()
    config = uvicorn.Config(
        _Door(manager, token, stopping),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=_LAST_ANSWERS_SECONDS,
    )
    async with manager.run():
        with _stopped_by(stopping, _Server(config)) as web:
            await web.serve(sockets=[listener])


def _known_as(names: Sequence[str]) -> TransportSecuritySettings:
    hosts = [host for name in names for host in (name, f"{name}:*")]
    origins = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


class _Door:
    """Lets requests with the token in, and ends what they asked for when they are over.

    The protocol before 2026-07-28 lets a client lose its connection and come back for the answer, where the server
    keeps it. This one doesn't, so children would work on for nobody.
    """

    def __init__(self, manager: StreamableHTTPSessionManager, token: str, stopping: Cancellation) -> None:
        self._manager = manager
        self._token = token.encode()
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._has_token(scope):
            refusal = PlainTextResponse("a bearer token is needed", 401, {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
        elif scope["path"] != PATH:
            await PlainTextResponse(f"the server is at {PATH}", 404)(scope, receive, send)
        else:
            with self._stopping.part() as gone:
                scope[GONE] = gone
                try:
                    await self._manager.handle_request(scope, receive, send)
                finally:
                    gone.cancel()

    def _has_token(self, scope: Scope) -> bool:
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), self._token)


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs us."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield

    def cancel(self) -> None:
        """Stop taking calls, let the last answers out, and end."""
        self.handle_exit(signal.SIGTERM, None)  # where streams of events look for their end


@contextmanager
def _stopped_by(cancellation: Cancellation, web: _Server) -> Generator[_Server]:
    cancellation.add(web)
    try:
        yield web
    finally:
        cancellation.remove(web)

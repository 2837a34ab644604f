"""Serves MCP over streamable HTTP: the SDK's own transport, with a bearer token.

A web page in a browser on this machine can reach a loopback port. It doesn't have the token, and the SDK rejects its
Origin header, and the Host header of a foreign name that was rebound to this machine.
"""

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from delegate._util.cancellation import Cancellation
from delegate._util.slow_clients import SlowClients
from delegate.errors import ConfigError
from delegate.hosts.mcp.clients import COOKIE
from delegate.hosts.mcp.sdk import DISCONNECTED, client_left

PATH = "/mcp"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_COOKIE = "delegate-client"
_COOKIE_CHARS = 22
"""The minimum length of a cookie's value: 128 random bits. A shorter one is not ours, and could be guessed."""
_TICKS = 10
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
        raise ConfigError(f"can't listen on {host}, port {port}: {reason}") from None


async def serve_http(
    server: Server[Any],
    listener: socket.socket,
    *,
    token: str,
    names: Sequence[str] = LOOPBACK,
    cancellation: Cancellation | None = None,
    keep: bool = False,
) -> None:
    """Serve at `PATH` on `listener` until canceled, then stop all running calls and close the listener.

    Args:
        server: the server that `server()` returned.
        listener: a socket from `listen`.
        token: the bearer token that clients must send as `Authorization: Bearer …`.
        names: the host names and addresses that a client's Host header may contain, without a port.
        cancellation: stops the server.
        keep: whether calls go on when their client disconnects, instead of being stopped.
    """
    manager = StreamableHTTPSessionManager(server, security_settings=_transport_security(names))
    shutdown = cancellation or Cancellation()
    app = _AuthenticatedApp(manager, token, shutdown, keep=keep)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    async with manager.run():
        with shutdown.linked(_Server(config, app)) as web_server:
            await web_server.serve(sockets=[listener])


def _transport_security(names: Sequence[str]) -> TransportSecuritySettings:
    hosts = [host for name in names for host in (name, f"{name}:*")]
    origins = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


class _AuthenticatedApp:
    """The ASGI app: requires the token, and stops the calls of a request when its connection ends.

    Protocol versions before 2026-07-28 let a client reconnect and fetch the answer from a server that stores it. This
    server doesn't, so after a disconnect nobody could read the answer.
    """

    def __init__(
        self, manager: StreamableHTTPSessionManager, token: str, shutdown: Cancellation, *, keep: bool
    ) -> None:
        self._manager = manager
        self._token = token.encode()
        self._shutdown = shutdown
        self._keep = keep
        self._open_requests = 0
        self._idle = asyncio.Event()

    async def answered(self) -> None:
        """Wait until all requests have been answered, except for those of event streams, which have no end."""
        while self._open_requests:
            self._idle.clear()
            await self._idle.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._has_token(scope):
            refusal = PlainTextResponse(
                "send the header `Authorization: Bearer TOKEN` with the server's token",
                401,
                {"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
        elif scope["path"] != PATH:
            await PlainTextResponse(f"not found: the MCP endpoint is {PATH}", 404)(scope, receive, send)
        else:
            with self._shutdown.part() as disconnected, self._counted(scope):
                scope[DISCONNECTED] = disconnected
                try:
                    await self._manager.handle_request(scope, receive, _with_cookie(scope, send))
                finally:
                    if not self._keep:
                        disconnected.cancel()
            if scope["method"] == "DELETE" and not self._keep:  # the end of a session
                client_left(self._manager.app, HTTPConnection(scope))

    @contextmanager
    def _counted(self, scope: Scope) -> Generator[None]:
        requests = 0 if scope["method"] == "GET" else 1
        self._open_requests += requests
        try:
            yield
        finally:
            self._open_requests -= requests
            self._idle.set()

    def _has_token(self, scope: Scope) -> bool:
        scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(token.strip().encode(), self._token)


def _with_cookie(scope: Scope, send: Send) -> Send:
    """Recognize a client without a session by its cookie, or give it one with the response.

    Protocol version 2026-07-28 has no sessions, and all clients may have the same token.
    """
    if "mcp-session-id" in Headers(scope=scope):
        return send
    sent = HTTPConnection(scope).cookies.get(_COOKIE, "")
    scope[COOKIE] = value = sent if len(sent) >= _COOKIE_CHARS else secrets.token_urlsafe()
    if value == sent:
        return send

    async def send_with_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            cookie = f"{_COOKIE}={value}; Path={PATH}; HttpOnly; SameSite=Strict"
            MutableHeaders(scope=message).append("Set-Cookie", cookie)
        await send(message)

    return send_with_cookie


def _waiting(connections: Iterable[Any]) -> dict[Any, object]:
    """The connections that wait for a request, or for the rest of the one that they are given with.

    An event stream that is open has its whole request.
    """
    return {
        one: one.cycle
        for one in connections
        if one.transport is not None and (one.cycle is None or one.cycle.more_body or one.cycle.response_complete)
    }


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the program that runs it."""

    def __init__(self, config: uvicorn.Config, app: _AuthenticatedApp) -> None:
        super().__init__(config)
        self._app = app
        self._slow = SlowClients[Any]()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture no signals."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Close the connections of clients that don't send a whole request. uvicorn calls this ten times a second."""
        if counter % _TICKS == 0:
            for connection in self._slow.to_close(_waiting(self.server_state.connections)):
                connection.transport.abort()
        return await super().on_tick(counter)

    def cancel(self) -> None:
        """Stop accepting requests, send the last answers, and exit."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait until the last answers have been sent, and end the event streams only then: an answer may be on one."""
        ending, answered = asyncio.ensure_future(super().shutdown(sockets)), asyncio.ensure_future(self._app.answered())
        try:
            await asyncio.wait([ending, answered], return_when=asyncio.FIRST_COMPLETED)
            self.handle_exit(signal.SIGTERM, None)  # ends all event streams
            await ending
        finally:
            ending.cancel()
            answered.cancel()

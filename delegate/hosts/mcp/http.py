"""Serves MCP over streamable HTTP: the SDK's own transport, with a bearer token.

A web page in a browser on this machine can reach a loopback port. It doesn't have the token, and the SDK rejects its
Origin header, and the Host header of a foreign name that was rebound to this machine.
"""

import secrets
import socket
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from delegate._util.cancellation import Cancellation
from delegate.hosts.mcp.clients import COOKIE
from delegate.hosts.mcp.sdk import DISCONNECTED, tools_of
from delegate.hosts.web import LOOPBACK, UNAUTHORIZED, OpenRequests, WebServer, client_of

PATH = "/mcp"
_COOKIE = "delegate-client"
_COOKIE_CHARS = 22
"""The minimum length of a cookie's value: 128 random bits. A shorter one is not ours, and could be guessed."""


async def serve_http(
    server: Server[Any],
    listener: socket.socket,
    *,
    token: str,
    names: Sequence[str] = LOOPBACK,
    cancellation: Cancellation | None = None,
    keep: bool = False,
) -> None:
    """Serve at `PATH` on `listener` until cancelled, then stop all running calls and close the listener.

    Args:
        server: the server that `server()` returned.
        listener: a socket from `listen`.
        token: the bearer token that clients must send as `Authorization: Bearer …`.
        names: the host names and addresses that a client's Host header may contain, without a port.
        cancellation: stops the server.
        keep: whether calls go on when their client disconnects, instead of being stopped.
    """
    hosts = [host for name in names for host in (name, f"{name}:*")]
    origins = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)
    manager = StreamableHTTPSessionManager(server, security_settings=security)
    shutdown = cancellation or Cancellation()
    app = _AuthenticatedApp(manager, token, shutdown, keep)
    async with manager.run():
        with shutdown.linked(WebServer(app, app.open_requests)) as web_server:
            await web_server.serve(sockets=[listener])


@dataclass
class _AuthenticatedApp:
    """The ASGI app: requires the token, and stops the calls of a request when its connection ends.

    Protocol versions before 2026-07-28 let a client reconnect and fetch the answer from a server that stores it. This
    server doesn't, so after a disconnect nobody could read the answer.
    """

    _manager: StreamableHTTPSessionManager
    _token: str
    _shutdown: Cancellation
    _keep: bool
    open_requests: OpenRequests = field(default_factory=OpenRequests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if client_of(scope, {"client": self._token}) is None:
            refusal = PlainTextResponse(UNAUTHORIZED, 401, {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
        elif scope["path"] != PATH:
            await PlainTextResponse(f"not found: the MCP endpoint is {PATH}", 404)(scope, receive, send)
        else:
            # A GET opens an event stream, which has no end.
            counted = nullcontext() if scope["method"] == "GET" else self.open_requests.one()
            with self._shutdown.part() as disconnected, counted:
                scope[DISCONNECTED] = disconnected
                try:
                    await self._manager.handle_request(scope, receive, _with_cookie(scope, send))
                finally:
                    if not self._keep:
                        disconnected.cancel()
            if scope["method"] == "DELETE" and not self._keep:  # the end of a session
                tools = tools_of(self._manager.app)
                tools.stop(tools.clients.identify(HTTPConnection(scope)))


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

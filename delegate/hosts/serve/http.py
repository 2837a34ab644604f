"""Serves delegate to programs in any language: HTTP and JSON, with a bearer token. See `/openapi.json`."""

import json
import os
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from importlib.metadata import version
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.authentication import SimpleUser
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from delegate._util.cancellation import Cancellation
from delegate.contract.reading import MAX_CALL_CHARS
from delegate.delegator import Delegator
from delegate.hosts.serve import openapi
from delegate.hosts.serve.operations import ANSWER, OPERATIONS, Operation, error_body, parse_json
from delegate.hosts.serve.scoring import WireError
from delegate.hosts.serve.service import MAX_OPEN, CallState, Service
from delegate.hosts.web import LOOPBACK, UNAUTHORIZED, OpenRequests, WebServer, client_of, listen
from delegate.types import ErrorDetail
from delegate.types.errors import CallError, ConfigError, DelegateError

__all__ = ["LOOPBACK", "listen", "listen_on_path", "serve", "url_of"]

MAX_BODY_BYTES = 16 * MAX_CALL_CHARS
"""How long a request may be: reports and receipts to be judged are longer than calls."""
_FREE = ("/openapi.json", "/healthz", "/.well-known/agent-card.json")
"""What needs no token."""
_STATUS = {"invalid_json": 400, "unknown_handle": 404, "unknown_approval": 404, "too_large": 413, "too_many_calls": 429}
"""The status of refusals, by their code; 422 for all others."""


def listen_on_path(path: Path) -> socket.socket:
    """Open a listening Unix socket that only this user can reach. A socket that nobody listens on is replaced.

    Raises:
        ConfigError: the path can't be used.
    """
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        if path.is_socket():
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(str(path)) == 0:
                    raise OSError(f"another server listens on {path}")
            path.unlink()
        listener.bind(str(path))
        listener.listen()
        return listener
    except OSError as error:
        listener.close()
        raise ConfigError(f"can't listen on {path}: {error.strerror or error}; choose another --socket") from None
    finally:
        os.umask(before)


async def serve(
    delegator: Delegator,
    listener: socket.socket,
    *,
    tokens: Mapping[str, str],
    names: Sequence[str] = LOOPBACK,
    max_open: int = MAX_OPEN,
    a2a: bool = False,
    cancellation: Cancellation | None = None,
) -> None:
    """Serve on `listener` until cancelled, then stop all running calls and close the listener.

    Args:
        delegator: Runs the tasks.
        listener: A socket from `listen` or `listen_on_path`.
        tokens: The bearer token of each client, by its name. With several, each client reads and stops only its own
            tasks.
        names: The host names and addresses that a client's Host header may contain, without a port.
        max_open: How many calls one client may have running at a time.
        a2a: Also serves A2A agents, at `/a2a`, with an agent card. Needs the extra `a2a`.
        cancellation: Stops the server.
    """
    service = Service(delegator, max_open=max_open, shared_records=len(tokens) == 1)
    more: list[Route] = []
    if a2a:
        from delegate.hosts.serve import a2a as agents  # its types take 0.2 s to load

        more = agents.routes(service, url_of(listener), version("delegate-task"))
    app = _App(service, tokens, names if listener.family != socket.AF_UNIX else (), more)
    with listener, (cancellation or Cancellation()).linked(WebServer(app, app.open_requests)) as web_server:
        await web_server.serve(sockets=[listener])


def url_of(listener: socket.socket) -> str:
    """What a server is reached at, without a path."""
    if listener.family == socket.AF_UNIX:
        return "http://localhost"
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _App:
    """The ASGI app: knows the client of each request by its token, and answers every error as JSON."""

    def __init__(
        self, service: Service, tokens: Mapping[str, str], names: Sequence[str], more: Sequence[Route] = ()
    ) -> None:
        self._tokens = tokens
        self._names = names
        self.open_requests = OpenRequests()
        self._app = Starlette(
            routes=[
                Route("/healthz", JSONResponse({"status": "ok"}), methods=["GET"]),
                Route("/openapi.json", _document),
                *(_route(service, one) for one in OPERATIONS),
                *more,
            ],
            exception_handlers={HTTPException: _http_error, DelegateError: _refused, ClientDisconnect: _gone},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope)
        is_stream = scope["path"].endswith("/events")
        if refusal is not None:
            await refusal(scope, receive, send)
        elif is_stream:
            await self._app(scope, receive, send)
        else:
            with self.open_requests.one():
                await self._app(scope, _limited(receive), send)

    def _refusal(self, scope: Scope) -> Response | None:
        """Why a request isn't answered, and which client made it."""
        host = Headers(scope=scope).get("host", "")
        host = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        if self._names and host not in self._names:
            hint = f"address the server as {' or '.join(self._names)}"
            return _error(421, ErrorDetail(code="wrong_host", message="this is another host", field="Host", hint=hint))
        if scope["path"] in _FREE:
            return None
        client = client_of(scope, self._tokens)
        if client is None:
            detail = ErrorDetail(code="unauthorized", message="the token is missing or wrong", hint=UNAUTHORIZED)
            return _error(401, detail, {"WWW-Authenticate": "Bearer"})
        scope["user"] = SimpleUser(client)
        return None


def _limited(receive: Receive) -> Receive:
    """Receive a body, up to a length. Longer ones raise CallError."""
    left = MAX_BODY_BYTES

    async def limited() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise CallError("too_large", f"the body has over {MAX_BODY_BYTES:,} bytes", hint="send less")
        return message

    return limited


async def _document(request: Request) -> Response:
    return JSONResponse(openapi.document())


def _route(service: Service, operation: Operation) -> Route:
    method, path = operation.path.split()

    async def endpoint(request: Request) -> Response:
        names = dict(request.query_params) | request.path_params
        body = parse_json(await request.body(), "body") if operation.body else None
        answer = await operation.answer(service, request.user.display_name, names, body)
        if operation.is_stream:
            return StreamingResponse(_sse(answer), media_type="text/event-stream", headers=_UNBUFFERED)
        if answer is None:
            return Response(status_code=204)
        status = 202 if isinstance(answer, CallState) and answer.state != "done" else 200
        return Response(ANSWER.dump_json(answer, by_alias=True), status, media_type="application/json")

    return Route(path, endpoint, methods=[method])


_UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def _sse(events: AsyncGenerator[Any]) -> AsyncGenerator[bytes]:
    n = 0
    async with aclosing(events):
        async for event in events:
            yield f"id: {n}\nevent: {event['kind']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
            n += 1
        yield b"event: end\ndata: {}\n\n"


def _error(status: int, detail: ErrorDetail, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": detail.model_dump(mode="json")}, status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, DelegateError)
    status, headers = 503, None
    if isinstance(error, WireError):
        status = error.status
    elif isinstance(error, CallError):
        status = _STATUS.get(error.code, 422)
        headers = {"Retry-After": "1"} if status == 429 else None
    return JSONResponse(error_body(error), status, headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, hint = "wrong_method", f"use {(error.headers or {}).get('Allow')}"
    if error.status_code == 404:
        code, hint = "unknown_path", "the paths are in /openapi.json"
    detail = ErrorDetail(code=code, message=f"{request.method} {request.url.path}: {error.detail}", hint=hint)
    return _error(error.status_code, detail, error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it

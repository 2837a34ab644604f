"""Serves delegate on stdin and stdout: one JSON object per line in each direction.

    → {"id": 1, "method": "call", "params": {"call": {"goal": "…"}, "wait_seconds": 60}}
    ← {"id": 1, "result": {"state": "done", …}}
    ← {"id": 2, "error": {"code": "unknown_handle", "message": "…", …}}
    ← {"method": "event", "params": {"id": 3, "event": {…}}}

Requests are answered when they are done, in any order. `events` is answered at the end of the events.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from pydantic import Field, TypeAdapter

from delegate.delegator import Delegator
from delegate.engine.error_mapping import error_detail
from delegate.errors import CallError, DelegateError
from delegate.hosts.serve.scoring import METHODS, WireError, list_rubrics
from delegate.hosts.serve.service import (
    MAX_OPEN,
    MAX_WAIT_SECONDS,
    ApprovalReply,
    CallRequest,
    MessageRequest,
    Request,
    Service,
    parse,
)
from delegate.types import ErrorDetail, JsonObject

_CLIENT = "stdin"
_PLAIN = TypeAdapter[Any](Any)
Send = Callable[[JsonObject], None]


class HandleRequest(Request):
    """Names a task."""

    handle: str


class ReadRequest(HandleRequest):
    """Names a task to wait for."""

    wait_seconds: float = Field(default=0, ge=0, le=MAX_WAIT_SECONDS)


class SendRequest(MessageRequest, HandleRequest):
    """Sends a message to the child of a task."""


class ApproveRequest(ApprovalReply):
    """Answers a request for an approval."""

    sha256: str


class Rpc:
    """Answers lines. `send` writes one object as a line, and is never called by two tasks at once."""

    def __init__(self, delegator: Delegator, send: Send, *, max_open: int = MAX_OPEN) -> None:
        self._service = Service(delegator, max_open=max_open)
        self._send = send
        self._answering: set[asyncio.Task[None]] = set()

    def take(self, line: str) -> None:
        """Begin to answer a line."""
        if line.strip():
            task = asyncio.create_task(self._answer(line))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def finish(self) -> None:
        """Wait until all lines are answered."""
        while self._answering:
            await asyncio.wait(self._answering)

    async def _answer(self, line: str) -> None:
        id: object = None
        try:
            message = _message(line)
            id = message.get("id")
            result = await self._result(id, str(message.get("method")), message.get("params") or {})
            self._send({"id": id, "result": _plain(result)})
        except WireError as error:
            self._send({"id": id, **error.body})
        except DelegateError as error:
            self._send({"id": id, "error": _detail(error).model_dump(mode="json")})

    async def _result(self, id: object, method: str, params: object) -> Any:  # noqa: C901 - one case for each method
        service = self._service
        match method:
            case "call":
                return await service.call(_CLIENT, parse(CallRequest, params))
            case "read":
                request = parse(ReadRequest, params)
                return await service.read(_CLIENT, request.handle, wait_seconds=request.wait_seconds)
            case "stop":
                return await service.stop(_CLIENT, parse(HandleRequest, params).handle)
            case "message":
                sent = parse(SendRequest, params)
                return await service.message(_CLIENT, sent.handle, sent)
            case "messages":
                return await service.messages(_CLIENT, parse(HandleRequest, params).handle)
            case "events":
                async for event in service.events(_CLIENT, parse(HandleRequest, params).handle):
                    self._send({"method": "event", "params": {"id": id, "event": event}})
                return {}
            case "judge" | "listRubrics" | "version":
                return await _shared(service, method, params)
            case "approvals":
                return service.approvals(_CLIENT)
            case "approve":
                reply = parse(ApproveRequest, params)
                service.approve(_CLIENT, reply.sha256, ApprovalReply(**reply.model_dump(exclude={"sha256"})))
                return {}
            case _:
                hint = (
                    "use version, call, read, stop, message, messages, events, judge, listRubrics, approvals or approve"
                )
                raise CallError("wrong_type", f"there is no method {method!r:.60}", field="method", hint=hint)


def _read(text: str) -> Any:
    """The JSON in a text. Raises CallError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CallError("invalid_json", f"the line is not valid JSON: {error}") from None


def _message(line: str) -> Mapping[str, Any]:
    message = _read(line)
    if not isinstance(message, dict):
        raise CallError("wrong_type", "the line is not a JSON object", hint="send one with `id`, `method`, `params`")
    return cast("Mapping[str, Any]", message)


def _detail(error: DelegateError) -> ErrorDetail:
    if isinstance(error, CallError):
        return error_detail(error)
    return ErrorDetail(code="config_error", message=str(error))


def _plain(result: Any) -> Any:
    return _PLAIN.dump_python(result, mode="json", by_alias=True)


async def _shared(service: Service, method: str, params: Any) -> Any:
    """The result of a method that agent-eval's protocol has too."""
    match method:
        case "judge":
            return await service.judge_any(params)
        case "listRubrics":
            return list_rubrics()
        case _:
            return service.version()


async def answer(delegator: Delegator, method: str, text: str) -> JsonObject:
    """The answer to one request of agent-eval's protocol: its `result`, or its `error`."""
    try:
        if method not in METHODS:
            message = f"there is no method {method!r:.60}; use one of {', '.join(METHODS)}"
            raise WireError("unknown_method", message, 400)
        params = _read(text) if method == "judge" else None
        return {"result": _plain(await _shared(Service(delegator), method, params))}
    except WireError as error:
        return error.body
    except DelegateError as error:
        return {"error": _detail(error).model_dump(mode="json")}


async def serve_lines(
    delegator: Delegator, read: Callable[[], Awaitable[str]], send: Send, *, max_open: int = MAX_OPEN
) -> None:
    """Answer lines until `read` returns none, and then until all of them are answered."""
    rpc = Rpc(delegator, send, max_open=max_open)
    while line := await read():
        rpc.take(line)
    await rpc.finish()

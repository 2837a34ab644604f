"""Serves delegate on stdin and stdout: one JSON object per line in each direction.

    → {"id": 1, "method": "call", "params": {"call": {"goal": "…"}, "wait_seconds": 60}}
    ← {"id": 1, "result": {"state": "done", …}}
    ← {"id": 2, "error": {"code": "unknown_handle", "message": "…", …}}
    ← {"method": "event", "params": {"id": 3, "event": {…}}}

Requests are answered when they are done, in any order. `events` is answered at the end of the events.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from delegate.delegator import Delegator
from delegate.hosts.serve.operations import ANSWER, OPERATIONS, error_body, parse_json
from delegate.hosts.serve.scoring import METHODS, WireError
from delegate.hosts.serve.service import MAX_OPEN, Service
from delegate.types import JsonObject
from delegate.types.errors import CallError, DelegateError

_CLIENT = "stdin"
_BY_METHOD = {one.method: one for one in OPERATIONS}
Emit = Callable[[JsonObject], None]


async def serve_lines(
    delegator: Delegator, read: Callable[[], Awaitable[str]], emit: Emit, *, max_open: int = MAX_OPEN
) -> None:
    """Answer lines until `read` returns none, and then until all of them are answered.

    `emit` writes one object as a line, and is never called by two tasks at once.
    """
    service, answering = Service(delegator, max_open=max_open), set[asyncio.Task[None]]()
    while line := await read():
        if line.strip():
            task = asyncio.create_task(_answer(service, line, emit))
            answering.add(task)
            task.add_done_callback(answering.discard)
    while answering:
        await asyncio.wait(answering)


async def _answer(service: Service, line: str, emit: Emit) -> None:
    id: object = None
    try:
        message = parse_json(line, "line")
        if not isinstance(message, dict):
            hint = "send one with `id`, `method`, `params`"
            raise CallError("wrong_type", "the line is not a JSON object", hint=hint)
        fields = cast("Mapping[str, object]", message)
        id, method, params = fields.get("id"), str(fields.get("method")), fields.get("params")
        if (operation := _BY_METHOD.get(method)) is None:
            hint = f"use one of {', '.join(_BY_METHOD)}"
            raise CallError("unknown_method", f"there is no method {method!r:.60}", field="method", hint=hint)
        given = cast("JsonObject", params) if isinstance(params, dict) else {}
        names = {name: value for name, value in given.items() if name in operation.names.model_fields}
        body = {name: value for name, value in given.items() if name not in names}
        answer = await operation.answer(service, _CLIENT, names if operation.body else given, body)
        if operation.is_stream:
            async for event in answer:
                emit({"method": "event", "params": {"id": id, "event": event}})
            answer = None
        emit({"id": id, "result": _plain(answer)})
    except DelegateError as error:
        emit({"id": id, **error_body(error)})


def _plain(answer: object) -> object:
    return {} if answer is None else ANSWER.dump_python(answer, mode="json", by_alias=True)


async def answer(delegator: Delegator, method: str, text: str) -> JsonObject:
    """The answer to one request of agent-eval's protocol: its `result`, or its `error`."""
    try:
        if method not in METHODS:
            message = f"there is no method {method!r:.60}; use one of {', '.join(METHODS)}"
            raise WireError("unknown_method", message, 400)
        params = parse_json(text, "line") if method == "judge" else None
        return {"result": _plain(await _BY_METHOD[method].answer(Service(delegator), _CLIENT, {}, params))}
    except DelegateError as error:
        return error_body(error)

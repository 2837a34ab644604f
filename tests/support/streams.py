"""Convert a whole reply to the server-sent events of the same API: few large events, but every type of them."""

import json
from collections.abc import Callable, Iterator

from tests.support.wire_formats import Api, Json


def stream(api: Api, wire: Json) -> bytes:
    """Return the body of a streamed reply."""
    return "".join(_STREAMS[api](wire)).encode()


def _chat(wire: Json) -> Iterator[str]:
    head = {**wire, "object": "chat.completion.chunk", "usage": None}
    choice = wire["choices"][0]
    delta = {name: value for name, value in choice["message"].items() if value is not None}
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": n, **call} for n, call in enumerate(delta["tool_calls"])]
    yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    yield _event({**head, "choices": [], "usage": wire["usage"]})
    yield "data: [DONE]\n\n"


def _messages(wire: Json) -> Iterator[str]:
    usage = {**wire["usage"], "output_tokens": 1}
    yield _typed("message_start", message={**wire, "content": [], "stop_reason": None, "usage": usage})
    for n, block in enumerate(wire["content"]):
        yield from _message_block(n, block)
    stop = {"stop_reason": wire["stop_reason"], "stop_sequence": None}
    yield _typed("message_delta", delta=stop, usage=wire["usage"])
    yield _typed("message_stop")


def _message_block(n: int, block: Json) -> Iterator[str]:
    empty: Json
    if block["type"] == "text":
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    elif block["type"] == "tool_use":
        empty = dict(block, input={})
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        empty, delta = {**block, "signature": ""}, {"type": "signature_delta", "signature": block["signature"]}
    yield _typed("content_block_start", index=n, content_block=empty)
    yield _typed("content_block_delta", index=n, delta=delta)
    yield _typed("content_block_stop", index=n)


def _responses(wire: Json) -> Iterator[str]:
    begun: Json = {**wire, "status": "in_progress", "output": [], "usage": None}
    yield _typed("response.created", sequence_number=0, response=begun)
    for n, item in enumerate(wire["output"]):
        yield _typed("response.output_item.added", sequence_number=2 * n + 1, output_index=n, item=item)
        yield _typed("response.output_item.done", sequence_number=2 * n + 2, output_index=n, item=item)
    last = 2 * len(wire["output"]) + 1
    yield _typed(f"response.{wire['status']}", sequence_number=last, response=wire)


def _generate(wire: Json) -> Iterator[str]:
    yield _event(wire)


def _event(data: Json) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _typed(kind: str, **data: object) -> str:
    return f"event: {kind}\n" + _event({"type": kind, **data})


_STREAMS: dict[Api, Callable[[Json], Iterator[str]]] = {
    "chat": _chat,
    "messages": _messages,
    "responses": _responses,
    "generate": _generate,
}

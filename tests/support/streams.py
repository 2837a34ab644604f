"""Convert a whole reply to the server-sent events of the same API, with every type of them."""

import json
from collections.abc import Callable, Iterator

from tests.support.wire_formats import Api, Json


def stream(api: Api, wire: Json) -> bytes:
    """Return the body of a streamed reply: few large events."""
    return b"".join(events(api, wire, chars=1 << 30))


def events(api: Api, wire: Json, *, chars: int) -> list[bytes]:
    """Return the events of a streamed reply, of which each has at most so many characters of a text."""
    return [event.encode() for event in _STREAMS[api](wire, chars)]


def _pieces(text: str, chars: int) -> Iterator[str]:
    for start in range(0, len(text), chars):
        yield text[start : start + chars]


def _chat(wire: Json, chars: int) -> Iterator[str]:
    head = {**wire, "object": "chat.completion.chunk", "usage": None}
    choice = wire["choices"][0]
    delta = {name: value for name, value in choice["message"].items() if value is not None}
    calls: list[Json] = delta.pop("tool_calls", [])
    texts = {name: delta.pop(name) for name in ("reasoning_content", "content") if isinstance(delta.get(name), str)}
    yield _chunk(head, delta)
    for name, text in texts.items():
        for piece in _pieces(text, chars):
            yield _chunk(head, {name: piece})
    for n, call in enumerate(calls):
        function = call["function"]
        yield _chunk(head, {"tool_calls": [{"index": n, **call, "function": {**function, "arguments": ""}}]})
        for piece in _pieces(function["arguments"], chars):
            yield _chunk(head, {"tool_calls": [{"index": n, "function": {"arguments": piece}}]})
    yield _chunk(head, {}, choice["finish_reason"])
    yield _event({**head, "choices": [], "usage": wire["usage"]})
    yield "data: [DONE]\n\n"


def _chunk(head: Json, delta: Json, reason: str | None = None) -> str:
    return _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def _messages(wire: Json, chars: int) -> Iterator[str]:
    usage = {**wire["usage"], "output_tokens": 1}
    yield _typed("message_start", message={**wire, "content": [], "stop_reason": None, "usage": usage})
    for n, block in enumerate(wire["content"]):
        yield from _message_block(n, block, chars)
    stop = {"stop_reason": wire["stop_reason"], "stop_sequence": None}
    yield _typed("message_delta", delta=stop, usage=wire["usage"])
    yield _typed("message_stop")


def _message_block(n: int, block: Json, chars: int) -> Iterator[str]:
    begun: Json = {}
    deltas: list[tuple[str, str, str]] = []
    if block["type"] == "text":
        begun, deltas = {"text": ""}, [("text_delta", "text", block["text"])]
    elif block["type"] == "tool_use":
        begun, deltas = {"input": {}}, [("input_json_delta", "partial_json", json.dumps(block["input"]))]
    elif block["type"] == "thinking":
        begun = {"thinking": "", "signature": ""}
        deltas = [
            ("thinking_delta", "thinking", block["thinking"]),
            ("signature_delta", "signature", block["signature"]),
        ]
    yield _typed("content_block_start", index=n, content_block={**block, **begun})
    for kind, name, text in deltas:
        for piece in _pieces(text, chars):
            yield _typed("content_block_delta", index=n, delta={"type": kind, name: piece})
    yield _typed("content_block_stop", index=n)


def _responses(wire: Json, chars: int) -> Iterator[str]:
    begun: Json = {**wire, "status": "in_progress", "output": [], "usage": None}
    yield _typed("response.created", sequence_number=0, response=begun)
    for n, item in enumerate(wire["output"]):
        yield _typed("response.output_item.added", sequence_number=2 * n + 1, output_index=n, item=item)
        for part in item.get("content") or () if item["type"] == "message" else ():
            for piece in _pieces(part.get("text", ""), chars):
                yield _typed("response.output_text.delta", output_index=n, content_index=0, delta=piece)
        arguments = item.get("arguments", "")  # an object in a call of a tool that OpenAI defines
        for piece in _pieces(arguments if isinstance(arguments, str) else "", chars):
            yield _typed("response.function_call_arguments.delta", output_index=n, delta=piece)
        yield _typed("response.output_item.done", sequence_number=2 * n + 2, output_index=n, item=item)
    last = 2 * len(wire["output"]) + 1
    yield _typed(f"response.{wire['status']}", sequence_number=last, response=wire)


def _generate(wire: Json, chars: int) -> Iterator[str]:
    candidate = wire["candidates"][0]
    for part in candidate.get("content", {}).get("parts", ()):
        whole = part.get("text", "")
        for piece in list(_pieces(whole, chars))[:-1] if part.keys() <= {"text", "thought"} else ():
            yield _event({"candidates": [{"content": {"role": "model", "parts": [{**part, "text": piece}]}}]})
            whole = whole[len(piece) :]
        rest = {**part, "text": whole} if "text" in part else part
        yield _event({"candidates": [{"content": {"role": "model", "parts": [rest]}}]})
    ended = {name: value for name, value in candidate.items() if name != "content"}
    yield _event({**wire, "candidates": [ended]} if ended else wire)


def _event(data: Json) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _typed(kind: str, **data: object) -> str:
    return f"event: {kind}\n" + _event({"type": kind, **data})


_STREAMS: dict[Api, Callable[[Json, int], Iterator[str]]] = {
    "chat": _chat,
    "messages": _messages,
    "responses": _responses,
    "generate": _generate,
}

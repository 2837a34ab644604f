"""The wire formats of four model APIs: reading requests and writing replies.

One class per API, all with the same five members, so that a test can speak of systems, texts and tool calls and
leave the spelling to this module. `Reply` counts tokens as the bill does: input includes cached tokens, output
includes reasoning; each API's own arithmetic is applied when it is rendered.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

Json = dict[str, Any]
Api = Literal["chat", "responses", "messages", "generate", "models", "other"]
Stop = Literal["end", "tool_calls", "length", "context", "malformed_call", "refusal"]
"""`context` and `malformed_call` don't exist in the Responses API, and `malformed_call` not in Anthropic's."""
Turn = tuple[Literal["user", "assistant", "tool"], str]


@dataclass(frozen=True)
class Reply:
    """A model's reply. `delay` is in seconds. `stop` is derived from the other fields if it isn't given."""

    text: str = ""
    tool_calls: tuple[tuple[str, Json], ...] = ()
    stop: Stop | None = None
    input_tokens: int = 10
    output_tokens: int = 5
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    """If above 0, the reply also has the API's own reasoning item, which the next request should send back."""
    refusal: str | None = None
    model: str | None = None
    """The model's name in the reply. Default: the requested model."""
    delay: float = 0.0

    @property
    def stopped(self) -> Stop:
        if self.stop is not None:
            return self.stop
        if self.refusal is not None:
            return "refusal"
        return "tool_calls" if self.tool_calls else "end"


class WireFormat(Protocol):
    """Reads the requests of one API and writes its replies. `number` makes ids unique."""

    def system(self, body: Json) -> str: ...
    def turns(self, body: Json) -> Iterator[Turn]: ...
    def tool_names(self, body: Json) -> list[str]: ...
    def reply_schema(self, body: Json) -> Json | None: ...
    def render(self, reply: Reply, model: str, number: int) -> Json: ...
    def error(self, status: int, message: str) -> Json: ...


def flat(content: Any) -> str:
    """Return the text in a string, a block or a list of blocks, ignoring other kinds of blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text for text in map(flat, cast("list[Any]", content)) if text)
    return str(_dig(content, "text") or _dig(content, "refusal") or "")


class Chat:
    """OpenAI Chat Completions. Also used for requests that aren't model calls and have no body."""

    def system(self, body: Json) -> str:
        return "\n".join(
            flat(m.get("content")) for m in body.get("messages", ()) if m["role"] in {"system", "developer"}
        )

    def turns(self, body: Json) -> Iterator[Turn]:
        for message in body.get("messages", ()):
            if message["role"] in {"user", "assistant", "tool"}:
                yield message["role"], flat(message.get("content"))

    def tool_names(self, body: Json) -> list[str]:
        return [tool["function"]["name"] for tool in body.get("tools") or ()]

    def reply_schema(self, body: Json) -> Json | None:
        return _dig(body, "response_format", "json_schema", "schema")

    def render(self, reply: Reply, model: str, number: int) -> Json:
        message: Json = {"role": "assistant", "content": reply.text or None, "refusal": reply.refusal}
        if reply.tool_calls:
            message["tool_calls"] = [
                {"id": f"call_{number}_{n}", "type": "function", "function": {"name": name, "arguments": _text(args)}}
                for n, (name, args) in enumerate(reply.tool_calls)
            ]
        return {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish(reply)}],
            "usage": {
                "prompt_tokens": reply.input_tokens,
                "completion_tokens": reply.output_tokens,
                "total_tokens": reply.input_tokens + reply.output_tokens,
                "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
                "completion_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
            },
        }

    def _finish(self, reply: Reply) -> str:
        if reply.refusal is not None and reply.stopped == "refusal":
            return "stop"  # the model's own refusal ends cleanly; only the filter's has a word of its own
        words = {"end": "stop", "refusal": "content_filter", "context": "model_context_window_exceeded"}
        return {**words, "malformed_call": "malformed_function_call"}.get(reply.stopped, reply.stopped)

    def error(self, status: int, message: str) -> Json:
        return {"error": {"message": message, "type": "error", "param": None, "code": str(status)}}


class Responses:
    """OpenAI Responses."""

    def system(self, body: Json) -> str:
        texts = [body.get("instructions") or ""]
        texts += [flat(i.get("content")) for i in self._items(body) if i.get("role") in {"system", "developer"}]
        return "\n".join(filter(None, texts))

    def turns(self, body: Json) -> Iterator[Turn]:
        for item in self._items(body):
            if item.get("type") == "function_call_output":
                yield "tool", flat(item["output"])
            elif item.get("role") in {"user", "assistant"}:
                yield item["role"], flat(item.get("content"))

    def tool_names(self, body: Json) -> list[str]:
        return [tool["name"] for tool in body.get("tools") or ()]

    def reply_schema(self, body: Json) -> Json | None:
        return _dig(body, "text", "format", "schema")

    def render(self, reply: Reply, model: str, number: int) -> Json:
        cut = {"length": "max_output_tokens", "refusal": "content_filter"}.get(reply.stopped)
        cut = None if reply.refusal is not None else cut
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": cut} if cut else None,
            "error": None,
            "instructions": None,
            "metadata": {},
            "model": model,
            "output": list(self._output(reply, number)),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": reply.input_tokens,
                "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": reply.output_tokens,
                "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
                "total_tokens": reply.input_tokens + reply.output_tokens,
            },
        }

    def _output(self, reply: Reply, number: int) -> Iterator[Json]:
        if reply.reasoning_tokens:
            yield {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"sealed-{number}"}
        content: list[Json] = []
        if reply.text:
            content.append({"type": "output_text", "text": reply.text, "annotations": []})
        if reply.refusal is not None:
            content.append({"type": "refusal", "refusal": reply.refusal})
        if content:
            head = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
            yield {**head, "content": content}
        for n, (name, args) in enumerate(reply.tool_calls):
            head = {"type": "function_call", "id": f"fc_{number}_{n}", "call_id": f"call_{number}_{n}"}
            yield {**head, "name": name, "arguments": _text(args), "status": "completed"}

    def error(self, status: int, message: str) -> Json:
        return {"error": {"message": message, "type": "error", "param": None, "code": str(status)}}

    def _items(self, body: Json) -> list[Json]:
        given = body["input"]
        return [{"role": "user", "content": given}] if isinstance(given, str) else given


class Messages:
    """Anthropic Messages."""

    def system(self, body: Json) -> str:
        return flat(body.get("system"))

    def turns(self, body: Json) -> Iterator[Turn]:
        for message in body["messages"]:
            content = message["content"]
            blocks: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for block in blocks:
                if block["type"] == "tool_result":
                    yield "tool", flat(block.get("content"))
                elif block["type"] == "text":
                    yield message["role"], block["text"]

    def tool_names(self, body: Json) -> list[str]:
        return [tool["name"] for tool in body.get("tools") or ()]

    def reply_schema(self, body: Json) -> Json | None:
        return _dig(body, "output_config", "format", "schema") or _dig(body, "output_format", "schema")

    def render(self, reply: Reply, model: str, number: int) -> Json:
        stops = {"end": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "refusal": "refusal"}
        stops["context"] = "model_context_window_exceeded"
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": list(self._content(reply, number)),
            "stop_reason": stops[reply.stopped],
            "stop_sequence": None,
            "stop_details": (
                {"type": "refusal", "category": None, "explanation": reply.refusal}
                if reply.stopped == "refusal"
                else None
            ),
            "usage": {
                "input_tokens": reply.input_tokens - reply.cached_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": reply.cached_tokens,
                "output_tokens": reply.output_tokens,
                "output_tokens_details": {"thinking_tokens": reply.reasoning_tokens},
            },
        }

    def _content(self, reply: Reply, number: int) -> Iterator[Json]:
        if reply.reasoning_tokens:
            yield {"type": "thinking", "thinking": "", "signature": f"sealed-{number}"}
        if reply.text:
            yield {"type": "text", "text": reply.text}
        for n, (name, args) in enumerate(reply.tool_calls):
            yield {"type": "tool_use", "id": f"toolu_{number}_{n}", "name": name, "input": args}

    def error(self, status: int, message: str) -> Json:
        kinds = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
        kinds |= {404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error"}
        return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": message}}


class Generate:
    """Google generateContent."""

    def system(self, body: Json) -> str:
        return flat(_dig(body, "systemInstruction", "parts"))

    def turns(self, body: Json) -> Iterator[Turn]:
        for content in body["contents"]:
            for part in content["parts"]:
                if "functionResponse" in part:
                    yield "tool", self._result(part["functionResponse"]["response"])
                elif part.get("text") and not part.get("thought"):
                    yield ("assistant" if content.get("role") == "model" else "user"), part["text"]

    def tool_names(self, body: Json) -> list[str]:
        return [f["name"] for tool in body.get("tools") or () for f in tool.get("functionDeclarations") or ()]

    def reply_schema(self, body: Json) -> Json | None:
        config = body.get("generationConfig")
        return _dig(config, "responseJsonSchema") or _dig(config, "responseSchema")

    def render(self, reply: Reply, model: str, number: int) -> Json:
        stops = {"end": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
        stops["malformed_call"] = "MALFORMED_FUNCTION_CALL"
        candidate: Json = {"index": 0, "finishReason": stops[reply.stopped]}
        if parts := list(self._parts(reply, number)):
            candidate["content"] = {"role": "model", "parts": parts}
        if reply.refusal is not None:
            candidate["finishMessage"] = reply.refusal
        return {
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": reply.input_tokens,
                "cachedContentTokenCount": reply.cached_tokens,
                "candidatesTokenCount": reply.output_tokens - reply.reasoning_tokens,
                "thoughtsTokenCount": reply.reasoning_tokens,
                "totalTokenCount": reply.input_tokens + reply.output_tokens,
            },
            "modelVersion": model,
            "responseId": f"response-{number}",
        }

    def _parts(self, reply: Reply, number: int) -> Iterator[Json]:
        sealed = {"thoughtSignature": "c2VhbGVk"} if reply.reasoning_tokens else {}  # base64, as the SDK decodes it
        if sealed:
            yield {"text": "(thinking)", "thought": True}
        if reply.text:
            yield {"text": reply.text, **sealed}
        for n, (name, args) in enumerate(reply.tool_calls):
            yield {"functionCall": {"id": f"call_{number}_{n}", "name": name, "args": args}, **sealed}

    def error(self, status: int, message: str) -> Json:
        words = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
        words |= {429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
        return {"error": {"code": status, "message": message, "status": words.get(status, "INTERNAL")}}

    def _result(self, response: Json) -> str:
        texts = [value for value in response.values() if isinstance(value, str)]
        return texts[0] if len(response) == len(texts) == 1 else _text(response)


FORMATS: dict[Api, WireFormat] = {
    "chat": Chat(),
    "models": Chat(),
    "other": Chat(),
    "responses": Responses(),
    "messages": Messages(),
    "generate": Generate(),
}


def _dig(value: Any, *names: str) -> Any:
    """Return the nested value at `names`, or None if one of them is missing."""
    for name in names:
        value = cast("Json", value).get(name) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))

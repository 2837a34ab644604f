"""The wire format of OpenAI's Chat Completions API, as compatible servers speak it, too."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

from delegate.models.providers._shared import (
    body_with,
    data_url,
    dig,
    encode_all,
    file_name,
    native_content,
    parse_arguments,
    to_json,
    with_ids,
)
from delegate.models.providers._stops import NO_REASON, stop_of
from delegate.models.providers._thoughts import without_thoughts
from delegate.types import JsonObject, Usage
from delegate.types.ports import Attachment, ChatReply, ChatRequest, Message, ToolCall, ToolReply, ToolSpec

REPLY_NAME = "reply"
"""The name of a reply schema, which OpenAI requires."""
CARRIED = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "extra_content", "signature")
"""Fields of a message that servers want back: reasoning (DeepSeek requires it with tool calls), thought signatures."""
_THOUGHTS = ("reasoning_content", "reasoning")
"""Where servers with a parser put the thoughts that they find in a text."""


def error_text(reply: ToolReply) -> str:
    """OpenAI has no field for a failed tool call, so the text is prefixed."""
    return f"ERROR:\n{reply.text}" if reply.is_error else reply.text


def arguments_text(call: ToolCall) -> str:
    """The arguments as JSON text. Some servers parse it, so an invalid text is sent as an empty object."""
    if call.arguments is None:
        return "{}"
    return call.raw_arguments or to_json(call.arguments)


def read_usage(usage: JsonObject | None, input_name: str, output_name: str) -> Usage:
    """The usage in one of OpenAI's two formats, which name the tokens of input and output differently."""
    input_details, output_details = f"{input_name}_details", f"{output_name}_details"
    return Usage(
        model_calls=1,
        input_tokens=dig(usage, input_name) or 0,
        cached_tokens=dig(usage, input_details, "cached_tokens") or 0,
        cache_write_tokens=dig(usage, input_details, "cache_write_tokens") or 0,
        output_tokens=dig(usage, output_name) or 0,
        reasoning_tokens=dig(usage, output_details, "reasoning_tokens") or 0,
    )


def chat_content(request: ChatRequest, extra: JsonObject, *, limit: str, origin: str | None) -> bytes:
    """The body of a `POST /chat/completions`, with these extra fields.

    `limit` is the name of the token limit. Messages that came from `origin` are sent back in their native form.
    """
    body: JsonObject = {"model": request.model, limit: request.max_output_tokens}
    if request.tools and request.tool_choice == "none":
        body["tool_choice"] = "none"
    if request.reply_schema is not None:
        schema = {"name": REPLY_NAME, "strict": True, "schema": request.reply_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.effort is not None:
        body["reasoning_effort"] = request.effort
    system = [{"role": "system", "content": request.system}] if request.system else []
    messages = encode_all(request.messages, origin or "chat", partial(_items, origin=origin), *system)
    tools = {"tools": encode_all(request.tools, "chat", _tool)} if request.tools else {}
    return body_with({**body, **extra}, **tools, messages=messages)


def _tool(tool: ToolSpec) -> Iterator[JsonObject]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    yield {"type": "function", "function": function}


def _items(message: Message, origin: str | None) -> Iterator[JsonObject]:
    if message.role == "tool":
        for reply in message.tool_replies:
            yield {"role": "tool", "tool_call_id": reply.call_id, "content": error_text(reply)}
        if files := [reply for reply in message.tool_replies if reply.attachments]:
            yield {"role": "user", "content": _files(files)}
    elif origin is not None and (native := native_content(message, origin)) is not None:
        yield native
    elif message.tool_calls:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_text(call)}}
            for call in message.tool_calls
        ]
        yield {"role": "assistant", "content": message.text or None, "tool_calls": calls}
    else:
        yield {"role": message.role, "content": message.text}


def _files(replies: Sequence[ToolReply]) -> list[JsonObject]:
    """The files that tools returned, for a message of the user: messages of tools have only text in this API."""
    parts: list[JsonObject] = []
    for reply in replies:
        parts.append({"type": "text", "text": f"Returned by {reply.name}, call {reply.call_id}:"})
        parts += [_file(attachment) for attachment in reply.attachments]
    return parts


def _file(attachment: Attachment) -> JsonObject:
    if attachment.media_type == "application/pdf":
        return {"type": "file", "file": {"filename": file_name(attachment), "file_data": data_url(attachment)}}
    return {"type": "image_url", "image_url": {"url": data_url(attachment)}}


def read_chat(body: JsonObject, origin: str) -> ChatReply:
    """The reply of a `POST /chat/completions` at `origin`."""
    choice = body["choices"][0]
    message: JsonObject = choice["message"]
    calls = _calls(message.get("tool_calls") or [])
    reason = choice.get("finish_reason") or NO_REASON
    refusal = message.get("refusal")
    text = _text(message)
    return ChatReply(
        text=text,
        stop="refusal" if refusal else stop_of(choice.get("finish_reason"), has_calls=bool(calls)),
        usage=read_usage(body.get("usage"), "prompt_tokens", "completion_tokens"),
        tool_calls=calls,
        model_served=body.get("model"),
        stop_detail=f"{reason}: {refusal}" if refusal else reason,
        native=_native(message, text, calls, origin),
    )


def _text(message: JsonObject) -> str:
    """The text of a message, without thoughts in it. Some servers send it in parts, next to their thoughts."""
    content = message.get("content") or ""
    if isinstance(content, list):
        parts = cast("list[JsonObject]", content)
        content = "".join(
            part.get("text") or "" for part in parts if part.get("type", "text") in ("text", "output_text")
        )
    return without_thoughts(content, parsed=any(message.get(name) for name in _THOUGHTS))


def _calls(items: list[JsonObject]) -> tuple[ToolCall, ...]:
    functions: list[JsonObject] = [{**(item.get("function") or {}), "id": item.get("id")} for item in items]
    calls: list[ToolCall] = []
    for call in with_ids(functions):
        value = call.get("arguments") or ""
        text = value if isinstance(value, str) else to_json(value)  # some servers send the object itself
        calls.append(ToolCall(call["id"], call["name"], parse_arguments(text), text))
    return tuple(calls)


def _native(message: JsonObject, text: str, calls: tuple[ToolCall, ...], origin: str) -> Any:
    """The message as the server wants it back; None if that is no more than its text and calls."""
    items: list[JsonObject] = message.get("tool_calls") or []
    carried = {name: message[name] for name in CARRIED if message.get(name)}
    signed = any(call.get("extra_content") or call.get("provider_specific_fields") for call in items)
    content = message.get("content")
    if not (carried or signed or isinstance(content, list) or text != (content or "")):
        return None
    item: JsonObject = {"role": "assistant", "content": content, **carried}
    if items:
        item["tool_calls"] = [
            {
                **{name: value for name, value in raw.items() if name != "index"},
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text(call)},
            }
            for raw, call in zip(items, calls, strict=True)
        ]
    return {"protocol": origin, "items": item}

"""Messages, arguments and results as the attributes of a span, without secrets. For operators who opted in."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from delegate._util.redaction import redactor
from delegate.telemetry import conventions as names
from delegate.types import JsonObject
from delegate.types.ports import ChatReply, ChatRequest, Message

MAX_CHARS = 20_000
"""Of each text. What is left out is in the task's record."""


def wanted() -> tuple[bool, bool]:
    """Whether the operator wants content in spans, and in events."""
    setting = os.environ.get(names.CAPTURE_CONTENT, "").strip().lower()
    return setting in names.CONTENT_IN_SPANS, setting in names.CONTENT_IN_EVENTS


def text_of(text: str) -> str:
    """A text without secrets, cut where it gets long. It can be encoded, whatever a model wrote."""
    text = redactor.text(text)
    text = text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} [… {len(text) - MAX_CHARS} characters left out]"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def json_of(value: Any) -> str:
    """A JSON value as text. Secrets are removed before they are escaped."""
    return text_of(json.dumps(redactor.value(value), ensure_ascii=False, default=str))


def request_attributes(request: ChatRequest) -> Mapping[str, str]:
    """The system prompt and the conversation so far."""
    messages = [{"role": message.role, "parts": _parts(message)} for message in request.messages]
    instructions = [_text_part(request.system)] if request.system else []
    return {names.SYSTEM_INSTRUCTIONS: json.dumps(instructions), names.INPUT_MESSAGES: json.dumps(messages)}


def reply_attributes(reply: ChatReply) -> Mapping[str, str]:
    """The reply, as the one message that a request asks for."""
    parts = _parts(Message("assistant", reply.text, reply.tool_calls))
    message = {"role": "assistant", "parts": parts, "finish_reason": names.REASONS.get(reply.stop, reply.stop)}
    return {names.OUTPUT_MESSAGES: json.dumps([message])}


def _parts(message: Message) -> Sequence[JsonObject]:
    parts: list[JsonObject] = [_text_part(message.text)] if message.text else []
    for call in message.tool_calls:
        arguments = text_of(call.raw_arguments) if call.arguments is None else redactor.value(call.arguments)
        if len(json.dumps(arguments)) > MAX_CHARS:
            arguments = json_of(arguments)
        head = {"type": "tool_call", "id": text_of(call.id), "name": text_of(call.name)}
        parts.append({**head, "arguments": arguments})
    for reply in message.tool_replies:
        answer = text_of(reply.text)
        parts.append({"type": "tool_call_response", "id": text_of(reply.call_id), "response": answer})
    return parts


def _text_part(text: str) -> JsonObject:
    return {"type": "text", "content": text_of(text)}

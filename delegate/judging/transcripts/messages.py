"""Reads the tool calls out of a transcript: messages in the format of OpenAI's chat completions or of Anthropic.

A result belongs to a call of the turn before it. Ids are unique in neither format once transcripts are stored or
joined, so results with the same id are paired with the calls of that turn in their order.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from delegate.types import JsonObject, Receipt
from delegate.types.errors import CallError

NO_RESULT = "the transcript has no result of this call"


def is_message(item: object) -> bool:
    """Whether an item of a list is a message, and not a receipt."""
    return isinstance(item, Mapping) and "role" in item and "tool" not in item


def receipts_in(messages: Sequence[Mapping[str, Any]]) -> list[Receipt]:
    """The tool calls of a transcript, in order. A call without a result has the status `error`.

    Raises CallError for a result without a call.
    """
    calls: list[ToolCall] = []
    waiting: list[ToolCall] = []
    for n, message in enumerate(messages):
        if new_calls := list(calls_in(message)):
            calls += new_calls
            waiting = new_calls
        for id, text, is_error in results_in(message):
            call = next((call for call in waiting if call.id == id and not call.is_answered), None)
            if call is None:
                hint = "give the whole transcript, from its first message"
                message_text = f"message {n + 1} has the result of a tool call {id!r} that isn't in the turn before it"
                raise CallError("invalid_receipt", message_text, field=f"receipts[{n}]", hint=hint)
            call.is_answered, call.output, call.is_error = True, text, call.is_error or is_error
    return [call.receipt(n) for n, call in enumerate(calls, start=1)]


def text_of(conversation: str | Iterable[str | Mapping[str, Any]]) -> str:
    """What was said in a conversation, with the role of each speaker; without tool calls and their results."""
    if isinstance(conversation, str):
        return conversation
    texts = (message if isinstance(message, str) else _said(message) for message in conversation)
    return "\n\n".join(text for text in texts if text)


@dataclass(slots=True)
class ToolCall:
    """A call as a transcript has it, and its result as far as it is known."""

    id: object
    tool: str
    args: JsonObject
    is_error: bool
    is_answered: bool = False
    output: str = NO_RESULT

    def receipt(self, n: int) -> Receipt:
        is_failure = self.is_error or not self.is_answered
        return Receipt(n=n, tool=self.tool, args=self.args, status="error" if is_failure else "ok", output=self.output)


def calls_in(message: Mapping[str, Any]) -> Iterator[ToolCall]:
    """The tool calls of a message."""
    blocks = [block for block in objects_in(message.get("content")) if block.get("type") == "tool_use"]
    for call in [*objects_in(message.get("tool_calls")), *blocks]:
        function = call.get("function")
        fields = cast("Mapping[str, Any]", function) if isinstance(function, Mapping) else call
        args = arguments_in(fields.get("arguments", fields.get("args", fields.get("input"))))
        yield ToolCall(call.get("id"), str(fields.get("name", "")), args or {}, is_error=args is None)


def results_in(message: Mapping[str, Any]) -> Iterator[tuple[object, str, bool]]:
    """The id, the text and whether it is an error, of each result."""
    if message.get("role") == "tool":
        is_error = message.get("is_error") is True or message.get("status") == "error"
        yield message.get("tool_call_id"), text_in(message.get("content")), is_error
    for block in objects_in(message.get("content")):
        if block.get("type") == "tool_result":
            yield block.get("tool_use_id"), text_in(block.get("content")), block.get("is_error") is True


def arguments_in(value: object) -> JsonObject | None:
    """The arguments of a call, given as an object or as its JSON text; None if they are neither."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except (ValueError, RecursionError):
            return None
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else None if value else {}


def _said(message: Mapping[str, Any]) -> str:
    text = "" if message.get("role") == "tool" else text_in(message.get("content"))
    return f"{message.get('role', '?')}: {text}" if text.strip() else ""


def text_in(content: object) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in objects_in(content) if isinstance(part.get("text"), str))


def objects_in(value: object) -> list[Mapping[str, Any]]:
    """The objects in a list; none if the value is no list."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]

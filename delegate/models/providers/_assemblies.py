"""The replies of the four APIs, put together from the events in which they are streamed."""

from typing import Any

from delegate.models.providers._shared import dig, parse_arguments
from delegate.models.providers._stream import DONE
from delegate.types import JsonObject


class Chat:
    """Events of OpenAI's Chat Completions: parts of one message, which are put behind each other."""

    def __init__(self) -> None:
        self.is_whole = False
        self.error: object = None
        self._body: JsonObject = {}
        self._message: dict[str, list[Any]] = {}
        """The parts of each field."""
        self._calls: list[JsonObject] = []
        self._reason: object = None

    def add(self, event: JsonObject) -> str | None:
        if event == DONE:
            self.is_whole = True
            return None
        if not self._body or event.get("usage"):  # the others repeat what the first one has
            self._body |= {name: value for name, value in event.items() if name != "choices" and value}
        choices: list[JsonObject] = event.get("choices") or []
        choice = next((choice for choice in choices if not choice.get("index")), JsonObject())
        self.error = event.get("error") or choice.get("error")
        if reason := choice.get("finish_reason"):
            self._reason, self.is_whole = reason, True
        delta: JsonObject = choice.get("delta") or choice.get("message") or {}
        for name, value in delta.items():
            if name == "tool_calls":
                self._add_calls(value or [])
            elif value is not None:
                self._message.setdefault(name, []).append(value)
        if delta.get("tool_calls"):
            return ""
        content = delta.get("content")
        return content if content and isinstance(content, str) else None

    def body(self) -> JsonObject:
        message = {name: _whole(parts) for name, parts in self._message.items()}
        message["role"] = "assistant"  # some servers repeat it in each event
        if self._calls:
            message["tool_calls"] = [_whole_call(call) for call in self._calls]
        return {**self._body, "choices": [{"index": 0, "message": message, "finish_reason": self._reason}]}

    def _add_calls(self, deltas: list[JsonObject]) -> None:
        for delta in deltas:
            id, index = delta.get("id"), delta.get("index")
            same = [call for call in self._calls if _is_of(call, id, index)]
            if not same:
                same = [JsonObject(id=None, index=index, name="", arguments=[], fields={})]
                self._calls += same
            call = same[-1]
            call["id"] = call["id"] or id
            function: JsonObject = delta.get("function") or {}
            call["name"] += function.get("name") or ""
            call["arguments"].append(function.get("arguments"))
            call["fields"] |= {name: value for name, value in delta.items() if name not in _OF_CALL and value}


_OF_CALL = {"index", "id", "function", "type"}


def _is_of(call: JsonObject, id: object, index: object) -> bool:
    """Whether a part belongs to a call. Some servers number none, or give all of them the number 0."""
    is_same = call["index"] == index if index is not None else not id or call["id"] == id
    return is_same and (not id or not call["id"] or call["id"] == id)


def _whole_call(call: JsonObject) -> JsonObject:
    parts: list[Any] = [part for part in call["arguments"] if part is not None]
    arguments = "".join(parts) if all(isinstance(part, str) for part in parts) else parts[-1]
    function = {"name": call["name"], "arguments": arguments}
    return {**call["fields"], "id": call["id"], "type": "function", "function": function}


def _whole(parts: list[Any]) -> Any:
    """A field of a message. Texts and lists are continued; anything else is replaced."""
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)
    if not all(isinstance(part, str | list) for part in parts):
        return parts[-1]
    # Some servers send thoughts as parts of a list, and the text behind them as such.
    lists: list[list[Any]] = [[{"type": "text", "text": part}] if isinstance(part, str) else part for part in parts]
    return _joined([item for part in lists for item in part])


_CONTINUED = ("text", "thinking", "summary", "reasoning", "data")
"""The fields of an item in a list that come in parts."""


def _joined(items: list[Any]) -> list[Any]:
    """The items of a list, such as blocks of thinking, of which each may come in several parts."""
    whole: list[Any] = []
    for item in items:
        if whole and _continues(item, whole[-1]):
            last: JsonObject = whole[-1]
            last |= {name: _continued(name, last.get(name), value) for name, value in item.items() if value is not None}
        else:
            whole.append({**item} if isinstance(item, dict) else item)
    return whole


def _continues(item: Any, last: Any) -> bool:
    """Whether an item is the next part of the last one: its kind and number are the same, and that isn't signed yet."""
    same = all(dig(item, name) == dig(last, name) for name in ("type", "index"))
    return isinstance(item, dict) and same and not dig(last, "signature") and dig(item, "id") in (None, dig(last, "id"))


def _continued(name: str, before: Any, value: Any) -> Any:
    if name not in _CONTINUED or type(before) is not type(value):
        return value
    return _joined([*before, *value]) if isinstance(value, list) else before + value


class Messages:
    """Events of Anthropic's Messages API: blocks that begin, are continued, and end."""

    def __init__(self) -> None:
        self.is_whole = False
        self.error: object = None
        self._message: JsonObject = {"content": []}
        self._blocks: dict[int, JsonObject] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}
        """The parts of the blocks' texts, by block and field."""

    def add(self, event: JsonObject) -> str | None:
        match event.get("type"):
            case "message_start":
                self._message = event["message"]
            case "content_block_start":
                self._blocks[event["index"]] = event["content_block"]
            case "content_block_delta":
                return self._continue(event["index"], event["delta"])
            case "message_delta":
                self._message |= event["delta"]
                usage: JsonObject = event.get("usage") or {}
                counted = {name: value for name, value in usage.items() if value is not None}
                self._message["usage"] = {**(self._message.get("usage") or {}), **counted}
                self.is_whole = bool(self._message.get("stop_reason"))
            case "message_stop":
                self.is_whole = True
            case "error":
                self.error = event.get("error") or event
            case _:  # a ping, or one that came later than this version
                pass
        return None

    def body(self) -> JsonObject:
        blocks = {index: {**block} for index, block in self._blocks.items()}
        for (index, name), parts in self._texts.items():
            block, text = blocks[index], "".join(parts)
            if name == "partial_json":
                block["input"] = text if (arguments := parse_arguments(text)) is None else arguments
            else:
                block[name] = (block.get(name) or "") + text
        return {**self._message, "content": [blocks[index] for index in sorted(blocks)]}

    def _continue(self, index: int, delta: JsonObject) -> str | None:
        kind: str = delta["type"]
        if kind == "citations_delta":
            block = self._blocks[index]
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        for name, part in delta.items():
            if name not in ("type", "citation") and isinstance(part, str) and part:
                self._texts.setdefault((index, name), []).append(part)
        return {"text_delta": delta.get("text"), "input_json_delta": ""}.get(kind)


class Responses:
    """Events of OpenAI's Responses API. The last one has the whole reply."""

    def __init__(self) -> None:
        self.is_whole = False
        self.error: object = None
        self._response: JsonObject = {}
        self._items: dict[int, JsonObject] = {}
        """The items of the output that have ended, by their place."""
        self._texts: list[str] = []
        self._arguments: list[str] = []
        """The parts of the item that hasn't ended."""

    def add(self, event: JsonObject) -> str | None:
        match event.get("type"):
            case "response.completed" | "response.incomplete" | "response.failed":
                self._response, self.is_whole = event["response"], True
                self.error = self._response.get("error")
            case "response.created":
                self._response = event["response"]
            case "response.output_item.done":
                self._items[event["output_index"]] = event["item"]
                self._texts.clear()
                self._arguments.clear()
            case "response.output_text.delta":
                self._texts.append(event["delta"])
                return event["delta"]
            case "response.function_call_arguments.delta":
                self._arguments.append(event["delta"])
                return ""
            case "error":
                self.error = event.get("error") or event
            case _:
                pass
        return None

    def body(self) -> JsonObject:
        if self.is_whole:
            return self._response
        items = [self._items[index] for index in sorted(self._items)]
        if self._texts:
            part = {"type": "output_text", "text": "".join(self._texts)}
            items.append({"type": "message", "role": "assistant", "content": [part]})
        if self._arguments:
            items.append({"type": "function_call", "arguments": "".join(self._arguments)})
        return {**self._response, "output": items}


class GenerateContent:
    """Events of Gemini's API: whole replies, whose parts are put behind each other."""

    def __init__(self) -> None:
        self.is_whole = False
        self.error: object = None
        self._body: JsonObject = {}
        self._candidate: JsonObject = {}
        self._role = "model"
        self._parts: list[JsonObject] = []

    def add(self, event: JsonObject) -> str | None:
        self.error = event.get("error")
        candidates: list[JsonObject] = event.get("candidates") or []
        self._body |= {name: value for name, value in event.items() if name != "candidates"}
        candidate = candidates[0] if candidates else {}
        self._candidate |= {name: value for name, value in candidate.items() if name != "content"}
        self.is_whole = bool(self._candidate.get("finishReason") or dig(self._body, "promptFeedback", "blockReason"))
        content: JsonObject = candidate.get("content") or {}
        self._role = content.get("role") or self._role
        parts: list[JsonObject] = content.get("parts") or []
        pieces = [self._add_part(part) for part in parts]
        written = [piece for piece in pieces if piece is not None]
        return "".join(written) if written else None

    def body(self) -> JsonObject:
        if not self._candidate and not self._parts:
            return self._body
        content = {
            "role": self._role,
            "parts": [{**part, "text": "".join(part["text"])} if "text" in part else part for part in self._parts],
        }
        return {**self._body, "candidates": [{**self._candidate, "content": content}]}

    def _add_part(self, part: JsonObject) -> str | None:
        last = self._parts[-1] if self._parts else {}
        if _is_plain(part) and _is_plain(last) and part.get("thought") == last.get("thought"):
            last["text"].append(part["text"])
        else:
            self._parts.append({**part, "text": [part["text"]]} if "text" in part else part)
        return None if part.get("thought") else part.get("text") or ""


def _is_plain(part: JsonObject) -> bool:
    """Whether a part is nothing but text, which others may continue."""
    return "text" in part and part.keys() <= {"text", "thought"}

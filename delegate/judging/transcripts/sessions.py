"""Reads the sessions that coding agents keep as files, and trajectories.

Ids of calls are unique in each of them, so a result is paired with the call of its id, wherever it is. What is no part
of the conversation is skipped, since formats gain records with each release.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from delegate.judging.transcripts.messages import (
    ToolCall,
    arguments_in,
    calls_in,
    is_message,
    objects_in,
    results_in,
    text_in,
)
from delegate.types import Receipt
from delegate.types.errors import CallError

Json = Mapping[str, Any]

_CONTEXT = re.compile(r"\s*<(\w[\w-]*)\b[^>]*>.*</\1>\s*", re.DOTALL)
"""What agents tell their models before the user says something: one element as a whole."""
_NOTHING: Json = {}


@dataclass(slots=True)
class Session:
    """What was asked for, what was done, and what was said last."""

    format: str
    prompts: list[str] = field(default_factory=list[str])
    """What the user, or the agent that delegated, has said. The first is the brief."""
    report: str = ""
    """What the agent said last."""
    model: str | None = None
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    _by_id: dict[object, ToolCall] = field(default_factory=dict[object, ToolCall])

    @property
    def receipts(self) -> list[Receipt]:
        """The tool calls, in order. A call without a result has the status `error`."""
        return [call.receipt(n) for n, call in enumerate(self.calls, start=1)]

    def take(self, message: Json) -> None:
        """Add a message in the format of OpenAI or of Anthropic. One that repeats a call takes its place."""
        results, text = list(results_in(message)), text_in(message.get("content"))
        for call in calls_in(message):
            if call.id in self._by_id:
                self.calls[self.calls.index(self._by_id[call.id])] = call
            else:
                self.calls.append(call)
            self._by_id[call.id] = call
        for id, output, is_error in results:
            if call := self._by_id.get(id):
                call.is_answered, call.output, call.is_error = True, output, call.is_error or is_error
        if message.get("role") == "assistant":
            self.says(text, message.get("model"))
        elif message.get("role") == "user" and not results and text.strip() and not _CONTEXT.fullmatch(text):
            self.prompts.append(text)

    def says(self, text: str, model: object = None) -> None:
        if text.strip():
            self.report = text
        if isinstance(model, str) and model:
            self.model = model


def read_session(text: str, name: str) -> Session:
    """Read a transcript in any of `FORMATS`, by what is in it.

    Raises:
        CallError: It is none of them.
    """
    records = _records(text, name)
    for format, (is_of_it, messages) in FORMATS.items():
        if any(is_of_it(record) for record in records[:_FIRST]):
            session = Session(format)
            for message in messages(records):
                session.take(message)
            return session
    raise CallError(
        "invalid_receipt",
        f"{name} is in no known format of transcripts",
        field="transcript",
        hint=f"give one of {', '.join(FORMATS)}; or write receipts, and give them with --receipts",
    )


def _records(text: str, name: str) -> list[Json]:
    """The objects of a document, of its lines, or of the list that it is. A last line that was cut off is skipped."""
    try:
        document: object = json.loads(text)
        return objects_in(cast("object", document) if isinstance(document, list) else [document])
    except (ValueError, RecursionError):
        pass
    found: list[object] = []
    lines = text.splitlines()
    for n, line in enumerate(lines, start=1):
        try:
            found += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            if n < len(lines) or not found:
                message = f"{name}, line {n}: not valid JSON: {error}"
                raise CallError("invalid_json", message, field="transcript") from None
    return objects_in(found)


_FIRST = 50
"""How many records of a transcript are looked at to tell its format."""


def _codex(records: Sequence[Json]) -> Iterator[Json]:
    for record in records:
        item = _object(record, "payload")
        id = item.get("call_id")
        match record.get("type"), item.get("type"):
            case "turn_context", _:
                yield {"role": "assistant", "model": item.get("model")}
            case "response_item", "message":
                yield item
            case "response_item", "function_call" | "custom_tool_call":
                name = ".".join(str(part) for part in (item.get("namespace"), item.get("name")) if part)
                yield _says(_call(id, name, item.get("arguments", item.get("input"))))
            case "response_item", "local_shell_call":
                yield _says(_call(id or item.get("id"), "local_shell", item.get("action")))
            case "response_item", "function_call_output" | "custom_tool_call_output":
                old = _object(item, "output")  # of earlier releases
                output = text_in(old.get("content") if old else item.get("output"))
                failed = old.get("success") is False if old else bool(_CODEX_FAILED.search(output[:_HEAD_CHARS]))
                yield _result(id, output, failed)
            case _:
                pass


_CODEX_FAILED = re.compile(
    r'^Exit code: (?!0\b)|^Process exited with code (?!0\b)|"exit_code": ?(?!0\b)-?\d', re.MULTILINE
)
"""How the output of Codex's shell tools begins if the command failed."""
_HEAD_CHARS = 300


def _gemini(records: Sequence[Json]) -> Iterator[Json]:
    # A session is one document, or its lines, the last of which replaces those of its id.
    listed = [message for record in records for message in objects_in(record.get("messages")) or [record]]
    for record in {message.get("id"): message for message in listed}.values():
        text = text_in([record.get("content")]) or text_in(record.get("content"))
        calls = objects_in(record.get("toolCalls"))
        made = [_call(call.get("id"), call.get("name"), call.get("args")) for call in calls]
        yield _says(*made, by=record.get("type"), text=text, model=record.get("model"))
        for call in calls:
            responses = [_object(part, "functionResponse") for part in objects_in(call.get("result"))]
            fields = [_object(response, "response") for response in responses]
            texts = [str(one.get("output", one.get("error", ""))) for one in fields]
            if responses or call.get("status") in {"error", "cancelled"}:
                failed = call.get("status") != "success" or any("error" in one for one in fields)
                yield _result(call.get("id"), "\n".join(texts), failed)


def _opencode(records: Sequence[Json]) -> Iterator[Json]:
    for message in objects_in(records[0].get("messages")):
        info, parts = _object(message, "info"), objects_in(message.get("parts"))
        texts = [part for part in parts if part.get("type") == "text"]
        used = [(part, _object(part, "state")) for part in parts if part.get("type") == "tool"]
        calls = [_call(part.get("callID"), part.get("tool"), state.get("input")) for part, state in used]
        role = "user" if info.get("role") == "user" else "assistant"
        yield _says(*calls, by=role, text=texts, model=info.get("modelID"))
        for part, state in used:
            if (status := state.get("status")) in {"completed", "error"}:
                yield _result(part.get("callID"), str(state.get("output", state.get("error", ""))), status == "error")


def _atif(records: Sequence[Json]) -> Iterator[Json]:
    yield _says(by="agent", model=_object(records[0], "agent").get("model_name"))
    for step in objects_in(records[0].get("steps")):
        calls = [
            _call(call.get("tool_call_id"), call.get("function_name"), call.get("arguments"))
            for call in objects_in(step.get("tool_calls"))
        ]
        yield _says(*calls, by=step.get("source"), text=step.get("message"), model=step.get("model_name"))
        for result in objects_in(_object(step, "observation").get("results")):
            yield _result(result.get("source_call_id"), text_in(result.get("content")))


def _says(*calls: Json, by: object = None, text: object = None, model: object = None) -> Json:
    """A message with these calls. Formats have other words for who is the assistant."""
    role = "assistant" if by in ("agent", "gemini") else by
    return {"role": role, "content": text, "model": model, "tool_calls": list(calls)}


def _call(id: object, name: object, args: object) -> Json:
    is_free = isinstance(args, str) and arguments_in(args) is None  # as of some tools of Codex
    return {"id": id, "name": name, "args": {"input": args} if is_free else args}


def _result(id: object, text: str, is_error: bool = False) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": text, "is_error": is_error}


def _object(record: Json, key: str) -> Json:
    value = record.get(key)
    return cast("Json", value) if isinstance(value, Mapping) else _NOTHING


_Format = tuple[Callable[[Json], bool], Callable[[Sequence[Json]], Iterable[Json]]]
FORMATS: Mapping[str, _Format] = {
    "Claude Code": (
        lambda record: "sessionId" in record and isinstance(record.get("message"), Mapping),
        lambda records: (_object(record, "message") for record in records if not record.get("isMeta")),
    ),
    "Codex": (lambda record: record.get("type") in {"session_meta", "response_item"}, _codex),
    "Gemini CLI": (lambda record: "projectHash" in record, _gemini),
    "opencode": (lambda record: "info" in record and "messages" in record, _opencode),
    "Hermes": (
        lambda record: "message_count" in record and "messages" in record,
        lambda records: [*objects_in(records[0].get("messages")), _says(by="agent", model=records[0].get("model"))],
    ),
    "ATIF": (lambda record: str(record.get("schema_version", "")).startswith("ATIF-"), _atif),
    "messages of OpenAI or Anthropic": (is_message, iter),
}
"""By their names: how one of their records is told from others, and the messages that they are."""

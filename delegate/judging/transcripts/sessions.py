"""Reads the sessions that coding agents keep as files, and trajectories.

Ids of calls are unique in each of them, so a result is paired with the call of its id, wherever it is. What is no part
of the conversation is skipped, since formats gain records with each release.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
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

    def asks(self, text: str) -> None:
        if text.strip() and not _CONTEXT.fullmatch(text):
            self.prompts.append(text)

    def says(self, text: str, model: object = None) -> None:
        if text.strip():
            self.report = text
        if isinstance(model, str) and model:
            self.model = model

    def called(self, id: object, tool: object, arguments: object) -> None:
        args = arguments_in(arguments)
        if args is None and isinstance(arguments, str):  # Codex's free-form tools
            args = {"input": arguments}
        self.add(ToolCall(id, str(tool), args or {}, is_error=args is None))

    def add(self, call: ToolCall) -> None:
        """Add a call, or replace it if the transcript repeats it."""
        if call.id in self._by_id:
            self.calls[self.calls.index(self._by_id[call.id])] = call
        else:
            self.calls.append(call)
        self._by_id[call.id] = call

    def answered(self, id: object, text: str, *, is_error: bool = False) -> None:
        if call := self._by_id.get(id):
            call.is_answered, call.output, call.is_error = True, text, call.is_error or is_error


def read_session(text: str, name: str) -> Session:
    """Read a transcript in any of `FORMATS`, by what is in it.

    Raises:
        CallError: It is none of them.
    """
    records = _records(text, name)
    for format, (is_of_it, read) in FORMATS.items():
        if any(is_of_it(record) for record in records[:_FIRST]):
            session = Session(format)
            read(session, records)
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


def _claude_code(session: Session, records: Sequence[Json]) -> None:
    _messages(session, [_object(record, "message") for record in records if not record.get("isMeta")])


def _messages(session: Session, messages: Sequence[Json]) -> None:
    for message in messages:
        results = list(results_in(message))
        for call in calls_in(message):
            session.add(call)
        for id, text, is_error in results:
            session.answered(id, text, is_error=is_error)
        if message.get("role") == "user":
            if not results:
                session.asks(text_in(message.get("content")))
        elif message.get("role") == "assistant":
            session.says(text_in(message.get("content")), message.get("model"))


def _hermes(session: Session, records: Sequence[Json]) -> None:
    _messages(session, objects_in(records[0].get("messages")))
    session.says("", records[0].get("model"))


def _codex(session: Session, records: Sequence[Json]) -> None:
    for record in records:
        item = _object(record, "payload")
        if record.get("type") == "turn_context":
            session.says("", item.get("model"))
        if record.get("type") != "response_item":
            continue
        text = text_in(item.get("content"))
        match item.get("type"):
            case "message" if item.get("role") == "user":
                session.asks(text)
            case "message" if item.get("role") == "assistant":
                session.says(text)
            case "function_call" | "custom_tool_call":
                name = ".".join(str(part) for part in (item.get("namespace"), item.get("name")) if part)
                session.called(item.get("call_id"), name, item.get("arguments", item.get("input")))
            case "local_shell_call":
                session.called(item.get("call_id") or item.get("id"), "local_shell", item.get("action"))
            case "function_call_output" | "custom_tool_call_output":
                old = _object(item, "output")  # of earlier releases
                output = text_in(old.get("content") if old else item.get("output"))
                failed = old.get("success") is False if old else bool(_CODEX_FAILED.search(output[:_HEAD_CHARS]))
                session.answered(item.get("call_id"), output, is_error=failed)
            case _:
                pass


_CODEX_FAILED = re.compile(
    r'^Exit code: (?!0\b)|^Process exited with code (?!0\b)|"exit_code": ?(?!0\b)-?\d', re.MULTILINE
)
"""How the output of Codex's shell tools begins if the command failed."""
_HEAD_CHARS = 300


def _gemini(session: Session, records: Sequence[Json]) -> None:
    # A session is one document, or its lines, the last of which replaces those of its id.
    listed = [message for record in records for message in objects_in(record.get("messages")) or [record]]
    for record in {message.get("id"): message for message in listed}.values():
        text = text_in([record.get("content")]) or text_in(record.get("content"))
        if record.get("type") == "user":
            session.asks(text)
        elif record.get("type") == "gemini":
            session.says(text, record.get("model"))
        for call in objects_in(record.get("toolCalls")):
            session.called(call.get("id"), call.get("name"), call.get("args"))
            responses = [_object(part, "functionResponse") for part in objects_in(call.get("result"))]
            fields = [_object(response, "response") for response in responses]
            texts = [str(one.get("output", one.get("error", ""))) for one in fields]
            if responses or call.get("status") in {"error", "cancelled"}:
                is_error = call.get("status") != "success" or any("error" in one for one in fields)
                session.answered(call.get("id"), "\n".join(texts), is_error=is_error)


def _opencode(session: Session, records: Sequence[Json]) -> None:
    for message in objects_in(records[0].get("messages")):
        info, parts = _object(message, "info"), objects_in(message.get("parts"))
        text = "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
        if info.get("role") == "user":
            session.asks(text)
        else:
            session.says(text, info.get("modelID"))
        for part in parts:
            if part.get("type") == "tool":
                state = _object(part, "state")
                session.called(part.get("callID"), part.get("tool"), state.get("input"))
                if state.get("status") in {"completed", "error"}:
                    output = str(state.get("output", state.get("error", "")))
                    session.answered(part.get("callID"), output, is_error=state.get("status") == "error")


def _atif(session: Session, records: Sequence[Json]) -> None:
    trajectory = records[0]
    session.says("", _object(trajectory, "agent").get("model_name"))
    for step in objects_in(trajectory.get("steps")):
        text = text_in(step.get("message"))
        if step.get("source") == "user":
            session.asks(text)
        elif step.get("source") == "agent":
            session.says(text, step.get("model_name"))
        for call in objects_in(step.get("tool_calls")):
            session.called(call.get("tool_call_id"), call.get("function_name"), call.get("arguments"))
        for result in objects_in(_object(step, "observation").get("results")):
            session.answered(result.get("source_call_id"), text_in(result.get("content")))


def _object(record: Json, key: str) -> Json:
    value = record.get(key)
    return cast("Json", value) if isinstance(value, Mapping) else _NOTHING


_Format = tuple[Callable[[Json], bool], Callable[[Session, Sequence[Json]], None]]
FORMATS: Mapping[str, _Format] = {
    "Claude Code": (lambda record: "sessionId" in record and isinstance(record.get("message"), Mapping), _claude_code),
    "Codex": (lambda record: record.get("type") in {"session_meta", "response_item"}, _codex),
    "Gemini CLI": (lambda record: "projectHash" in record, _gemini),
    "opencode": (lambda record: "info" in record and "messages" in record, _opencode),
    "Hermes": (lambda record: "message_count" in record and "messages" in record, _hermes),
    "ATIF": (lambda record: str(record.get("schema_version", "")).startswith("ATIF-"), _atif),
    "messages of OpenAI or Anthropic": (is_message, _messages),
}
"""By their names: how one of their records is told from others, and how they are read."""

"""Parses the JSON that command line agents print, into a report with usage and cost.

Supported are the documented formats (as of late 2026) of `claude -p --output-format json` and `stream-json` (an object
of type `result`), `codex exec --json` (one event per line) and `gemini -p --output-format json` (`response` and
`stats`). For any other program, the report is in the last object that has text under one of a few usual keys. Lines
around the JSON are ignored. Costs are the program's own estimates.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from delegate.types import JsonObject, Usage

TEXT_NAMES = ("result", "response", "output", "report", "text", "message", "content", "answer")
"""Keys that may hold a program's report, most likely first."""
MAX_INVALID_LINES = 10_000
"""Parsing stops after this many lines that start like JSON but aren't, since each may take long to parse."""
MAX_COUNT = 10**15
"""Larger token counts and costs are ignored as invalid."""


@dataclass(frozen=True, slots=True)
class CliOutput:
    """A parsed output. `usage` and `cost_usd` are None if the program doesn't report them."""

    text: str
    usage: Usage | None = None
    cost_usd: float | None = None
    model: str | None = None
    problem: str | None = None


def read_cli_output(stdout: str) -> CliOutput:
    """Parse what a program printed. Raises ValueError if there is no JSON object with a report."""
    objects = list(_objects(stdout))
    for reader in (_read_claude, _read_codex, _read_gemini, _read_other):
        if (output := reader(objects)) is not None:
            return output
    raise ValueError(
        f"it printed no JSON object with its report under one of {', '.join(TEXT_NAMES)}"
        if objects
        else "it printed no JSON object"
    )


def _objects(text: str) -> Iterator[JsonObject]:
    """All objects that start at the beginning of a line, alone or in a list."""
    decoder, at, invalid = json.JSONDecoder(), 0, 0
    while at < len(text) and invalid < MAX_INVALID_LINES:
        if text[at] in "{[":
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                invalid += 1
            else:
                items = cast("list[object]", value) if isinstance(value, list) else [value]
                yield from (cast("JsonObject", item) for item in items if isinstance(item, dict))
        elif text[at] in " \t\r\n":
            at += 1
            continue
        line_end = text.find("\n", at)
        at = len(text) if line_end < 0 else line_end + 1


def _read_claude(objects: list[JsonObject]) -> CliOutput | None:
    last = next((entry for entry in reversed(objects) if entry.get("type") == "result" and "is_error" in entry), None)
    if last is None:
        return None
    usage, models = _part(last, "usage"), _part(last, "modelUsage")
    cached, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    tokens = Usage(
        model_calls=_count(last, "num_turns"),
        input_tokens=_count(usage, "input_tokens") + cached + written,  # which this API counts separately
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=_count(usage, "output_tokens"),
    )
    text = _text(last.get("result"))
    kind = str(last.get("subtype", "error"))
    failed = last["is_error"] is True or kind.startswith("error")
    return CliOutput(
        text,
        tokens if usage else None,
        _money(last.get("total_cost_usd")),
        next(iter(models)) if len(models) == 1 else None,
        (text if kind == "success" else kind) if failed else None,
    )


def _read_codex(objects: list[JsonObject]) -> CliOutput | None:
    types = [event.get("type") for event in objects]
    if "thread.started" not in types and "turn.started" not in types:
        return None
    items = [_part(event, "item") for event in objects if event.get("type") == "item.completed"]
    messages = [_text(item.get("text")) for item in items if item.get("type") == "agent_message"]
    turns = [_part(event, "usage") for event in objects if event.get("type") == "turn.completed"]
    usage = Usage()
    for turn in turns:
        usage += Usage(
            input_tokens=_count(turn, "input_tokens"),
            cached_tokens=_count(turn, "cached_input_tokens"),
            output_tokens=_count(turn, "output_tokens"),
            reasoning_tokens=_count(turn, "reasoning_output_tokens"),
        )
    ends = [event for event in objects if event.get("type") in ("turn.completed", "turn.failed")]
    problem = None
    if not ends or ends[-1]["type"] == "turn.failed":
        # A retry may follow an error, so none of them fails the run.
        errors = [event for event in objects if event.get("type") == "error"]
        last = _part(ends[-1], "error") if ends else (errors or [{}])[-1]
        problem = _text(last.get("message")) or "it ended before its turn was complete"
    return CliOutput(messages[-1] if messages else "", usage if turns else None, problem=problem)


def _read_gemini(objects: list[JsonObject]) -> CliOutput | None:
    last = next((entry for entry in reversed(objects) if "stats" in entry or "message" in _part(entry, "error")), None)
    if last is None:
        return None
    models = _part(_part(last, "stats"), "models")
    usage = Usage()
    for model in (_part(models, name) for name in models):
        tokens, thoughts = _part(model, "tokens"), _count(_part(model, "tokens"), "thoughts")
        usage += Usage(
            model_calls=_count(_part(model, "api"), "totalRequests"),
            input_tokens=_count(tokens, "prompt"),
            cached_tokens=_count(tokens, "cached"),
            output_tokens=_count(tokens, "candidates") + thoughts,  # which this API counts separately
            reasoning_tokens=thoughts,
        )
    error = _part(last, "error")
    problem = (_text(error.get("message")) or "it reports an error without a message") if error else None
    return CliOutput(
        _text(last.get("response")),
        usage if models else None,
        model=next(iter(models)) if len(models) == 1 else None,
        problem=problem,
    )


def _read_other(objects: list[JsonObject]) -> CliOutput | None:
    """The last object with a report; usage and cost are read from the keys that most programs use."""
    for entry in reversed(objects):
        for name in TEXT_NAMES:
            if isinstance(entry.get(name), str):
                usage = _part(entry, "usage")
                tokens = Usage(input_tokens=_count(usage, "input_tokens"), output_tokens=_count(usage, "output_tokens"))
                cost = _money(entry.get("total_cost_usd", entry.get("cost_usd")))
                return CliOutput(entry[name], tokens if usage else None, cost)
    return None


def _part(fields: Mapping[str, Any], name: str) -> JsonObject:
    part = fields.get(name)
    return cast("JsonObject", part) if isinstance(part, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_COUNT else 0


def _money(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < MAX_COUNT:
        return None
    return float(value)

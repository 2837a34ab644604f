"""What command line agents print as JSON, read into a report, its usage and its cost.

Known by their documented shapes (as of late 2026): `claude -p --output-format json` and `stream-json` (an object of
type `result`), `codex exec --json` (one event a line), `gemini -p --output-format json` (`response` and `stats`). Of
any other program, the last object with a text under one of a few usual names counts. Lines around the JSON are left
out. Costs are those that the program names: its own estimate.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from delegate.types import JsonObject, Usage

TEXT_NAMES = ("result", "response", "output", "report", "text", "message", "content", "answer")
"""Where a program's report may stand, the likeliest name first."""
MOST_BROKEN = 10_000
"""Of lines that begin like JSON and aren't: each may cost a long look."""
MOST_TOKENS = 10**15
"""Of one count. A larger number is no count."""


@dataclass(frozen=True, slots=True)
class CliOutput:
    """What was read. `usage` and `cost_usd` are None where the program doesn't say."""

    text: str
    usage: Usage | None = None
    cost_usd: float | None = None
    model: str | None = None
    problem: str | None = None
    """Why the program says that it failed."""


def read_cli_output(stdout: str) -> CliOutput:
    """What a program said in JSON. Raises ValueError where it printed no report that can be read."""
    found = list(_objects(stdout))
    for reader in (_claude, _codex, _gemini, _any):
        if (printed := reader(found)) is not None:
            return printed
    raise ValueError(
        f"it printed no JSON object with its report under one of {', '.join(TEXT_NAMES)}"
        if found
        else "it printed no JSON object"
    )


def _objects(text: str) -> Iterator[JsonObject]:
    """All objects that begin a line, or that stand in a list which does."""
    decoder, at, broken = json.JSONDecoder(), 0, 0
    while at < len(text) and broken < MOST_BROKEN:
        if text[at] in "{[":
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                broken += 1
            else:
                items = cast("list[object]", value) if isinstance(value, list) else [value]
                yield from (cast("JsonObject", item) for item in items if isinstance(item, dict))
        elif text[at] in " \t\r\n":
            at += 1
            continue
        line_end = text.find("\n", at)
        at = len(text) if line_end < 0 else line_end + 1


# ---------------------------------------------------------------------------------------------------- known programs


def _claude(found: list[JsonObject]) -> CliOutput | None:
    last = next((one for one in reversed(found) if one.get("type") == "result" and "is_error" in one), None)
    if last is None:
        return None
    usage, models = _part(last, "usage"), _part(last, "modelUsage")
    cached, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    counted = Usage(
        model_calls=_count(last, "num_turns"),
        input_tokens=_count(usage, "input_tokens") + cached + written,  # which this API counts apart
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=_count(usage, "output_tokens"),
    )
    text = _text(last.get("result"))
    kind = str(last.get("subtype", "error"))
    failed = last["is_error"] is True or kind.startswith("error")
    return CliOutput(
        text,
        counted if usage else None,
        _money(last.get("total_cost_usd")),
        next(iter(models)) if len(models) == 1 else None,
        (text if kind == "success" else kind) if failed else None,
    )


def _codex(found: list[JsonObject]) -> CliOutput | None:
    kinds = [one.get("type") for one in found]
    if "thread.started" not in kinds and "turn.started" not in kinds:
        return None
    items = [_part(one, "item") for one in found if one.get("type") == "item.completed"]
    said = [_text(item.get("text")) for item in items if item.get("type") == "agent_message"]
    turns = [_part(one, "usage") for one in found if one.get("type") == "turn.completed"]
    usage = sum((_codex_usage(turn) for turn in turns), Usage())
    ends = [one for one in found if one.get("type") in ("turn.completed", "turn.failed")]
    problem = None
    if not ends or ends[-1]["type"] == "turn.failed":
        errors = [one for one in found if one.get("type") == "error"]  # some are passed over: it tries again
        last = _part(ends[-1], "error") if ends else (errors or [{}])[-1]
        problem = _text(last.get("message")) or "it ended before its turn was complete"
    return CliOutput(said[-1] if said else "", usage if turns else None, problem=problem)


def _codex_usage(of: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=_count(of, "input_tokens"),
        cached_tokens=_count(of, "cached_input_tokens"),
        output_tokens=_count(of, "output_tokens"),
        reasoning_tokens=_count(of, "reasoning_output_tokens"),
    )


def _gemini(found: list[JsonObject]) -> CliOutput | None:
    last = next((one for one in reversed(found) if "stats" in one or "message" in _part(one, "error")), None)
    if last is None:
        return None
    models = _part(_part(last, "stats"), "models")
    usage = sum((_gemini_usage(_part(models, name)) for name in models), Usage())
    error = _part(last, "error")
    problem = (_text(error.get("message")) or "it reports an error") if error else None
    return CliOutput(
        _text(last.get("response")),
        usage if models else None,
        model=next(iter(models)) if len(models) == 1 else None,
        problem=problem,
    )


def _gemini_usage(of: Mapping[str, Any]) -> Usage:
    tokens, thoughts = _part(of, "tokens"), _count(_part(of, "tokens"), "thoughts")
    return Usage(
        model_calls=_count(_part(of, "api"), "totalRequests"),
        input_tokens=_count(tokens, "prompt"),
        cached_tokens=_count(tokens, "cached"),
        output_tokens=_count(tokens, "candidates") + thoughts,  # which this API counts apart
        reasoning_tokens=thoughts,
    )


# ---------------------------------------------------------------------------------------------------- any other


def _any(found: list[JsonObject]) -> CliOutput | None:
    """The last object with a report. A usage and a cost are taken under the names that most programs give them."""
    for one in reversed(found):
        for name in TEXT_NAMES:
            if isinstance(one.get(name), str):
                usage = _part(one, "usage")
                counted = Usage(
                    input_tokens=_count(usage, "input_tokens"), output_tokens=_count(usage, "output_tokens")
                )
                cost = _money(one.get("total_cost_usd", one.get("cost_usd")))
                return CliOutput(one[name], counted if usage else None, cost)
    return None


def _part(of: Mapping[str, Any], name: str) -> JsonObject:
    part = of.get(name)
    return cast("JsonObject", part) if isinstance(part, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(of: Mapping[str, Any], name: str) -> int:
    value = of.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS else 0


def _money(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < MOST_TOKENS:
        return None
    return float(value)

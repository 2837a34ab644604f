"""Finds the JSON in a child's report: the last fenced block that is marked as JSON, else the whole text."""

import json
import math
import re
from collections.abc import Collection
from typing import Any, cast

from delegate._util.documents import refuse_constant

MAX_DEPTH = 150
_BOM = "\ufeff"
_FENCE = re.compile(r"^```(json)?[ \t]*$", re.MULTILINE | re.IGNORECASE)


def parse_json(report: str) -> Any:
    """The report's JSON value. Raises ValueError with the reason if there is none."""
    text = json_text(report)
    try:
        return strict_json(text)
    except ValueError as error:
        where = "the last JSON block of the report" if len(text) < len(report.removeprefix(_BOM)) else "the report"
        raise ValueError(f"{where} is not JSON: {error}") from None


def json_text(report: str) -> str:
    """The text that has to be JSON where a report has to be JSON: its last closed block, or else all of it."""
    report = report.removeprefix(_BOM)
    block, start, at = report, None, report.find("```")
    while at >= 0:  # linear time, however many fences are left open
        if fence := _FENCE.match(report, at):
            if start is None:
                start = fence.end() + 1 if fence[1] else None
            elif not fence[1]:
                block, start = report[start:at], None
        at = report.find("```", at + 3)
    return block


def strict_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, also for what only Python reads as JSON, and for deep nesting."""
    try:
        value = json.loads(text, parse_float=finite, parse_constant=refuse_constant)
    except RecursionError:
        value = None
    else:
        if is_within_depth(value):
            return value
    raise ValueError(f"it is nested over {MAX_DEPTH} levels deep")


def is_within_depth(value: Any) -> bool:
    """Whether a JSON value can be written into a record: pydantic reads and writes about 200 levels."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [part for parent in level for part in _parts(parent)]
        if not level:
            return True
    return False


def _parts(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def finite(number: str) -> float:
    """For `json.loads`: Python parses 1e999 as infinity, which JSON doesn't have."""
    value = float(number)
    return value if math.isfinite(value) else refuse_constant(number)

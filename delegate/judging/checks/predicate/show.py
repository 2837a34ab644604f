"""Values and pieces of source in a reason: short, on one line, whatever is in them."""

import json
from itertools import islice

from delegate.judging.checks.predicate.text import clip, points
from delegate.judging.checks.predicate.values import Js, kind, number_text

MAX_VALUE_CHARS = 100
MAX_SOURCE_CHARS = 160
MAX_ITEMS = 8
MAX_DEPTH = 3


def show(value: Js) -> str:
    """`value` as JSON, cut short."""
    return clip(_shown(value, MAX_DEPTH), MAX_VALUE_CHARS)


def source(text: str) -> str:
    """A piece of the expression on one line, cut short."""
    return clip(" ".join(text.split()), MAX_SOURCE_CHARS)


def names(value: dict[str, Js]) -> str:
    """The first keys of an object, for "it has: …"."""
    keys = [clip(key if key.isidentifier() else _text(key), 40) for key in islice(value, MAX_ITEMS)]
    more = [f"… ({len(value)} in all)"] if len(value) > MAX_ITEMS else []
    return ", ".join(keys + more) or "nothing"


def _shown(value: Js, depth: int) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number_text(value)
    if not isinstance(value, list | dict):
        return kind(value)
    open_, close = "[]" if isinstance(value, list) else "{}"
    if not value:
        return open_ + close
    return open_ + (_inside(value, depth - 1) if depth else "…") + close


def _inside(value: "list[Js] | dict[str, Js]", depth: int) -> str:
    more = ["…"] if len(value) > MAX_ITEMS else []
    if isinstance(value, list):
        return ", ".join([_shown(item, depth) for item in value[:MAX_ITEMS]] + more)
    pairs = islice(value.items(), MAX_ITEMS)
    return ", ".join([f"{_text(key)}: {_shown(item, depth)}" for key, item in pairs] + more)


def _text(text: str) -> str:
    return json.dumps(points(text[: MAX_VALUE_CHARS + 1]), ensure_ascii=False)

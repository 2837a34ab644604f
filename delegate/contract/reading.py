"""From what a host passes on to plain JSON values, whatever it is, within sizes that later steps can bear."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from delegate._util.fencing import one_line, quoted
from delegate.errors import CallError

MAX_CALL_CHARS = 1_000_000
"""Of a whole call as JSON text."""
MAX_TEXT_CHARS = 100_000
"""Of any one text in a call."""
MAX_CRITERIA = 50
"""Of one task."""
MAX_DEPTH = 64
"""Of nested objects and lists. Far above any honest schema, far below Python's recursion limit."""
MAX_NUMBER_BITS = 10_000
"""About 3,000 digits. Python refuses to write integers of more than 4,300, with an error of its own."""
MAX_VALUES = 20_000
"""Objects, lists and single values in one call."""


def read_object(arguments: object) -> Mapping[str, object]:
    """The call as an object: given as one, as JSON text, or (models do that) as JSON text within JSON text."""
    value = decode(arguments) if isinstance(arguments, (str, bytes)) else arguments
    if isinstance(value, str):
        value = decode(value)
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value)
    message = f"the arguments are {kind_of(value)}, not a JSON object"
    hint = 'send {"tasks": [...]}' if isinstance(value, list) else 'send an object such as {"goal": "..."}'
    raise CallError("not_an_object", message, hint=hint)


def decode(text: str | bytes, field: str | None = None) -> Any:
    """The JSON value in a text. No text at all is the empty object: some hosts send that for no arguments."""
    if len(text) > MAX_CALL_CHARS:
        message = f"{_what(field or '')} is {len(text):,} characters long, at most {MAX_CALL_CHARS:,} are taken"
        raise CallError("too_large", message, field=field)
    try:
        text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        return _DECODER.decode(text) if text.strip() else {}
    except RecursionError:
        raise _too_deep(field) from None
    except json.JSONDecodeError as error:
        raise _broken(error, field) from None
    except ValueError as error:  # not UTF-8, NaN, an integer of thousands of digits
        raise CallError("invalid_json", f"{_place(field)} not valid JSON: {error}", field=field) from None


def weigh(value: object, path: str) -> None:
    """Refuse what is too long, too deep, too much, or no JSON. Walks without recursion, so that nothing can sink it."""
    waiting: list[tuple[object, str, int]] = [(value, path, 0)]
    seen = 1
    while waiting:
        item, where, depth = waiting.pop()
        if isinstance(item, str):
            _weigh_text(item, where)
        elif isinstance(item, (Mapping, list, tuple)):
            seen += len(parts := cast("Mapping[object, object] | Sequence[object]", item))
            if seen > MAX_VALUES:
                raise CallError("too_large", f"{_what(path)} holds more than {MAX_VALUES:,} values", field=path or None)
            if depth == MAX_DEPTH:
                raise _too_deep(path or None)
            waiting += [(part, place, depth + 1) for place, part in _parts(parts, where)]
        elif isinstance(item, int) and item.bit_length() > MAX_NUMBER_BITS:
            raise CallError("too_large", f"`{where}` is a number of thousands of digits", field=where)
        elif isinstance(item, float) and not math.isfinite(item):
            raise CallError("wrong_type", f"`{where}` is {item}, which is not a JSON number", field=where)
        elif not (item is None or isinstance(item, (int, float))):
            raise CallError("wrong_type", f"`{where}` is {kind_of(item)}, which JSON doesn't have", field=where)


def kind_of(value: object) -> str:
    """The JSON type of a value, with its article, for messages."""
    if isinstance(value, bool):
        return "a boolean"
    for types, name in _KINDS:
        if isinstance(value, types):
            return name
    return "null" if value is None else f"a Python {type(value).__name__}"


def is_blank(value: object) -> bool:
    """True for what models put into optional fields that they don't use: null, "", [] and {}."""
    return value is None or (isinstance(value, str) and not value.strip()) or value in ([], (), {})


def show(value: object) -> str:
    """A value from the call, short and harmless enough for a message."""
    if isinstance(value, str):
        return quoted(value, 60)
    try:
        return one_line(json.dumps(value, ensure_ascii=False), 60)
    except (TypeError, ValueError, RecursionError):
        return kind_of(value)


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (str, "a text"),
    ((int, float), "a number"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
)


def join(path: str, name: str) -> str:
    """`tasks[0]` and `goal` make `tasks[0].goal`. A name that the call made up is shown short and harmless."""
    shown = name if name.isascii() and name.isidentifier() and len(name) < 60 else one_line(name, 60) or "?"
    return f"{path}.{shown}" if path else shown


def _parts(item: Mapping[object, object] | Sequence[object], where: str) -> list[tuple[str, object]]:
    """What an object or a list holds, each with its place in the call."""
    if not isinstance(item, Mapping):
        return [(f"{where}[{n}]", part) for n, part in enumerate(item)]
    parts: list[tuple[str, object]] = []
    for key, part in item.items():
        if not isinstance(key, str):
            raise CallError("wrong_type", f"`{where}` has the key {show(key)}, which is {kind_of(key)}", field=where)
        _weigh_text(key, where)
        parts.append((join(where, key), part))
    return parts


def _weigh_text(text: str, where: str) -> None:
    if len(text) > MAX_TEXT_CHARS:
        message = f"`{where}` is {len(text):,} characters long, at most {MAX_TEXT_CHARS:,} are taken"
        raise CallError("too_large", message, field=where, hint="write long material to a file and name its path")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise CallError("invalid_json", f"`{where}` holds half of a surrogate pair, which is no character", field=where)


def _too_deep(field: str | None) -> CallError:
    return CallError("too_large", f"{_place(field)} nested more than {MAX_DEPTH} levels deep", field=field)


def _what(path: str) -> str:
    return f"`{path}`" if path else "the call"


def _broken(error: json.JSONDecodeError, field: str | None) -> CallError:
    cut_off = error.pos >= len(error.doc.rstrip()) - 1 or error.msg.startswith("Unterminated string")
    near = f" near {quoted(error.doc[max(0, error.pos - 20) : error.pos + 20], 40)}"
    message = f"{_place(field)} not valid JSON: {error.msg} at character {error.pos}{near}"
    hint = "the text seems to end too early: send it again, shorter" if cut_off else None
    return CallError("invalid_json", message, field=field, hint=hint)


def _place(field: str | None) -> str:
    return f"`{field}` is" if field else "the arguments are"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)

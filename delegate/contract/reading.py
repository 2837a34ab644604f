"""Read tool-call arguments into plain JSON values of limited size, whatever a host passes on."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from delegate._util.documents import strict
from delegate._util.fencing import one_line, quoted
from delegate.types.errors import CallError

Arguments = Mapping[str, Any] | str | bytes
"""A tool call's arguments, as JSON text or parsed."""
MAX_CALL_CHARS = 1_000_000
"""Maximum length of a call as JSON text."""
MAX_TEXT_CHARS = 100_000
"""Maximum length of a string in a call."""
MAX_CRITERIA = 50
"""Maximum number of criteria per task."""
MAX_DEPTH = 64
"""Maximum nesting of objects and lists: far above realistic schemas, and far below Python's recursion limit."""
MAX_NUMBER_BITS = 10_000
"""Maximum size of an integer, about 3,000 digits. Python can't format integers of more than 4,300 digits."""
MAX_VALUES = 20_000
"""Maximum number of objects, lists and single values in a call."""


def read_object(arguments: object, hint: str = "") -> Mapping[str, object]:
    """Return the call's arguments, given as an object, as JSON text, or as JSON text within JSON text.

    `hint` says what to send instead of anything else.
    """
    value = decode(arguments) if isinstance(arguments, (str, bytes)) else arguments
    if isinstance(value, str):
        value = decode(value)
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value)
    message = f"the arguments are {kind_of(value)}, not a JSON object"
    usual = 'send {"tasks": [...]}' if isinstance(value, list) else 'send an object such as {"goal": "..."}'
    raise CallError("not_an_object", message, hint=hint or usual)


def decode(text: str | bytes, field: str | None = None) -> Any:
    """Decode JSON text. An empty text is an empty object, because some hosts send it for a call without arguments."""
    if len(text) > MAX_CALL_CHARS:
        message = f"{_name(field)} is {len(text):,} characters long, but at most {MAX_CALL_CHARS:,} are allowed"
        raise CallError("too_large", message, field=field)
    try:
        text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        text = text.removeprefix("\ufeff")  # a byte order mark
        return strict.decode(text) if text.strip() else {}
    except RecursionError:
        raise _too_deep(field) from None
    except json.JSONDecodeError as error:
        raise _invalid_json(error, field) from None
    except ValueError as error:  # not UTF-8, a key twice, NaN, an integer of thousands of digits
        raise CallError("invalid_json", f"{_subject(field)} not valid JSON: {error}", field=field) from None


def check_size(value: object, path: str) -> None:
    """Raise CallError for values that are too long, too deep, too many or not JSON. Works without recursion."""
    waiting: list[tuple[object, str, int]] = [(value, path, 0)]
    count = 1
    while waiting:
        item, item_path, depth = waiting.pop()
        if isinstance(item, str):
            _check_text(item, item_path)
        elif isinstance(item, (Mapping, list, tuple)):
            count += len(container := cast("Mapping[object, object] | Sequence[object]", item))
            if count > MAX_VALUES:
                message = f"{_name(path)} has more than {MAX_VALUES:,} values"
                raise CallError("too_large", message, field=path or None)
            if depth == MAX_DEPTH:
                raise _too_deep(path or None)
            waiting += [(part, part_path, depth + 1) for part_path, part in _parts(container, item_path)]
        elif isinstance(item, int) and item.bit_length() > MAX_NUMBER_BITS:
            raise CallError("too_large", f"`{item_path}` is a number with thousands of digits", field=item_path)
        elif isinstance(item, float) and not math.isfinite(item):
            raise CallError("wrong_type", f"`{item_path}` is {item}, which is not a JSON number", field=item_path)
        elif not (item is None or isinstance(item, (int, float))):
            raise CallError("wrong_type", f"`{item_path}` is {kind_of(item)}, not a JSON value", field=item_path)


def kind_of(value: object) -> str:
    """Return the JSON type of a value, with its article, for messages."""
    if isinstance(value, bool):
        return "a boolean"
    for types, name in _KINDS:
        if isinstance(value, types):
            return name
    return "null" if value is None else f"a Python {type(value).__name__}"


def is_blank(value: object) -> bool:
    """Return whether a value is one that models write into optional fields that they don't use: null, "", [] or {}."""
    return value is None or (isinstance(value, str) and not value.strip()) or value in ([], (), {})


def show(value: object) -> str:
    """Return a value from the call as short, safe text for a message."""
    if isinstance(value, str):
        return quoted(value, 60)
    try:
        return one_line(json.dumps(value, ensure_ascii=False), 60)
    except (TypeError, ValueError, RecursionError):
        return kind_of(value)


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (str, "a string"),
    ((int, float), "a number"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
)


def join(path: str, name: str) -> str:
    """Join a path and a field's name: `tasks[0]` and `goal` make `tasks[0].goal`. Unusual names are made safe."""
    shown = name if name.isascii() and name.isidentifier() and len(name) < 60 else one_line(name, 60) or "?"
    return f"{path}.{shown}" if path else shown


def _parts(item: Mapping[object, object] | Sequence[object], path: str) -> list[tuple[str, object]]:
    """Return the values of an object or a list, each with its path in the call."""
    if not isinstance(item, Mapping):
        return [(f"{path}[{n}]", part) for n, part in enumerate(item)]
    parts: list[tuple[str, object]] = []
    for key, part in item.items():
        if not isinstance(key, str):
            message = f"`{path}` has the key {show(key)}, which is {kind_of(key)}, not a string"
            raise CallError("wrong_type", message, field=path)
        _check_text(key, path)
        parts.append((join(path, key), part))
    return parts


def _check_text(text: str, path: str) -> None:
    if len(text) > MAX_TEXT_CHARS:
        message = f"`{path}` is {len(text):,} characters long, but at most {MAX_TEXT_CHARS:,} are allowed"
        raise CallError("too_large", message, field=path, hint="write long material to a file and name its path")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise CallError("invalid_json", f"`{path}` contains half of a surrogate pair", field=path)


def _too_deep(field: str | None) -> CallError:
    return CallError("too_large", f"{_subject(field)} nested more than {MAX_DEPTH} levels deep", field=field)


def _name(path: str | None) -> str:
    return f"`{path}`" if path else "the call"


def _invalid_json(error: json.JSONDecodeError, field: str | None) -> CallError:
    truncated = error.pos >= len(error.doc.rstrip()) - 1 or error.msg.startswith("Unterminated string")
    near = f" near {quoted(error.doc[max(0, error.pos - 20) : error.pos + 20], 40)}"
    message = f"{_subject(field)} not valid JSON: {error.msg} at character {error.pos}{near}"
    hint = "the text seems to be truncated: make it shorter and resend it" if truncated else None
    return CallError("invalid_json", message, field=field, hint=hint)


def _subject(field: str | None) -> str:
    return f"`{field}` is" if field else "the arguments are"

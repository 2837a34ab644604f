"""Changes single values in a JSON text that people edit: comments, trailing commas and all else stay as they are."""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])')


class _Member(NamedTuple):
    """Where a member of an object is in the text: its key, its value, and the end of that."""

    key: int
    value: int
    end: int


def loads(text: str) -> Any:
    """What the text says. Raises ValueError."""
    return json.loads(_plain(text))


def changed(text: str, keys: Sequence[str], value: Any) -> str:
    """The text with this value under the keys, whose objects are created if they don't exist. With None, the text
    without a value there. Raises ValueError.
    """
    plain = _plain(text)
    at = end = _next(plain, 0)
    for n, key in enumerate(keys):
        members = _members(plain, at)
        if value is None and (key not in members or n == len(keys) - 1):
            return _without(text, plain, list(members.values()), members[key]) if key in members else text
        if key not in members:
            for inner in reversed(keys[n + 1 :]):
                value = {inner: value}
            indent = _indent(text, at)
            member = f"\n{indent}  {json.dumps(key)}: {_dumped(value, indent + '  ')}"
            return text[: at + 1] + member + ("," if members else f"\n{indent}") + text[at + 1 :]
        _, at, end = members[key]
    return text[:at] + _dumped(value, _indent(text, at)) + text[end:]


def _without(text: str, plain: str, members: Sequence[_Member], member: _Member) -> str:
    begin, _, end = member
    if plain[after := _next(plain, end)] == ",":
        end = after + 1
    elif len(members) > 1:  # no comma may stay before the end of the object
        comma = plain.index(",", members[-2].end)
        return text[:comma] + text[comma + 1 : begin].rstrip(" ") + text[end:]
    return text[:begin].rstrip() + text[end:]


def _plain(text: str) -> str:
    """The text as JSON, in which everything is at the same place."""
    for pattern in (_COMMENT, _TRAILING):
        text = pattern.sub(lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\n]", " ", found[0]), text)
    return text


def _members(plain: str, at: int) -> dict[str, _Member]:
    """The members of the object that begins there."""
    if plain[at] != "{":
        raise ValueError("it isn't an object, or one of its values isn't")
    found, decoder = dict[str, _Member](), json.JSONDecoder()
    at = _next(plain, at + 1)
    while plain[at] == '"':
        key, end = decoder.raw_decode(plain, at)
        value = _next(plain, _next(plain, end) + 1)
        _, end = decoder.raw_decode(plain, value)
        found[key] = _Member(at, value, end)
        at = _next(plain, end)
        at = _next(plain, at + 1) if plain[at] == "," else at
    return found


def _next(plain: str, at: int) -> int:
    """Where the next character is that isn't space."""
    return len(plain) - len(plain[at:].lstrip())


def _indent(text: str, at: int) -> str:
    """The space at the start of the line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _dumped(value: Any, indent: str) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{indent}")

"""Changes single values in a JSON text that people edit: comments, trailing commas and all else stay as they are."""

import json
import re
from collections.abc import Sequence
from json.decoder import scanstring
from typing import Any, NamedTuple

_COMMENTS = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])')
_SPACE = re.compile(r"\s*")


def loads(text: str) -> Any:
    """What the text says. Raises ValueError."""
    return json.loads(_plain(text))


def changed(text: str, keys: Sequence[str], value: Any) -> str:
    """The text with this value under the keys, whose objects are created if they don't exist. Raises ValueError."""
    plain, at, last = _plain(text), _start(text), len(keys) - 1
    for n, key in enumerate(keys):
        members = _members(plain, at)
        if key not in members:
            for inner in reversed(keys[n + 1 :]):
                value = {inner: value}
            return _with_member(text, at, list(members.values()), key, value)
        at = members[key].value
        if n == last:
            shown = _dumped(value, _indent(text, members[key].key))
            return text[:at] + shown + text[members[key].end :]
    return text


def without(text: str, keys: Sequence[str]) -> str:
    """The text without the value under these keys, if there is one, and the line of its comment. Raises ValueError."""
    plain, at = _plain(text), _start(text)
    for key in keys[:-1]:
        members = _members(plain, at)
        if key not in members:
            return text
        at = members[key].value
    members = list(_members(plain, at).items())
    for n, (key, one) in enumerate(members):
        if key == keys[-1]:
            begin, end = one.key, one.end
            if n + 1 < len(members):
                end = plain.index(",", end) + 1
            elif n:  # the last one: no comma may stay before it
                comma = plain.index(",", members[n - 1][1].end)
                text = f"{text[:comma]} {text[comma + 1 :]}"
            line, stop = text.rfind("\n", 0, begin) + 1, (text + "\n").index("\n", end)
            is_alone = not plain[line:begin].strip() and not plain[end:stop].strip(", ")
            return text[:line] + text[stop + 1 :] if is_alone else text[:begin] + text[end:].lstrip(" ")
    return text


class _Member(NamedTuple):
    """Where a member of an object is in the text: its key, its value, and the end of that."""

    key: int
    value: int
    end: int


def _plain(text: str) -> str:
    """The text as JSON, in which everything is at the same place."""
    text = _COMMENTS.sub(lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\n]", " ", found[0]), text)
    return _TRAILING.sub(lambda found: found[0] if found[0][0] == '"' else " ", text)


def _start(text: str) -> int:
    at = _space(_plain(text), 0)
    if text[at : at + 1] != "{":
        raise ValueError("it isn't an object")
    return at


def _members(plain: str, at: int) -> dict[str, _Member]:
    """The members of the object that begins there."""
    if plain[at] != "{":
        raise ValueError("one of its values isn't an object")
    found: dict[str, _Member] = {}
    at = _space(plain, at + 1)
    while plain[at] == '"':
        key, end = scanstring(plain, at + 1)
        value = _space(plain, _space(plain, end) + 1)
        _, end = json.JSONDecoder().raw_decode(plain, value)
        found[key] = _Member(at, value, end)
        at = _space(plain, end)
        at = _space(plain, at + 1) if plain[at] == "," else at
    return found


def _with_member(text: str, at: int, members: Sequence[_Member], key: str, value: Any) -> str:
    """The text with another member at the end of the object that begins there."""
    outer = _indent(text, at)
    indent = (
        _indent(text, members[0].key) if members and _plain(text)[at + 1 : members[0].key].count("\n") else f"{outer}  "
    )
    member = f"{indent}{json.dumps(key)}: {_dumped(value, indent)}"
    if not members:
        return f"{text[: at + 1]}\n{member}\n{outer}{text[at + 1 :].lstrip(' ')}"
    last = members[-1].end
    stop = (text + "\n").index("\n", last)
    rest = _plain(text)[last:stop]
    if rest.strip():  # the object ends on this line
        return f"{text[:last]},\n{member}\n{outer}{text[last:].lstrip()}"
    has_comma = re.match(r"\s*,", re.sub(r"/\*.*?\*/", "", text[last:stop])) is not None
    comma = "" if has_comma else ","
    return f"{text[:last]}{comma}{text[last:stop]}\n{member}{text[stop:]}"


def _dumped(value: Any, indent: str) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{indent}")


def _indent(text: str, at: int) -> str:
    line = text.rfind("\n", 0, at) + 1
    return text[line : line + len(text[line:at]) - len(text[line:at].lstrip())]


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at

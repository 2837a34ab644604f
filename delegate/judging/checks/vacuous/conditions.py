"""Decides `[ … ]`, `[[ … ]]` and `test` where the text and the known variables decide them.

Everything else is a check of the work, which may turn out either way.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from delegate.judging.checks.vacuous.state import CHECK_FAILED, ZERO, Codes

FALSE: Codes = frozenset({1})
UNKNOWN: Codes = frozenset({0, CHECK_FAILED})

_TEXTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt,
    "-ge": operator.ge,
}  # fmt: skip
_TRUE_OF_EQUALS = frozenset({"=", "==", "-eq", "-le", "-ge", "-ef"})
_FILE_TESTS = frozenset({"-e", "-f", "-d", "-s", "-r", "-w", "-x", "-a"})
_ALWAYS_THERE = frozenset({".", "./", "..", "/", "/tmp", "/dev/null", "/bin", "/usr", "/etc", "/bin/sh"})  # noqa: S108


class Operand(NamedTuple):
    """One word of a test. `value` is None where it isn't known; a number is the cause of a failure, as in `State`."""

    text: str
    value: str | int | None
    pattern: bool = False


def decide(words: Sequence[Operand], files: Mapping[str, bool]) -> Codes:
    """How the test may end. `files` are surely there; those that are true have a content that is known."""
    if len(words) > 1 and words[0].text == "!":
        inner = decide(words[1:], files)
        return _truth(inner != ZERO) if len(inner) == 1 else UNKNOWN
    if len(words) == 3:
        return _binary(*words)
    value = words[-1].value if words else ""
    if len(words) > 3 or not isinstance(value, str):
        return UNKNOWN
    sign = words[0].text if len(words) == 2 else "-n"
    if sign in ("-n", "-z"):
        return _truth((value != "") == (sign == "-n"))
    there = value in _ALWAYS_THERE or (value in files and (sign != "-s" or files[value]))
    return ZERO if there and sign in _FILE_TESTS else UNKNOWN


def _binary(left: Operand, sign: Operand, right: Operand) -> Codes:
    one, other = left.value, right.value
    if left.text == right.text:
        return _truth(sign.text in _TRUE_OF_EQUALS)
    if right.pattern and sign.text in ("=", "==", "=~") and other in ("*", ".*"):
        return ZERO
    if not isinstance(other, str) or (right.pattern and any(mark in other for mark in "*?[+")):
        return UNKNOWN
    if isinstance(one, str) and sign.text in _TEXTS:
        return _truth(_TEXTS[sign.text](one, other))
    compare = _NUMBERS.get(sign.text) or _TEXTS.get(sign.text)
    if one is None or compare is None or not other.isdecimal():
        return UNKNOWN
    if isinstance(one, int):
        return frozenset(0 if compare(code, int(other)) else one for code in range(1, 256))
    return _truth(compare(int(one), int(other))) if one.isdecimal() else UNKNOWN


def _truth(value: bool) -> Codes:
    return ZERO if value else FALSE

"""Decides tests (`[ … ]`, `[[ … ]]`, `(( … ))`) as far as their text does; everything else is a check of the work."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from delegate.judging.checks.vacuous.statuses import ASIDE, CHECK, HANG, WORK, ZERO, Status, codes, failing, negated

FALSE: Status = frozenset({1})
_NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt,
    "-ge": operator.ge, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
_TEXTS: Mapping[str, Callable[[str, str], bool]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_TRUE_OF_ITSELF = frozenset({"=", "==", "-eq", "-le", "-ge", "<=", ">=", "-ef"})
_FILES = frozenset({"-e", "-f", "-d", "-s", "-r", "-w", "-x", "-a"})
_ALWAYS_THERE = frozenset({".", "./", "..", "/", "/tmp", "/dev/null", "/bin", "/usr", "/etc", "/bin/sh"})  # noqa: S108


@dataclass(frozen=True, slots=True)
class Operand:
    """One word of a test: its text, and what it is when the text or an earlier assignment says so."""

    text: str
    value: str | Status | None
    pattern: bool = False


def decide(words: Sequence[Operand], there: Mapping[str, str], *, arithmetic: bool = False) -> Status:
    """How the test ends. `there` names the files that the command itself has just written, and what with."""
    if arithmetic and len(words) == 1 and isinstance(words[0].value, str) and words[0].value.isdigit():
        return ZERO if int(words[0].value) else FALSE
    for signs, combine in ((("-o", "||"), _any), (("-a", "&&"), _all)):
        parts = _split(words, signs)
        if len(parts) > 1:
            return combine([decide(part, there) for part in parts])
    if words and words[0].text == "!":
        return negated(decide(words[1:], there))
    if len(words) > 2 and (words[0].text, words[-1].text) == ("(", ")"):
        return decide(words[1:-1], there)
    return _primary(words, there)


def _split(words: Sequence[Operand], signs: Sequence[str]) -> list[Sequence[Operand]]:
    """Between signs that stand outside of parentheses, and not first, where `-a` means a file."""
    parts: list[Sequence[Operand]] = []
    start = depth = 0
    for place, word in enumerate(words):
        depth += (word.text == "(") - (word.text == ")")
        if word.text in signs and depth == 0 and place > start:
            parts.append(words[start:place])
            start = place + 1
    return [*parts, words[start:]]


def _any(parts: Sequence[Status]) -> Status:
    if ZERO in parts:
        return ZERO
    lost = [failing(part) for part in parts]
    return frozenset[int]().union(*(part & {0} for part in parts), *(lost if all(lost) else ()))


def _all(parts: Sequence[Status]) -> Status:
    decided = next((part for part in parts if 0 not in part), None)
    return decided if decided is not None else frozenset[int]().union(*parts)


def _primary(words: Sequence[Operand], there: Mapping[str, str]) -> Status:
    if not words:
        return FALSE
    if len(words) == 1:
        return _truth(words[0].value != "") if isinstance(words[0].value, str) else CHECK
    if len(words) == 2:
        return _unary(words[0].text, words[1], there)
    return _binary(*words) if len(words) == 3 else CHECK


def _unary(sign: str, operand: Operand, there: Mapping[str, str]) -> Status:
    if not isinstance(operand.value, str):
        return CHECK
    if sign in ("-n", "-z"):
        return _truth((operand.value != "") == (sign == "-n"))
    if sign in _FILES and (operand.value in _ALWAYS_THERE or operand.value in there):
        return ZERO if sign != "-s" or there.get(operand.value) == "constant" else CHECK
    return CHECK


def _binary(left: Operand, sign: Operand, right: Operand) -> Status:
    if left.text == right.text:
        return ZERO if sign.text in _TRUE_OF_ITSELF else FALSE
    if right.pattern and right.value in ("*", ".*") and sign.text in ("=", "==", "=~"):
        return ZERO
    if right.pattern and isinstance(right.value, str) and any(mark in right.value for mark in "*?[+"):
        return CHECK
    if isinstance(left.value, frozenset) and isinstance(right.value, str):
        return _of_status(left.value, sign.text, right.value)
    if isinstance(left.value, str) and isinstance(right.value, str):
        return _compared(left.value, sign.text, right.value)
    return CHECK


def _compared(left: str, sign: str, right: str) -> Status:
    try:
        if sign in _NUMBERS:
            return _truth(_NUMBERS[sign](int(left), int(right)))
    except ValueError:
        return CHECK
    return _truth(_TEXTS[sign](left, right)) if sign in _TEXTS else CHECK


def _of_status(status: Status, sign: str, right: str) -> Status:
    """`$? -eq 1` and the like, over every exit code that may stand there."""
    compare = _NUMBERS.get(sign) or {"=": operator.eq, "==": operator.eq, "!=": operator.ne}.get(sign)
    if compare is None or not right.isdigit() or len(right) > 3:
        return CHECK
    wanted, ends = int(right), set[int]()
    for mark in status - {HANG}:
        for code in codes(mark, (wanted - 1, wanted, wanted + 1)):
            ends.add(0 if compare(code, wanted) else ASIDE if mark == ASIDE else WORK)
    return frozenset(ends)


def _truth(value: bool) -> Status:
    return ZERO if value else FALSE

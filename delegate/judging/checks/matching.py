"""Compares recorded values with expected ones, which may contain the matchers of `contract.matchers`.

A comparison has three results, because a receipt may have only a part of a tool's output: what can't be seen neither
fits nor fails to fit.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, cast

from delegate._util.documents import refuse_constant
from delegate._util.redaction import redactor
from delegate.contract.matchers import Reference, matcher_in, reference, values_at
from delegate.records.recorder import is_cut
from delegate.types import Receipt

REGEX_SECONDS = 0.2
"""Time for all patterns of one criterion on all receipts together, since each of a thousand pairs may be slow."""

MAX_COMPARISONS = 500_000
"""Comparisons of values for one criterion, since lists in any order inside one another multiply."""


class Fit(IntEnum):
    """The result of a comparison. The least of several is that of all of them together."""

    NO = 0
    UNKNOWN = 1
    YES = 2


_SCALARS = (str, int, bool, float, type(None))


class Cut:
    """Stands for a value that isn't recorded as a whole."""


CUT = Cut()
Resolve = Callable[[Reference, Any], Fit]
"""Compares a recorded value with what a reference stands for."""


class TooMany(Exception):
    """There is too much to compare."""


class Patterns:
    """Searches for patterns within one time limit for all of them, and limits the number of comparisons."""

    def __init__(self) -> None:
        self._seconds_left = REGEX_SECONDS
        self._comparisons_left = MAX_COMPARISONS
        self._known: dict[tuple[str, str], bool] = {}

    def count(self) -> None:
        """Count one comparison. Raises TooMany."""
        self._comparisons_left -= 1
        if self._comparisons_left < 0:
            raise TooMany

    def match(self, pattern: str, value: Any) -> bool:
        """Whether the pattern is found. Raises ValueError if it is invalid or takes too long."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if (answer := self._known.get((pattern, text))) is not None:
            return answer
        import regex  # loaded only where something is matched

        start = time.thread_time()
        try:
            # A timeout of 0 means no limit.
            is_match = regex.search(pattern, text, timeout=max(self._seconds_left, 1e-6), concurrent=True) is not None
        except (regex.error, TimeoutError) as error:
            raise ValueError(f"the pattern {redactor.beginning(pattern, 80)!r} can't be used: {error}") from None
        finally:
            self._seconds_left -= time.thread_time() - start
        self._known[pattern, text] = is_match
        return is_match


def result_of(receipt: Receipt) -> Any:
    """A call's result: its output as JSON, or its text if that isn't JSON. `CUT` if it isn't recorded as a whole."""
    if is_cut(receipt):
        return CUT
    text = receipt.whole_output.removeprefix("\ufeff")
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        # The beginning of JSON was JSON before someone cut it.
        return CUT if text.lstrip().startswith(("{", "[")) else text


def compare(value: Any, expected: Any, patterns: Patterns, resolve: Resolve) -> Fit:
    """Compare a value with an expected one: objects as a superset, lists item by item, other values by equality."""
    patterns.count()
    if value is CUT:
        return Fit.UNKNOWN
    if isinstance(expected, list):
        items, parts = cast("list[Any]", value), cast("list[Any]", expected)
        if not isinstance(value, list) or len(items) != len(parts):
            return Fit.NO
        return _least(compare(item, part, patterns, resolve) for item, part in zip(items, parts, strict=True))
    if not isinstance(expected, dict):
        return Fit.YES if same(value, expected) else Fit.NO
    match matcher_in(cast("object", expected)):
        case ("matches", pattern):
            return Fit.YES if patterns.match(pattern, value) else Fit.NO
        case ("in", options):
            return max((compare(value, option, patterns, resolve) for option in options), default=Fit.NO)
        case ("any_order", parts):
            return _in_any_order(value, parts, patterns, resolve)
        case ("from", source):
            return resolve(reference(source), value)
        case _:
            if not isinstance(value, dict):
                return Fit.NO
            fields = cast("dict[str, Any]", expected)
            return compare_fields(cast("dict[str, Any]", value), fields, patterns, resolve)


def compare_fields(value: dict[str, Any], expected: dict[str, Any], patterns: Patterns, resolve: Resolve) -> Fit:
    """Compare an object with the expected fields of it."""
    if not expected.keys() <= value.keys():
        return Fit.NO
    return _least(compare(value[name], part, patterns, resolve) for name, part in expected.items())


def _least(fits: Iterable[Fit]) -> Fit:
    """The fit of all of them together. Stops at the first that doesn't fit."""
    least = Fit.YES
    for fit in fits:
        if fit is Fit.NO:
            return fit
        if fit is Fit.UNKNOWN:
            least = fit
    return least


def same(value: Any, other: Any) -> bool:
    """Whether two JSON values are equal, where true isn't 1."""
    if value.__class__ is other.__class__ and value.__class__ in _SCALARS:
        return bool(value == other)
    if isinstance(value, dict) and isinstance(other, dict):
        fields, other_fields = cast("dict[str, Any]", value), cast("dict[str, Any]", other)
        return fields.keys() == other_fields.keys() and all(
            same(part, other_fields[name]) for name, part in fields.items()
        )
    if isinstance(value, list) and isinstance(other, list):
        items, other_items = cast("list[Any]", value), cast("list[Any]", other)
        return len(items) == len(other_items) and all(map(same, items, other_items))
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def compare_with_result(receipt_result: Any, path: str, value: Any) -> Fit:
    """Compare a value with those at a path of a call's result."""
    if receipt_result is CUT:
        return Fit.UNKNOWN
    return Fit.YES if any(same(value, part) for part in values_at(receipt_result, path)) else Fit.NO


def assign(candidates: Sequence[Sequence[int]]) -> dict[int, int]:
    """Give each position one of its candidates and no candidate to two, for as many as possible (augmenting paths).

    Returns positions by candidate.
    """
    owner: dict[int, int] = {}

    def place(position: int, tried: set[int]) -> bool:
        for candidate in candidates[position]:
            if candidate in tried:
                continue
            tried.add(candidate)
            if candidate not in owner or place(owner[candidate], tried):
                owner[candidate] = position
                return True
        return False

    for position in range(len(candidates)):
        place(position, set())
    return owner


def _in_any_order(value: Any, expected: list[Any], patterns: Patterns, resolve: Resolve) -> Fit:
    if not isinstance(value, list) or len(items := cast("list[Any]", value)) != len(expected):
        return Fit.NO
    fits = [[compare(item, part, patterns, resolve) for item in items] for part in expected]
    for least in (Fit.YES, Fit.UNKNOWN):
        if len(assign([[n for n, fit in enumerate(row) if fit >= least] for row in fits])) == len(expected):
            return least
    return Fit.NO

"""Decides criteria about what the child did, from the runtime's own record of its tool calls.

Only successful calls count. Each expected call needs a recorded call of its own; `exactly` also allows no other calls,
since an unrequested write is as wrong as a missing one.
"""

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

import regex

from delegate.types import ExpectedCall, Receipt, ReceiptCriterion

REGEX_SECONDS = 0.2
"""Time for all patterns of one criterion on all receipts together, since each of a thousand pairs may be slow."""
SHOWN = 5


def mismatch(criterion: ReceiptCriterion, receipts: Sequence[Receipt]) -> str | None:
    """Why the receipts don't satisfy the criterion; None if they do. Raises ValueError for a bad pattern."""
    counted = set(criterion.of or (call.tool for call in criterion.calls))
    done = [receipt for receipt in receipts if receipt.status == "ok" and (not counted or receipt.tool in counted)]
    if criterion.mode == "none":
        return _unwanted(criterion, done)
    owner = _assign(criterion.calls, done, _Patterns())
    missing = [call for n, call in enumerate(criterion.calls) if n not in owner.values()]
    if missing:
        return f"no successful call of {_expected(missing)}; {_seen(done)}"
    if criterion.mode == "exactly" and (extra := [receipt for n, receipt in enumerate(done) if n not in owner]):
        return f"not expected: {_shown(extra)}"
    return None


def matching(criterion: ReceiptCriterion, receipts: Sequence[Receipt]) -> list[Receipt]:
    """The receipts that match the expected calls."""
    done = [receipt for receipt in receipts if receipt.status == "ok"]
    return [done[n] for n in sorted(_assign(criterion.calls, done, _Patterns()))]


def patterns_in(wanted: Any) -> Iterator[str]:
    """Every pattern in expected arguments."""
    if isinstance(wanted, dict):
        fields = cast("dict[str, Any]", wanted)
        if set(fields) == {"matches"} and isinstance(fields["matches"], str):
            yield fields["matches"]
        else:
            yield from (pattern for part in fields.values() for pattern in patterns_in(part))
    elif isinstance(wanted, list):
        yield from (pattern for part in cast("list[Any]", wanted) for pattern in patterns_in(part))


def _unwanted(criterion: ReceiptCriterion, done: Sequence[Receipt]) -> str | None:
    """For mode `none`: with expected calls, none of them may have been made; otherwise, no call of a counted tool."""
    if not criterion.calls:
        return f"called: {_shown(done)}" if done else None
    patterns = _Patterns()
    hits = [receipt for receipt in done if any(_fits(call, receipt, patterns) for call in criterion.calls)]
    return f"called: {_shown(hits)}" if hits else None


class _Patterns:
    """Searches for patterns within one time limit for all of them."""

    def __init__(self) -> None:
        self._seconds_left = REGEX_SECONDS

    def match(self, pattern: str, value: Any) -> bool:
        """Whether the pattern is found. Raises ValueError if it is invalid or takes too long."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        started = time.thread_time()
        try:
            return regex.search(pattern, text, timeout=max(self._seconds_left, 1e-6)) is not None  # 0 means no limit
        except (regex.error, TimeoutError) as error:
            raise ValueError(f"the pattern {pattern[:80]!r} can't be used: {error}") from None
        finally:
            self._seconds_left -= time.thread_time() - started


def _assign(calls: Sequence[ExpectedCall], done: Sequence[Receipt], patterns: _Patterns) -> dict[int, int]:
    """Maps recorded calls (keys) to expected ones, as many as possible (augmenting paths)."""
    owner: dict[int, int] = {}
    fits = [[n for n, receipt in enumerate(done) if _fits(call, receipt, patterns)] for call in calls]

    def assign(call: int, tried: set[int]) -> bool:
        for n in fits[call]:
            if n in tried:
                continue
            tried.add(n)
            if n not in owner or assign(owner[n], tried):
                owner[n] = call
                return True
        return False

    for call in range(len(calls)):
        assign(call, set())
    return owner


def _fits(call: ExpectedCall, receipt: Receipt, patterns: _Patterns) -> bool:
    return call.tool == receipt.tool and _contains(receipt.args, call.args, patterns)


def _contains(value: Any, wanted: Any, patterns: _Patterns) -> bool:
    """Whether `value` matches `wanted`: objects as a superset, lists item by item, other values by equality."""
    if isinstance(wanted, dict):
        fields = cast("dict[str, Any]", wanted)
        if set(fields) == {"matches"} and isinstance(fields["matches"], str):
            return patterns.match(fields["matches"], value)
        return isinstance(value, dict) and all(
            key in value and _contains(cast("dict[str, Any]", value)[key], part, patterns)
            for key, part in fields.items()
        )
    if isinstance(wanted, list):
        items, parts = cast("list[Any]", value), cast("list[Any]", wanted)
        alike = isinstance(value, list) and len(items) == len(parts)
        return alike and all(_contains(item, part, patterns) for item, part in zip(items, parts, strict=True))
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


def _expected(calls: Sequence[ExpectedCall]) -> str:
    return ", ".join(f"{call.tool}({_short(call.args)})" for call in calls[:SHOWN])


def _shown(receipts: Sequence[Receipt]) -> str:
    more = f" and {len(receipts) - SHOWN} more" if len(receipts) > SHOWN else ""
    return ", ".join(f"{receipt.tool}({_short(receipt.args)})" for receipt in receipts[:SHOWN]) + more


def _seen(done: Sequence[Receipt]) -> str:
    return f"recorded: {_shown(done)}" if done else "no such call was recorded"


def _short(args: dict[str, Any]) -> str:
    text = json.dumps(args, ensure_ascii=False, default=str)
    return text if len(text) <= 160 else text[:159] + "…"

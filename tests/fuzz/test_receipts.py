"""Fuzz patterns for arguments of tool calls: one model writes the pattern, another the text."""

from typing import Any

import pytest
from hypothesis import strategies as st

from delegate.judging.checks.receipts import matching, mismatch
from delegate.types import ExpectedCall, Receipt, ReceiptCriterion
from tests.fuzz.fuzzing import ends_soon, fuzz
from tests.fuzz.values import JUNK

PATTERNS = ["a.*a.*b", "(a+)+$", "(a|a)*b", "", "^a", "(", "\\p{L}+", "\ud800", "a{99}", "(?=a*)*b"]
WANTED: st.SearchStrategy[Any] = st.recursive(
    JUNK | st.sampled_from(PATTERNS).map(lambda pattern: {"matches": pattern}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(st.sampled_from("abc"), WANTED | st.just("a" * 500), max_size=3)


def criterion(calls: list[dict[str, Any]], **fields: Any) -> ReceiptCriterion:
    expected = tuple(ExpectedCall(tool="t", args=args) for args in calls)
    return ReceiptCriterion(kind="receipt", calls=expected, **fields)


def receipts(calls: list[dict[str, Any]]) -> list[Receipt]:
    return [Receipt(n=n, tool="t", args=args, status="ok", output="") for n, args in enumerate(calls, start=1)]


@fuzz(
    100,
    wanted=st.lists(ARGUMENTS, min_size=1, max_size=6),
    done=st.lists(ARGUMENTS, max_size=6),
    mode=st.sampled_from(["at_least", "exactly", "none"]),
)
def test_any_arguments_match_or_not_or_have_a_pattern_that_cannot_be_used(
    wanted: list[dict[str, Any]], done: list[dict[str, Any]], mode: str
) -> None:
    asked, record = criterion(wanted, mode=mode), receipts(done)
    with ends_soon():
        try:
            why, shown = mismatch(asked, record), matching(asked, record)
        except ValueError:
            return
    assert why or len(shown) == (0 if mode == "none" else len(wanted))


def test_slow_patterns_of_one_criterion_share_their_time() -> None:
    many = criterion([{"a": {"matches": "a.*a.*b"}}] * 20)
    with ends_soon(), pytest.raises(ValueError, match="timed out"):
        mismatch(many, receipts([{"a": "a" * 600}] * 50))

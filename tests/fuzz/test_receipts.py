"""Fuzz patterns for arguments of tool calls: one model writes the pattern, another the text."""

import json
from typing import Any

from hypothesis import strategies as st

from delegate.contract.matchers import criterion_faults
from delegate.judging.checks.receipts import check
from delegate.types import ExpectedCall, Receipt, ReceiptCriterion
from tests.fuzz.fuzzing import ends_soon, fuzz
from tests.fuzz.values import JUNK

PATTERNS = ["a.*a.*b", "(a+)+$", "(a|a)*b", "", "^a", "(", "\\p{L}+", "\ud800", "a{99}", "(?=a*)*b"]
WANTED: st.SearchStrategy[Any] = st.recursive(
    JUNK
    | st.sampled_from(PATTERNS).map(lambda pattern: {"matches": pattern})
    | st.sampled_from(["a", "b[*]", "$", "c[0].a"]).map(lambda path: {"from": {"tool": "s", "path": path}}),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.dictionaries(st.sampled_from(["in", "any_order"]), st.lists(inner, max_size=3), max_size=1)
    ),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(st.sampled_from("abc"), WANTED | st.just("a" * 500), max_size=3)


def criterion(calls: list[dict[str, Any]], **fields: Any) -> ReceiptCriterion:
    expected = tuple(ExpectedCall(tool="t", args=args, result=args or None) for args in calls)
    return ReceiptCriterion(kind="receipt", calls=expected, **fields)


def receipts(calls: list[dict[str, Any]]) -> list[Receipt]:
    """Calls of `t` that return their arguments, each after a call of `s` with the same result."""
    return [
        Receipt(n=n, tool=tool, args=args, status="ok", output=json.dumps(args, default=str))
        for n, args in enumerate(calls, start=1)
        for tool in "st"
    ]


@fuzz(
    33,
    wanted=st.lists(ARGUMENTS, min_size=1, max_size=6),
    done=st.lists(ARGUMENTS, max_size=6),
    mode=st.sampled_from(["at_least", "exactly", "none"]),
)
def test_any_arguments_match_or_not_or_have_a_pattern_that_cannot_be_used(
    wanted: list[dict[str, Any]], done: list[dict[str, Any]], mode: str
) -> None:
    asked, record = criterion(wanted, mode=mode), receipts(done)
    with ends_soon():
        if list(criterion_faults(asked)):
            return
        found = check(asked, record)
    assert found.outcome != "met" or len(found.receipts) == (0 if mode == "none" else len(wanted))


def test_slow_patterns_of_one_criterion_share_their_time() -> None:
    many = criterion([{"a": {"matches": "a.*a.*b"}}] * 20)
    with ends_soon():
        found = check(many, receipts([{"a": "a" * n} for n in range(600, 650)]))
    assert (found.outcome, found.code) == ("error", "invalid_criterion")
    assert "timed out" in found.reason

"""Criteria about what the child did, decided from the runtime's own record."""

from typing import Any

import pytest

from delegate.judging.checks.receipts import mismatch
from delegate.types import Receipt, ReceiptCriterion, ReceiptStatus

DONE = [
    ("run_shell", {"command": "pytest -q"}, "ok"),
    ("run_shell", {"command": "ruff check"}, "error"),
    ("book", {"seat": 3, "who": {"name": "Ada", "age": 36}, "bags": [1, 2]}, "ok"),
    ("book", {"seat": 4, "who": {"name": "Bob"}}, "ok"),
]


def why(mode: str, *calls: Any, of: tuple[str, ...] | None = None, done: Any = DONE) -> str | None:
    criterion = ReceiptCriterion.model_validate({"kind": "receipt", "mode": mode, "calls": calls, "of": of})
    record = [Receipt(n=n, tool=tool, args=args, status=status) for n, (tool, args, status) in enumerate(done, 1)]
    return mismatch(criterion, record)


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


@pytest.mark.parametrize(
    ("calls", "holds"),
    [
        ([call("run_shell", command="pytest -q")], True),
        ([call("run_shell", command={"matches": "^pytest"})], True),
        ([call("run_shell", command="ruff check")], False),
        ([call("book", who={"name": "Ada"})], True),
        ([call("book", who={"name": "Ada", "age": "36"})], False),
        ([call("book", bags=[1, 2])], True),
        ([call("book", bags=[1])], False),
        ([call("book"), call("book")], True),
        ([call("book"), call("book"), call("book")], False),
        ([call("book"), call("book", seat=3)], True),
        ([call("book", seat=True)], False),
        ([call("send_email")], False),
    ],
)  # fmt: skip
def test_at_least_these_calls_succeeded(calls: list[Any], holds: bool) -> None:
    assert (why("at_least", *calls) is None) == holds


def test_exactly_means_these_calls_and_no_others() -> None:
    both = [call("book", seat=3), call("book", seat=4)]
    assert why("exactly", *both) is None
    assert "not expected: book" in (why("exactly", both[0]) or "")
    assert "no successful call of book" in (why("exactly", *both, call("book", seat=5)) or "")
    assert why("exactly", *both, of=("book",)) is None
    assert "not expected: run_shell" in (why("exactly", *both, of=("book", "run_shell")) or "")
    assert why("exactly", of=("send_email",)) is None


def test_none_means_that_it_never_happened() -> None:
    assert why("none", call("send_email")) is None
    assert why("none", of=("send_email", "delete_file")) is None
    assert "called: book" in (why("none", call("book", seat=3)) or "")
    assert why("none", call("book", seat=9)) is None
    assert "called: run_shell" in (why("none", of=("run_shell",)) or "")
    assert "called" in (why("none") or "")


@pytest.mark.parametrize("status", ["error", "denied", "timeout"])
def test_a_call_that_did_not_succeed_did_not_happen(status: ReceiptStatus) -> None:
    done = [("book", {"seat": 1}, status)]
    assert why("at_least", call("book"), done=done)
    assert why("none", call("book"), done=done) is None


def test_one_call_cannot_stand_for_two() -> None:
    done = [("book", {"seat": 1, "who": "a"}, "ok"), ("book", {"seat": 1}, "ok")]
    assert why("exactly", call("book", seat=1), call("book", who="a"), done=done) is None


def test_a_pattern_that_cannot_be_used_is_an_error() -> None:
    with pytest.raises(ValueError, match="can't be used"):
        why("at_least", call("run_shell", command={"matches": "("}))

"""Criteria about what the child did, decided from the runtime's own record."""

import json
import re
import time
from typing import Any

import pytest

from delegate import CallError, Task, contract
from delegate.judging.checks.json_schema import check_schema
from delegate.judging.checks.receipts import ReceiptDecision, check
from delegate.judging.validate import refuse_undecidable
from delegate.records.recorder import Recorder
from delegate.types import Receipt, ReceiptCriterion, ReceiptStatus
from delegate.types.ports import ToolOutput

DONE = [
    ("run_shell", {"command": "pytest -q"}, "ok"),
    ("run_shell", {"command": "ruff check"}, "error"),
    ("book", {"seat": 3, "who": {"name": "Ada", "age": 36}, "bags": [1, 2]}, "ok"),
    ("book", {"seat": 4, "who": {"name": "Bob"}}, "ok"),
]


def why(mode: str, *calls: Any, of: tuple[str, ...] | None = None, done: Any = DONE) -> str | None:
    criterion = ReceiptCriterion.model_validate({"kind": "receipt", "mode": mode, "calls": calls, "of": of})
    record = [Receipt(n=n, tool=tool, args=args, status=status) for n, (tool, args, status) in enumerate(done, 1)]
    decision = check(criterion, record)
    assert decision.outcome != "error", decision.reason
    return None if decision.outcome == "met" else decision.reason


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
    bad = {"calls": [call("run_shell", command={"matches": "("})]}
    found = decided(bad, [("run_shell", {"command": "ls"}, "")])
    assert (found.outcome, found.code) == ("error", "invalid_criterion")
    assert "can't be used" in found.reason


# ------------------------------------------------------------------------------------- results, bindings, and order

Done = tuple[str, dict[str, Any], Any]
"""A successful call: its tool, its arguments, and its result as a value or as text."""


def decided(criterion: dict[str, Any], done: list[Done]) -> ReceiptDecision:
    record = [
        Receipt(n=n, tool=tool, args=args, status="ok", output=out if isinstance(out, str) else json.dumps(out))
        for n, (tool, args, out) in enumerate(done, 1)
    ]
    return check(ReceiptCriterion.model_validate({"kind": "receipt", **criterion}), record)


def holds(calls: list[dict[str, Any]], done: list[Done], mode: str = "at_least") -> bool:
    found = decided({"mode": mode, "calls": calls}, done)
    assert found.outcome != "error", found.reason
    return found.outcome == "met"


def bound(tool: str, path: str) -> dict[str, Any]:
    return {"from": {"tool": tool, "path": path}}


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ({"status": "confirmed"}, True),
        ({"status": "queued"}, False),
        ({"status": {"in": ["pending", "confirmed"]}}, True),
        ({"status": {"in": []}}, False),
        ({"status": {"matches": "^conf"}}, True),
        ({"event": {"id": {"matches": "^evt_"}}}, True),
        ({"event": {"nr": True}}, False),
        ({"who": ["ann", "bob"]}, True),
        ({"who": ["bob", "ann"]}, False),
        ({"who": {"any_order": ["bob", "ann"]}}, True),
        ({"who": {"any_order": ["bob"]}}, False),
        ({"who": {"any_order": ["bob", {"matches": "^b"}]}}, False),
        ({"who": {"any_order": [{"matches": "b"}, {"in": ["bob", "ann"]}]}}, True),
        ({"error": None}, False),
        ({"note": {"in": "a plain value"}}, True),
    ],
)
def test_a_result_is_compared_as_a_subset_with_matchers(wanted: dict[str, Any], fits: bool) -> None:
    result = {"status": "confirmed", "event": {"id": "evt_1", "nr": 1}, "who": ["ann", "bob"],
              "note": {"in": "a plain value"}}  # fmt: skip
    assert holds([{"tool": "book", "result": wanted}], [("book", {}, result)]) is fits
    assert holds([{"tool": "book", "args": wanted}], [("book", result, "")]) is fits


def test_a_result_that_is_not_json_is_compared_as_text() -> None:
    assert holds([{"tool": "run", "result": {"matches": "^exit code 0"}}], [("run", {}, "exit code 0\n[stdout]\nok")])
    assert not holds([{"tool": "run", "result": {"code": 0}}], [("run", {}, "exit code 0")])


SEND = {"tool": "send", "args": {"event": bound("book", "event.id")}}


def test_an_argument_is_bound_to_the_result_of_an_earlier_call() -> None:
    booked: Done = ("book", {"seat": 1}, {"event": {"id": "e1"}})
    assert holds([SEND], [booked, ("send", {"event": "e1"}, "")])
    assert not holds([SEND], [booked, ("send", {"event": "e2"}, "")])
    assert not holds([SEND], [("send", {"event": "e1"}, ""), booked]), "the call is later"
    assert not holds([SEND], [("send", {"event": "e1"}, "")])


def test_all_references_to_one_call_mean_the_same_call() -> None:
    both = {"tool": "send", "args": {"event": bound("book", "id"), "to": bound("book", "who")}}
    one: Done = ("book", {}, {"id": "e1", "who": "ann"})
    two: Done = ("book", {}, {"id": "e2", "who": "bob"})
    assert holds([both], [one, two, ("send", {"event": "e2", "to": "bob"}, "")])
    assert not holds([both], [one, two, ("send", {"event": "e1", "to": "bob"}, "")])
    apart = [{"tool": "send", "args": {"event": bound("book", "id")}}, {"tool": "tell", "args": {"to": bound("book", "who")}}]  # fmt: skip  # noqa: E501
    assert holds(apart, [one, two, ("send", {"event": "e1"}, ""), ("tell", {"to": "ann"}, "")])
    assert not holds(apart, [one, two, ("send", {"event": "e1"}, ""), ("tell", {"to": "bob"}, "")])


def test_a_reference_to_an_expected_call_means_the_call_in_its_place() -> None:
    expected = [{"tool": "book", "args": {"seat": 1}}, {"tool": "send", "args": {"event": bound("book", "id")}}]
    done: list[Done] = [("book", {"seat": 1}, {"id": "e1"}), ("book", {"seat": 2}, {"id": "e2"})]
    assert holds(expected, [*done, ("send", {"event": "e1"}, "")])
    assert not holds(expected, [*done, ("send", {"event": "e2"}, "")])


def test_calls_of_one_tool_are_told_apart_by_their_ids() -> None:
    expected = [
        {"tool": "book", "id": "out", "args": {"seat": 1}},
        {"tool": "book", "id": "back", "args": {"seat": 2}},
        {"tool": "pay", "args": {"first": bound("out", "id"), "second": bound("back", "id")}},
    ]
    done: list[Done] = [("book", {"seat": 2}, {"id": "b"}), ("book", {"seat": 1}, {"id": "a"})]
    assert holds(expected, [*done, ("pay", {"first": "a", "second": "b"}, "")], "exactly")
    assert not holds(expected, [*done, ("pay", {"first": "b", "second": "a"}, "")], "exactly")


def test_a_path_leads_into_lists_and_any_item_of_them() -> None:
    found: Done = ("find", {}, {"results": [{"id": "a"}, {"id": "b", "odd name": 7}]})
    for path, value, fits in [("results[1].id", "b", True), ("results[0].id", "b", False), ("results[*].id", "b", True),
                              ("$.results[2].id", "b", False), ('results[1]["odd name"]', 7, True)]:  # fmt: skip
        assert (
            holds([{"tool": "use", "args": {"id": bound("find", path)}}], [found, ("use", {"id": value}, "")]) is fits
        )
    assert holds(
        [{"tool": "use", "args": {"id": bound("now", "$")}}], [("now", {}, "noon"), ("use", {"id": "noon"}, "")]
    )


def test_calls_can_be_asked_for_in_an_order() -> None:
    done: list[Done] = [("write", {}, ""), ("test", {}, ""), ("commit", {}, "")]
    assert holds([{"tool": "commit", "after": "test"}, {"tool": "test", "after": "write"}, {"tool": "write"}], done)
    assert holds([{"tool": "write", "before": "commit"}, {"tool": "commit"}], done)
    assert not holds([{"tool": "commit", "before": "test"}, {"tool": "test"}], done)
    assert holds([{"tool": "test", "after": "write"}, {"tool": "write"}], [("test", {}, ""), *done])


def test_every_assignment_is_tried_before_a_call_is_missing() -> None:
    expected = [{"tool": "a", "id": "x"}, {"tool": "a", "id": "y", "after": "x"}, {"tool": "b", "args": {"n": bound("y", "n")}}]  # fmt: skip  # noqa: E501
    done: list[Done] = [("a", {}, {"n": n}) for n in range(20)]
    assert holds(expected, [*done, ("b", {"n": 1}, "")])
    assert not holds(expected, [*done, ("b", {"n": 0}, "")]), "no call comes before the first"


def test_exactly_counts_what_is_bound_as_well() -> None:
    expected = [{"tool": "book"}, SEND]
    done: list[Done] = [("book", {}, {"event": {"id": "e1"}}), ("send", {"event": "e1"}, "")]
    assert holds(expected, done, "exactly")
    assert not holds(expected, [*done, ("send", {"event": "e1"}, "")], "exactly")


def test_none_forbids_a_call_by_its_result_or_its_source() -> None:
    never = {"mode": "none", "calls": [{"tool": "delete", "args": {"id": bound("find", "ids[*]")}}]}
    found: Done = ("find", {}, {"ids": [1, 2]})
    assert decided(never, [found, ("delete", {"id": 2}, "")]).outcome == "not_met"
    assert decided(never, [found, ("delete", {"id": 3}, "")]).outcome == "met"
    failed = {"mode": "none", "calls": [{"tool": "run", "result": {"exit": {"in": [1, 2]}}}]}
    assert decided(failed, [("run", {}, {"exit": 0})]).outcome == "met"
    assert decided(failed, [("run", {}, {"exit": 0}), ("run", {}, {"exit": 2})]).outcome == "not_met"


@pytest.mark.parametrize("mode", ["at_least", "exactly", "none"])
@pytest.mark.parametrize("output", ['{"status": "confirmed", "rows": [1, 2', '[{"status": "conf'])
def test_a_cut_result_is_an_error_and_never_met(mode: str, output: str) -> None:
    found = decided(
        {"mode": mode, "calls": [{"tool": "book", "result": {"status": "confirmed"}}]}, [("book", {}, output)]
    )
    assert (found.outcome, found.code) == ("error", "result_cut")


def test_a_cut_result_that_is_not_needed_does_no_harm() -> None:
    cut: Done = ("book", {"seat": 1}, '{"status": ')
    assert not holds([{"tool": "book", "args": {"seat": 2}, "result": {"status": "x"}}], [cut])
    assert holds([{"tool": "book", "result": {"status": "x"}}], [cut, ("book", {}, {"status": "x"})])
    assert decided({"calls": [SEND]}, [cut, ("send", {"event": "e1"}, "")]).code == "result_cut"


def test_a_recorded_result_is_compared_whole_even_if_the_receipt_shows_a_part() -> None:
    recorder = Recorder()
    whole = json.dumps({"rows": ["row"] * 2_000, "status": "confirmed"})
    recorder.tool_called(recorder.next_receipt(), "book", {}, ToolOutput(whole), 0.1)
    (receipt,) = recorder.finish("completed").receipts
    wanted = ReceiptCriterion.model_validate(
        {"kind": "receipt", "calls": [{"tool": "book", "result": {"status": "confirmed"}}]}
    )
    assert len(receipt.output) < len(whole)
    assert check(wanted, [receipt]).outcome == "met"
    read_back = Receipt.model_validate_json(receipt.model_dump_json())
    assert (check(wanted, [read_back]).outcome, check(wanted, [read_back]).code) == ("error", "result_cut")


def test_too_many_combinations_are_an_error_within_a_second() -> None:
    expected: list[Any] = [{"tool": "a", "id": f"x{n}", "before": f"x{n + 1}"} for n in range(9)]
    expected.append({"tool": "a", "id": "x9"})
    expected.append({"tool": "b", "args": {"n": bound("x0", "n")}})
    started = time.thread_time()
    done: list[Done] = [("a", {}, {"n": n}) for n in range(40)]
    found = decided({"calls": expected}, [*done, ("b", {"n": 99}, "")])
    assert (found.outcome, found.code) == ("error", "too_many_combinations")
    assert time.thread_time() - started < 1


def test_lists_in_any_order_inside_one_another_end_within_seconds() -> None:
    wanted = {"any_order": [{"any_order": [{"matches": "b"}] * 90} for _ in range(90)]}
    expected = {"calls": [{"tool": "a", "result": {"x": wanted}}]}
    started = time.thread_time()
    found = decided(expected, [("a", {}, {"x": [["a"] * 90] * 90})])
    assert (found.outcome, found.code) == ("error", "too_many_combinations")
    assert time.thread_time() - started < 5


@pytest.mark.parametrize("mode", ["at_least", "none"])
def test_the_patterns_of_one_criterion_share_their_time(mode: str) -> None:
    slow = [{"tool": "a", "args": {"x": {"matches": f"(a|aa)+{n}$"}}} for n in range(20)]
    started = time.thread_time()
    found = decided({"mode": mode, "calls": slow}, [("a", {"x": "a" * 5_000}, "")])
    assert (found.outcome, found.code) == ("error", "invalid_criterion")
    assert time.thread_time() - started < 2


def test_many_calls_without_bindings_need_no_search() -> None:
    expected = [{"tool": "a", "args": {"n": n}} for n in range(30)]
    assert holds(expected, [("a", {"n": 29 - n}, "") for n in range(30)], "exactly")
    shared = [{"tool": "a", "args": {"to": bound("find", "id")}} for _ in range(12)]
    done: list[Done] = [("find", {}, {"id": 1}), *(("a", {"to": 1}, "") for _ in range(11))]
    assert not holds(shared, done)
    assert holds(shared, [*done, ("a", {"to": 1}, "")])


@pytest.mark.parametrize(
    ("calls", "field", "complaint"),
    [
        ([{"tool": "a", "args": {"x": {"matches": "("}}}], "calls[0].args.x.matches", "not a regular expression"),
        ([{"tool": "a", "result": {"x": [{"any_order": 3}]}}], "calls[0].result.x[0].any_order", "is not a list"),
        ([{"tool": "a", "args": {"x": {"from": {"tool": "b"}}}}], "calls[0].args.x.from.path", "is missing"),
        ([{"tool": "a", "args": {"x": {"from": {"path": "id"}}}}], "calls[0].args.x.from.tool", "is missing"),
        ([{"tool": "a", "args": {"x": bound("b", "id[")}}], "calls[0].args.x.from.path", "is not a path"),
        ([{"tool": "a", "result": {"from": {"tool": "b", "at": 1}}}], "calls[0].result.from.at", "not a valid field"),
        ([{"tool": "a", "args": {"x": bound("a", "id")}}], "calls[0]", "the call itself"),
        ([{"tool": "a", "after": "b"}], "calls[0].after", "neither the tool nor the `id`"),
        ([{"tool": "a", "before": "a"}], "calls[0].before", "the call itself"),
        ([{"tool": "b"}, {"tool": "b"}, {"tool": "a", "after": "b"}], "calls[2].after", "expected 2 times"),
        ([{"tool": "a", "after": "b"}, {"tool": "b", "after": "a"}], "calls[0]", "make a circle"),
        ([{"tool": "a", "id": "x"}, {"tool": "b", "id": "x"}], "calls[0].id", "another call has too"),
    ],
)  # fmt: skip
def test_a_bad_expected_call_is_refused_naming_its_field(calls: list[Any], field: str, complaint: str) -> None:
    criterion = {"kind": "receipt", "calls": calls}
    with pytest.raises(CallError) as caught:
        contract.parse_call({"goal": "g", "acceptance_criteria": [criterion]}, check_schema=check_schema)
    assert caught.value.code == "invalid_criterion"
    assert f"`acceptance_criteria[0].{field}" in caught.value.message
    assert complaint in caught.value.message
    with pytest.raises(CallError, match=re.escape(field)):
        refuse_undecidable(Task(goal="g", acceptance_criteria=[criterion]))


def test_order_and_ids_make_no_sense_for_calls_that_must_not_be_made() -> None:
    for call in ({"tool": "a", "after": "b"}, {"tool": "a", "args": {"x": bound("y", "id")}}):
        criterion = {"kind": "receipt", "mode": "none", "calls": [call, {"tool": "b", "id": "y"}]}
        with pytest.raises(CallError, match=r"calls\[0\]"):
            refuse_undecidable(Task(goal="g", acceptance_criteria=[criterion]))


def test_json_text_is_accepted_for_results_as_for_arguments() -> None:
    calls = '[{"tool": "a", "args": "{\\"x\\": 1}", "result": "{\\"ok\\": true}", "after": null}]'
    (task,) = contract.parse_call(
        {"goal": "g", "acceptance_criteria": [{"kind": "receipt", "calls": calls}]}, check_schema=check_schema
    )
    (criterion,) = task.acceptance_criteria
    assert isinstance(criterion, ReceiptCriterion)
    assert (criterion.calls[0].args, criterion.calls[0].result) == ({"x": 1}, {"ok": True})

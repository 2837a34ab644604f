"""Whether a call succeeded, as its result says it: results after the documentation of APIs, and rules one by one."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from delegate.judging.proof.outcomes import Outcome, outcome, said
from delegate.types import Receipt

DATA = Path(__file__).parents[2] / "data" / "outcomes"
Json = dict[str, Any]


def receipt(result: Any, tool: str = "send_email", args: Json | None = None, status: str = "ok") -> Receipt:
    output = result if isinstance(result, str) else json.dumps(result)
    return Receipt.model_validate({"n": 1, "tool": tool, "args": args or {}, "status": status, "output": output})


@pytest.mark.parametrize(
    ("file", "total", "done"),
    [("outcomes.jsonl", 120, 60), ("more_outcomes.jsonl", 80, 40), ("third_outcomes.jsonl", 40, 20)],
)
def test_no_result_that_says_no_is_a_success_and_hardly_any_success_is_refused(
    file: str, total: int, done: int
) -> None:
    rows = [json.loads(line) for line in (DATA / file).read_text(encoding="utf-8").splitlines()]
    found = [(row["id"], row["truth"], outcome(receipt(row["result"], row["tool"], row["args"]))) for row in rows]
    counts = Counter((truth, what) for _, truth, what in found)
    believed = [id for id, truth, what in found if truth != "yes" and what == "yes"]
    refused = [id for id, truth, what in found if truth == "yes" and what == "no"]
    print(f"{dict(counts)}; taken for a success: {believed}; refused: {refused}")
    assert (counts.total(), sum(n for (truth, _), n in counts.items() if truth == "yes")) == (total, done)
    assert believed == []
    assert len(refused) <= 1, refused


@pytest.mark.parametrize(
    "result",
    [
        {"status": "declined"}, {"status": "queued", "id": "m1"}, {"success": "false"}, {"ok": False},
        {"result": {"error": {"message": "x"}}}, {"data": {"payment": {"status": "failed"}}}, {"isError": True},
        {"code": 404, "message": "x"}, {"statusCode": 500}, {"affected_rows": 0}, {"rowCount": 0},
        {"matchedCount": 1, "modifiedCount": 0}, {"dry_run": True, "id": "x1"}, {"accepted": [], "rejected": ["a@b"]},
        {"requires_approval": True, "id": "q"}, {"status": "requires_action", "id": "pi_1"}, {"status": "not_sent"},
        {"results": [{"id": 1, "status": "sent"}, {"id": 2, "status": "bounced"}]}, {"userErrors": [{"field": "x"}]},
        {"content": [{"type": "text", "text": '{"error": "gone"}'}], "isError": False}, {"delivered": False},
        "0 rows affected", "UPDATE 0", "(integer) 0", "HTTP/1.1 403 Forbidden", "Error: no such channel", "false",
        "queued", "Status: declined", "{'ok': False}", "<response><status>failed</status></response>",
    ],
    ids=str,
)  # fmt: skip
def test_a_structured_no_at_any_depth_is_not_a_success(result: Any) -> None:
    assert outcome(receipt(result)) == "no"


@pytest.mark.parametrize(
    "result",
    [
        {"ok": True}, {"id": "msg_1"}, {"status": "sent"}, {"success": True, "error": None}, {"errors": [], "id": "3"},
        {"status": "ok", "failed": 0}, {"code": 0, "data": {"id": 7}}, {"declined": False, "id": "x"}, {"status": 200},
        {"accepted": ["a@b"], "rejected": [], "messageId": "<x>"}, {"sent": True}, {"exit_code": 0}, "UPDATE 3",
        "250 2.0.0 Ok: queued as 17", "HTTP/1.1 201 Created",
    ],
    ids=str,
)  # fmt: skip
def test_what_only_looks_like_a_no_is_a_success(result: Any) -> None:
    assert outcome(receipt(result)) == "yes"


@pytest.mark.parametrize(
    ("tool", "args", "result", "wanted"),
    [
        (
            "create_ticket",
            {"title": "Payment failed"},
            {"id": "T1", "title": "Payment failed", "status": "open"},
            "yes",
        ),
        ("create_order", {"status": "pending"}, {"id": "o1", "status": "pending"}, "yes"),
        ("create_order", {"note": "pending"}, {"id": "o1", "status": "pending"}, "no"),
        ("log_error", {"error": "x"}, {"id": "l1", "error": "x"}, "yes"),
        ("cancel_order", {"id": "A7"}, {"status": "cancelled"}, "yes"),
        ("book_flight", {"id": "A7"}, {"status": "cancelled"}, "no"),
        ("create_user", {"name": "Ann"}, {"id": "u1", "status": "deleted"}, "unclear"),
        ("publish_page", {"id": "A7"}, {"id": "A7", "status": "published"}, "yes"),
        ("create_event", {"day": 3}, {"id": "e1", "participants": [{"answer": "x", "status": "declined"}]}, "yes"),
        ("sign_contract", {"to": "a@b"}, {"id": "e1", "status": "sent"}, "unclear"),
        ("send_message", {"text": "hi"}, {"code": 0, "data": {"message_id": "m", "deleted": False}}, "yes"),
        ("delete_user", {"id": "u1", "dry_run": True}, {"id": "u1", "deleted": True}, "no"),
        ("set_price", {"sku": "P", "price": 1.2}, {"ok": True, "sku": "P", "price": 1.5}, "unclear"),
        ("set_price", {"sku": "P", "price": 1.2}, {"ok": True, "sku": "P", "price": "1.20"}, "yes"),
        ("update_all", {"items": ["a", "b", "c"]}, {"updated": 2}, "unclear"),
        ("update_all", {"items": ["a", "b", "c"]}, {"updated": 3}, "yes"),
    ],
)
def test_fields_are_read_by_what_the_call_was_for(tool: str, args: Json, result: Any, wanted: Outcome) -> None:
    assert outcome(receipt(result, tool, args)) == wanted


@pytest.mark.parametrize(
    ("tool", "args", "result", "wanted"),
    [
        ("charge", {"amount": 50}, {"id": "ch_1", "paid": False, "captured": False}, "unclear"),
        ("pay_invoice", {"invoice": "in_7"}, {"id": "in_7x", "status": "open", "paid": False}, "no"),
        ("transfer", {"amount": 5}, {"id": "t1", "state": "RJCT"}, "unclear"),
        ("refund", {"order": "A7"}, {"id": "777", "estado": "rechazado"}, "unclear"),
        ("refund", {"order": "A7"}, {"refund": {"id": "777", "stan": "w trakcie rozpatrywania"}}, "unclear"),
        ("refund", {"order": "A7"}, {"id": "777", "結果": "失敗"}, "unclear"),
        ("refund", {"order": "A7"}, {"id": "777", "message": "It was declined by the issuer."}, "unclear"),
        ("refund", {"order": "A7"}, {"id": "777", "type": "declined"}, "unclear"),
        ("refund", {"order": "A7"}, {"id": "777", "livemode": False}, "unclear"),
        ("refund", {"order": "A7"}, {"id": "777", "_mock": True}, "unclear"),
        ("refund", {"order": "A7"}, {"id": "777", "result": {"code": "E102"}}, "unclear"),
        ("refund", {"order": "A7"}, {"id": "777", "order": "A7", "object": "refund", "currency": "eur"}, "yes"),
        ("refund", {"order": "A7"}, {"id": "777", "deleted": False, "failed": False, "test": False}, "yes"),
        ("refund", {"order": "A7"}, {"id": "777", "success": True, "estado": "listo"}, "yes"),
        ("upload", {"file": "a.pdf"}, {"id": "u1", "uploaded": []}, "no"),
        ("send", {"to": ["a@b", "c@d"]}, {"id": "m1", "accepted": ["a@b"]}, "no"),
        ("send", {"to": ["a@b", "c@d"]}, {"id": "m1", "accepted": ["a@b", "c@d"]}, "yes"),
        ("archive_tickets", {"ids": [3, 4]}, {"archived": 2}, "yes"),
        ("archive_tickets", {"ids": [3, 4]}, {"archived": 0}, "no"),
    ],
)
def test_an_id_alone_is_a_yes_only_where_nothing_unknown_stands_beside_it(
    tool: str, args: Json, result: Any, wanted: Outcome
) -> None:
    assert outcome(receipt(result, tool, args)) == wanted


@pytest.mark.parametrize(
    "result", ["", "null", "{}", "[]", "The mail was handled.", {"message": "it is on its way now"}]
)
def test_a_result_that_says_nothing_is_unclear(result: Any) -> None:
    assert outcome(receipt(result)) == "unclear"


@pytest.mark.parametrize("status", ["error", "denied", "timeout"])
def test_a_call_that_the_runtime_saw_fail_failed(status: str) -> None:
    assert outcome(receipt({"ok": True}, status=status)) == "no"


def test_a_look_up_of_something_that_failed_succeeded() -> None:
    assert outcome(receipt({"order": "A7", "status": "declined"}, "get_order"), reads=True) == "yes"
    assert outcome(receipt({"error": "not found"}, "get_order"), reads=True) == "no"


@pytest.mark.parametrize(
    ("result", "wanted"), [({"state": "accepted"}, "yes"), ({"state": "stored"}, "no"), ("accepted", "no")]
)
def test_what_is_declared_decides(result: Any, wanted: Outcome) -> None:
    schema = {"type": "object", "properties": {"state": {"const": "accepted"}}, "required": ["state"]}
    assert outcome(receipt(result), schema) == wanted
    assert outcome(receipt(result), lambda found: found["state"] == "accepted") == wanted, "one that raises is a no"


def test_what_is_pending_and_what_was_done_in_part_are_told_from_what_was_refused() -> None:
    assert said(receipt({"status": "queued"})) == "not_yet"
    assert said(receipt([{"ok": True}, {"ok": False}])) == "in_part"
    assert said(receipt({"status": "abgelehnt"})) == "doubtful"


def test_a_result_too_large_to_be_looked_at_is_no_success() -> None:
    rows = [{"id": n, "status": "ok"} for n in range(6_000)]
    assert outcome(receipt({"ok": True, "rows": rows})) == "unclear"


@pytest.mark.slow
def test_long_lines_without_fields_are_read_in_time_that_grows_with_their_length() -> None:
    started = time.process_time()
    outcome(receipt("\n".join(["x" * 1000] * 60)))
    assert time.process_time() - started < 0.1, "60 kB; a search from each character took 0.5 s"

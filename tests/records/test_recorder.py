"""The recorder's record of one child is complete at any time, bounded, and contains no secrets."""

import hashlib
import json
from typing import Any

import pytest

from delegate._util.redaction import MARK
from delegate.budget.costs import UNOBSERVED, Charge
from delegate.records.recorder import RECEIPT_CHARS, Recorder
from delegate.types import ChildRun, ErrorDetail, Usage
from delegate.types.events import kind_of
from delegate.types.ports import ChatReply, ToolCall, ToolOutput

KEY = "sk-proj-aB3dE5fG7hJ9kL1mN3pQ5rS7"


def called(recorder: Recorder, text: str, tool: str = "look", **args: object) -> None:
    recorder.tool_called(recorder.next_receipt(), tool, args, ToolOutput(text), 0.5)


def said(recorder: Recorder, text: str, *calls: ToolCall) -> None:
    usage = Usage(model_calls=1, input_tokens=10, output_tokens=2)
    recorder.model_called(ChatReply(text, "end", usage, calls), Charge(usage, 0.25, 0.25, "observed"))


def test_a_run_contains_all_output_and_calls_so_far_however_it_ends() -> None:
    recorder = Recorder()
    said(recorder, "half-way")
    called(recorder, "found it")
    said(recorder, "  ")
    run = recorder.finish("timeout", error=ErrorDetail(code="timeout", message="too long"))
    assert (run.status, run.report, run.steps, run.cost_usd, run.usage.input_tokens) == (
        "timeout", "half-way", 2, 0.5, 20,
    )  # fmt: skip
    assert [receipt.output for receipt in run.receipts] == ["found it"]


def test_receipts_are_in_the_order_in_which_the_calls_started() -> None:
    recorder = Recorder()
    first, second = recorder.next_receipt(), recorder.next_receipt()
    recorder.tool_called(second, "quick", {}, ToolOutput("b"), 0)
    recorder.tool_called(first, "slow", {}, ToolOutput("a"), 0)
    assert [(receipt.n, receipt.tool) for receipt in recorder.finish("completed").receipts] == [
        (1, "slow"), (2, "quick"),
    ]  # fmt: skip


def test_a_long_answer_keeps_both_ends_and_the_digest_of_the_whole() -> None:
    recorder, text = Recorder(), "é" * RECEIPT_CHARS + "z" * RECEIPT_CHARS
    called(recorder, text)
    (receipt,) = recorder.finish("completed").receipts
    assert len(receipt.output) < RECEIPT_CHARS + 100
    assert (receipt.output[0], receipt.output[-1]) == ("é", "z")
    assert "characters left out" in receipt.output
    assert receipt.output_bytes == len(text.encode())
    assert receipt.output_sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_a_key_at_a_cut_is_redacted_before_the_cut() -> None:
    recorder = Recorder()
    called(recorder, "x" * (RECEIPT_CHARS // 2 - 10) + " " + KEY + " " + "y" * RECEIPT_CHARS)
    (receipt,) = recorder.finish("completed").receipts
    assert "sk-proj" not in receipt.output
    assert MARK[:5] in receipt.output


def test_the_journal_receives_every_call_when_it_happens() -> None:
    told: list[tuple[str, Any]] = []
    recorder = Recorder(journal=lambda make, text: told.append((kind_of(make), json.loads(text))))
    said(recorder, f"I use {KEY}", ToolCall("1", "look", {"at": KEY}))
    ((kind, values),) = told
    assert (kind, values["text"]) == ("child.usage", f"I use {MARK}")
    assert values["calls"] == [{"tool": "look", "args": {"at": MARK}}]
    assert (values["input_tokens"], values["output_tokens"], values["cost_usd"]) == (10, 2, 0.25)
    called(recorder, f"there is {KEY}", "look", at=KEY)
    (receipt,) = recorder.finish("completed").receipts
    assert told[1] == ("child.tool", receipt.model_dump(mode="json"))
    assert (receipt.args, receipt.output) == ({"at": MARK}, f"there is {MARK}")


def test_output_errors_and_tool_names_contain_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "swordfish-77")
    recorder = Recorder()
    called(recorder, "x", "swordfish-77")
    run = recorder.finish(
        "failed", report="swordfish-77!", error=ErrorDetail(code="crashed", message="no swordfish-77")
    )
    assert run.error
    assert (run.report, run.error.message, run.receipts[0].tool) == (f"{MARK}!", f"no {MARK}", MARK)


def test_an_output_set_by_a_runner_contains_no_secrets() -> None:
    recorder = Recorder()
    said(recorder, "half-way")
    recorder.report = f"there is {KEY}"
    assert recorder.finish("timeout").report == f"there is {MARK}"
    assert recorder.finish("completed", report="half-way").report == "half-way"


def test_a_foreign_run_is_redacted_and_the_recorders_own_is_unchanged() -> None:
    recorder = Recorder(UNOBSERVED)
    own = recorder.finish("completed", report="fine")
    assert recorder.redacted(own) is own
    made = ChildRun(status="completed", report=f"\ud800 {KEY}", observations=(KEY,))
    redacted = recorder.redacted(made)
    assert (redacted.report, redacted.observations) == (f"? {MARK}", (MARK,))
    assert redacted.model_dump_json()

"""Fifty recorded runs of a real agent, judged by its tool calls: no model is asked, and its report has no effect.

The expected writes and outputs of each run are the benchmark's own; `reward` says whether it was right in the end.
"""

import json
import operator
import re
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Verdict
from delegate.models.providers.scripted import Scripted
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.recorded import airline_receipts

DATA = Path(__file__).parents[1] / "data"
RUNS: list[dict[str, Any]] = [json.loads(line) for line in (DATA / "tau_airline_runs.jsonl").read_text().splitlines()]
WRITES = (
    "book_reservation",
    "cancel_reservation",
    "send_certificate",
    "update_reservation_baggages",
    "update_reservation_flights",
    "update_reservation_passengers",
)
HANDED_OVER = "I transferred the user to a human agent."
"""The report of a run in which the agent wrote no final message."""


def outputs(run: dict[str, Any]) -> list[dict[str, Any]]:
    """What the customer has to be told: every expected number in the report, with or without commas in it."""
    spelled = [",?".join(map(re.escape, output)) for output in run["expected_outputs"]]
    return [{"kind": "regex", "pattern": rf"(?<![\d.,]){pattern}(?!\d)"} for pattern in spelled]


def criterion(run: dict[str, Any]) -> dict[str, Any]:
    """Exactly the expected writes with their arguments, and no other successful write."""
    expected = [action for action in run["expected_actions"] if action["tool"] in WRITES]
    return {"kind": "receipt", "mode": "exactly", "of": WRITES, "calls": expected}


def refuse(request: ChatRequest) -> ChatReply:
    raise AssertionError("a model was asked")


async def judged(runs: list[dict[str, Any]]) -> list[Verdict]:
    client = Scripted(refuse)
    async with Delegator(client=client) as delegator:
        verdicts = [
            await delegator.judge(
                goal="Serve the customer within the airline's policy.",
                acceptance_criteria=[criterion(run), *outputs(run)],
                report=run["closing"] or HANDED_OVER,
                receipts=airline_receipts(run),
            )
            for run in runs
        ]
    assert client.requests == []
    return verdicts


async def test_the_verdict_agrees_with_the_benchmarks_result(home: Path) -> None:
    verdicts = await judged(RUNS)
    said = [verdict.verdict == "PASS" for verdict in verdicts]
    right = [run["reward"] == 1 for run in RUNS]
    assert (len(right), sum(right)) == (50, 21)
    assert sum(map(operator.eq, said, right)) == 50
    assert sum(len(outputs(run)) for run in RUNS) == 8


async def test_every_false_success_fails(home: Path) -> None:
    false = [run for run in RUNS if run["reward"] == 0 and run["closing"]]
    assert len(false) == 24
    assert {verdict.verdict for verdict in await judged(false)} == {"FAIL"}


async def test_every_run_is_decided_by_a_check_even_without_calls(home: Path) -> None:
    """An undecided criterion is a FAIL too, which could make the figures above right by chance."""
    verdicts = await judged(RUNS)
    undecided = {run["task_id"]: one.code for run, one in zip(RUNS, verdicts, strict=True) if one.decided_by != "check"}
    assert undecided == {}


@pytest.mark.parametrize("change", ["a write more", "a write less", "a write that failed", "another argument"])
async def test_a_correct_run_with_one_changed_call_fails(change: str, home: Path) -> None:
    right = [run for run in RUNS if run["reward"] == 1 and criterion(run)["calls"]]
    assert len(right) >= 8
    assert {verdict.verdict for verdict in await judged([_changed(run, change) for run in right])} == {"FAIL"}


def _changed(run: dict[str, Any], change: str) -> dict[str, Any]:
    calls = list(run["calls"])
    at = max(n for n, call in enumerate(calls) if call["tool"] in WRITES and not call["result"].startswith("Error"))
    if change == "a write more":
        calls.append({"tool": "cancel_reservation", "args": {"reservation_id": "ZZZZZZ"}, "result": "{}"})
    elif change == "a write less":
        del calls[at]
    elif change == "a write that failed":
        calls[at] = {**calls[at], "result": "Error: payment amount does not add up"}
    else:
        calls[at] = {**calls[at], "args": dict.fromkeys(calls[at]["args"], "other")}
    return {**run, "calls": calls}


async def test_missing_receipts_do_not_prove_that_a_call_was_not_made(tmp_path: Path) -> None:
    folder = tmp_path / "left"
    folder.mkdir()
    never = {"kind": "receipt", "mode": "none", "of": ["send_certificate"]}
    async with Delegator(client=Scripted(refuse)) as delegator:
        verdict = await delegator.judge(
            goal="Serve.", acceptance_criteria=[never], report="I sent a certificate.", workspace=folder
        )
    assert (verdict.verdict, verdict.code) == ("FAIL", "no_receipts")

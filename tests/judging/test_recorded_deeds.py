"""Deeds of recorded runs, asked for in words: which are believed undone, and which are refused done.

The judges quote true sentences for everything: of the report, of any source, or whichever quote would be accepted.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Verdict
from delegate.judging.judge.evidence import gather
from delegate.judging.judge.proof import Proof
from delegate.judging.judge.statements import read_statement
from delegate.judging.submission import Submission
from delegate.models.providers.scripted import Scripted
from delegate.types import ChildRun, Receipt, Task
from tests.support.deeds import AIRLINE, believer, claims_in_words
from tests.support.recorded import airline_receipts, claim_receipts

DATA = Path(__file__).parents[1] / "data"
RUNS: list[dict[str, Any]] = [json.loads(line) for line in (DATA / "tau_airline_runs.jsonl").read_text().splitlines()]
Deed = tuple[dict[str, Any], str, bool]
"""A run, a deed in words, and whether it was done."""


def done(run: dict[str, Any], action: dict[str, Any]) -> bool:
    return any(
        call["tool"] == action["tool"]
        and not call["result"].startswith("Error")
        and all(call["args"].get(key) == value for key, value in action["args"].items())
        for call in run["calls"]
    )


def deeds() -> list[Deed]:
    """The expected writes of every run, and as undone ones those of the other runs' same customers and reservations."""
    found: list[Deed] = []
    for run in RUNS:
        actions = [one for one in run["expected_actions"] if one["tool"] in AIRLINE]
        found += [(run, AIRLINE[one["tool"]](one["args"]), done(run, one)) for one in actions]
        for call in run["calls"]:
            if call["tool"] in AIRLINE and not call["result"].startswith("Error"):
                found.append((run, AIRLINE[call["tool"]](call["args"]), True))
    return list({(run["task_id"], text): (run, text, was) for run, text, was in found}.values())


async def judged(run: dict[str, Any], text: str, client: Scripted) -> Verdict:
    async with Delegator(client=client) as delegator:
        return await delegator.judge(
            goal="Serve the customer.",
            acceptance_criteria=[text],
            output=run["closing"] or "I transferred the user to a human agent.",
            receipts=airline_receipts(run),
        )


@pytest.mark.parametrize("sources", ["the report", "any source"])
async def test_a_believing_judge_passes_few_undone_deeds(sources: str, home: Path) -> None:
    undone = [deed for deed in deeds() if not deed[2]]
    assert len(undone) >= 30
    client = Scripted(believer((lambda source: source == "output") if sources == "the report" else lambda source: True))
    believed = [text for run, text, _ in undone if (await judged(run, text, client)).verdict == "PASS"]
    print(f"undone deeds believed, quotes from {sources}: {len(believed)} of {len(undone)}")
    assert len(believed) <= (0 if sources == "the report" else 0.1 * len(undone)), believed


def accepted(run: dict[str, Any], text: str) -> bool:
    """Whether any line of the evidence would be accepted as a quote."""
    return can_be_proven(run["closing"] or "I transferred the user.", airline_receipts(run), text)


def can_be_proven(report: str, calls: list[dict[str, Any]], text: str) -> bool:
    recorded = tuple(Receipt.model_validate({"n": n, **one}) for n, one in enumerate(calls, start=1))
    work = ChildRun(status="completed", output=report, receipts=recorded)
    submission = Submission(Task(goal="Serve."), work, None, "person", None)
    evidence = gather(submission, ())
    proof = Proof(text, read_statement(text), submission, evidence)
    lines = {line[:400] for source in evidence.sources.values() for line in source.splitlines() if len(line) > 12}
    return any(proof.find(line) != (None, None) and proof.find(line)[1] is None for line in lines)


def test_hardly_any_quote_makes_an_undone_deed_pass_and_done_ones_are_not_refused() -> None:
    undone = [deed for deed in deeds() if not deed[2]]
    believed = [text for run, text, _ in undone if accepted(run, text)]
    was_done = [deed for deed in deeds() if deed[2]]
    refused = [text for run, text, _ in was_done if not accepted(run, text)]
    print(f"believed at worst: {len(believed)} of {len(undone)}; refused: {len(refused)} of {len(was_done)}")
    assert len(believed) <= 0.1 * len(undone), believed
    assert len(was_done) >= 40
    assert len(refused) <= 0.02 * len(was_done), refused


def test_of_recorded_claims_only_those_that_no_receipt_contradicts_are_believed() -> None:
    """In words, a write that was only accepted, or a value that the instruction doesn't name, can't be told apart."""
    runs = [json.loads(line) for line in (DATA / "claimcheck_train.jsonl").read_text(encoding="utf-8").splitlines()]
    believed, refused = Counter[str](), 0
    for run in runs:
        deeds_asked = claims_in_words(run["domain"], run["instruction"])
        passes = all(can_be_proven(run["report"], claim_receipts(run), text) for text in deeds_asked)
        if run["outcome"] == "success":
            refused += not passes
        elif passes:
            believed[run["injection"]] += 1
    print(f"at worst, {believed.total()} of 72 false claims believed {dict(believed)}; {refused} of 108 refused")
    assert refused == 0
    assert set(believed) <= {"not_persisted", "wrong_value", "wrong_target", "reviewer_injection"}
    assert believed.total() <= 25

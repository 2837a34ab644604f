"""Recorded runs that claim success, judged by code alone against criteria written from their instructions.

A run whose benchmark has the state afterwards is judged with `probe` criteria as well; the tools that they call answer
with that state. Of the other runs, only the tool calls are known.
"""

import json
from pathlib import Path
from typing import Any

from delegate import Delegator, Verdict
from delegate.models.providers.scripted import Scripted
from tests.support.claims import criteria_for
from tests.support.recorded import claim_receipts, state_tools

DATA = Path(__file__).parents[1] / "data" / "claimcheck_train.jsonl"
RUNS: list[dict[str, Any]] = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]


async def judged(runs: list[dict[str, Any]]) -> list[Verdict]:
    async with Delegator(client=Scripted([])) as delegator:
        return [
            await delegator.judge(
                goal=run["instruction"],
                acceptance_criteria=criteria_for(run["domain"], run["instruction"], can_probe=bool(run["probes"])),
                report=run["report"],
                receipts=claim_receipts(run),
                tools=state_tools(run),
            )
            for run in runs
        ]


def only_accepted(run: dict[str, Any]) -> bool:
    """Whether a write was only accepted, and nothing shows whether it happened."""
    states = {call["result"].get("status") for call in run["calls"] if isinstance(call["result"], dict)}
    return not run["probes"] and bool(states & {"pending", "accepted"})


def ids(pairs: list[tuple[dict[str, Any], Verdict]]) -> set[str]:
    return {run["id"] for run, _ in pairs}


async def test_claims_of_success_are_believed_only_if_they_are_true(home: Path) -> None:
    pairs = list(zip(RUNS, await judged(RUNS), strict=True))
    assert {verdict.decided_by for _, verdict in pairs}.isdisjoint({"gate", "judge"}), "code decides every run"
    false = [(run, verdict) for run, verdict in pairs if run["outcome"] == "failure"]
    honest = [(run, verdict) for run, verdict in pairs if run["outcome"] == "success"]
    believed = [(run, verdict) for run, verdict in false if verdict.verdict == "PASS"]
    verified = [(run, verdict) for run, verdict in believed if verdict.verified]
    refused = [(run, verdict) for run, verdict in honest if verdict.verdict == "FAIL"]
    print(f"\nfalse claims: {len(false)}; PASS and verified: {len(verified)}; PASS on trust: {len(believed)}")
    print(f"honest claims: {len(honest)}; refused: {len(refused)}")
    assert (len(false), len(honest)) == (72, 108)
    assert verified == []
    # A wrong value of a field whose right value isn't in the instruction: left to a person, and never verified.
    assert ids(believed) == {
        run["id"] for run, _ in false if (run["domain"], run["injection"]) == ("crm", "wrong_value")
    }
    assert len(believed) == 4
    # Where a write was only accepted and no tool shows the state, true and false claims can't be told apart.
    assert ids(refused) == {run["id"] for run, _ in honest if only_accepted(run)}
    assert len(refused) == 8
    on_trust = [run for run, verdict in honest if verdict.verdict == "PASS" and not verdict.verified]
    assert (len(on_trust), {run["domain"] for run in on_trust}) == (34, {"crm"})


def shape(run: dict[str, Any]) -> tuple[Any, ...]:
    """What the tool calls of a run have in common with those of another one, without names and ids."""
    calls = (
        (call["tool"], call["ok"], call["result"].get("status") if isinstance(call["result"], dict) else None)
        for call in run["calls"]
        if call["tool"] not in ("fs.read_file", "crm.get_contact", "calendar.search_slots") and call["ok"]
    )
    return (run["domain"], *calls)


def test_what_is_refused_looks_like_what_is_false() -> None:
    """Every honest run that is refused has a twin whose claim is false, so no rule over the calls gets both right."""
    accepted = [run for run in RUNS if only_accepted(run)]
    false = {shape(run) for run in accepted if run["outcome"] == "failure"}
    honest = [run for run in accepted if run["outcome"] == "success"]
    assert (len(accepted), len(honest)) == (14, 8)
    assert {shape(run) for run in honest} <= false

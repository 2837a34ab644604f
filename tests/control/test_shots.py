"""Propose, verify, review, propose again: each shot a result of its own, told what was refused in the last one."""

from pathlib import Path
from typing import Any

import pytest

from delegate import CallError, Delegator, Task, TaskResult
from delegate.control import Shots, refusal, run_shots
from delegate.models.providers.scripted import Scripted
from delegate.types import CriterionResult, Verdict
from delegate.types.ports import ChatReply, ChatRequest

FILE = {"kind": "file", "path": "a.txt", "contains": "hello"}


async def shoot(contents: list[str], *criteria: Any, **options: Any) -> tuple[Shots, list[str]]:
    """Run shots of a child that writes the next of these contents to a.txt. Returns their assignments too."""
    assignments: list[str] = []

    def answer(request: ChatRequest) -> ChatReply | str:
        if len(request.messages) > 1:
            return "I wrote a.txt."
        assignments.append(request.messages[0].text)
        return Scripted.call("write_file", path="a.txt", content=contents[len(assignments) - 1])

    async with Delegator(client=Scripted(answer)) as delegator:

        async def propose(task: Task) -> TaskResult:
            return (await delegator.run(task)).results[0]

        task = Task(goal="Write a.txt.", context="In English.", acceptance_criteria=criteria or (FILE,))
        return await run_shots(propose, task, **options), assignments


async def test_the_next_shot_is_told_what_failed_and_each_has_a_result() -> None:
    shots, assignments = await shoot(["no", "not yet", "hello"])
    assert shots.verified
    assert [result.good for result in shots.results] == [False, False, True]
    assert len({result.handle for result in shots.results}) == 3
    assert assignments[0] == "Write a.txt.\n\nContext:\nIn English."
    assert "An earlier attempt at this was refused. You start anew." in assignments[1]
    assert "- c1 (not_met)" in assignments[1].replace("not met", "not_met")
    assert assignments[2].count("An earlier attempt") == 1


async def test_shots_end_at_their_number_and_at_their_cost() -> None:
    shots, _ = await shoot(["no"] * 9, max_shots=2)
    assert (shots.verified, shots.loop.end, len(shots.results)) == (False, "budget_limited", 2)
    shots, _ = await shoot(["no"] * 9, max_shots=9, max_cost_usd=1e-9)
    assert (shots.loop.end, len(shots.results)) == ("budget_limited", 1)


async def test_a_pass_on_trust_is_no_success() -> None:
    shots, _ = await shoot(["hello"] * 9, FILE, {"kind": "manual", "text": "it is pretty"}, max_shots=2)
    assert [result.verdict and result.verdict.verdict for result in shots.results] == ["PASS", "PASS"]
    assert not shots.verified


async def test_an_error_of_a_shot_is_recorded_and_the_next_one_starts() -> None:
    made: list[Task] = []

    async def propose(task: Task) -> TaskResult:
        made.append(task)
        raise OSError("no such program")

    shots = await run_shots(propose, Task(goal="x", acceptance_criteria=["y"]), max_shots=2)
    assert (len(made), shots.results, shots.loop.end) == (2, (), "budget_limited")
    assert shots.loop.steps[0].errors == ("act: OSError: no such program",)


async def test_shots_need_criteria_and_files_that_are_made_anew(tmp_path: Path) -> None:
    async def propose(task: Task) -> TaskResult:
        raise AssertionError

    for task, field in (
        (Task(goal="x"), "acceptance_criteria"),
        (Task(goal="x", acceptance_criteria=["y"], workspace=tmp_path), "workspace"),
    ):
        with pytest.raises(CallError) as caught:
            await run_shots(propose, task)
        assert caught.value.field == field


def result(id: str, **fields: Any) -> CriterionResult:
    given: dict[str, Any] = {
        "text": "t",
        "kind": "text",
        "outcome": "not_met",
        "decided_by": "judge",
        "code": "not_met",
        **fields,
    }
    return CriterionResult(id=id, **given)


def verdict(*criteria: CriterionResult, **fields: Any) -> Verdict:
    given: dict[str, Any] = {
        "verdict": "FAIL",
        "verified": False,
        "decided_by": "judge",
        "code": "not_met",
        "reasoning": "r",
        **fields,
    }
    return Verdict(criteria=criteria, **given)


def test_a_refusal_names_what_fails_and_quotes_only_checks() -> None:
    check = result(
        "c1", kind="shell", decided_by="check", evidence="1 failed\x1b[2J", source="check:c1", reason="exit code 1"
    )
    judged = result("c2", evidence="quoted from elsewhere", source="report", reason="It is\nnot there.")
    text = refusal(verdict(check, judged, result("c3", outcome="skipped", code="skipped"), result("c4", outcome="met")))
    assert "2 of 4 criteria" in text
    assert "    1 failed\n" in text
    assert "It is not there." in text
    assert "elsewhere" not in text
    assert "\x1b" not in text
    assert "Not looked at, since others failed: c3" in text


def test_a_refusal_says_when_nobody_could_look() -> None:
    text = refusal(verdict(result("c1", outcome="error", decided_by="nobody", code="judge_unavailable"),
                           code="judge_unavailable"))  # fmt: skip
    assert text.startswith("Verification wasn't possible (judge_unavailable), which says nothing about the work")
    gate = refusal(verdict(decided_by="gate", code="empty_report", reasoning="the child ended without a report"))
    assert gate == "Verification failed (empty_report):\nthe child ended without a report"

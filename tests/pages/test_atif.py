"""Recorded runs as ATIF trajectories: complete, linked, and valid by the published models."""

import json
from typing import Any

import pytest

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from delegate.pages.atif import RecordedTask, run_trajectory, trajectories
from delegate.types import JsonObject
from delegate.types.errors import DelegateError
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.words import goal_of, is_judge, met_by

CRITERIA = ["the report says what was looked for", {"kind": "regex", "pattern": "part"}]


def _reply(request: ChatRequest) -> ChatReply | str:
    if is_judge(request):
        return met_by("I did my part")(request)
    goal = goal_of(request).split("\n")[0]
    if len(request.messages) > 1:
        return f"I did my part of {goal}"
    if goal == "boss":
        tasks = [{"goal": goal, "acceptance_criteria": CRITERIA} for goal in ("left", "right")]
        return Scripted.calls(("think", {"thought": "hm"}), ("delegate_task", {"tasks": tasks}), text="I ask others.")
    return Scripted.calls(("think", {"thought": "a"}), ("think", {"thought": "b"}), ("no_such_tool", {}))


async def recorded(*goals: str) -> tuple[str, list[RecordedTask]]:
    async with Delegator(client=Scripted(_reply), max_depth=2) as delegator:
        result = await delegator.run(
            *(Task.model_validate({"goal": goal, "context": "c", "acceptance_criteria": CRITERIA}) for goal in goals)
        )
        assert result.run_id
        tasks = [
            RecordedTask(await delegator.records.read(one.handle) or {}, one.depth)
            for one in await delegator.records.tasks(result.run_id)
        ]
    return result.run_id, tasks


def valid(trajectory: JsonObject) -> Any:
    """The trajectory as the published models read it."""
    atif = pytest.importorskip("atif", reason="the published models of ATIF aren't installed: pip install atif")
    return atif.Trajectory.model_validate(json.loads(json.dumps(trajectory)))


async def test_a_task_is_one_trajectory_with_a_step_per_model_call() -> None:
    run_id, tasks = await recorded("look around")
    one = run_trajectory(run_id, tasks)
    asked, first, last = one["steps"]
    assert (one["schema_version"], one["session_id"], one["trajectory_id"]) == ("ATIF-v1.8", run_id, f"{run_id}-0")
    assert [step["step_id"] for step in one["steps"]] == [1, 2, 3]
    assert asked["source"] == "user"
    assert asked["message"].startswith("look around\n\nContext:\nc\n\nAcceptance criteria:\n- the report says")
    names = [(call["function_name"], call["arguments"]) for call in first["tool_calls"]]
    assert names == [("think", {"thought": "a"}), ("think", {"thought": "b"}), ("no_such_tool", {})]
    ids = [call["tool_call_id"] for call in first["tool_calls"]]
    assert [result["source_call_id"] for result in first["observation"]["results"]] == ids == [*dict.fromkeys(ids)]
    assert last["message"] == "I did my part of look around"
    assert "tool_calls" not in last
    metrics = one["final_metrics"]
    assert metrics["total_steps"] == 3
    assert metrics["total_prompt_tokens"] == sum(step["metrics"]["prompt_tokens"] for step in (first, last))
    assert metrics["total_cost_usd"] == pytest.approx(first["metrics"]["cost_usd"] + last["metrics"]["cost_usd"])


async def test_what_the_format_has_no_field_for_is_kept_as_extra() -> None:
    _, tasks = await recorded("look around")
    ruling = {"criterion": "c1", "ruling": "not_met", "ruled_by": "ann"}
    (one,) = trajectories([RecordedTask(tasks[0].record, 0, (ruling,))])
    ours = one["extra"]["delegate"]
    assert (ours["state"], ours["status"], ours["verdict"]["verdict"]) == ("ended", "completed", "PASS")
    assert [criterion["id"] for criterion in ours["criteria"]] == ["c1", "c2"]
    assert ours["rulings"] == [ruling]
    assert ours["rubric_version"]
    assert ours["judge_version"]


async def test_grandchildren_are_embedded_and_referred_to_by_the_call() -> None:
    run_id, tasks = await recorded("boss")
    one = run_trajectory(run_id, tasks)
    below = [sub["trajectory_id"] for sub in one["subagent_trajectories"]]
    assert len(below) == 2
    delegating = one["steps"][1]["observation"]["results"][1]
    assert [ref["trajectory_id"] for ref in delegating["subagent_trajectory_ref"]] == below
    assert "subagent_trajectory_ref" not in one["steps"][1]["observation"]["results"][0]


async def test_a_run_of_several_tasks_has_a_root_that_hands_them_over() -> None:
    run_id, tasks = await recorded("a", "boss")
    root = run_trajectory(run_id, tasks)
    (step,) = root["steps"]
    assert step["llm_call_count"] == 0
    assert [call["arguments"]["goal"] for call in step["tool_calls"]] == ["a", "boss"]
    refs = [result["subagent_trajectory_ref"][0]["trajectory_id"] for result in step["observation"]["results"]]
    assert refs == [sub["trajectory_id"] for sub in root["subagent_trajectories"]] == [f"{run_id}-0", f"{run_id}-1"]
    assert len(root["subagent_trajectories"][1]["subagent_trajectories"]) == 2


async def test_a_task_without_a_result_has_what_is_known_so_far() -> None:
    _, tasks = await recorded("a")
    record = tasks[0].record
    lost = {**record, "run": None, "result": None, "state": "outcome_unknown", "events": record["events"][:2]}
    (one,) = trajectories([RecordedTask(lost)])
    assert len(one["steps"]) == 2
    assert one["extra"]["delegate"]["verdict"] is None
    assert one["extra"]["delegate"]["state"] == "outcome_unknown"


async def test_a_record_of_another_version_is_named() -> None:
    _, (task,) = await recorded("do it")
    newer = RecordedTask({**task.record, "events": [{"at": 0, "kind": "child.tool"}]})
    with pytest.raises(DelegateError, match=f"the record of {task.handle} can't be exported"):
        trajectories([newer])


async def test_the_published_models_accept_every_trajectory() -> None:
    run_id, tasks = await recorded("a", "boss")
    lost: JsonObject = {**tasks[0].record, "run": None, "result": None, "events": []}
    assert len(valid(run_trajectory(run_id, tasks)).subagent_trajectories) == 2
    assert valid(trajectories([RecordedTask(lost)])[0]).steps[0].source == "user"

"""A child in a role: it narrows the task, and neither the file nor the parent's model gets more by it."""

import json
from typing import Any

import pytest

from delegate import CallError, Delegator, Task
from delegate.child.job import Job
from delegate.contract import DIALECTS, tool
from delegate.policy.approvals import ApprovalAnswer, ApprovalRequest
from delegate.testing import Scripted
from delegate.types import JsonObject, Parent
from delegate.types.ports import ChatReply, ChatRequest, Tool

REVIEWER: JsonObject = {"description": "Reviews a change.", "instructions": "Read the whole file, not only the diff."}


async def run(role: JsonObject, *tasks: Task, call: JsonObject | None = None, **options: Any) -> tuple[Any, Scripted]:
    client = Scripted(lambda request: "I am done.")
    parent = options.pop("parent", None)
    async with Delegator(client=client, roles={"reviewer": {**REVIEWER, **role}}, **options) as delegator:
        if call is not None:
            return await delegator.call(call, parent=parent), client
        return await delegator.run(*(tasks or (Task(goal="Review.", role="reviewer"),)), parent=parent), client


def offered(client: Scripted) -> set[str]:
    return {tool.name for tool in client.requests[0].tools} - {"read_earlier_result"}


async def test_a_child_reads_the_roles_instructions_after_the_rules() -> None:
    result, client = await run({})
    assert result.error is None
    system = client.requests[0].system
    assert system.index("You are an agent") < system.index("Your role, reviewer") < system.index("Read the whole file")


async def test_a_role_narrows_the_tools_and_adds_none() -> None:
    _, client = await run({"tools": ["read_file", "edit_file", "search_web", "github.list"]})
    assert offered(client) == {"read_file", "edit_file"}
    task = Task(goal="Review.", role="reviewer", tools=("read_file", "write_file"))
    _, client = await run({"tools": ["read_file", "edit_file"]}, task)
    assert offered(client) == {"read_file"}
    _, client = await run({"without_tools": ["edit_file"]}, task)
    assert offered(client) == {"read_file", "write_file"}


async def test_a_role_that_only_reads_gets_no_tool_that_changes_anything() -> None:
    _, client = await run({"read_only": True})
    assert "read_file" in offered(client)
    assert not offered(client) & {"write_file", "edit_file", "run_shell", "delegate_task"}


async def test_a_role_that_names_no_tool_there_is_gets_none() -> None:
    _, client = await run({"tools": []})
    assert offered(client) == set()


async def test_the_tier_of_a_role_stays_below_the_parents() -> None:
    call = {"goal": "Review.", "role": "reviewer"}
    result, _ = await run({"tier": "deep"}, call=call, parent=Parent(tier="fast"))
    assert result.error is None
    assert result.results[0].tier == "fast"
    result, _ = await run({"tier": "deep"}, call={**call, "tier": "standard"})
    assert result.results[0].tier == "standard"
    result, _ = await run({"model": "claude-opus-4-8"}, call=call, parent=Parent(tier="fast"))
    assert result.results[0].tier == "fast"


async def test_the_limits_of_a_role_narrow_those_of_the_task() -> None:
    jobs: list[Job] = []

    async def child(job: Job) -> str:
        jobs.append(job)
        return "I am done."

    role = {**REVIEWER, "max_steps": 3, "timeout_seconds": 5}
    async with Delegator(runner=child, roles={"reviewer": role}, max_steps=10) as delegator:
        await delegator.run(Task(goal="Review.", role="reviewer"))
        await delegator.run(Task(goal="Review.", role="reviewer", max_steps=2))
    async with Delegator(runner=child, roles={"reviewer": {**role, "max_steps": 1_000}}, max_steps=10) as delegator:
        await delegator.run(Task(goal="Review.", role="reviewer"))
    assert [job.max_steps for job in jobs] == [3, 2, 10]
    assert all(job.seconds is not None and job.seconds <= 5 for job in jobs)
    assert all("Read the whole file" in job.prompt for job in jobs)


async def test_the_criteria_of_a_role_are_judged_besides_the_tasks_own() -> None:
    task = Task(goal="Review.", role="reviewer", acceptance_criteria=["regex: done"])
    result, _ = await run({"acceptance_criteria": ["regex: no such word"]}, task)
    verdict = result.results[0].verdict
    assert [(one.id, one.outcome) for one in verdict.criteria] == [("c1", "met"), ("role1", "not_met")]
    assert verdict.verdict == "FAIL"


async def test_the_policy_of_a_role_counts_where_it_is_stricter() -> None:
    asked: list[str] = []
    called: list[str] = []

    async def person(request: ApprovalRequest) -> ApprovalAnswer:
        asked.append(request.tool)
        return ApprovalAnswer(approved=False, note="no")

    async def send(arguments: Any) -> str:
        called.append("send")
        return "sent"

    def answer(request: ChatRequest) -> ChatReply | str:
        return "I am done." if len(request.messages) > 1 else Scripted.call("send")

    roles = {
        "strict": {"description": "x", "policy": {"undeclared_effect": "deny"}},
        "lax": {"description": "x", "policy": {"undeclared_effect": "allow"}},
    }
    tools = [Tool("send", "Sends.", {"type": "object", "properties": {}}, send)]
    for settings, role in (("allow", "strict"), ("deny", "lax"), ("allow", "lax")):
        options: Any = {"policy": {"undeclared_effect": settings}, "roles": roles, "tools": tools}
        async with Delegator(client=Scripted(answer), on_approval=person, **options) as delegator:
            await delegator.run(Task(goal="Send.", role=role))
    assert (called, asked) == (["send"], [])


@pytest.mark.parametrize(
    "call", [{"goal": "x", "role": "reviwer"}, {"tasks": [{"goal": "x"}, {"goal": "y", "role": "z"}]}]
)
async def test_an_unknown_role_is_refused_before_anything_is_spent(call: JsonObject) -> None:
    result, client = await run({}, call=call)
    assert result.error is not None
    field = "tasks[1].role" if "tasks" in call else "role"
    assert (result.error.code, result.error.field, client.requests) == ("unknown_role", field, [])
    assert "reviewer" in (result.error.hint or "")


async def test_a_runner_that_would_not_keep_to_a_role_is_refused() -> None:
    async def child(job: Job) -> str:
        return "I am done."

    async with Delegator(runner=child, roles={"reviewer": {**REVIEWER, "read_only": True}}) as delegator:
        with pytest.raises(CallError) as refused:
            await delegator.run(Task(goal="Review.", role="reviewer"))
    assert refused.value.code == "no_role"


async def test_a_call_cannot_set_instructions_or_a_role_where_there_is_none() -> None:
    result, _ = await run({}, call={"goal": "x", "instructions": "Do anything."})
    assert result.error.code == "unknown_field"
    async with Delegator(client=Scripted([])) as delegator:
        result = await delegator.call({"goal": "x", "role": "reviewer"})
    assert result.error is not None
    assert result.error.code == "unknown_field"


async def test_a_child_under_a_roles_policy_cannot_pass_its_work_on_to_one_that_is_not() -> None:
    task = Task(goal="Review.", role="reviewer")
    _, client = await run({}, task, max_depth=2)
    assert "delegate_task" in offered(client)
    _, client = await run({"policy": {"undeclared_effect": "deny"}}, task, max_depth=2)
    assert "delegate_task" not in offered(client)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_roles_are_in_the_tool_only_where_they_exist(dialect: Any) -> None:
    with Delegator(client=Scripted([])) as delegator:
        assert '"role"' not in json.dumps(delegator.tool(dialect))
    roles = {"reviewer": REVIEWER, "tester": {"description": "y" * 10_000 + "\nIgnore this."}}
    with Delegator(client=Scripted([]), roles=roles) as delegator:
        text = json.dumps(delegator.tool(dialect))
    assert text.count("Reviews a change.") == 1  # it costs tokens once
    assert text.count('"reviewer"') == 2
    assert len(text) < len(json.dumps(tool(dialect))) + 600

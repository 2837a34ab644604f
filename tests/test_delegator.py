"""Calls from end to end: concurrent tasks with one result each, in order, whatever happens."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from delegate import CallError, ChildRun, Delegator, Job, Task
from delegate.models.catalog import Model
from delegate.models.providers.scripted import Scripted
from delegate.types import Workspace
from delegate.types.errors import ProviderError
from delegate.types.events import Event
from delegate.types.ports import ChatReply, ChatRequest, Tool
from tests.support.words import goal_of, is_judge, met_by, words


async def test_three_results_are_in_task_order_whichever_finishes_first() -> None:
    ended: list[str] = []
    may_end = {"a": asyncio.Event(), "b": asyncio.Event(), "c": asyncio.Event()}
    may_end["c"].set()
    after = {"c": "b", "b": "a", "a": ""}

    async def answer(request: ChatRequest) -> str:
        goal = goal_of(request)
        await may_end[goal].wait()
        ended.append(goal)
        if after[goal]:
            may_end[after[goal]].set()
        return f"did {goal} as asked"

    async with Delegator(client=Scripted(answer)) as delegator:
        run = await delegator.call({"tasks": [{"goal": "a"}, {"goal": "b"}, {"goal": "c"}]})
    assert ended == ["c", "b", "a"]
    assert [(result.task_index, result.report) for result in run.results] == [
        (0, "did a as asked"),
        (1, "did b as asked"),
        (2, "did c as asked"),
    ]


async def test_a_result_is_judged_as_soon_as_its_child_ends() -> None:
    judged = asyncio.Event()

    async def answer(request: ChatRequest) -> str:
        if is_judge(request):
            judged.set()
            return met_by("quick work")(request)
        if goal_of(request) == "slow":
            await judged.wait()
        return "quick work or slow work"

    async with Delegator(client=Scripted(answer)) as delegator:
        run = await delegator.call(
            {
                "tasks": [
                    {"goal": "slow"},
                    {"goal": "quick", "acceptance_criteria": ["report: the report says that it was quick"]},
                ]
            }
        )
    assert [result.status for result in run.results] == ["completed", "completed"]


async def test_siblings_are_unaffected_by_a_child_that_fails_or_times_out() -> None:
    forever = asyncio.Event()

    async def answer(request: ChatRequest) -> ChatReply | str:
        match goal_of(request):
            case "fails":
                raise ProviderError("server_error", "broken", provider="x", final=True)
            case "crashes":
                raise RuntimeError("a bug")
            case "hangs":
                if len(request.messages) == 1:
                    half = {"path": "part.txt", "content": "half"}
                    return Scripted.calls(("write_file", half), text="half-way there")
                await forever.wait()
            case _:
                pass
        return "finished the work"

    async with Delegator(client=Scripted(answer)) as delegator:
        run = await delegator.run(
            Task(goal="fails", acceptance_criteria=("x",)),
            Task(goal="crashes"),
            Task(goal="hangs", timeout_seconds=0.2),
            Task(goal="works"),
        )
        kept = await delegator.records.read(run.results[2].handle or "")
    assert [result.status for result in run.results] == ["failed", "failed", "timeout", "completed"]
    codes = [result.error.code if result.error else None for result in run.results]
    assert codes == ["server_error", "crashed", "timeout", None]
    assert run.results[0].verdict
    assert run.results[0].verdict.code == "run_failed"
    hung = run.results[2]
    assert (hung.report, [artifact.path for artifact in hung.artifacts]) == ("half-way there", ["part.txt"])
    assert kept
    assert kept["run"]["receipts"][0]["tool"] == "write_file"


async def test_at_most_three_children_are_at_work_at_once() -> None:
    at_work, most = 0, 0
    three_are_there = asyncio.Barrier(3)

    async def answer(request: ChatRequest) -> str:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.wait_for(three_are_there.wait(), 30)
        at_work -= 1
        return "finished my part"

    async with Delegator(client=Scripted(answer)) as delegator:
        await delegator.run(*(Task(goal=f"part {n}") for n in range(9)))
    assert most == 3


async def test_a_cancelled_call_stops_its_children_before_it_returns() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def answer(request: ChatRequest) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async with Delegator(client=Scripted(answer)) as delegator:
        call = asyncio.create_task(delegator.call({"goal": "wait"}))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert stopped.is_set()


BAD_CALLS: list[tuple[Any, str]] = [
    ({}, "no_task"),
    ({"tasks": [{"goal": "x"}] * 4}, "too_many_tasks"),
    ({"goal": "x", "tasks": [{"goal": "y"}]}, "goal_and_tasks"),
    ({"goal": "x", "workspace": "/"}, "unknown_field"),
    ({"goal": "x", "tier": "cheap"}, "unknown_tier"),
    ({"goal": "  "}, "empty"),
    ("{not json", "invalid_json"),
    ({"goal": "x", "output_schema": {"type": "objekt"}}, "invalid_schema"),
]


@pytest.mark.parametrize(("arguments", "code"), BAD_CALLS, ids=[code for _, code in BAD_CALLS])
async def test_a_bad_call_is_one_error_object_and_nothing_is_spent(arguments: Any, code: str) -> None:
    client = Scripted(lambda request: "never asked")
    async with Delegator(client=client) as delegator:
        result = await delegator.call(arguments)
    assert set(result.model_dump()) == {"error"}
    assert result.error
    assert result.error.code == code
    assert result.error.message
    assert result.error.hint
    assert not client.requests


@pytest.mark.parametrize(
    ("options", "task", "code", "field"),
    [
        ({"model": "no-such-model"}, {}, "unknown_model", "model"),
        ({"max_tier": "fast"}, {"tier": "deep"}, "tier_above_parent", "tier"),
    ],
)
async def test_a_forbidden_model_or_tier_is_refused_before_anything_runs(
    options: dict[str, Any], task: dict[str, Any], code: str, field: str
) -> None:
    client = Scripted(lambda request: "never asked")
    async with Delegator(client=client, **options) as delegator:
        result = await delegator.call({"tasks": [{"goal": "a", **task}, {"goal": "b", **task}]})
    assert result.error
    assert (result.error.code, result.error.field) == (code, f"tasks[0].{field}")
    assert not client.requests


async def test_without_any_key_the_error_names_the_variables() -> None:
    async with Delegator() as delegator:
        result = await delegator.call({"goal": "x"})
    assert result.error
    assert result.error.code == "no_api_key"
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        assert variable in (result.error.hint or "")


def test_the_synchronous_methods_work_outside_an_event_loop() -> None:
    with Delegator(client=Scripted(["the first answer", "the second answer"])) as delegator:
        assert delegator.call_sync({"goal": "x"}).results[0].report == "the first answer"
        assert delegator.run_sync(Task(goal="y")).results[0].report == "the second answer"


async def test_the_synchronous_methods_work_inside_an_event_loop() -> None:
    async with Delegator(client=Scripted(["the answer"])) as delegator:
        assert delegator.call_sync({"goal": "x"}).results[0].report == "the answer"


async def test_long_child_text_is_cut_visibly_and_stays_readable_by_handle() -> None:
    text = "word " * 4_000
    async with Delegator(client=Scripted([text.strip()]), result_chars=500) as delegator:
        run = await delegator.call({"goal": "x"})
        (result,) = run.results
        record = await delegator.records.read(result.handle or "")
    assert len(result.report) < 700
    assert f"more characters, to be read by handle {result.handle}" in result.report
    assert record
    assert record["run"]["report"] == text.strip()
    assert record["task"]["goal"] == "x"
    assert record["result"]["handle"] == result.handle


async def test_what_the_parent_reads_begins_with_the_verdict() -> None:
    client = words(["task 0: PASS\n" + "all is well. " * 800], met_by("all is bad"))
    async with Delegator(client=client) as delegator:
        text = await delegator.answer({"goal": "x", "acceptance_criteria": ["report: all is well"]})
    first, second, *_, last = text.splitlines()
    assert first == last == "0 of 1 PASS; task 1 FAIL evidence_not_found"
    assert second.startswith("task 1: FAIL (judge, evidence_not_found)")


async def test_the_bill_names_child_and_judge_apart_and_unknown_is_never_zero() -> None:
    client = words(["the sea is blue"], met_by("the sea is blue"))
    async with Delegator(client=client) as delegator:
        run = await delegator.call({"goal": "x", "acceptance_criteria": ["report: it says blue"]})
    (result,) = run.results
    assert result.verdict
    assert result.verdict.judge
    assert result.cost_usd
    assert 0 < (result.verdict.judge.cost_usd or 0) < result.cost_usd
    assert run.totals.cost_usd == pytest.approx(result.cost_usd)
    assert run.totals.judge_usage.model_calls == run.totals.child_usage.model_calls == 1


async def test_events_tell_what_happens_and_a_broken_sink_costs_nothing() -> None:
    events: list[Event] = []

    def sink(event: Event) -> None:
        events.append(event)
        raise RuntimeError("the display is broken")

    client = words([Scripted.call("think", thought="hm"), "I thought about it"], met_by("I thought"))
    async with Delegator(client=client, on_event=sink) as delegator:
        result = await delegator.call(
            {"goal": "x", "acceptance_criteria": ["report: the report says that it was thought about"]}
        )
    assert result.all_pass
    assert [event.kind for event in events] == [
        "run.started", "task.queued", "child.started", "child.usage", "child.tool.started", "child.tool", "child.usage",
        "child.done", "judge.asked", "judge.done", "verdict", "task.done", "run.done",
    ]  # fmt: skip


async def test_both_event_sinks_get_events_even_if_the_other_one_fails() -> None:
    operators: list[Event] = []
    calls: list[Event] = []

    def sink(event: Event) -> None:
        operators.append(event)
        raise RuntimeError("the display is broken")

    async with Delegator(client=Scripted(lambda request: "did my part"), on_event=sink) as delegator:
        await delegator.call({"goal": "x"}, on_event=calls.append)
        first = [event.kind for event in calls]
        await delegator.run(Task(goal="y"))
    assert first == [
        "run.started", "task.queued", "child.started", "child.usage", "child.done", "verdict", "task.done", "run.done",
    ]  # fmt: skip
    assert [event.kind for event in operators] == first * 2
    assert [event.kind for event in calls] == first


async def test_half_characters_in_what_a_model_says_cost_nothing() -> None:
    client = Scripted([Scripted.call("write_file", path="a", content="\ud800"), '{"name": "\\ud800"} \ud800'])
    async with Delegator(client=client) as delegator:
        result = await delegator.run(Task(goal="x"))
    assert result.model_dump_json()
    assert result.results[0].handle
    async with Delegator(client=Scripted(['{"name": "\\ud800"}'])) as delegator:
        result = await delegator.run(Task(goal="x", output_schema={"type": "object"}))
    assert result.model_dump_json()
    assert (result.results[0].structured_output, bool(result.results[0].handle)) == ({"name": "?"}, True)


async def test_a_store_that_cannot_be_opened_costs_the_handle_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "records.sqlite3").mkdir()
    async with Delegator(client=Scripted(lambda request: "did my part"), home=tmp_path) as delegator:
        run = await delegator.call({"tasks": [{"goal": "a"}, {"goal": "b"}]})
    assert [(result.status, result.handle) for result in run.results] == [("completed", None)] * 2


class HalfBroken:
    """A host's runner that returns an invalid value for one of its tasks."""

    needs_model = False
    records_tools = True

    async def run(self, job: Job) -> ChildRun:
        if job.task.goal == "break":
            return "nonsense"  # pyright: ignore[reportReturnType]
        return job.recorder.finish("completed", report="did my part")


async def test_a_runner_that_gives_back_nonsense_costs_its_task_and_no_sibling() -> None:
    async with Delegator(runner=HalfBroken()) as delegator:
        run = await delegator.call({"tasks": [{"goal": "a"}, {"goal": "break"}, {"goal": "c"}]})
    assert [result.status for result in run.results] == ["completed", "failed", "completed"]
    assert run.results[1].error
    assert run.results[1].error.code == "internal_error"
    assert run.results[0].cost_usd is None, "what a host's own runner spends isn't known here"


async def test_a_child_gets_only_the_tools_that_its_task_names() -> None:
    client = Scripted(["nothing to do"])
    async with Delegator(client=client) as delegator:
        await delegator.run(Task(goal="x", tools=("read_file", "think")))
    assert {tool.name for tool in client.requests[0].tools} == {"read_file", "think", "read_earlier_result"}


@pytest.mark.parametrize(
    ("own", "named", "words"),
    [
        (None, "read_fil", ["did you mean `read_file`?", "write_file", "think", "delegate_task"]),
        (None, "bash", ["The tools are: read_file"]),
        (["multiply"], "read_file", ["The tools are: multiply, delegate_task"]),
    ],
)
async def test_a_tool_that_does_not_exist_is_refused_before_anything_runs(
    own: list[str] | None, named: str, words: list[str]
) -> None:
    async def call(arguments: object) -> str:
        return ""

    tools = None if own is None else [Tool(name, "", {"type": "object"}, call) for name in own]
    client = Scripted(["nothing to do"])
    tasks = Task(goal="x", tools=own or ["think"]), Task(goal="y", tools=[*(own or ["think"]), named])
    async with Delegator(client=client, tools=tools) as delegator:
        with pytest.raises(CallError) as refused:
            await delegator.run(*tasks)
    error = refused.value
    assert (error.code, error.field, client.requests) == ("unknown_tool", "tasks[1].tools[1]", [])
    assert [word for word in words if word not in f"{error.message} {error.hint}"] == []


async def test_a_shell_whose_sandbox_is_broken_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/editor/editor")  # which can't start Landlock
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    client = Scripted(["nothing to do"])
    async with Delegator(client=client) as delegator:
        await delegator.run(Task(goal="x"))
    assert "run_shell" not in {tool.name for tool in client.requests[0].tools}


async def test_a_report_that_could_not_be_stored_is_kept(tmp_path: Path) -> None:
    (tmp_path / "home" / "records.sqlite3").mkdir(parents=True)  # in the way
    whole, shared = "line\n" * 2_000, Workspace(mode="shared", path=tmp_path)
    async with Delegator(client=words([whole]), result_chars=500, home=tmp_path / "home") as delegator:
        (result,) = (await delegator.run(Task(goal="write much", workspace=shared))).results
    assert result.handle is None
    assert result.whole_report == whole


async def test_models_that_the_host_calls_run_children_and_judge() -> None:
    client = words(lambda request: "The answer is 42.", met_by("The answer is 42."))
    house = Model(
        id="house-model",
        provider="house",
        endpoint="house",
        family="house",
        tier="standard",
        context_tokens=100_000,
        max_output_tokens=4_000,
        structured_output=True,
        tools=True,
    )
    async with Delegator(host_models={house: client}) as delegator:
        run = await delegator.call({"goal": "Find it.", "acceptance_criteria": ["report: the report gives a number"]})
    (result,) = run.results
    assert result.model == "house-model"
    assert result.verdict is not None
    assert result.verdict.verdict == "PASS"
    assert result.verdict.judge is not None
    assert (result.verdict.judge.model, result.verdict.judge.provider) == ("house-model", "house")
    chosen = {candidate.model for candidate in result.verdict.judge.candidates if candidate.rank}
    assert chosen == {"house-model"}  # and no model without a key

"""Calls that run in the background: waited for, watched, read, stopped, and never lost."""

import asyncio
import json
from pathlib import Path

import pytest

from delegate import Delegator, RunResult, Task
from delegate.hosts.host_tool import (
    Invocation,
    ToolAnswer,
    make_delegate_tool,
    make_message_tool,
    make_read_tool,
    make_stop_tool,
)
from delegate.models.providers.scripted import Scripted
from delegate.types.errors import CallError
from delegate.types.ports import ChatRequest
from tests.support.words import goal_of, is_judge, met_by

SOON = 20
"""Seconds after which a test fails."""


class Children:
    """Scripted children that end when a test lets them."""

    def __init__(self, *goals: str) -> None:
        self.may_end = {goal: asyncio.Event() for goal in goals}
        self.working = {goal: asyncio.Event() for goal in goals}
        self.client = Scripted(self._answer)

    async def _answer(self, request: ChatRequest) -> str:
        if is_judge(request):
            return met_by("it is done")(request)
        goal = goal_of(request)
        self.working[goal].set()
        await self.may_end[goal].wait()
        return f"it is done: {goal}"

    def end(self, *goals: str) -> None:
        for goal in goals or self.may_end:
            self.may_end[goal].set()


def call(*goals: str, **more: object) -> dict[str, object]:
    return {"tasks": [{"goal": goal, "acceptance_criteria": ["the report says it is done"]} for goal in goals], **more}


# ------------------------------------------------------------------------------------------------------- for programs


async def test_a_started_call_has_its_handles_at_once_and_its_report_later() -> None:
    children = Children("a", "b")
    async with Delegator(client=children.client) as delegator, asyncio.timeout(SOON):
        delegation = await delegator.background.start(Task(goal="a"), Task(goal="b"))
        assert not delegation.done
        assert [(await delegator.records.read(handle) or {})["state"] for handle in delegation.handles] == [
            "running"
        ] * 2
        children.end()
        run = await delegation
    assert [result.handle for result in run.results] == list(delegation.handles)
    assert [result.report for result in run.results] == ["it is done: a", "it is done: b"]


async def test_a_refused_call_has_no_handles_and_its_error_as_report() -> None:
    async with Delegator(client=Scripted([])) as delegator, asyncio.timeout(SOON):
        delegation = await delegator.background.start_call({"goal": ""})
        result = await delegation
    assert delegation.handles == ()
    assert result.error
    assert result.error.code == "empty"


async def test_events_are_those_from_the_beginning_whenever_one_asks() -> None:
    children = Children("a")
    children.end()
    async with Delegator(client=children.client) as delegator, asyncio.timeout(SOON):
        delegation = await delegator.background.start(Task(goal="a"))
        live = [event.kind async for event in delegation.events()]
        await delegation
        later = [event.kind async for event in delegation.events()]
    assert live == later
    assert live == [
        "run.started", "task.queued", "child.started", "child.usage", "child.done", "verdict", "task.done", "run.done",
    ]  # fmt: skip


async def test_cancelling_keeps_what_was_done() -> None:
    children = Children("a", "b")
    children.end("a")
    async with Delegator(client=children.client) as delegator, asyncio.timeout(SOON):
        delegation = await delegator.background.start(Task(goal="a"), Task(goal="b"))
        assert await delegation.wait(handle=delegation.handles[0])
        delegation.cancel()
        run = await delegation
    assert [result.status for result in run.results] == ["completed", "cancelled"]


async def test_one_task_is_stopped_and_the_others_go_on() -> None:
    children = Children("a", "b")
    async with Delegator(client=children.client) as delegator, asyncio.timeout(SOON):
        delegation = await delegator.background.start(Task(goal="a"), Task(goal="b"))
        await children.working["a"].wait()
        assert await delegator.background.stop(delegation.handles[0])
        assert not delegation.done
        children.end("b")
        run = await delegation
        assert not await delegator.background.stop(delegation.handles[0])
    assert [result.status for result in run.results] == ["cancelled", "completed"]


async def test_a_cancelled_wait_leaves_the_call_running() -> None:
    children = Children("a")
    async with Delegator(client=children.client) as delegator, asyncio.timeout(SOON):
        delegation = await delegator.background.start(Task(goal="a"))

        async def wait() -> RunResult:
            return await delegation

        waiting = asyncio.create_task(wait())
        await children.working["a"].wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not delegation.done
        children.end()
        assert (await delegation).results[0].status == "completed"


async def test_closing_stops_what_runs_and_records_it() -> None:
    children = Children("a")
    async with Delegator(client=children.client) as delegator, asyncio.timeout(SOON):
        delegation = await delegator.background.start(Task(goal="a"))
        await children.working["a"].wait()
    assert delegation.done
    async with Delegator(client=children.client) as delegator:
        record = await delegator.records.read(delegation.handles[0])
    assert record
    assert record["result"]["status"] == "cancelled"


def test_closing_without_an_event_loop_stops_calls_of_the_own_loop() -> None:
    children = Children("a")
    delegator = Delegator(client=children.client)
    delegation = delegator.wait_for(delegator.background.start(Task(goal="a")))
    delegator.close()
    assert delegation.done


# ---------------------------------------------------------------------------------------------------------- for hosts


async def test_a_call_that_takes_too_long_is_answered_with_its_handles() -> None:
    children = Children("a", "b")
    children.end("a")
    async with Delegator(client=children.client) as delegator, asyncio.timeout(SOON):
        tool, read = make_delegate_tool(delegator, background=True), make_read_tool(delegator)
        answer = await tool.call(call("a", "b"), Invocation(answer_within=1))
        assert answer.running
        first, second = answer.running.handles
        assert answer.text.startswith("running in the background: 1 of 2 done; task 2 thinks")
        assert f"task 2 (handle {second}): thinks" in answer.text
        done = await read.call({"handle": first})
        assert done.text.startswith("task 1: PASS (seen)\n")
        assert "it is done: a" in done.text
        still = await read.call({"handle": second})
        assert still.text.startswith("running in the background")
        waiting = asyncio.create_task(read.call({"handle": second, "wait_seconds": 15}))
        children.end("b")
        assert (await waiting).text.startswith("task 2: PASS (seen)\n")


async def test_a_parent_may_ask_for_the_background_at_once() -> None:
    children = Children("a")
    async with Delegator(client=children.client) as delegator, asyncio.timeout(SOON):
        answer = await make_delegate_tool(delegator, background=True).call(call("a", background=True))
        assert answer.running
        plain = await make_delegate_tool(delegator).call(call("a", background=True))
        assert json.loads(plain.text)["error"]["field"] == "background"
        children.end()
        await answer.running


async def test_a_cancelled_call_stops_its_children_but_not_those_in_the_background() -> None:
    children = Children("a", "b")
    async with Delegator(client=children.client) as delegator, asyncio.timeout(SOON):
        tool = make_delegate_tool(delegator, background=True)
        kept = await tool.call(call("a", background=True))
        waiting = asyncio.create_task(tool.call(call("b"), Invocation(answer_within=15)))
        await children.working["b"].wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert kept.running
        assert not kept.running.done
        listed = (await make_read_tool(delegator).call({})).text.splitlines()
        assert [line.split()[1] for line in listed[1:]] == ["FAIL", "running"]
        children.end()
        await kept.running


async def test_a_stopped_task_is_answered_with_what_it_did() -> None:
    children = Children("a")
    async with Delegator(client=children.client) as delegator, asyncio.timeout(SOON):
        kept = await make_delegate_tool(delegator, background=True).call(call("a", background=True))
        assert kept.running
        (handle,) = kept.running.handles
        stopped = await make_stop_tool(delegator).call({"handle": handle})
        assert stopped.text.startswith("task 1: FAIL (gate, run_failed, run cancelled)")
        again = await make_stop_tool(delegator).call({"handle": handle})
    assert again.text.splitlines()[0] == stopped.text.splitlines()[0]


async def test_a_result_that_could_not_be_recorded_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "home" / "records.sqlite3").mkdir(parents=True)
    children = Children("a")
    async with Delegator(client=children.client, home=tmp_path / "home") as delegator, asyncio.timeout(SOON):
        kept = await make_delegate_tool(delegator, background=True).call(call("a", background=True))
        assert kept.running
        (handle,) = kept.running.handles
        children.end()
        await kept.running
        read = await make_read_tool(delegator).call({"handle": handle})
        part = await make_read_tool(delegator).call({"handle": handle, "offset": 3})
    assert "it is done: a" in read.text
    assert "is done: a" in part.text


@pytest.mark.parametrize("arguments", [{"handle": "0123-0"}, {"handle": 5}, "{", {"handel": "x"}])
async def test_errors_of_reading_and_stopping_are_marked_as_errors(arguments: object) -> None:
    async with Delegator(client=Scripted([])) as delegator:
        for make in (make_read_tool, make_stop_tool, make_message_tool):
            answer: ToolAnswer = await make(delegator).call(arguments)  # type: ignore[arg-type]
            assert answer.is_error
            assert json.loads(answer.text)["error"]["hint"]


async def test_who_may_not_read_a_report_can_neither_wait_for_it_nor_stop_or_message_it() -> None:
    children = Children("a")
    async with Delegator(client=children.client) as delegator, asyncio.timeout(SOON):
        kept = await make_delegate_tool(delegator, background=True).call(call("a", background=True))
        assert kept.running
        for make in (make_read_tool, make_stop_tool, make_message_tool):
            arguments = {"handle": kept.running.handles[0]} | ({"text": "Hi."} if make is make_message_tool else {})
            answer = await make(delegator).call(arguments, Invocation(may_read=lambda run: False))
            assert json.loads(answer.text)["error"]["code"] == "unknown_handle"
        assert not kept.running.done
        listed = await make_read_tool(delegator).call({}, Invocation(may_read=lambda run: False))
        assert listed.text == "no tasks have been delegated yet"
        with delegator.root_run(), pytest.raises(CallError, match="another run"):
            await delegator.background.stop_call({"handle": kept.running.handles[0]})
        with delegator.root_run(), pytest.raises(CallError, match="another run"):
            await delegator.background.message_call({"handle": kept.running.handles[0], "text": "Hi."})
        assert await delegator.background.messages(kept.running.handles[0]) == []
        children.end()
        await kept.running


async def test_the_parent_waits_no_longer_than_its_host_can() -> None:
    children = Children("a")
    async with Delegator(client=children.client) as delegator, asyncio.timeout(SOON):
        kept = await make_delegate_tool(delegator, background=True).call(call("a", background=True))
        assert kept.running
        asked = {"handle": kept.running.handles[0], "wait_seconds": 3_600}
        answer = await make_read_tool(delegator).call(asked, Invocation(answer_within=0.1))
        assert answer.text.startswith("running in the background")
        children.end()
        await kept.running

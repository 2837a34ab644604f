"""What is Strands' own: its hooks and signals, its metrics, and the parent's tools for children."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands")

from strands import tool  # pyright: ignore[reportUnknownVariableType] — untyped dict in its signature
from strands.hooks import BeforeToolCallEvent

from delegate.errors import ConfigError
from delegate.hosts import strands
from tests.hosts.drivers.strands import agent, results, run
from tests.hosts.world import CHILD_TOKENS, World, answers, child_that_calls, delegating_with
from tests.support.model_server import Fault


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@tool
def send_money(to: str) -> str:
    """Send all the money."""
    return f"sent to {to}"


delegating = delegating_with(strands.child_tools)


async def test_a_child_uses_the_parents_tools_and_only_those(world: World) -> None:
    world.child = child_that_calls("multiply", {"a": 6, "b": 7})
    async with delegating([multiply, send_money]) as delegator:
        await run(agent(world, [multiply, strands.tool(delegator)]))
    assert "\n42\n" in world.results[0]
    assert {name for call in world.of("child") for name in call.tool_names} == {"multiply"}


async def test_our_own_tool_is_never_a_childs() -> None:
    async with delegating() as delegator:
        ours = [strands.tool(delegator), strands.read_tool(delegator), strands.think_tool(delegator)]
        assert [one.name for one in strands.child_tools([multiply, *ours])] == ["multiply"]


async def test_what_only_an_agent_can_load_is_refused_with_the_mend() -> None:
    given: Any = "tools/calculator.py"
    with pytest.raises(ConfigError, match="registry"):
        strands.child_tools([given])


async def test_a_hook_of_the_parent_stops_a_childs_call(world: World) -> None:
    def guard(event: BeforeToolCallEvent) -> None:
        if event.tool_use["name"] == "multiply":
            event.cancel_tool = "not allowed here"

    world.child = child_that_calls("multiply", {"a": 6, "b": 7})
    async with delegating([multiply]) as delegator:
        lead = agent(world, [multiply, strands.tool(delegator)])
        lead.add_hook(guard, BeforeToolCallEvent)
        await run(lead)
    assert "not allowed here" in world.results[0]


async def test_a_child_gets_no_tool_that_asks_a_person_first(world: World) -> None:
    def ask(event: BeforeToolCallEvent) -> None:
        if event.tool_use["name"] == "send_money":
            event.interrupt("sure", reason="all of it?")

    world.child = child_that_calls("send_money", {"to": "me"})
    async with delegating([send_money]) as delegator:
        lead = agent(world, [send_money, strands.tool(delegator)])
        lead.add_hook(ask, BeforeToolCallEvent)
        result, _ = await run(lead)
    assert "needs a person's approval" in world.of("child")[-1].tool_results[0]
    assert result.stop_reason == "end_turn"


async def test_the_callers_own_signal_stops_the_children_and_their_report_is_kept(world: World) -> None:
    world.child = answers(Fault(kind="hang"))
    stop = threading.Event()
    async with delegating() as delegator:
        lead = agent(world, [strands.tool(delegator)])
        running = asyncio.create_task(run(lead, cancel_signal=stop))
        await asyncio.wait_for(world.working.wait(), 10)
        stop.set()
        result, _ = await asyncio.wait_for(running, 10)
    assert result.stop_reason == "cancelled"
    assert world.server.in_flight == 0
    assert "cancelled" in str(lead.messages)


async def test_a_run_that_is_cancelled_as_a_task_waits_for_its_children_to_end(world: World, home: Path) -> None:
    world.child = answers(Fault(kind="hang"))
    async with delegating() as delegator:
        running = asyncio.create_task(run(agent(world, [strands.tool(delegator)])))
        await asyncio.wait_for(world.working.wait(), 10)
        running.cancel()
        await asyncio.wait([running], timeout=10)
        assert running.cancelled()
        (summary,) = await delegator.runs()
        assert [task.status for task in await delegator.tasks(summary.run_id)] == ["cancelled"]


async def test_the_childrens_tokens_leave_the_measure_of_the_parents_context_alone(world: World) -> None:
    async with delegating() as delegator:
        lead = agent(world, [strands.tool(delegator)])
        result, _ = await run(lead)
    first_turn = result.metrics.agent_invocations[-1].cycles[0]
    assert result.metrics.accumulated_usage["inputTokens"] > CHILD_TOKENS[0] > first_turn.usage["inputTokens"]


async def test_calls_of_one_run_share_a_ledger_and_the_next_run_has_its_own(world: World) -> None:
    world.turns = 2
    async with delegating(max_children=1) as delegator:
        for _ in range(2):
            await run(agent(world, [strands.tool(delegator)]))
            assert ["budget_exceeded" in text for text in world.results] == [False, True]


async def test_the_report_is_kept_beside_the_text_and_not_sent_to_the_model(world: World) -> None:
    async with delegating() as delegator:
        lead = agent(world, [strands.tool(delegator)])
        await run(lead)
    (result,) = results(lead)
    assert result["structuredContent"]["results"][0]["status"] == "completed"
    assert "structuredContent" not in world.of("parent")[-1].raw.decode()


async def test_a_refused_call_is_an_error_of_the_tool(world: World) -> None:
    world.calls = [{"gaol": "Find the answer."}]
    async with delegating() as delegator:
        lead = agent(world, [strands.tool(delegator)])
        await run(lead)
    (result,) = results(lead)
    assert result["status"] == "error"


async def test_a_report_can_be_read_back_in_a_later_run(world: World) -> None:
    async with delegating() as delegator:
        await run(agent(world, [strands.tool(delegator)]))
        (summary,) = await delegator.runs()
        (task,) = await delegator.tasks(summary.run_id)
        world.tool, world.calls = "read_delegation", [{"handle": task.handle}]
        await run(agent(world, [strands.read_tool(delegator)]))
    assert "The answer is 42." in world.results[0]


async def test_think_gives_a_checklist(world: World) -> None:
    world.tool, world.calls = "think", [{"thought": "It is 42.", "acceptance_criteria": ["it is even"]}]
    async with delegating() as delegator:
        await run(agent(world, [strands.think_tool(delegator)]))
    assert "it is even" in world.results[0]
    assert world.of("child") == []

"""Features that only Strands has: its hooks, its signals, and its metrics."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands")

from strands import tool  # pyright: ignore[reportUnknownVariableType] — untyped dict in its signature
from strands.hooks import BeforeToolCallEvent

from delegate.hosts import strands
from delegate.types.errors import ConfigError
from tests.hosts.drivers.strands import agent, results, run
from tests.hosts.world import CHILD_TOKENS, SAVING, World, answers, child_that_calls, delegating_with, save
from tests.support.model_server import Fault


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


delegating = delegating_with(strands.child_tools)


async def test_a_tool_that_only_an_agent_can_load_is_refused_with_a_hint() -> None:
    path: Any = "tools/calculator.py"
    with pytest.raises(ConfigError, match="registry"):
        strands.child_tools([path])


async def test_a_hook_of_the_parent_stops_a_call_of_a_child(world: World) -> None:
    def guard(event: BeforeToolCallEvent) -> None:
        if event.tool_use["name"] == "multiply":
            event.cancel_tool = "not allowed here"

    world.child = child_that_calls("multiply", {"a": 6, "b": 7})
    async with delegating([multiply]) as delegator:
        lead = agent(world, [multiply, strands.tool(delegator)])
        lead.add_hook(guard, BeforeToolCallEvent)
        await run(lead)
    assert "not allowed here" in world.results[0]


async def test_what_a_child_s_tool_writes_is_in_the_child_s_workspace(world: World) -> None:
    world.calls, world.child = [SAVING], child_that_calls("save", {"text": "tide"})
    async with delegating([tool(save)]) as delegator:
        await run(agent(world, [tool(save), strands.tool(delegator)]))
    assert "\ntask 1: PASS" in world.results[0]


async def test_the_invocation_s_signal_stops_children_and_keeps_their_report(world: World) -> None:
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


async def test_a_run_whose_task_is_cancelled_waits_for_its_children(world: World, home: Path) -> None:
    world.child = answers(Fault(kind="hang"))
    async with delegating() as delegator:
        running = asyncio.create_task(run(agent(world, [strands.tool(delegator)])))
        await asyncio.wait_for(world.working.wait(), 10)
        running.cancel()
        await asyncio.wait([running], timeout=10)
        assert running.cancelled()
        (summary,) = await delegator.records.runs()
        assert [task.status for task in await delegator.records.tasks(summary.run_id)] == ["cancelled"]


async def test_children_s_tokens_are_not_counted_as_the_parent_s_context(world: World) -> None:
    async with delegating() as delegator:
        lead = agent(world, [strands.tool(delegator)])
        result, _ = await run(lead)
    first_turn = result.metrics.agent_invocations[-1].cycles[0]
    assert result.metrics.accumulated_usage["inputTokens"] > CHILD_TOKENS[0] > first_turn.usage["inputTokens"]


async def test_the_report_is_not_sent_to_the_model(world: World) -> None:
    async with delegating() as delegator:
        lead = agent(world, [strands.tool(delegator)])
        await run(lead)
    assert "structuredContent" in results(lead)[0]
    assert "structuredContent" not in world.of("parent")[-1].raw.decode()

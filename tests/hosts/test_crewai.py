"""What is CrewAI's own: its cache, its event bus, its failures, and the parent's tools for children."""

import asyncio

import pytest

pytest.importorskip("tests.hosts.drivers.crewai")  # it says no to CrewAI's telemetry before it imports CrewAI

from crewai.events.event_bus import crewai_event_bus
from crewai.hooks.tool_hooks import (
    ToolCallHookContext,
    register_before_tool_call_hook,
    unregister_before_tool_call_hook,
)
from crewai.tools.base_tool import BaseTool

from delegate.hosts import crewai
from tests.hosts.drivers.crewai import heard, parent_llm, run
from tests.hosts.world import CHILD_TOKENS, World, child_that_calls, delegating_with


class Multiply(BaseTool):
    name: str = "Multiply numbers"
    description: str = "Multiply two numbers."

    def _run(self, a: int, b: int) -> str:
        return f"that is {a * b}"


class SendMoney(BaseTool):
    name: str = "send_money"
    description: str = "Send all the money."

    def _run(self, to: str) -> str:
        return f"sent to {to}"


delegating = delegating_with(crewai.child_tools)


async def test_a_child_uses_the_tools_that_it_is_given_and_only_those(world: World) -> None:
    world.child = child_that_calls("multiply_numbers", {"a": 6, "b": 7})
    async with delegating([Multiply()]) as delegator:
        await run(parent_llm(world), [Multiply(), SendMoney(), crewai.tool(delegator)])
    assert "that is 42" in world.results[0]
    assert {name for call in world.of("child") for name in call.tool_names} == {"multiply_numbers"}


async def test_arguments_that_a_tool_of_the_parents_refuses_are_an_error_that_the_child_reads(world: World) -> None:
    world.child = child_that_calls("multiply_numbers", {"a": "six"})
    async with delegating([Multiply()]) as delegator:
        await run(parent_llm(world), [crewai.tool(delegator)])
    assert "arguments validation failed" in world.of("child")[-1].tool_results[0]


async def test_our_own_tool_is_never_a_childs() -> None:
    async with delegating() as delegator:
        ours = [crewai.tool(delegator), crewai.read_tool(delegator), crewai.think_tool(delegator)]
        assert [one.name for one in crewai.child_tools([SendMoney(), *ours])] == ["send_money"]


async def test_a_hook_of_crewai_stops_a_childs_call(world: World) -> None:
    def guard(context: ToolCallHookContext) -> bool | None:
        return False if context.tool_name == "send_money" else None

    world.child = child_that_calls("send_money", {"to": "me"})
    register_before_tool_call_hook(guard)
    try:
        async with delegating([SendMoney()]) as delegator:
            await run(parent_llm(world), [crewai.tool(delegator)])
    finally:
        unregister_before_tool_call_hook(guard)
    assert "a tool call hook of the crew blocked this call of send_money" in world.of("child")[-1].tool_results[0]


async def test_the_same_call_made_twice_is_run_twice_in_a_crew_that_caches_results(world: World) -> None:
    world.turns = 2
    async with delegating() as delegator:
        await run(parent_llm(world), [crewai.tool(delegator)], cache=True)
    assert len(world.of("child")) == 2


async def test_the_declared_tool_fits_openais_strict_form(world: World) -> None:
    async with delegating() as delegator:
        await run(parent_llm(world), [crewai.tool(delegator)])
    (declared,) = [tool["function"] for tool in world.of("parent")[0].body["tools"]]
    assert declared["parameters"] == delegator.tool("openai-strict")["function"]["parameters"]


async def test_tokens_count_in_the_totals_of_the_llm_that_is_given(world: World) -> None:
    llm = parent_llm(world)
    async with delegating() as delegator:
        await run(llm, [crewai.tool(delegator)])
        assert llm.get_token_usage_summary().prompt_tokens < CHILD_TOKENS[0]
        await run(llm, [crewai.tool(delegator, llm=llm)])
    assert llm.get_token_usage_summary().prompt_tokens > CHILD_TOKENS[0]


async def test_the_report_comes_on_the_event_bus(world: World) -> None:
    with crewai_event_bus.scoped_handlers():
        _, reports = heard()
        async with delegating() as delegator:
            await run(parent_llm(world), [crewai.tool(delegator)])
        await asyncio.to_thread(crewai_event_bus.flush)
    assert [report["results"][0]["status"] for report in reports] == ["completed"]


async def test_calls_of_one_kickoff_share_a_ledger_and_the_next_has_its_own(world: World) -> None:
    world.turns = 2
    async with delegating(max_children=1) as delegator:
        for _ in range(2):
            await run(parent_llm(world), [crewai.tool(delegator)])
            assert ["budget_exceeded" in text for text in world.results] == [False, True]


async def test_a_refused_call_is_a_failure_of_the_tool(world: World) -> None:
    world.calls = [{"gaol": "Find the answer."}]
    async with delegating() as delegator:
        output = await run(parent_llm(world), [crewai.tool(delegator)])
    assert [failure.tool_name for failure in output.tasks_output[0].tool_failures] == ["delegate_task"]


async def test_a_report_can_be_read_back_in_a_later_run(world: World) -> None:
    async with delegating() as delegator:
        await run(parent_llm(world), [crewai.tool(delegator)])
        (summary,) = await delegator.runs()
        (task,) = await delegator.tasks(summary.run_id)
        world.tool, world.calls = "read_delegation", [{"handle": task.handle}]
        await run(parent_llm(world), [crewai.read_tool(delegator)])
    assert "The answer is 42." in world.results[0]


async def test_think_gives_a_checklist(world: World) -> None:
    world.tool, world.calls = "think", [{"thought": "It is 42.", "acceptance_criteria": ["it is even"]}]
    async with delegating() as delegator:
        await run(parent_llm(world), [crewai.think_tool(delegator)])
    assert "it is even" in world.results[0]
    assert world.of("child") == []

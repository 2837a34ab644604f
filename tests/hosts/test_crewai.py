"""Features that only CrewAI has: its cache, its hooks, its tool names, and the totals of an LLM."""

import pytest

pytest.importorskip("tests.hosts.drivers.crewai")  # it disables CrewAI's telemetry before it imports CrewAI

from crewai.hooks.tool_hooks import (
    ToolCallHookContext,
    register_before_tool_call_hook,
    unregister_before_tool_call_hook,
)
from crewai.tools.base_tool import BaseTool

from delegate.hosts import crewai
from tests.hosts.drivers.crewai import parent_llm, run
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


def test_a_child_s_tool_has_the_name_that_crewai_sends_to_models() -> None:
    assert [tool.name for tool in crewai.child_tools([Multiply(), SendMoney()])] == ["multiply_numbers", "send_money"]


async def test_a_hook_of_crewai_stops_a_call_of_a_child(world: World) -> None:
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


async def test_a_crew_that_caches_results_runs_equal_calls_again(world: World) -> None:
    world.turns = 2
    async with delegating() as delegator:
        await run(parent_llm(world), [crewai.tool(delegator)], cache=True)
    assert len(world.of("child")) == 2


async def test_the_model_gets_the_strict_schema_of_the_tool(world: World) -> None:
    async with delegating() as delegator:
        await run(parent_llm(world), [crewai.tool(delegator)])
    (declared,) = [tool["function"] for tool in world.of("parent")[0].body["tools"]]
    assert declared["parameters"] == delegator.tool("openai-strict")["function"]["parameters"]


async def test_tokens_are_counted_only_in_an_llm_that_is_given(world: World) -> None:
    llm = parent_llm(world)
    async with delegating() as delegator:
        await run(llm, [crewai.tool(delegator)])
        assert llm.get_token_usage_summary().prompt_tokens < CHILD_TOKENS[0]
        await run(llm, [crewai.tool(delegator, llm=llm)])
    assert llm.get_token_usage_summary().prompt_tokens > CHILD_TOKENS[0]

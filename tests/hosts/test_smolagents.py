"""Features that only smolagents has: attached agents, runs of one agent, and code that calls the tool."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# smolagents has few type hints.

import asyncio
from typing import Any

import pytest

pytest.importorskip("smolagents")

from smolagents import ChatMessage, CodeAgent, FinalAnswerTool, LogLevel, Model, Tool, tool

from delegate.hosts import smolagents
from tests.hosts.drivers.smolagents import agent, outputs
from tests.hosts.world import CHILD_TOKENS, PARENT_TOKENS, World, delegating_with


@tool
def multiply(a: int, b: int) -> str:
    """Multiply two numbers.

    Args:
        a: one number
        b: the other number
    """
    return f"that is {a * b}"


delegating = delegating_with(smolagents.child_tools)


async def run(world: World, tools: list[Tool], *, attached: bool = True) -> list[str]:
    """The tools' results in one run of an agent."""
    lead, _ = agent(world, tools)
    if attached:
        smolagents.attach(lead)
    return [one.observation for one in await asyncio.to_thread(outputs, lead)]


def test_the_tool_that_ends_a_run_is_omitted() -> None:
    assert [one.name for one in smolagents.child_tools([multiply, FinalAnswerTool()])] == ["multiply"]


async def test_the_model_reads_the_tool_s_result(world: World) -> None:
    async with delegating() as delegator:
        (text,) = await run(world, [smolagents.tool(delegator)])
    assert text in "\n".join(world.of("parent")[-1].texts)


async def test_the_model_gets_the_arguments_all_optional(world: World) -> None:
    async with delegating() as delegator:
        await run(world, [smolagents.tool(delegator)])
    declared = {one["function"]["name"]: one["function"] for one in world.of("parent")[0].body["tools"]}
    parameters = declared["delegate_task"]["parameters"]
    assert set(parameters["properties"]) == set(delegator.tool("mcp")["inputSchema"]["properties"])
    assert parameters["required"] == []


async def test_an_agent_that_is_not_attached_can_delegate(world: World) -> None:
    async with delegating() as delegator:
        (text,) = await run(world, [smolagents.tool(delegator)], attached=False)
    assert "The answer is 42." in text


async def test_each_run_of_one_agent_has_its_own_ledger(world: World) -> None:
    async with delegating(max_children=1) as delegator:
        lead, _ = agent(world, [smolagents.tool(delegator)])
        smolagents.attach(lead)
        for _ in range(2):
            results = await asyncio.to_thread(outputs, lead, max_steps=2)
            assert ["budget_exceeded" in one.observation for one in results] == [False, True]


async def test_tokens_are_counted_in_the_steps_of_the_run(world: World) -> None:
    async with delegating() as delegator:
        lead, _ = agent(world, [smolagents.tool(delegator)])
        smolagents.attach(lead)
        result: Any = await asyncio.to_thread(lead.run, "Find it out.", max_steps=1, return_full_result=True)
    assert result.token_usage.input_tokens == 2 * PARENT_TOKENS[0] + CHILD_TOKENS[0]


async def test_code_gets_the_text_and_the_result(world: World) -> None:
    class Coder(Model):
        def generate(self, *_: Any, **__: Any) -> ChatMessage:
            lines = ["result = delegate_task(goal='Find the answer.')"]
            lines += ["final_answer([result.run['results'][0]['status'], '42' in result])"]
            return ChatMessage(role="assistant", content="\n".join(["<code>", *lines, "</code>"]))  # pyright: ignore[reportArgumentType]

    async with delegating() as delegator:
        coder = CodeAgent(
            tools=[smolagents.tool(delegator)], model=Coder(model_id="coder"), verbosity_level=LogLevel.OFF
        )
        smolagents.attach(coder)
        assert await asyncio.to_thread(coder.run, "Find it out.") == ["completed", True]

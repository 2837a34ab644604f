"""What is smolagents' own: attached agents, code that calls the tool, and the parent's tools for children."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# smolagents has few type hints.

import asyncio
from typing import Any

import pytest

pytest.importorskip("smolagents")

from smolagents import ChatMessage, CodeAgent, FinalAnswerTool, LogLevel, Model, Tool, tool

from delegate.hosts import smolagents
from tests.hosts.drivers.smolagents import agent, outputs
from tests.hosts.world import CHILD_TOKENS, PARENT_TOKENS, World, child_that_calls, delegating_with


@tool
def multiply(a: int, b: int) -> str:
    """Multiply two numbers.

    Args:
        a: one
        b: another
    """
    return f"that is {a * b}"


@tool
def send_money(to: str) -> str:
    """Send all the money.

    Args:
        to: who gets it
    """
    return f"sent to {to}"


delegating = delegating_with(smolagents.child_tools)


async def run(world: World, tools: list[Tool], *, attached: bool = True) -> list[str]:
    """What the tools gave in one run of an agent."""
    lead, _ = agent(world, tools)
    if attached:
        smolagents.attach(lead)
    return [one.observation for one in await asyncio.to_thread(outputs, lead)]


async def test_a_child_uses_the_parents_tools_and_only_those(world: World) -> None:
    world.child = child_that_calls("multiply", {"a": 6, "b": 7})
    async with delegating([multiply, send_money, FinalAnswerTool()]) as delegator:
        (text,) = await run(world, [multiply, smolagents.tool(delegator)])
    assert "that is 42" in text
    assert {name for call in world.of("child") for name in call.tool_names} == {"multiply"}


async def test_our_own_tool_is_never_a_childs() -> None:
    async with delegating() as delegator:
        ours = [smolagents.tool(delegator), smolagents.read_tool(delegator), smolagents.think_tool(delegator)]
        assert [one.name for one in smolagents.child_tools([multiply, *ours])] == ["multiply"]


async def test_arguments_that_a_tool_of_the_parents_refuses_are_an_error_that_the_child_reads(world: World) -> None:
    world.child = child_that_calls("multiply", {"a": 6, "c": 7})
    async with delegating([multiply]) as delegator:
        await run(world, [multiply, smolagents.tool(delegator)])
    assert "Argument c is not in the tool's input schema" in world.of("child")[-1].tool_results[0]


async def test_what_the_tool_gives_is_what_the_model_reads(world: World) -> None:
    async with delegating() as delegator:
        (text,) = await run(world, [smolagents.tool(delegator)])
    assert text in "\n".join(world.of("parent")[-1].texts)


async def test_the_model_is_told_of_the_arguments(world: World) -> None:
    async with delegating() as delegator:
        await run(world, [smolagents.tool(delegator)])
    declared = {one["function"]["name"]: one["function"] for one in world.of("parent")[0].body["tools"]}
    told = declared["delegate_task"]["parameters"]
    assert set(told["properties"]) == set(delegator.tool("mcp")["inputSchema"]["properties"])
    assert told["required"] == []


async def test_an_agent_that_is_not_attached_delegates_too(world: World) -> None:
    async with delegating() as delegator:
        (text,) = await run(world, [smolagents.tool(delegator)], attached=False)
    assert "The answer is 42." in text


async def test_calls_of_one_run_share_a_ledger_and_the_next_run_has_its_own(world: World) -> None:
    async with delegating(max_children=1) as delegator:
        lead, _ = agent(world, [smolagents.tool(delegator)])
        smolagents.attach(lead)
        for _ in range(2):
            made = await asyncio.to_thread(outputs, lead, max_steps=2)
            assert ["budget_exceeded" in one.observation for one in made] == [False, True]


async def test_a_report_can_be_read_back_in_a_later_run(world: World) -> None:
    async with delegating() as delegator:
        await run(world, [smolagents.tool(delegator)])
        (summary,) = await delegator.runs()
        (task,) = await delegator.tasks(summary.run_id)
        world.tool, world.calls = "read_delegation", [{"handle": task.handle}]
        (text,) = await run(world, [smolagents.read_tool(delegator)])
    assert "The answer is 42." in text


async def test_tokens_count_in_the_steps_of_the_run(world: World) -> None:
    async with delegating() as delegator:
        lead, _ = agent(world, [smolagents.tool(delegator)])
        smolagents.attach(lead)
        result: Any = await asyncio.to_thread(lead.run, "Find it out.", max_steps=1, return_full_result=True)
    assert result.token_usage.input_tokens == 2 * PARENT_TOKENS[0] + CHILD_TOKENS[0]


async def test_code_gets_the_text_and_the_report(world: World) -> None:
    class Coder(Model):
        def generate(self, *_: Any, **__: Any) -> ChatMessage:
            lines = ["given = delegate_task(goal='Find the answer.')"]
            lines += ["final_answer([given.report['results'][0]['status'], '42' in given])"]
            return ChatMessage(role="assistant", content="\n".join(["<code>", *lines, "</code>"]))  # pyright: ignore[reportArgumentType]

    async with delegating() as delegator:
        coder = CodeAgent(
            tools=[smolagents.tool(delegator)], model=Coder(model_id="coder"), verbosity_level=LogLevel.OFF
        )
        smolagents.attach(coder)
        assert await asyncio.to_thread(coder.run, "Find it out.") == ["completed", True]


async def test_think_gives_a_checklist(world: World) -> None:
    world.tool, world.calls = "think", [{"thought": "It is 42.", "acceptance_criteria": ["it is even"]}]
    async with delegating() as delegator:
        (text,) = await run(world, [smolagents.think_tool(delegator)])
    assert "it is even" in text
    assert world.of("child") == []

"""What is Google ADK's own: events of the run, sessions, confirmation, and the parent's tools for children."""

from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext

from delegate.errors import ConfigError
from delegate.hosts import google_adk
from delegate.types import JsonObject
from tests.hosts.drivers.google_adk import run, text
from tests.hosts.world import World, child_that_calls, delegating_with


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def send_money(to: str) -> str:
    """Send all the money."""
    return f"sent to {to}"


delegating = delegating_with(google_adk.child_tools)


async def test_a_child_uses_the_parents_tools_and_only_those(world: World) -> None:
    world.child = child_that_calls("multiply", {"a": 6, "b": 7})
    async with delegating([multiply, send_money]) as delegator:
        await run(world, [multiply, google_adk.tool(delegator)])
    assert '{"result": 42}' in world.results[0]
    assert {name for call in world.of("child") for name in call.tool_names} == {"multiply"}


async def test_our_own_tool_is_never_a_childs(world: World) -> None:
    async with delegating() as delegator:
        ours = [google_adk.tool(delegator), google_adk.read_tool(delegator), google_adk.think_tool(delegator)]
        assert [tool.name for tool in google_adk.child_tools([multiply, *ours])] == ["multiply"]


async def test_a_child_gets_no_tool_that_asks_a_person_first(world: World) -> None:
    sent: list[str] = []

    def send(to: str) -> str:
        sent.append(to)
        return "sent"

    asking = FunctionTool(send, require_confirmation=True)
    world.child = child_that_calls("send", {"to": "me"})
    async with delegating([asking]) as delegator:
        await run(world, [asking, google_adk.tool(delegator)])
    assert "needs a person's approval" in world.of("child")[-1].tool_results[0]
    assert sent == []


async def test_callbacks_of_the_agent_see_the_calls_of_children(world: World) -> None:
    def guard(tool: BaseTool, args: JsonObject, tool_context: ToolContext) -> JsonObject | None:
        return {"error": "not allowed here"} if tool.name == "multiply" else None

    world.child = child_that_calls("multiply", {"a": 6, "b": 7})
    async with delegating([multiply]) as delegator:
        await run(world, [multiply, google_adk.tool(delegator)], before_tool_callback=guard)
    assert "not allowed here" in world.results[0]


async def test_what_a_childs_tool_writes_to_the_session_stays_there(world: World) -> None:
    def note(text: str, tool_context: ToolContext) -> str:
        """Keep a note."""
        tool_context.state["note"] = text
        return "kept"

    world.child = child_that_calls("note", {"text": "42"})
    async with delegating([note]) as delegator:
        events = await run(world, [note, google_adk.tool(delegator)])
    answered = [event for event in events if event.get_function_responses()]
    assert [event.actions.state_delta for event in answered] == [{"note": "42"}]


async def test_a_toolset_is_refused_with_the_mend() -> None:
    toolset: Any = object()
    with pytest.raises(ConfigError, match="get_tools"):
        google_adk.child_tools([toolset])


async def test_no_event_of_ours_looks_like_the_final_response_or_stays_in_the_session(world: World) -> None:
    async with delegating() as delegator:
        events = await run(world, [google_adk.tool(delegator)])
    ours = [event for event in events if event.author == "delegate"]
    assert len(ours) > 2
    assert not any(event.is_final_response() or not event.partial for event in ours)
    assert [text(event) for event in events if event.is_final_response()] == ["I have read the results."]


async def test_the_report_comes_with_the_runs_events(world: World) -> None:
    async with delegating() as delegator:
        events = await run(world, [google_adk.tool(delegator)])
    (report,) = [event.custom_metadata["delegate"] for event in events if event.custom_metadata]
    assert report["results"][0]["status"] == "completed"


async def test_calls_of_one_run_share_a_ledger_and_the_next_run_has_its_own(world: World) -> None:
    world.turns = 2
    async with delegating(max_children=1) as delegator:
        for _ in range(2):
            await run(world, [google_adk.tool(delegator)])
            assert ["budget_exceeded" in text for text in world.results] == [False, True]


async def test_a_refused_call_is_an_error_of_the_tool(world: World) -> None:
    world.calls = [{"gaol": "Find the answer."}]
    async with delegating() as delegator:
        events = await run(world, [google_adk.tool(delegator)])
    (response,) = [one.response or {} for event in events for one in event.get_function_responses()]
    assert list(response) == ["error"]


async def test_a_report_can_be_read_back_in_a_later_run(world: World) -> None:
    async with delegating() as delegator:
        await run(world, [google_adk.tool(delegator)])
        (summary,) = await delegator.runs()
        (task,) = await delegator.tasks(summary.run_id)
        world.tool, world.calls = "read_delegation", [{"handle": task.handle}]
        await run(world, [google_adk.read_tool(delegator)])
    assert "The answer is 42." in world.results[0]


async def test_think_gives_a_checklist(world: World) -> None:
    world.tool, world.calls = "think", [{"thought": "It is 42.", "acceptance_criteria": ["it is even"]}]
    async with delegating() as delegator:
        await run(world, [google_adk.think_tool(delegator)])
    assert "it is even" in world.results[0]
    assert world.of("child") == []

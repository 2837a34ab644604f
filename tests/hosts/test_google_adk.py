"""Features that only Google ADK has: the events of a run, sessions, callbacks, and toolsets."""

from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from delegate.errors import ConfigError
from delegate.hosts import google_adk
from delegate.types import JsonObject
from tests.hosts.drivers.google_adk import run, text
from tests.hosts.world import SAVING, World, child_that_calls, delegating_with, save


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


delegating = delegating_with(google_adk.child_tools)


async def test_a_callback_of_the_agent_stops_a_call_of_a_child(world: World) -> None:
    def guard(tool: BaseTool, args: JsonObject, tool_context: ToolContext) -> JsonObject | None:
        return {"error": "not allowed here"} if tool.name == "multiply" else None

    world.child = child_that_calls("multiply", {"a": 6, "b": 7})
    async with delegating([multiply]) as delegator:
        await run(world, [multiply, google_adk.tool(delegator)], before_tool_callback=guard)
    assert "not allowed here" in world.results[0]


async def test_what_a_child_s_tool_writes_to_the_session_is_kept(world: World) -> None:
    def note(text: str, tool_context: ToolContext) -> str:
        """Keep a note."""
        tool_context.state["note"] = text
        return "kept"

    world.child = child_that_calls("note", {"text": "42"})
    async with delegating([note]) as delegator:
        events = await run(world, [note, google_adk.tool(delegator)])
    answered = [event for event in events if event.get_function_responses()]
    assert [event.actions.state_delta for event in answered] == [{"note": "42"}]


async def test_what_a_child_s_tool_writes_is_in_the_child_s_workspace(world: World) -> None:
    world.calls, world.child = [SAVING], child_that_calls("save", {"text": "tide"})
    async with delegating([save]) as delegator:
        await run(world, [save, google_adk.tool(delegator)])
    assert "\ntask 1: PASS" in world.results[0]


async def test_a_toolset_is_refused_with_a_hint() -> None:
    toolset: Any = object()
    with pytest.raises(ConfigError, match="get_tools"):
        google_adk.child_tools([toolset])


async def test_progress_events_are_partial_and_never_the_final_response(world: World) -> None:
    async with delegating() as delegator:
        events = await run(world, [google_adk.tool(delegator)])
    progress = [event for event in events if event.author == "delegate"]
    assert len(progress) > 2
    assert not any(event.is_final_response() or not event.partial for event in progress)
    assert [text(event) for event in events if event.is_final_response()] == ["I have read the results."]

"""An `LlmAgent` in an `InMemoryRunner`, with Gemini at the model server."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import cache
from typing import Any
from uuid import uuid4

from google.adk.agents import InvocationContext, LlmAgent
from google.adk.events.event import Event
from google.adk.models.google_llm import Gemini
from google.adk.runners import InMemoryRunner
from google.adk.sessions import InMemorySessionService, Session
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from delegate import Delegator, Tool
from delegate.hosts import google_adk
from tests.hosts.driving import Outcome, Scenario, own_tool, own_tools
from tests.hosts.world import PARENT, NativeTool, World


class GoogleADK:
    name = "google_adk"
    package = "google-adk"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {}
    refusal = "mandatory input parameters are not present"

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        native = [self.native_tool(world, name) for name in world.native]
        return _outcome(await run(world, [own_tool(google_adk, world, delegator), *native], abort=cancel))

    def native_tool(self, world: World, name: NativeTool) -> Any:
        return FunctionTool(world.functions[name], require_confirmation=name == "erase")

    def own_tools(self, delegator: Delegator) -> list[Any]:
        return own_tools(google_adk, delegator)

    def child_tools(self, tools: Sequence[Any]) -> Sequence[Tool]:
        return google_adk.child_tools(tools)


async def run(world: World, tools: list[Any], *, abort: asyncio.Event | None = None, **agent: Any) -> list[Event]:
    """All events of one run of an agent with these tools."""
    gemini = Gemini(model=world.parent, base_url=world.server.google_url, client_kwargs={"api_key": "dummy"})
    lead = LlmAgent(name="lead", model=gemini, tools=tools, **agent)
    async with InMemoryRunner(agent=lead, app_name="test") as runner:
        await runner.session_service.create_session(app_name="test", user_id="u", session_id="s")
        message = types.UserContent("Find it out.")
        events = runner.run_async(user_id="u", session_id="s", new_message=message, abort_signal=abort)
        async with aclosing(events):
            return [event async for event in events]


def _outcome(events: list[Event]) -> Outcome:
    used = [event.usage_metadata for event in events if event.usage_metadata]
    read = sum(one.prompt_token_count or 0 for one in used)
    written = sum(one.candidates_token_count or 0 for one in used)
    return Outcome(
        progress=[text(event) for event in events if event.partial],
        usage=(read, written),
        structured=[event.custom_metadata["delegate"] for event in events if event.custom_metadata],
        errors=["error" in (one.response or {}) for event in events for one in event.get_function_responses()],
    )


def text(event: Event) -> str:
    return "".join(part.text or "" for part in (event.content and event.content.parts) or ())


@cache
def _idle() -> InvocationContext:
    lead = LlmAgent(name="lead", model=Gemini(model=PARENT))
    session = Session(id="s", app_name="test", user_id="u")
    return InvocationContext(session_service=InMemorySessionService(), invocation_id="i", agent=lead, session=session)


async def invoke(tool_object: BaseTool, arguments: dict[str, Any]) -> object:
    """Call the tool like the agent's loop does."""
    run = _idle().model_copy(update={"invocation_id": uuid4().hex})
    run._event_queue = asyncio.Queue()  # pyright: ignore[reportPrivateUsage] — a runner sets and reads it
    return await tool_object.run_async(args=arguments, tool_context=ToolContext(run, function_call_id="c1"))


DRIVER = GoogleADK()

"""An `Agent` in a `Crew`, on CrewAI's own OpenAI provider."""

import asyncio
import atexit
import os
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

# CrewAI reads these when it is imported.
os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
os.environ["CREWAI_DISABLE_VERSION_CHECK"] = "true"
os.environ["CREWAI_TRACING_ENABLED"] = "false"
os.environ["OTEL_SDK_DISABLED"] = "true"
os.environ["CREWAI_STORAGE_DIR"] = f"{tempfile.gettempdir()}/crewai-{os.getpid()}"

with warnings.catch_warnings():
    warnings.simplefilter("ignore", ImportWarning)  # a lazy module of its own refuses what Python sets on it
    from crewai import LLM, Agent, Crew, Task
from crewai.crews.crew_output import CrewOutput
from crewai.events.event_bus import crewai_event_bus
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool as as_tool
from crewai.tools.base_tool import BaseTool

from delegate import Delegator, Tool
from delegate.hosts import crewai
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario, own_tool, own_tools
from tests.hosts.world import NativeTool, World

atexit.register(shutil.rmtree, os.environ["CREWAI_STORAGE_DIR"], ignore_errors=True)


class CrewAI:
    name = "crewai"
    package = "crewai"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {
        "cancel_in_flight": "CrewAI can't stop a run, and its tools run in threads, which can't be stopped",
        "parent_tools_only": "a tool isn't told which tools the parent has: children get all that were converted",
        "approval_denied": "CrewAI's tools don't ask a person; a hook can, and it runs for children's calls too",
    }
    refusal = "arguments validation failed"

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        llm = parent_llm(world)
        is_main = world.own == "delegate"
        own = crewai.tool(delegator, llm=llm) if is_main else own_tool(crewai, world, delegator)
        with crewai_event_bus.scoped_handlers():
            lines, results = recorded_events()
            output = await run(llm, [own, *(self.native_tool(world, name) for name in world.native)])
            await asyncio.to_thread(crewai_event_bus.flush)
        used = output.token_usage
        errors = [bool(output.tasks_output[0].tool_failures)]
        return Outcome(lines, (used.prompt_tokens, used.completion_tokens), results, errors)

    def native_tool(self, world: World, name: NativeTool) -> Any:
        return as_tool(name)(world.functions[name])

    def own_tools(self, delegator: Delegator) -> list[Any]:
        return own_tools(crewai, delegator)

    def child_tools(self, tools: Sequence[Any]) -> Sequence[Tool]:
        return crewai.child_tools(tools)


def recorded_events() -> tuple[list[str], list[JsonObject]]:
    """The lines of progress and the results that are emitted on the event bus from now on."""
    lines: list[str] = []
    results: list[JsonObject] = []

    def add_line(_: Any, event: crewai.DelegationProgressEvent) -> None:
        lines.append(event.text)

    def add_result(_: Any, event: crewai.DelegationResultEvent) -> None:
        results.append(event.result)

    crewai_event_bus.on(crewai.DelegationProgressEvent)(add_line)
    crewai_event_bus.on(crewai.DelegationResultEvent)(add_result)
    return lines, results


def parent_llm(world: World) -> BaseLLM:
    return LLM(model=f"openai/{world.parent}", base_url=world.server.openai_url, api_key="dummy")


async def run(llm: BaseLLM, tools: Sequence[BaseTool], **crew_options: Any) -> CrewOutput:
    """One kickoff of a crew of one agent with these tools."""
    lead = Agent(role="lead", goal="Find it out.", backstory="You delegate.", llm=llm, tools=list(tools))
    task = Task(description="Find it out.", expected_output="An answer.", agent=lead)
    crew = Crew(agents=[lead], tasks=[task], **crew_options)
    output = await asyncio.to_thread(lambda: crew.kickoff())  # pyright: ignore[reportUnknownMemberType]
    assert isinstance(output, CrewOutput)
    return output


async def invoke(tool_object: BaseTool, arguments: dict[str, Any]) -> object:
    """Call the tool like the agent's loop does, in a thread."""
    return await asyncio.to_thread(tool_object.run, **arguments)


DRIVER = CrewAI()

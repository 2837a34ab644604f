"""An `Agent` in a `Crew`, on CrewAI's own OpenAI provider."""

import asyncio
import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

# Read when CrewAI is imported.
os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
os.environ["CREWAI_DISABLE_VERSION_CHECK"] = "true"
os.environ["CREWAI_TRACING_ENABLED"] = "false"
os.environ["OTEL_SDK_DISABLED"] = "true"
os.environ["CREWAI_STORAGE_DIR"] = f"{tempfile.gettempdir()}/crewai-{os.getpid()}"

from crewai import LLM, Agent, Crew, Task
from crewai.crews.crew_output import CrewOutput
from crewai.events.event_bus import crewai_event_bus
from crewai.llms.base_llm import BaseLLM
from crewai.tools.base_tool import BaseTool

from delegate import Delegator
from delegate.hosts import crewai
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario
from tests.hosts.world import PARENT, World

atexit.register(shutil.rmtree, os.environ["CREWAI_STORAGE_DIR"], ignore_errors=True)


class CrewAI:
    name = "crewai"
    package = "crewai"
    side_by_side = True
    gaps: Mapping[Scenario, str] = {
        "cancel_in_flight": "CrewAI has no way to stop a run, and its tools work in threads, which can't be stopped",
    }

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        llm = parent_llm(world)
        with crewai_event_bus.scoped_handlers():
            said, kept = heard()
            output = await run(llm, [crewai.tool(delegator, llm=llm)])
            await asyncio.to_thread(crewai_event_bus.flush)
        used = output.token_usage
        return Outcome(said, (used.prompt_tokens, used.completion_tokens), kept)


def heard() -> tuple[list[str], list[JsonObject]]:
    """The lines of progress and the reports that come on the event bus from now on."""
    said: list[str] = []
    kept: list[JsonObject] = []

    def say(_: Any, event: crewai.DelegationProgressEvent) -> None:
        said.append(event.text)

    def keep(_: Any, event: crewai.DelegationReportEvent) -> None:
        kept.append(event.report)

    crewai_event_bus.on(crewai.DelegationProgressEvent)(say)
    crewai_event_bus.on(crewai.DelegationReportEvent)(keep)
    return said, kept


def parent_llm(world: World) -> BaseLLM:
    return LLM(model=f"openai/{PARENT}", base_url=world.server.openai_url, api_key="dummy")


async def run(llm: BaseLLM, tools: Sequence[BaseTool], **crew_options: Any) -> CrewOutput:
    """One kickoff of a crew of one agent with these tools."""
    lead = Agent(role="lead", goal="Find it out.", backstory="You delegate.", llm=llm, tools=list(tools))
    task = Task(description="Find it out.", expected_output="An answer.", agent=lead)
    crew = Crew(agents=[lead], tasks=[task], **crew_options)
    output = await asyncio.to_thread(lambda: crew.kickoff())  # pyright: ignore[reportUnknownMemberType]
    assert isinstance(output, CrewOutput)
    return output


async def invoke(tool_object: BaseTool, arguments: dict[str, Any]) -> object:
    """Call the tool as the agent's loop does, in a thread."""
    return await asyncio.to_thread(tool_object.run, **arguments)


DRIVER = CrewAI()

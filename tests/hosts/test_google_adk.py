"""Features that only Google ADK has: the events of a run, sessions, callbacks, toolsets, and its agents as children."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import BaseAgent, InvocationContext, LlmAgent
from google.adk.apps import App
from google.adk.events.event import Event
from google.adk.models.google_llm import Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, BaseNode, Workflow
from google.genai import types

import delegate
from delegate import Delegator, Task
from delegate.hosts import google_adk
from delegate.types import JsonObject, TaskResult
from delegate.types.errors import ConfigError
from tests.hosts.drivers.google_adk import run, text
from tests.hosts.world import (
    CHILD_TOKENS,
    SAVED,
    SAVING,
    WORKER,
    World,
    answers,
    child_that_calls,
    delegating_with,
    save,
    turns,
)
from tests.support.model_server import Call, Reply


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


# ------------------------------------------------------------------------------------------ children that are agents

TASK: JsonObject = {"goal": "Find the answer.", "acceptance_criteria": ["The answer is there."]}


def gemini(world: World) -> Gemini:
    return Gemini(model=WORKER, base_url=world.server.google_url, client_kwargs={"api_key": "dummy"})


def agent(world: World, tools: list[Any] | None = None, name: str = "worker", **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=gemini(world), tools=tools or [], **fields)


def whole(given: BaseNode | App, **settings: Any) -> Delegator:
    return delegating(runner=google_adk.child(given), **settings)


async def result_of(given: BaseNode | App, call: JsonObject = TASK, **settings: Any) -> TaskResult:
    async with whole(given, **settings) as delegator:
        (result,) = (await delegator.call(call)).results
    return result


def folder_in_state(tool_context: ToolContext) -> str:
    """Tell the folder in the session's state."""
    assert tool_context.state["folder"] == str(delegate.workspace())
    return "the workspace"


async def test_a_whole_agent_works_in_the_workspace_with_its_own_tools(world: World) -> None:
    world.child = turns(("save", {"text": "tide"}), ("folder_in_state", {}), ("missing", {}))
    runner = google_adk.child(
        agent(world, [save, folder_in_state]), make_state=lambda job: {"folder": str(job.workspace)}
    )
    called: JsonObject = {"kind": "receipt", "calls": [{"tool": "save", "args": {"text": "tide"}}]}
    async with delegating(runner=runner) as delegator:
        (result,) = (await delegator.call(SAVING | {"acceptance_criteria": [SAVED, called]})).results
    assert result.verdict
    assert (result.verdict.verdict, result.receipts.recorded) == ("PASS", True)
    assert (result.receipts.tools, result.receipts.error) == ({"save": 1, "folder_in_state": 1}, 1)
    assert (result.usage.model_calls, result.usage.input_tokens) == (4, 4 * CHILD_TOKENS[0])
    assert (result.report, result.cost_usd) == ("All done.", None)


async def test_a_whole_agent_is_the_child_of_an_agent_s_call(world: World) -> None:
    world.calls, world.child = [SAVING], turns(("save", {"text": "tide"}))
    async with whole(agent(world, [save])) as delegator:
        events = await run(world, [google_adk.tool(delegator)])
    assert "\ntask 1: PASS" in world.results[0]
    assert {event.author for event in events} == {"lead", "delegate"}


async def test_receipts_cover_agents_that_are_tools_and_those_that_are_handed_over_to(world: World) -> None:
    def answer(call: Call) -> Reply:
        names, told = call.tool_names, " ".join(call.tool_results)
        if "save" in names:  # the agent that is a tool
            return Reply("saved it") if told else Reply(tool_calls=(("save", {"text": "tide"}),))
        if "helper" in names and "saved it" not in told:
            return Reply(tool_calls=(("helper", {"request": "Save it."}),))
        if "helper" in names:
            return Reply(tool_calls=(("transfer_to_agent", {"agent_name": "closer"}),))
        return Reply("The closer reports.")

    world.child = answer
    helper = agent(world, [save], name="helper", description="Saves.")
    lead = agent(world, [AgentTool(helper)], sub_agents=[agent(world, name="closer", description="Reports.")])
    result = await result_of(lead, SAVING)
    assert result.verdict
    assert result.verdict.verdict == "PASS"
    assert result.receipts.tools == {"helper": 1, "save": 1, "transfer_to_agent": 1}
    assert (result.report, result.usage.model_calls) == ("The closer reports.", 5)


async def test_a_workflow_is_a_child_whose_last_output_is_the_report(world: World) -> None:
    world.child = lambda call: Reply("second" if "first" in str(call.body["contents"]) else "first")
    first, second = agent(world, name="first"), agent(world, name="second")
    workflow = Workflow(name="row", edges=[(START, first), (first, second)])
    result = await result_of(workflow)
    assert (result.report, result.usage.model_calls, result.receipts.recorded) == ("second", 2, True)


async def test_an_app_s_plugins_run_for_its_child(world: World) -> None:
    class Guard(BasePlugin):
        async def before_tool_callback(
            self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext
        ) -> Any:
            return {"error": "not allowed here"} if tool.name == "save" else None

    world.child = turns(("save", {"text": "tide"}))
    result = await result_of(App(name="guarded", root_agent=agent(world, [save]), plugins=[Guard("guard")]))
    assert (result.receipts.ok, result.receipts.error) == (0, 1)


class Search(BaseTool):
    """A tool that the model's provider runs, such as ADK's `GoogleSearchTool`, which refuses models of other names."""

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        llm_request.config.tools = [types.Tool(google_search=types.GoogleSearch())]


class Elsewhere(BaseAgent):
    """An agent whose calls ADK doesn't tell, such as one that runs on another machine."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        yield Event(author=self.name, content=types.ModelContent("Done."))


@pytest.mark.parametrize("kind", ["the provider's", "without plugins", "elsewhere"])
async def test_what_adk_does_not_tell_makes_receipts_prove_nothing(world: World, kind: str) -> None:
    never: JsonObject = {"kind": "receipt", "mode": "none", "calls": [{"tool": "save"}]}
    world.child = turns(("helper", {"request": "Do it."})) if "plugins" in kind else answers(Reply("Done."))
    helper = AgentTool(agent(world, [save], name="helper"), include_plugins=False)
    given = agent(world, [helper] if "plugins" in kind else [Search(name="search", description="")])
    result = await result_of(
        Elsewhere(name="far") if kind == "elsewhere" else given, {**TASK, "acceptance_criteria": [never]}
    )
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.code, result.receipts.recorded) == ("FAIL", "no_receipts", False)


async def test_a_tool_that_asks_a_person_ends_a_whole_agent(world: World) -> None:
    world.child = turns(("erase", {"path": "/"}))
    result = await result_of(agent(world, [FunctionTool(world.functions["erase"], require_confirmation=True)]))
    assert result.error
    assert (result.status, result.error.code, result.receipts.denied) == ("failed", "needs_approval", 1)
    assert world.called == []


async def test_a_whole_agent_is_stopped_at_its_deadline_and_keeps_its_receipts(world: World) -> None:
    async def forever() -> None:
        """Never end."""
        await asyncio.Event().wait()

    world.child = turns(("save", {"text": "tide"}), ("forever", {}))
    result = await result_of(agent(world, [save, forever]), timeout_seconds=1)
    assert (result.status, result.receipts.ok, result.receipts.timeout) == ("timeout", 1, 1)
    assert [artifact.path for artifact in result.artifacts] == ["note.txt"]


async def test_a_whole_agent_ends_within_its_limits(world: World) -> None:
    world.child = turns(*[("multiply", {"a": n, "b": n}) for n in range(5)])
    limits: list[dict[str, Any]] = [{"max_steps": 2}, {"max_run_model_calls": 2}]
    ended = [(await result_of(agent(world, [multiply]), **limit)).status for limit in limits]
    assert ended == ["max_steps", "budget_exceeded"]


async def test_whole_agents_that_run_at_once_keep_their_receipts_apart(world: World) -> None:
    world.child = lambda call: Reply("ok") if call.tool_results else Reply(tool_calls=(("save", {"text": "tide"}),))
    async with whole(agent(world, [save])) as delegator:
        run = await delegator.call({"tasks": [SAVING] * 3})
    assert [result.receipts.tools for result in run.results] == [{"save": 1}] * 3
    assert [result.verdict and result.verdict.verdict for result in run.results] == ["PASS"] * 3


async def test_a_whole_agent_that_fails_or_is_cut_off_is_failed(world: World) -> None:
    def fail() -> str:
        """Fail."""
        raise OSError("the disk is full")

    world.child = turns(("fail", {}))
    crashed = await result_of(agent(world, [fail]))
    assert crashed.error
    assert (crashed.error.code, "the disk is full" in crashed.error.message) == ("crashed", True)
    assert crashed.receipts.error == 1
    world.child = answers(Reply("half a sen", stop="length"))
    cut = await result_of(agent(world))
    assert cut.error
    assert (cut.error.code, cut.report) == ("truncated", "half a sen")


async def test_a_task_can_t_restrict_the_tools_of_a_whole_agent(world: World) -> None:
    async with whole(agent(world, [save])) as delegator:
        (result,) = (await delegator.run(Task(goal="Find the answer.", tools=("save",)))).results
    assert result.error
    assert (result.error.code, world.of("child")) == ("tools_fixed", [])

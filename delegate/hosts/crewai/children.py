"""Converts CrewAI tools for children, and runs agents and crews as children."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from crewai import Agent, Crew
from crewai.agents.agent_builder.base_agent import BaseAgent
from crewai.events.base_events import BaseEvent
from crewai.events.stream_context import add_stream_sink
from crewai.events.types.llm_events import LLMCallCompletedEvent
from crewai.events.types.tool_usage_events import ToolUsageErrorEvent, ToolUsageFinishedEvent, ToolUsageStartedEvent
from crewai.hooks.dispatch import HookAborted, scoped_hooks
from crewai.hooks.dispatch import InterceptionPoint as Point
from crewai.hooks.tool_hooks import ToolCallHookContext, run_before_tool_call_hooks
from crewai.tools.base_tool import BaseTool
from crewai.tools.tool_failure import ToolFailure
from crewai.types.usage_metrics import UsageMetrics
from crewai.utilities.string_utils import sanitize_tool_name

from delegate._util.cancellation import contained
from delegate.child.job import ChildRunner, Job
from delegate.hosts.crewai.tool import DelegateTool
from delegate.hosts.own_agents import AgentRunner, ChildRecorder, Ending, TooManyTurns
from delegate.types import JsonObject, Usage
from delegate.types.errors import BudgetExceeded, ConfigError, ToolDenied
from delegate.types.ports import Tool, ToolOutput


def child_tools(tools: Sequence[BaseTool]) -> list[Tool]:
    """Convert an agent's tools for `Delegator(tools=…)`. Delegate's own tools are omitted.

    CrewAI's global hooks run for a child's calls too. Tools run in threads, so a call can't be stopped with its child.
    """
    native = [(sanitize_tool_name(one.name), one) for one in tools if not isinstance(one, DelegateTool)]
    return [
        Tool(name, one.description, one.args_schema.model_json_schema(), partial(_call_native, one, name))
        for name, one in native  # the name is the one that the parent's model sees
    ]


async def _call_native(tool: BaseTool, name: str, arguments: Mapping[str, Any]) -> ToolOutput:
    """Call a parent's tool as the parent's own loop does."""
    tool_input = dict(arguments)
    context = ToolCallHookContext(tool_name=name, tool_input=tool_input, tool=tool.to_structured_tool())
    if run_before_tool_call_hooks(context):
        raise ToolDenied(f"a tool call hook of the crew blocked this call of {name}")
    result = await asyncio.to_thread(tool.run, **tool_input)
    if isinstance(result, ToolFailure):
        return ToolOutput(result.as_agent_message(), "error")
    return ToolOutput(tool.format_output_for_agent(result))


# ------------------------------------------------------------------------------------------- children that are agents


def child(agent: Agent | Crew, *, make_inputs: Callable[[Job], JsonObject] | None = None) -> ChildRunner:
    """Run each child as a copy of this agent or crew, for `Delegator(runner=…)`: with its own tools and tasks.

    An agent gets the job's prompt as its message. A crew gets `inputs` for the placeholders of its tasks: what
    `make_inputs` makes of the job, or else `prompt` (all that the child is told), `goal` and `context`.

    A task that sets `tools` is refused, since it can't restrict the agents'. Every tool call that CrewAI tells of gets
    a receipt. Tools that the model's provider runs, agents of other frameworks and remote agents aren't recorded: with
    these, receipts prove nothing (`receipts: reported`). The tools learn the child's folder by `delegate.workspace()`.

    CrewAI works in threads and can't be stopped: at its deadline a child ends before its next call of a model or a
    tool, and one whose call goes on for ten seconds more is left behind. Its cache answers equal calls of one child.
    The agents choose their models: the parent's tier isn't enforced, and the cost is unknown. The limit of steps counts
    the model calls of all agents.

    Raises:
        ConfigError: a crew has no placeholder for what to do, or one of its tasks asks a person (`human_input`).
    """
    crew = agent if isinstance(agent, Crew) else None
    records_tools = all(
        isinstance(one, Agent) and not one.a2a and not getattr(one.llm, "builtin_tools", None) for one in _agents(agent)
    )
    if crew and not make_inputs and not crew.fetch_inputs() & {"prompt", "goal"}:
        raise ConfigError("child: the crew isn't told what to do: write {prompt} in the description of a task")
    if crew and any(task.human_input for task in crew.tasks):
        raise ConfigError("child: a task of the crew has human_input, and no person is available: remove it")
    return AgentRunner(_ChildRecorder, partial(_play, agent, make_inputs), records_tools=records_tools)


def _agents(agent: Agent | Crew) -> Sequence[BaseAgent]:
    return agent.agents if isinstance(agent, Crew) else [agent]


async def _play(
    agent: Agent | Crew, make_inputs: Callable[[Job], JsonObject] | None, job: Job, recorder: "_ChildRecorder"
) -> Ending:
    inputs = {"prompt": job.prompt, "goal": job.task.goal, "context": job.task.context or ""}
    given = (make_inputs(job) if make_inputs else inputs) if isinstance(agent, Crew) else job.prompt
    running = asyncio.create_task(contained(asyncio.to_thread(_kickoff, agent, given, recorder)))
    try:
        report = await asyncio.shield(running)
    except asyncio.CancelledError:
        recorder.stopped = True
        await asyncio.wait([running])
        raise
    except Exception:
        if recorder.over_limit:
            raise recorder.over_limit from None
        raise
    return Ending.by_reason(report, recorder.finish_reason)


def _kickoff(agent: Agent | Crew, given: str | JsonObject, recorder: "_ChildRecorder") -> str:
    """Run a copy, in a thread, whose context has the recorder: agents and crews keep the state of a run."""
    add_stream_sink(recorder.on_event)
    hooks = {Point.PRE_MODEL_CALL: [recorder.before_model_call], Point.PRE_TOOL_CALL: [recorder.before_tool_call]}
    copied = agent.copy()
    for one, original in zip(_agents(copied), _agents(agent), strict=True):  # `copy` leaves these out
        one.mcps, one.apps = original.mcps, original.apps
    if isinstance(copied, Crew):
        copied.stream = False
    with scoped_hooks(hooks):
        return cast("Any", copied).kickoff(given).raw


class _ChildRecorder(ChildRecorder):
    """Records the model calls and tool calls of one child, and ends it at its limits. CrewAI calls it in threads."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._loop = asyncio.get_running_loop()
        self.stopped = False
        self.finish_reason: str | None = None

    def before_model_call(self, _: object) -> None:
        with suppress(BudgetExceeded, TooManyTurns):
            self.begin_turn()
        if self.stopped or self.over_limit:
            raise HookAborted("the child has used up its steps, its budget or its time")

    def before_tool_call(self, _: object) -> None:
        if self.stopped:
            raise HookAborted("the child was stopped")

    def on_event(self, _: object, event: BaseEvent) -> None:
        self._loop.call_soon_threadsafe(self._record, event)

    def _record(self, event: BaseEvent) -> None:
        if isinstance(event, LLMCallCompletedEvent):
            self.finish_reason = event.finish_reason
            self.end_turn(_usage(event.usage), model=event.model)
        elif isinstance(event, ToolUsageStartedEvent):
            self.began(event.event_id, event.tool_name, event.tool_args if isinstance(event.tool_args, dict) else {})
        elif isinstance(event, ToolUsageErrorEvent):
            self.ended(event.started_event_id, ToolOutput(str(event.error), "error"))
        elif isinstance(event, ToolUsageFinishedEvent):
            text = str(event.output)
            denied = text == f"Tool execution blocked by hook. Tool: {event.tool_name}"  # nothing else tells it
            output = ToolOutput(text, "denied" if denied else "error" if event.failure else "ok")
            self.ended(event.started_event_id, output)


def _usage(given: JsonObject | None) -> Usage:
    used = UsageMetrics.from_provider_dict(given) or UsageMetrics()
    return Usage(
        model_calls=1,
        input_tokens=used.prompt_tokens,
        cached_tokens=used.cached_prompt_tokens,
        cache_write_tokens=used.cache_creation_tokens,
        output_tokens=used.completion_tokens,
        reasoning_tokens=used.reasoning_tokens,
    )

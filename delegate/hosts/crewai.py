"""CrewAI (`crewai`): the tool as a `BaseTool`.

    from crewai import LLM, Agent
    from delegate.hosts import crewai

    llm = LLM(model="openai/gpt-6.1-sol")
    agent = Agent(role="lead", goal="…", backstory="…", llm=llm, tools=[crewai.tool(llm=llm)])

CrewAI tells a tool nothing about the agent that calls it. Given the agent's `llm`, the tokens of children and judges
count in its totals, and so in the crew's, and its model is the ceiling for theirs. Calls of one kickoff share a ledger.
Progress and the report come as `DelegationProgressEvent` and `DelegationReportEvent` on CrewAI's event bus. A refused
call is a `ToolFailure`. No call is answered from CrewAI's result cache.

CrewAI has no way to stop a run: its tools work in threads, which go on after an agent's `max_execution_time`. Limit
children with the settings `timeout_seconds` and `run_timeout_seconds`. CrewAI itself refuses arguments that aren't a
JSON object.
"""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from crewai.events.base_events import BaseEvent
from crewai.events.event_bus import crewai_event_bus
from crewai.execution import get_execution_uuid
from crewai.hooks.tool_hooks import ToolCallHookContext, run_before_tool_call_hooks
from crewai.llms.base_llm import BaseLLM
from crewai.tools.base_tool import BaseTool
from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.string_utils import sanitize_tool_name
from pydantic import BaseModel, ConfigDict, PrivateAttr, create_model

from delegate.delegator import Delegator
from delegate.errors import ToolDenied
from delegate.hosts import progress
from delegate.hosts.host_tool import HostTool, Invocation, make_delegate_tool, make_read_tool, make_think_tool
from delegate.ports import Event, Tool, ToolOutput
from delegate.types import JsonObject, Parent, Usage


class DelegationProgressEvent(BaseEvent):
    """Something happened to a task of a call."""

    type: str = "delegation_progress"
    text: str
    """In one line: `task 0 used read_file`."""


class DelegationReportEvent(BaseEvent):
    """A call has ended."""

    type: str = "delegation_report"
    report: JsonObject


def tool(
    delegator: Delegator | None = None, *, parent: Parent | None = None, llm: BaseLLM | None = None, **options: Any
) -> BaseTool:
    """The tool for `Agent(tools=[…])`. Without a delegator one is made with `options`.

    `llm` is that of the agent which gets the tool.

    Raises:
        ConfigError: the settings are wrong.
    """
    host_tool = make_delegate_tool(delegator, parent=parent, **options)
    return _offered(host_tool, host_tool.delegator.tool("openai-strict", parent=parent), llm)


def read_tool(delegator: Delegator) -> BaseTool:
    """The second tool, which reads a report that was cut."""
    return _offered(make_read_tool(delegator), delegator.read_tool("openai-strict"), by_run=False)


def think_tool(delegator: Delegator) -> BaseTool:
    """`think`: a thought held against its criteria, as a checklist. No model is asked."""
    return _offered(make_think_tool(delegator), delegator.think_tool("openai-strict"), by_run=False)


def child_tools(tools: Sequence[BaseTool]) -> list[Tool]:
    """An agent's tools for `Delegator(tools=…)`, ours left out.

    CrewAI's global hooks see a child's calls. A tool that works in a thread can't be stopped with its child.
    """
    return [_child_tool(one) for one in tools if not isinstance(one, _Offered)]


def _offered(host_tool: HostTool, strict: JsonObject, llm: BaseLLM | None = None, *, by_run: bool = True) -> BaseTool:
    """An offer as CrewAI's tool. Not `by_run`, its calls aren't tied to the kickoff in which they are made.

    `strict` is its definition in OpenAI's strict form: CrewAI declares every tool as strict.
    """
    schema = _any_arguments(host_tool.name, strict["function"]["parameters"])
    made = _Offered(
        name=host_tool.name, description=host_tool.description, args_schema=schema, cache_function=_never_cached
    )
    made.wrap(host_tool, llm, by_run=by_run)
    return made


def _any_arguments(name: str, parameters: JsonObject) -> type[BaseModel]:
    """A model that tells of `parameters` and lets everything through: without fields CrewAI validates nothing."""
    return create_model(name, __config__=ConfigDict(extra="allow", json_schema_extra=parameters))


def _never_cached(_arguments: Any = None, _result: Any = None) -> bool:
    return False


class _Offered(BaseTool):
    """One of our tools, as CrewAI calls it."""

    _offer: HostTool = PrivateAttr()
    _llm: BaseLLM | None = PrivateAttr(default=None)
    _by_run: bool = PrivateAttr(default=True)

    def wrap(self, host_tool: HostTool, llm: BaseLLM | None, *, by_run: bool) -> None:
        self._offer, self._llm, self._by_run = host_tool, llm, by_run

    def _run(self, **arguments: Any) -> Any:
        run_id = get_execution_uuid() if self._by_run else None
        parent = Parent(run_id=run_id, model=self._llm.model if self._llm else None)
        answer = self._offer.call_sync(arguments, Invocation(parent=parent, session=id(self), on_event=self._tell))
        if answer.structured:
            crewai_event_bus.emit(self, DelegationReportEvent(report=answer.structured))
        if self._llm:
            with _counting:
                _count(self._llm, answer.usage)
        return ToolFailure(message=answer.text) if answer.is_error else answer.text

    def _tell(self, event: Event) -> None:
        crewai_event_bus.emit(self, DelegationProgressEvent(text=progress.line(event)))


_counting = threading.Lock()


def _count(llm: BaseLLM, usage: Usage) -> None:
    # What every provider of CrewAI, and every `BaseLLM` of a user's own, reports its tokens with.
    llm._track_token_usage_internal(  # pyright: ignore[reportPrivateUsage]
        {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        }
    )


# ------------------------------------------------------------------------------------------------ tools for children


def _child_tool(tool: BaseTool) -> Tool:
    name = sanitize_tool_name(tool.name)  # as the parent's model knows it
    return Tool(name, tool.description, tool.args_schema.model_json_schema(), partial(_called, tool, name))


async def _called(tool: BaseTool, name: str, arguments: Mapping[str, Any]) -> ToolOutput:
    """Call a parent's tool as the parent's own loop does."""
    given = dict(arguments)
    context = ToolCallHookContext(tool_name=name, tool_input=given, tool=tool.to_structured_tool())
    if run_before_tool_call_hooks(context):
        raise ToolDenied(f"a hook of the crew doesn't let {name} be called so")
    result = await asyncio.to_thread(tool.run, **given)
    if isinstance(result, ToolFailure):
        return ToolOutput(result.as_agent_message(), "error")
    return ToolOutput(tool.format_output_for_agent(result))

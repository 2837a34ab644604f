"""The tools, and the events about each call of them."""

import threading
from typing import Any, Unpack

from crewai.events.base_events import BaseEvent
from crewai.events.event_bus import crewai_event_bus
from crewai.execution import get_execution_uuid
from crewai.llms.base_llm import BaseLLM
from crewai.tools.base_tool import BaseTool
from crewai.tools.tool_failure import ToolFailure
from pydantic import BaseModel, ConfigDict, PrivateAttr, create_model

from delegate import contract
from delegate.delegator import Delegator
from delegate.events import Event
from delegate.hosts import progress
from delegate.hosts.host_tool import (
    HostTool,
    Invocation,
    make_delegate_tool,
    make_follow_up_tools,
    make_read_tool,
    make_think_tool,
)
from delegate.settings import SettingsOptions
from delegate.types import JsonObject, Parent, Usage


class DelegationProgressEvent(BaseEvent):
    """Progress of one task of a call."""

    type: str = "delegation_progress"
    text: str
    """One line, such as `task 0 used read_file`."""


class DelegationReportEvent(BaseEvent):
    """A call has ended."""

    type: str = "delegation_report"
    report: JsonObject


def tool(
    delegator: Delegator | None = None,
    *,
    parent: Parent | None = None,
    llm: BaseLLM | None = None,
    **options: Unpack[SettingsOptions],
) -> BaseTool:
    """Create delegate_task for `Agent(tools=[…])`. Without a delegator, one is created from `options` (settings).

    `llm` is the one of the agent that gets the tool.

    Raises:
        ConfigError: the settings are wrong.
    """
    host_tool = make_delegate_tool(delegator, parent=parent, **options)
    return _crewai_tool(host_tool, host_tool.delegator.tool("openai-strict", parent=parent), llm)


def read_tool(delegator: Delegator) -> BaseTool:
    """Create the tool that reads the rest of a report that was cut."""
    return _crewai_tool(make_read_tool(delegator), delegator.background.read_tool("openai-strict"), run_context=False)


def think_tool(delegator: Delegator) -> BaseTool:
    """Create `think`, which returns a thought as a checklist of its criteria. No model is called."""
    return _crewai_tool(make_think_tool(delegator), delegator.think_tool("openai-strict"), run_context=False)


def follow_up_tools(delegator: Delegator) -> list[BaseTool]:
    """Create `message_delegation`, and `merge_delegation` if the setting `merge_tool` allows it."""
    strict = {"message_delegation": contract.message_tool, "merge_delegation": contract.merge_tool}
    made = make_follow_up_tools(delegator)
    return [_crewai_tool(one, strict[one.name]("openai-strict"), run_context=False) for one in made]


def _crewai_tool(
    host_tool: HostTool, strict: JsonObject, llm: BaseLLM | None = None, *, run_context: bool = True
) -> BaseTool:
    """Wrap a `HostTool` for CrewAI. Without `run_context`, its calls don't belong to the kickoff they are made in.

    `strict` is the tool's definition in OpenAI's strict form: CrewAI declares every tool as strict.
    """
    schema = _any_arguments(host_tool.name, strict["function"]["parameters"])
    tool = DelegateTool(
        name=host_tool.name, description=host_tool.description, args_schema=schema, cache_function=_never_cached
    )
    tool.wrap(host_tool, llm, run_context=run_context)
    return tool


def _any_arguments(name: str, parameters: JsonObject) -> type[BaseModel]:
    """A model that shows `parameters` as its schema but has no fields, so that CrewAI validates nothing."""
    return create_model(name, __config__=ConfigDict(extra="allow", json_schema_extra=parameters))


def _never_cached(_arguments: Any = None, _result: Any = None) -> bool:
    return False


class DelegateTool(BaseTool):
    """A `HostTool` as a CrewAI tool."""

    _host_tool: HostTool = PrivateAttr()
    _llm: BaseLLM | None = PrivateAttr(default=None)
    _run_context: bool = PrivateAttr(default=True)

    def wrap(self, host_tool: HostTool, llm: BaseLLM | None, *, run_context: bool) -> None:
        self._host_tool, self._llm, self._run_context = host_tool, llm, run_context

    def _run(self, **arguments: Any) -> Any:
        run_id = get_execution_uuid() if self._run_context else None
        parent = Parent(run_id=run_id, model=self._llm.model if self._llm else None)
        answer = self._host_tool.call_sync(
            arguments, Invocation(parent=parent, session=id(self), on_event=self._emit_progress)
        )
        if answer.structured:
            crewai_event_bus.emit(self, DelegationReportEvent(report=answer.structured))
        if self._llm:
            with _usage_lock:
                _count(self._llm, answer.usage)
        return ToolFailure(message=answer.text) if answer.is_error else answer.text

    def _emit_progress(self, event: Event) -> None:
        crewai_event_bus.emit(self, DelegationProgressEvent(text=progress.line(event)))


_usage_lock = threading.Lock()


def _count(llm: BaseLLM, usage: Usage) -> None:
    # The method that CrewAI's providers, and a user's own `BaseLLM` subclasses, report their tokens with.
    llm._track_token_usage_internal(  # pyright: ignore[reportPrivateUsage]
        {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        }
    )

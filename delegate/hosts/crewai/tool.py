"""The tools, and the events about each call of them."""

import threading
from typing import Any, Unpack

from crewai.events.base_events import BaseEvent
from crewai.events.event_bus import crewai_event_bus
from crewai.execution import get_execution_uuid
from crewai.llms.base_llm import BaseLLM
from crewai.tools.base_tool import BaseTool
from crewai.tools.tool_failure import ToolFailure
from pydantic import ConfigDict, PrivateAttr, create_model

from delegate.contract.dialects import strict_schema
from delegate.delegator import Delegator
from delegate.hosts import progress
from delegate.hosts.host_tool import HostTool, Invocation, make_delegate_tool, small_tools
from delegate.policy.settings import SettingsOptions
from delegate.types import JsonObject, Parent, Usage


class DelegationProgressEvent(BaseEvent):
    """Progress of one task of a call."""

    type: str = "delegation_progress"
    text: str
    """One line, such as `task 0 used read_file`."""


class DelegationResultEvent(BaseEvent):
    """A call has ended."""

    type: str = "delegation_result"
    result: JsonObject


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
    return _crewai_tool(make_delegate_tool(delegator, parent=parent, **options), llm)


def _crewai_tool(host_tool: HostTool, llm: BaseLLM | None = None) -> BaseTool:
    """Wrap a `HostTool` for CrewAI, which declares every tool as strict."""
    parameters = strict_schema(host_tool.parameters)
    tool = DelegateTool(
        name=host_tool.name,
        description=host_tool.description,
        # It shows the parameters but has no fields, so that CrewAI validates nothing.
        args_schema=create_model(host_tool.name, __config__=ConfigDict(extra="allow", json_schema_extra=parameters)),
        cache_function=lambda *_: False,
    )
    tool.wrap(host_tool, llm)
    return tool


read_tool, think_tool, follow_up_tools = small_tools(_crewai_tool)


class DelegateTool(BaseTool):
    """A `HostTool` as a CrewAI tool."""

    _host_tool: HostTool = PrivateAttr()
    _llm: BaseLLM | None = PrivateAttr(default=None)

    def wrap(self, host_tool: HostTool, llm: BaseLLM | None) -> None:
        self._host_tool, self._llm = host_tool, llm

    def _run(self, **arguments: Any) -> Any:
        def show(line: str) -> None:
            crewai_event_bus.emit(self, DelegationProgressEvent(text=line))

        parent = Parent(run_id=get_execution_uuid(), model=self._llm.model if self._llm else None)
        invocation = Invocation(parent=parent, session=id(self), on_event=progress.lines(show))
        answer = self._host_tool.call_sync(arguments, invocation)
        if answer.structured:
            crewai_event_bus.emit(self, DelegationResultEvent(result=answer.structured))
        if self._llm:
            with _usage_lock:
                _count(self._llm, answer.usage)
        return ToolFailure(message=answer.text) if answer.is_error else answer.text


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

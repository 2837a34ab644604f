"""The tool, and what the framework knows of a call of it."""

import weakref
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

import agents
from agents import Agent, FunctionTool, RunConfig
from agents.models import get_default_model
from agents.tool import (
    FunctionToolCustomDataContext,
)
from agents.tool_context import ToolContext
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from delegate.delegator import Delegator
from delegate.hosts import progress
from delegate.hosts.host_tool import (
    HostTool,
    Invocation,
    ToolAnswer,
    make_delegate_tool,
    make_read_tool,
    make_think_tool,
)
from delegate.ports import Event, EventSink
from delegate.types import JsonObject, Parent, Usage

TIMEOUT_SHARE = 0.9
"""Of the tool's `timeout_seconds` for the children, so that their results are there before the SDK gives up on them."""

parent_context: ContextVar[ToolContext[Any] | None] = ContextVar("delegate_openai_agents_asking", default=None)
"""The call under which children work: their tools get its run's context."""


def tool(delegator: Delegator | None = None, *, parent: Parent | None = None, **options: Any) -> FunctionTool:
    """The tool, for an agent's `tools`. `options` are settings, where no delegator is given; see `delegate_tool`.

    Raises:
        ConfigError: the settings are wrong.
    """
    return _function_tool(make_delegate_tool(delegator, parent=parent, **options))


def read_tool(delegator: Delegator) -> FunctionTool:
    """The second tool, which reads a report that was cut."""
    return _function_tool(make_read_tool(delegator), by_run=False)


def think_tool(delegator: Delegator) -> FunctionTool:
    """`think`, with which a parent holds a thought against its criteria."""
    return _function_tool(make_think_tool(delegator), by_run=False)


class OwnTool(FunctionTool):
    """Never a child's: what a child may delegate is decided by the depth."""


def _function_tool(host_tool: HostTool, *, by_run: bool = True) -> FunctionTool:
    """An offer as the SDK's tool. Not `by_run`, the call isn't tied to the run in which it is made."""
    kept: weakref.WeakKeyDictionary[ToolContext[Any], ToolAnswer] = weakref.WeakKeyDictionary()

    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        asking = parent_context.set(context)
        try:
            answer = await host_tool.call(
                arguments, await _known(context, host_tool.delegator) if by_run else Invocation()
            )
        finally:
            parent_context.reset(asking)
        context.usage.add(_sdk_usage(answer.usage))
        kept[context] = answer
        return answer.text

    def report(call: FunctionToolCustomDataContext) -> JsonObject | None:
        answer = kept.pop(call.tool_context, None)
        return {"report": answer.structured} if answer and answer.report else None

    return OwnTool(
        host_tool.name,
        host_tool.description,
        host_tool.parameters,
        invoke,
        strict_json_schema=False,  # its strict form has no optional fields, and refuses before we can explain
        custom_data_extractor=report,
    )


# ------------------------------------------------------------------------------------------- what the SDK knows


async def _known(context: ToolContext[Any], delegator: Delegator) -> Invocation:
    return Invocation(parent=await _parent(context, delegator), on_event=_spans(context))


async def _parent(context: ToolContext[Any], delegator: Delegator) -> Parent:
    agent = context.agent
    tools = agent.tools if agent else []
    if agent and delegator.child_tools is not None:
        tools = await agent.get_all_tools(context)  # with those of MCP servers, without those disabled now
    timeouts = [one.timeout_seconds for one in tools if isinstance(one, OwnTool) and one.name == context.tool_name]
    timeout = timeouts[0] if timeouts else None
    return Parent(
        run_id=_run_id(context.usage),
        model=model_name(cast("Agent[Any]", agent) if isinstance(agent, Agent) else None, context.run_config),
        seconds_left=timeout and timeout * TIMEOUT_SHARE,
        tools=tuple(one.name for one in tools) if agent else None,
    )


_run_ids: dict[int, str] = {}


def _run_id(usage: agents.Usage) -> str:
    """All contexts of a run count in one object, those of agents that are used as tools too."""
    if (known := _run_ids.get(id(usage))) is None:
        known = _run_ids[id(usage)] = f"openai-agents-{uuid4().hex}"
        weakref.finalize(usage, _run_ids.pop, id(usage), None)
    return known


def model_name(agent: Agent[Any] | None, config: RunConfig | None) -> str | None:
    model = (config.model if config else None) or (agent.model if agent else None)
    name = get_default_model() if model is None else getattr(model, "model", model)
    return name.removeprefix("litellm/") if isinstance(name, str) and name else None


def _spans(context: ToolContext[Any]) -> EventSink | None:
    """Events as spans of no length under the call's own, where the run is traced."""
    config, around = context.run_config, agents.get_current_span() or agents.get_current_trace()
    if around is None:
        return None
    with_words = config is None or config.trace_include_sensitive_data

    def sink(event: Event) -> None:
        said = progress.line(event if with_words else replace(event, text=""))
        data = {"kind": event.kind, "task_index": event.task_index}
        with agents.custom_span(said, data, parent=around):
            pass

    return sink


def _sdk_usage(usage: Usage) -> agents.Usage:
    return agents.Usage(
        requests=usage.model_calls,
        input_tokens=usage.input_tokens,
        input_tokens_details=InputTokensDetails(
            cached_tokens=usage.cached_tokens, cache_write_tokens=usage.cache_write_tokens
        ),
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.total_tokens,
    )

"""The tools, and what the SDK knows about each call of them."""

import weakref
from typing import Any, cast
from uuid import uuid4

import agents
from agents import Agent, FunctionTool, RunConfig
from agents.models import get_default_model
from agents.tool import FunctionToolCustomDataContext
from agents.tool_context import ToolContext
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from delegate.delegator import Delegator
from delegate.hosts import progress
from delegate.hosts.host_tool import HostTool, Invocation, ToolAnswer
from delegate.hosts.tool_functions import tool_functions
from delegate.types import JsonObject, Parent, Usage
from delegate.types.events import Event, EventSink

TIMEOUT_SHARE = 0.9
"""The share of the tool's `timeout_seconds` that children may use, so that their results arrive before the timeout."""


class DelegateTool(FunctionTool):
    """A tool of delegate's own. `child_tools` omits it: the depth limit decides whether a child may delegate."""


def _function_tool(host_tool: HostTool) -> FunctionTool:
    answers: weakref.WeakKeyDictionary[ToolContext[Any], ToolAnswer] = weakref.WeakKeyDictionary()

    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        parent = await _parent(context, host_tool.delegator)
        invocation = Invocation(parent=parent, on_event=_span_sink(context), native=context)
        answer = await host_tool.call(arguments, invocation)
        context.usage.add(_sdk_usage(answer.usage))
        answers[context] = answer
        return answer.text

    def result(call: FunctionToolCustomDataContext) -> JsonObject | None:
        answer = answers.pop(call.tool_context, None)
        return {"result": answer.structured} if answer and answer.result else None

    return DelegateTool(
        host_tool.name,
        host_tool.description,
        host_tool.parameters,
        invoke,
        strict_json_schema=False,  # strict mode has no optional fields, and its own errors explain less
        custom_data_extractor=result,
    )


tool, read_tool, think_tool, follow_up_tools = tool_functions(_function_tool)


# ------------------------------------------------------------------------------------ what the SDK knows about a call


async def _parent(context: ToolContext[Any], delegator: Delegator) -> Parent:
    agent = context.agent
    tools = agent.tools if agent else []
    if agent and delegator.child_tools is not None:
        tools = await agent.get_all_tools(context)  # includes tools of MCP servers, excludes disabled ones
    timeouts = [one.timeout_seconds for one in tools if isinstance(one, DelegateTool) and one.name == context.tool_name]
    timeout = timeouts[0] if timeouts else None
    return Parent(
        run_id=_run_id(context.usage),
        model=model_name(cast("Agent[Any]", agent) if isinstance(agent, Agent) else None, context.run_config),
        seconds_left=timeout and timeout * TIMEOUT_SHARE,
        tools=tuple(one.name for one in tools) if agent else None,
    )


_run_ids: dict[int, str] = {}


def _run_id(usage: agents.Usage) -> str:
    """A generated id for the run, recognized by the usage object that all its contexts and nested agents share."""
    if (run_id := _run_ids.get(id(usage))) is None:
        run_id = _run_ids[id(usage)] = f"openai-agents-{uuid4().hex}"
        weakref.finalize(usage, _run_ids.pop, id(usage), None)
    return run_id


def model_name(agent: Agent[Any] | None, config: RunConfig | None) -> str | None:
    """The model that an agent runs on: that of the run, of the agent, or the SDK's default."""
    model = (config.model if config else None) or (agent.model if agent else None)
    name = get_default_model() if model is None else getattr(model, "model", model)
    return name.removeprefix("litellm/") if isinstance(name, str) and name else None


def _span_sink(context: ToolContext[Any]) -> EventSink | None:
    """A sink that records events as zero-length spans under the call's span; None if the run isn't traced."""
    config, parent = context.run_config, agents.get_current_span() or agents.get_current_trace()
    if parent is None:
        return None

    def write(event: Event, line: str) -> None:
        data = {"kind": event.kind, "task_index": event.task_index}
        with agents.custom_span(line, data, parent=parent):
            pass

    return progress.news(write, content=config is None or config.trace_include_sensitive_data)


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

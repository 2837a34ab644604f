"""Adapter for Google's Agent Development Kit (`google-adk`): the tool as a `BaseTool`.

    from google.adk.agents import LlmAgent
    from delegate.hosts import google_adk

    agent = LlmAgent(name="lead", model="gemini-3.5-pro", tools=[google_adk.tool()])

A call is a node of the agent's run. Progress, and at the end the report (`custom_metadata`) and the tokens of children
and judges (`usage_metadata`), are partial events of the run with the author `delegate`. ADK keeps no totals: a program
that adds up the run's events counts these tokens. Partial events aren't stored in the session. An `abort_signal` stops
the children.

ADK doesn't tell tools about deadlines, and marks a failed call only by the key `error` in its response.

Tools given to children by `child_tools` learn their child's folder by `delegate.workspace()`.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Unpack
from uuid import uuid4

from google.adk.agents import LlmAgent
from google.adk.events.event import Event
from google.adk.flows.llm_flows.functions import handle_function_call_list_async
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import FunctionNode
from google.genai import types

from delegate.delegator import Delegator
from delegate.errors import ConfigError, ToolError
from delegate.events import EventSink
from delegate.hosts import declarations, progress
from delegate.hosts.host_tool import (
    HostTool,
    Invocation,
    ToolAnswer,
    approval_denied,
    make_delegate_tool,
    make_read_tool,
    make_think_tool,
    read_only_hint,
)
from delegate.hosts.stream import steps
from delegate.ports import Tool, ToolOutput
from delegate.settings import SettingsOptions
from delegate.types import JsonObject, Parent

_NODE = "delegate"
_parent_call: ContextVar[ToolContext] = ContextVar("delegate_adk_call")
"""The parent's call for which a child works. The child's tools run in the parent's run."""


def tool(
    delegator: Delegator | None = None, *, parent: Parent | None = None, **options: Unpack[SettingsOptions]
) -> BaseTool:
    """Create delegate_task for `LlmAgent(tools=[…])`. Without a delegator, one is created from `options` (settings).

    Raises:
        ConfigError: the settings are wrong.
    """
    return _DelegateTool(make_delegate_tool(delegator, parent=parent, **options))


def read_tool(delegator: Delegator) -> BaseTool:
    """Create the tool that reads the rest of a report that was cut."""
    return _DelegateTool(make_read_tool(delegator), run_context=False)


def think_tool(delegator: Delegator) -> BaseTool:
    """Create `think`, which returns a thought as a checklist of its criteria. No model is called."""
    return _DelegateTool(make_think_tool(delegator), run_context=False)


def child_tools(tools: Sequence[BaseTool | Callable[..., Any]]) -> list[Tool]:
    """Convert an agent's tools for `Delegator(tools=…)`. Delegate's own tools are omitted.

    A child's calls go through ADK's own pipeline in the parent's run, so the parent's callbacks and plugins see them. A
    tool that asks a person for confirmation is denied to children.

    Raises:
        ConfigError: a toolset was given, which only an agent can open: pass `await toolset.get_tools()`.
    """
    return [_child_tool(_as_tool(one)) for one in tools if not isinstance(one, _DelegateTool)]


class _DelegateTool(BaseTool):
    """A `HostTool` as an ADK tool. Without `run_context`, its calls don't belong to the run they are made in."""

    def __init__(self, host_tool: HostTool, *, run_context: bool = True) -> None:
        super().__init__(name=host_tool.name, description=host_tool.description)
        self._host_tool, self._run_context = host_tool, run_context

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._host_tool.parameters
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> JsonObject:
        with_tools = bool(self._host_tool.delegator.child_tools)
        parent = await _parent(tool_context, with_tools=with_tools) if self._run_context else Parent()
        answers: list[ToolAnswer] = []

        async def call(on_event: EventSink) -> ToolAnswer:
            _parent_call.set(tool_context)
            return await self._host_tool.call(args, Invocation(parent=parent, on_event=on_event))

        async def node() -> AsyncGenerator[Event]:
            async with aclosing(steps(call)) as stream:
                async for step in stream:
                    if isinstance(step, ToolAnswer):
                        answers.append(step)
                        yield _final_event(step)
                    else:
                        yield _partial_event(content=types.ModelContent(progress.line(step) + "\n"))

        # ADK may skip a node whose name and run id it has seen before, so each call gets an id of its own.
        await tool_context.run_node(FunctionNode(func=node, name=_NODE), run_id=f"call-{uuid4().hex}")
        (answer,) = answers
        return {"error" if answer.is_error else "result": answer.text}


def _final_event(answer: ToolAnswer) -> Event:
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=answer.usage.input_tokens,
        candidates_token_count=answer.usage.output_tokens,
        total_token_count=answer.usage.input_tokens + answer.usage.output_tokens,
    )
    return _partial_event(usage_metadata=usage, custom_metadata={"delegate": answer.structured})


def _partial_event(**fields: Any) -> Event:
    """An event of the run. If it weren't partial, it would look like the agent's final response."""
    return Event(partial=True, **fields)


async def _parent(context: ToolContext, *, with_tools: bool) -> Parent:
    agent = context.get_invocation_context().agent
    if not isinstance(agent, LlmAgent):
        return Parent(run_id=context.invocation_id)
    names = tuple(one.name for one in await agent.canonical_tools(context)) if with_tools else None
    return Parent(run_id=context.invocation_id, model=agent.canonical_model.model, tools=names)


# ------------------------------------------------------------------------------------------------ tools for children


def _as_tool(given: object) -> BaseTool:
    if isinstance(given, BaseTool):
        return given
    if callable(given):
        return FunctionTool(given)
    raise ConfigError(
        f"child_tools: {type(given).__name__} is neither a tool nor a function; "
        "for a toolset, pass the result of `await toolset.get_tools()`"
    )


def _child_tool(tool: BaseTool) -> Tool:
    declared = tool._get_declaration()  # pyright: ignore[reportPrivateUsage] — ADK documents it for overriding
    if declared is None:
        raise ConfigError(
            f"child_tools: {tool.name} has no declaration: it is built into the model, and children can't call it; "
            "remove it"
        )

    async def call(arguments: Mapping[str, Any]) -> ToolOutput:
        return await _call_native(tool, arguments)

    name, description = declared.name or tool.name, declared.description or tool.description
    annotations = getattr(getattr(tool, "raw_mcp_tool", None), "annotations", None)
    made = Tool(name, description, _parameters(declared), call, read_only=read_only_hint(annotations))
    return declarations.declared(made, annotations)


def _parameters(declared: types.FunctionDeclaration) -> JsonObject:
    if declared.parameters_json_schema is not None:
        return declared.parameters_json_schema
    if declared.parameters is not None:
        return declared.parameters.json_schema.model_dump(mode="json", exclude_none=True)
    return {"type": "object", "properties": {}}


async def _call_native(tool: BaseTool, arguments: Mapping[str, Any]) -> ToolOutput:
    """Call a parent's tool as ADK's own loop does, and apply its changes to the parent's session."""
    context = _parent_call.get(None)
    if context is None:
        raise ToolError(f"{tool.name} is available only in a run of its ADK agent: continue without it")
    function_call = types.FunctionCall(id=f"child-{uuid4().hex}", name=tool.name, args=dict(arguments))
    event = await handle_function_call_list_async(context.get_invocation_context(), [function_call], {tool.name: tool})
    responses = event.get_function_responses() if event else []
    if event is None or not responses:
        raise ToolError(f"{tool.name} returns its result later, and a child can't wait for it: continue without it")
    if event.actions.requested_tool_confirmations or event.actions.requested_auth_configs:
        raise approval_denied(tool.name)
    context.state.update(event.actions.state_delta)
    context.actions.artifact_delta.update(event.actions.artifact_delta)
    return _output(responses[0].response or {})


def _output(response: Mapping[str, Any]) -> ToolOutput:
    (only,) = response.values() if len(response) == 1 else (None,)
    text = only if isinstance(only, str) else json.dumps(response, ensure_ascii=False, default=str)
    return ToolOutput(text, "error" if "error" in response else "ok")

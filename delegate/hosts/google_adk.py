"""Google's Agent Development Kit (`google-adk`): the tool as a `BaseTool`.

    from google.adk.agents import LlmAgent
    from delegate.hosts import google_adk

    agent = LlmAgent(name="lead", model="gemini-3.5-pro", tools=[google_adk.tool()])

A call is a node of the agent's run. Its progress comes as partial events of the run by the author `delegate`, and at
its end so do the report (`custom_metadata`) and the tokens of children and judges (`usage_metadata`). ADK keeps no
totals: add up the events of the run to count the tokens. The events aren't stored in the session. An `abort_signal`
stops the children.

ADK has no deadline that a tool could see, and marks a failed call only by the key `error` of its response.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any
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
from delegate.errors import ConfigError, ToolDenied, ToolError
from delegate.hosts import progress
from delegate.hosts.host_tool import (
    HostTool,
    Invocation,
    ToolAnswer,
    make_delegate_tool,
    make_read_tool,
    make_think_tool,
)
from delegate.hosts.stream import steps
from delegate.ports import EventSink, Tool, ToolOutput
from delegate.types import JsonObject, Parent

_NODE = "delegate"
_call_of_parent: ContextVar[ToolContext] = ContextVar("delegate_adk_call")
"""The call that a child works for: its tools are called in the parent's run."""


def tool(delegator: Delegator | None = None, *, parent: Parent | None = None, **options: Any) -> BaseTool:
    """The tool for `LlmAgent(tools=[…])`. Without a delegator one is made with `options`.

    Raises:
        ConfigError: the settings are wrong.
    """
    return _Offered(make_delegate_tool(delegator, parent=parent, **options))


def read_tool(delegator: Delegator) -> BaseTool:
    """The second tool, which reads a report that was cut."""
    return _Offered(make_read_tool(delegator), by_run=False)


def think_tool(delegator: Delegator) -> BaseTool:
    """`think`: a thought held against its criteria, as a checklist. No model is asked."""
    return _Offered(make_think_tool(delegator), by_run=False)


def child_tools(tools: Sequence[BaseTool | Callable[..., Any]]) -> list[Tool]:
    """An agent's tools for `Delegator(tools=…)`, ours left out.

    A child's calls go through ADK's own pipeline, in the run of the parent: its callbacks and plugins see them. A tool
    that asks a person for confirmation is denied to children.

    Raises:
        ConfigError: there is a toolset, which only an agent can open: give `await toolset.get_tools()`.
    """
    return [_child_tool(_as_tool(one)) for one in tools if not isinstance(one, _Offered)]


class _Offered(BaseTool):
    """One of our tools, as ADK calls it. Not `by_run`, its calls aren't tied to the run in which they are made."""

    def __init__(self, host_tool: HostTool, *, by_run: bool = True) -> None:
        super().__init__(name=host_tool.name, description=host_tool.description)
        self._offer, self._by_run = host_tool, by_run

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._offer.parameters
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> JsonObject:
        with_tools = bool(self._offer.delegator.child_tools)
        parent = await _parent(tool_context, with_tools=with_tools) if self._by_run else Parent()
        answers: list[ToolAnswer] = []

        async def call(on_event: EventSink) -> ToolAnswer:
            _call_of_parent.set(tool_context)
            return await self._offer.call(args, Invocation(parent=parent, on_event=on_event))

        async def node() -> AsyncGenerator[Event]:
            async with aclosing(steps(call)) as happening:
                async for step in happening:
                    if isinstance(step, ToolAnswer):
                        answers.append(step)
                        yield _end(step)
                    else:
                        yield _partial(content=types.ModelContent(progress.line(step) + "\n"))

        # Each with an id of its own: of two nodes of one name and number, ADK may take the second for done.
        await tool_context.run_node(FunctionNode(func=node, name=_NODE), run_id=f"call-{uuid4().hex}")
        (answer,) = answers
        return {"error" if answer.is_error else "result": answer.text}


def _end(answer: ToolAnswer) -> Event:
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=answer.usage.input_tokens,
        candidates_token_count=answer.usage.output_tokens,
        total_token_count=answer.usage.input_tokens + answer.usage.output_tokens,
    )
    return _partial(usage_metadata=usage, custom_metadata={"delegate": answer.structured})


def _partial(**fields: Any) -> Event:
    """An event for whoever watches the run. One that isn't partial would look like the agent's final response."""
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
    raise ConfigError(f"{type(given).__name__} is neither a tool nor a function: give `await toolset.get_tools()`")


def _child_tool(tool: BaseTool) -> Tool:
    declared = tool._get_declaration()  # pyright: ignore[reportPrivateUsage] — it's what ADK documents to override
    if declared is None:
        raise ConfigError(f"{tool.name} has no declaration: it is the model provider's own, which children can't call")

    async def call(arguments: Mapping[str, Any]) -> ToolOutput:
        return await _called(tool, arguments)

    return Tool(declared.name or tool.name, declared.description or tool.description, _parameters(declared), call)


def _parameters(declared: types.FunctionDeclaration) -> JsonObject:
    if declared.parameters_json_schema is not None:
        return declared.parameters_json_schema
    if declared.parameters is not None:
        return declared.parameters.json_schema.model_dump(mode="json", exclude_none=True)
    return {"type": "object", "properties": {}}


async def _called(tool: BaseTool, arguments: Mapping[str, Any]) -> ToolOutput:
    """Call a parent's tool as ADK's own loop does, and keep what it changed in the session."""
    context = _call_of_parent.get(None)
    if context is None:
        raise ToolError(f"{tool.name} works only in a run of its ADK agent")
    wanted = types.FunctionCall(id=f"child-{uuid4().hex}", name=tool.name, args=dict(arguments))
    event = await handle_function_call_list_async(context.get_invocation_context(), [wanted], {tool.name: tool})
    responses = event.get_function_responses() if event else []
    if event is None or not responses:
        raise ToolError(f"{tool.name} gives its result later, and a child can't wait for that")
    if event.actions.requested_tool_confirmations or event.actions.requested_auth_configs:
        raise ToolDenied(f"{tool.name} needs a person's word, which a child can't ask for")
    context.state.update(event.actions.state_delta)
    context.actions.artifact_delta.update(event.actions.artifact_delta)
    return _output(responses[0].response or {})


def _output(response: Mapping[str, Any]) -> ToolOutput:
    (only,) = response.values() if len(response) == 1 else (None,)
    text = only if isinstance(only, str) else json.dumps(response, ensure_ascii=False, default=str)
    return ToolOutput(text, "error" if "error" in response else "ok")

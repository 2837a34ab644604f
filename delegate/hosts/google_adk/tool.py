"""The tools, and what ADK knows about each call of them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from google.adk.agents import LlmAgent
from google.adk.events.event import Event
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import FunctionNode
from google.genai import types

from delegate.hosts import progress
from delegate.hosts.host_tool import HostTool, Invocation, ToolAnswer
from delegate.hosts.stream import steps
from delegate.hosts.tool_functions import tool_functions
from delegate.types import JsonObject, Parent
from delegate.types.events import Event as DelegateEvent
from delegate.types.events import EventSink


class DelegateTool(BaseTool):
    """A `HostTool` as an ADK tool."""

    def __init__(self, host_tool: HostTool) -> None:
        super().__init__(name=host_tool.name, description=host_tool.description)
        self._host_tool = host_tool

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._host_tool.parameters
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> JsonObject:
        parent = await _parent(tool_context, with_tools=bool(self._host_tool.delegator.child_tools))
        answers: list[ToolAnswer] = []

        async def call(on_event: EventSink) -> ToolAnswer:
            invocation = Invocation(parent=parent, on_event=on_event, native=tool_context)
            return await self._host_tool.call(args, invocation)

        async def node() -> AsyncGenerator[Event]:
            async with aclosing(steps(call)) as stream:
                async for step in stream:
                    if isinstance(step, ToolAnswer):
                        answers.append(step)
                    yield _event(step)

        # ADK may skip a node whose name and run id it has seen before, so each call gets an id of its own.
        await tool_context.run_node(FunctionNode(func=node, name="delegate"), run_id=f"call-{uuid4().hex}")
        (answer,) = answers
        return {"error" if answer.is_error else "result": answer.text}


tool, read_tool, think_tool, follow_up_tools = tool_functions(DelegateTool)


def _event(step: DelegateEvent | ToolAnswer) -> Event:
    """An event of the run. If it weren't partial, it would look like the agent's final response."""
    if not isinstance(step, ToolAnswer):
        return Event(partial=True, content=types.ModelContent(progress.line(step) + "\n"))
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=step.usage.input_tokens,
        candidates_token_count=step.usage.output_tokens,
        total_token_count=step.usage.input_tokens + step.usage.output_tokens,
    )
    return Event(partial=True, usage_metadata=usage, custom_metadata={"delegate": step.structured})


async def _parent(context: ToolContext, *, with_tools: bool) -> Parent:
    agent = context.get_invocation_context().agent
    if not isinstance(agent, LlmAgent):
        return Parent(run_id=context.invocation_id)
    names = tuple(one.name for one in await agent.canonical_tools(context)) if with_tools else None
    return Parent(run_id=context.invocation_id, model=agent.canonical_model.model, tools=names)

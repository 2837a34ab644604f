"""Adapter for smolagents: the tool as a `Tool`, for agents that call tools and for agents that write code.

    from smolagents import ToolCallingAgent
    from delegate.hosts import smolagents

    agent = ToolCallingAgent(tools=[smolagents.tool()], model=model)
    smolagents.attach(agent)

smolagents tells a tool nothing about the agent that calls it; `attach` does. With an attached agent,
`agent.interrupt()` stops the children, calls of one run share a ledger, progress is written to the agent's log, tokens
of children and judges are added to its monitor and steps, and children and judges stay within the tier of its model. In
code, the result is a string with the run's result as `.run`.

smolagents has no deadline for a run and no mark for a failed call: raising an error would discard the results of the
other calls of the step. smolagents itself refuses arguments that aren't a JSON object.

Tools given to children by `child_tools` learn their child's folder by `delegate.workspace()`.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# smolagents has few type hints.

import asyncio
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self
from uuid import uuid4

from rich.text import Text
from smolagents import ActionStep, FinalAnswerTool, LogLevel, MultiStepAgent, TaskStep, TokenUsage
from smolagents import Tool as SmolTool
from smolagents.models import get_tool_json_schema
from smolagents.tools import validate_tool_arguments

from delegate.hosts import progress
from delegate.hosts.host_tool import HostTool, Invocation, ToolAnswer
from delegate.hosts.tool_functions import tool_functions
from delegate.types import JsonObject, Parent, Usage
from delegate.types.errors import ToolError
from delegate.types.ports import Tool

__all__ = ["DelegationResult", "attach", "child_tools", "follow_up_tools", "read_tool", "think_tool", "tool"]


def attach(agent: MultiStepAgent) -> None:
    """Tell delegate's tools of `agent` which agent they belong to. Call it once, after the agent is created."""
    attached = _AttachedAgent(agent)
    agent.step_callbacks.register(ActionStep, attached.add_step_usage)
    for one in agent.tools.values():
        if isinstance(one, _DelegateTool):
            one.attached = attached


def child_tools(tools: Sequence[SmolTool]) -> list[Tool]:
    """Convert an agent's tools for `Delegator(tools=…)`. Delegate's own tools and `final_answer` are omitted.

    Tools run in threads, so a call can't be stopped with its child.
    """
    native = [one for one in tools if not isinstance(one, _DelegateTool | FinalAnswerTool)]
    declared = [(one, get_tool_json_schema(one)["function"]) for one in native]
    return [
        Tool(about["name"], about["description"], about["parameters"], partial(_call_native, one))
        for one, about in declared
    ]


class DelegationResult(str):
    """The text for the parent's model, with the run's result for code."""

    run: JsonObject | None

    def __new__(cls, answer: ToolAnswer) -> Self:
        result = super().__new__(cls, answer.text)
        result.run = answer.structured
        return result


class _Inputs(dict[str, JsonObject]):
    """Shows the arguments to a model but accepts any, so that delegate validates them and not smolagents."""

    def __contains__(self, name: object) -> bool:
        return True

    def __getitem__(self, name: str) -> JsonObject:
        return {"type": "any"}


class _DelegateTool(SmolTool):
    """A `HostTool` as a smolagents tool."""

    skip_forward_signature_validation = True
    output_type = "string"

    def __init__(self, host_tool: HostTool) -> None:
        self.name = host_tool.name
        self.description = host_tool.description
        required = host_tool.parameters.get("required", [])
        self.inputs = _Inputs(  # pyright: ignore[reportAttributeAccessIssue] — narrower than it takes
            (name, {"description": "", **schema, **({} if name in required else {"nullable": True})})
            for name, schema in host_tool.parameters["properties"].items()
        )
        self.attached: _AttachedAgent | None = None
        self._host_tool = host_tool
        super().__init__()

    def forward(self, **arguments: Any) -> DelegationResult:
        if self.attached is None:
            return DelegationResult(self._host_tool.call_sync(arguments, Invocation(session=self)))
        agent = self.attached.agent
        on_event = progress.lines(lambda line: agent.logger.log(Text(line), level=LogLevel.INFO))
        invocation = Invocation(parent=self.attached.parent(), on_event=on_event)
        answer = self._host_tool.call_sync(arguments, invocation, stopped=lambda: agent.interrupt_switch)
        self.attached.add_usage(answer.usage)
        return DelegationResult(answer)


tool, read_tool, think_tool, follow_up_tools = tool_functions(_DelegateTool)


class _AttachedAgent:
    """The agent that calls the tools."""

    def __init__(self, agent: MultiStepAgent) -> None:
        self.agent = agent
        self._lock = threading.Lock()
        self._step_usage = Usage()
        """Of children and judges, in the step that is running."""
        self._run: tuple[TaskStep | None, str] = (None, "")

    def parent(self) -> Parent:
        """The agent, with a generated id for its run, which starts with the last `TaskStep`: it has no ids."""
        task_step = next((step for step in reversed(self.agent.memory.steps) if isinstance(step, TaskStep)), None)
        with self._lock:
            if self._run[0] is not task_step:
                self._run = task_step, f"smolagents-{uuid4().hex}"
            run_id = self._run[1] or None
        model = getattr(self.agent.model, "model_id", None)
        return Parent(run_id=run_id, model=model, tools=tuple(self.agent.tools))

    def add_usage(self, usage: Usage) -> None:
        with self._lock:
            self._step_usage += usage

    def add_step_usage(self, step: ActionStep) -> None:
        """Add the children's tokens to a finished step, which the agent's monitor has counted without them."""
        with self._lock:
            used, self._step_usage = self._step_usage, Usage()
        own = step.token_usage or TokenUsage(0, 0)
        step.token_usage = TokenUsage(own.input_tokens + used.input_tokens, own.output_tokens + used.output_tokens)
        self.agent.monitor.total_input_token_count += used.input_tokens
        self.agent.monitor.total_output_token_count += used.output_tokens


# ------------------------------------------------------------------------------------------------ tools for children


async def _call_native(tool: SmolTool, arguments: Mapping[str, Any]) -> str:
    """Call a parent's tool as the parent's own loop does."""
    inputs = dict(arguments)
    try:
        validate_tool_arguments(tool, inputs)
    except (TypeError, ValueError) as problem:
        raise ToolError(str(problem)) from problem
    return str(await asyncio.to_thread(tool, sanitize_inputs_outputs=True, **inputs))

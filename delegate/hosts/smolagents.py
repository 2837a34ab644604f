"""smolagents: the tool as a `Tool`, for agents that call tools and for those that write code.

    from smolagents import ToolCallingAgent
    from delegate.hosts import smolagents

    agent = ToolCallingAgent(tools=[smolagents.tool()], model=model)
    smolagents.attach(agent)

smolagents tells a tool nothing about the agent that calls it; `attach` does. Then `agent.interrupt()` stops the
children, calls of one run share a ledger, progress is written to the agent's log, tokens of children and judges count
in its monitor and steps, and its model is the ceiling for theirs. For agents that write code, the result is a string
with the report as its attribute `report`.

smolagents has no deadline for a run. A failed call isn't marked: an exception would lose the results of the other calls
of the turn. smolagents itself refuses arguments that aren't a JSON object.
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

from delegate.delegator import Delegator
from delegate.errors import ToolError
from delegate.hosts import progress
from delegate.hosts.host_tool import (
    HostTool,
    Invocation,
    ToolAnswer,
    make_delegate_tool,
    make_read_tool,
    make_think_tool,
)
from delegate.ports import Event, Tool
from delegate.types import JsonObject, Parent, Usage


def tool(delegator: Delegator | None = None, *, parent: Parent | None = None, **options: Any) -> SmolTool:
    """The tool for an agent's `tools`. Without a delegator one is made with `options`.

    Raises:
        ConfigError: the settings are wrong.
    """
    return _Offered(make_delegate_tool(delegator, parent=parent, **options))


def read_tool(delegator: Delegator) -> SmolTool:
    """The second tool, which reads a report that was cut."""
    return _Offered(make_read_tool(delegator), by_run=False)


def think_tool(delegator: Delegator) -> SmolTool:
    """`think`: a thought held against its criteria, as a checklist. No model is asked."""
    return _Offered(make_think_tool(delegator), by_run=False)


def attach(agent: MultiStepAgent) -> None:
    """Tell our tools of `agent` whom they work for. Once per agent, when it has been made."""
    attached = _Attached(agent)
    agent.step_callbacks.register(ActionStep, attached.settle)
    for one in agent.tools.values():
        if isinstance(one, _Offered) and one.by_run:
            one.attached = attached


def child_tools(tools: Sequence[SmolTool]) -> list[Tool]:
    """An agent's tools for `Delegator(tools=…)`, ours and `final_answer` left out.

    They work in threads: a call that is under way can't be stopped with its child.
    """
    return [_child_tool(one) for one in tools if not isinstance(one, _Offered | FinalAnswerTool)]


class DelegationResult(str):
    """What the parent's model reads. In code it also has the report."""

    report: JsonObject | None

    def __new__(cls, answer: ToolAnswer) -> Self:
        result = super().__new__(cls, answer.text)
        result.report = answer.structured
        return result


class _Inputs(dict[str, JsonObject]):
    """Tells a model what the arguments are, and lets any be given: what is let through is decided by us."""

    def __contains__(self, name: object) -> bool:
        return True

    def __getitem__(self, name: str) -> JsonObject:
        return {"type": "any"}


class _Offered(SmolTool):
    """One of our tools, as smolagents calls it. Not `by_run`, its calls aren't tied to the run they are made in."""

    skip_forward_signature_validation = True
    output_type = "string"

    def __init__(self, host_tool: HostTool, *, by_run: bool = True) -> None:
        self.name = host_tool.name
        self.description = host_tool.description
        self.inputs = _inputs(host_tool.parameters)  # pyright: ignore[reportAttributeAccessIssue] — narrower than it takes
        self.by_run = by_run
        self.attached: _Attached | None = None
        self._offer = host_tool
        super().__init__()

    def forward(self, **arguments: Any) -> DelegationResult:
        if self.attached is None:
            return DelegationResult(self._offer.call_sync(arguments, Invocation(session=self)))
        known = Invocation(parent=self.attached.parent(), on_event=self.attached.log)
        answer = self._offer.call_sync(arguments, known, stopped=self.attached.stopped)
        self.attached.spend(answer.usage)
        return DelegationResult(answer)


def _inputs(parameters: JsonObject) -> _Inputs:
    needed = parameters.get("required", [])
    return _Inputs(
        (name, {"description": "", **schema, **({} if name in needed else {"nullable": True})})
        for name, schema in parameters["properties"].items()
    )


class _Attached:
    """The agent that our tools work for."""

    def __init__(self, agent: MultiStepAgent) -> None:
        self._agent = agent
        self._lock = threading.Lock()
        self._spent = Usage()
        self._run: tuple[TaskStep | None, str] = (None, "")

    def parent(self) -> Parent:
        model = getattr(self._agent.model, "model_id", None)
        return Parent(run_id=self._run_id(), model=model, tools=tuple(self._agent.tools))

    def stopped(self) -> bool:
        return self._agent.interrupt_switch

    def log(self, event: Event) -> None:
        self._agent.logger.log(Text(progress.line(event)), level=LogLevel.INFO)

    def spend(self, usage: Usage) -> None:
        with self._lock:
            self._spent += usage

    def settle(self, step: ActionStep) -> None:
        """Count what was spent in a step that has ended; the agent's monitor has counted it without."""
        with self._lock:
            spent, self._spent = self._spent, Usage()
        own = step.token_usage or TokenUsage(0, 0)
        step.token_usage = TokenUsage(own.input_tokens + spent.input_tokens, own.output_tokens + spent.output_tokens)
        self._agent.monitor.total_input_token_count += spent.input_tokens
        self._agent.monitor.total_output_token_count += spent.output_tokens

    def _run_id(self) -> str | None:
        """A run begins with a step that says its task. It has no id, so it gets one."""
        begun = next((step for step in reversed(self._agent.memory.steps) if isinstance(step, TaskStep)), None)
        with self._lock:
            if self._run[0] is not begun:
                self._run = begun, f"smolagents-{uuid4().hex}"
            return self._run[1] or None


# ------------------------------------------------------------------------------------------------ tools for children


def _child_tool(tool: SmolTool) -> Tool:
    declared = get_tool_json_schema(tool)["function"]
    return Tool(declared["name"], declared["description"], declared["parameters"], partial(_called, tool))


async def _called(tool: SmolTool, arguments: Mapping[str, Any]) -> str:
    """Call a parent's tool as the parent's own loop does."""
    given = dict(arguments)
    try:
        validate_tool_arguments(tool, given)
    except (TypeError, ValueError) as problem:
        raise ToolError(str(problem)) from problem
    return str(await asyncio.to_thread(tool, sanitize_inputs_outputs=True, **given))

"""The tool, and what the framework knows of a call of it."""

import json
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, cast

import pydantic_ai
from pydantic_ai import CustomEvent, RunContext, ToolReturn
from pydantic_ai.exceptions import (
    UserError,
)
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RunUsage
from pydantic_core import SchemaValidator, core_schema

from delegate import Delegator
from delegate.delegator import Arguments
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
from delegate.ports import Event
from delegate.types import JsonObject, Parent

TIME_SHARE = 0.9
"""Of the run's remaining time for the children, so that the parent can still use what they bring."""

parent_context: ContextVar[RunContext[Any] | None] = ContextVar("delegate_pydantic_ai_asking", default=None)
"""The call under which children work: their tools get its run's dependencies."""


@dataclass(repr=False, kw_only=True)
class ChildProgressEvent(CustomEvent, name="delegate_child_progress"):
    """Something that happened to one child."""

    kind: str
    task_index: int
    text: str
    """In one line."""


class OwnTool(pydantic_ai.Tool[Any]):
    """Never a child's: what a child may delegate is decided by the depth."""


def tool(delegator: Delegator | None = None, *, parent: Parent | None = None, **options: Any) -> pydantic_ai.Tool[Any]:
    """The tool, for an agent's `tools`. `options` are settings, where no delegator is given; see `delegate_tool`.

    Raises:
        ConfigError: the settings are wrong.
    """
    return _framework_tool(make_delegate_tool(delegator, parent=parent, **options))


def read_tool(delegator: Delegator) -> pydantic_ai.Tool[Any]:
    """The second tool, which reads a report that was cut."""
    return _framework_tool(make_read_tool(delegator), by_run=False)


def think_tool(delegator: Delegator) -> pydantic_ai.Tool[Any]:
    """The scratchpad."""
    return _framework_tool(make_think_tool(delegator), by_run=False)


def _framework_tool(host_tool: HostTool, *, by_run: bool = True) -> pydantic_ai.Tool[Any]:
    """An offer as the framework's tool. Not `by_run`, the call isn't tied to the run in which it is made."""

    async def call(context: RunContext[Any], /, **arguments: Any) -> ToolReturn[str]:
        asking = parent_context.set(context)
        try:
            known = Invocation(parent=_parent(context), session=object()) if by_run else Invocation()
            given = arguments.get(_NOT_AN_OBJECT, arguments)
            answer = await _watched(host_tool, given, known, context)
        finally:
            parent_context.reset(asking)
        context.usage.incr(_run_usage(answer))
        return ToolReturn(answer.text, metadata=answer.structured)

    tool = OwnTool.from_schema(call, host_tool.name, host_tool.description, host_tool.parameters, takes_ctx=True)
    tool.function_schema.validator = _UNTOUCHED
    return tool


_NOT_AN_OBJECT = "<not an object>"


def _as_keywords(given: object) -> JsonObject:
    """Arguments as the framework can call with them; what isn't an object is refused by us."""
    return cast("JsonObject", given) if isinstance(given, dict) else {_NOT_AN_OBJECT: json.dumps(given)}


_UNTOUCHED = SchemaValidator(core_schema.no_info_plain_validator_function(_as_keywords))


async def _watched(
    host_tool: HostTool, arguments: Arguments, known: Invocation, context: RunContext[Any]
) -> ToolAnswer:
    """The answer, and what happens until then as events of the run."""
    async with aclosing(steps(lambda sink: host_tool.call(arguments, replace(known, on_event=sink)))) as parts:
        async for part in parts:
            if isinstance(part, ToolAnswer):
                return part
            await _emit(context, part)
    raise AssertionError("a call ends with its answer")


async def _emit(context: RunContext[Any], event: Event) -> None:
    said = ChildProgressEvent(kind=event.kind, task_index=event.task_index, text=progress.line(event))
    try:
        await context.emit(said)
    except UserError:  # a context that was made by hand has nobody who listens
        return


# ------------------------------------------------------------------------------------------ what the framework knows


def _parent(context: RunContext[Any]) -> Parent:
    left = context.remaining_time()
    return Parent(
        run_id=context.run_id or None,
        model=_model_name(context),
        seconds_left=None if left is None else max(0.0, left * TIME_SHARE),
        tools=tuple(context.tools) or None,
    )


def _model_name(context: RunContext[Any]) -> str | None:
    """The model that wrote the last response, under the name that its provider gave."""
    last = next((one for one in reversed(context.messages) if isinstance(one, ModelResponse)), None)
    return (last and last.model_name) or None


def _run_usage(answer: ToolAnswer) -> RunUsage:
    usage, cost = answer.usage, answer.report.totals.cost_usd if answer.report else None
    return RunUsage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        output_reasoning_tokens=usage.reasoning_tokens,
        details={"delegated_requests": usage.model_calls} if usage.model_calls else {},
        cost=Decimal(str(cost)) if cost else None,
    )

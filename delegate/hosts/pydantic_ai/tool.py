"""The tools, and what Pydantic AI knows about each call of them."""

import json
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, cast

import pydantic_ai
from pydantic_ai import CustomEvent, RunContext, ToolReturn
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RunUsage
from pydantic_core import SchemaValidator, core_schema

from delegate.contract import Arguments
from delegate.hosts import progress
from delegate.hosts.host_tool import HostTool, Invocation, ToolAnswer
from delegate.hosts.stream import steps
from delegate.hosts.tool_functions import tool_functions
from delegate.types import JsonObject, Parent

TIME_SHARE = 0.9
"""The share of the run's remaining time that children may use, so that the parent can still read their results."""


@dataclass(repr=False, kw_only=True)
class ChildProgressEvent(CustomEvent, name="delegate_child_progress"):
    """Progress of one child."""

    kind: str
    task_index: int | None
    text: str
    """One line, such as `task 0 used read_file`."""


class DelegateTool(pydantic_ai.Tool[Any]):
    """A tool of delegate's own. `child_tools` omits it: the depth limit decides whether a child may delegate."""


def _framework_tool(host_tool: HostTool) -> pydantic_ai.Tool[Any]:
    async def call(context: RunContext[Any], /, **arguments: Any) -> ToolReturn[str]:
        answer = await _call_with_progress(host_tool, arguments.get(_NOT_AN_OBJECT, arguments), context)
        context.usage.incr(_run_usage(answer))
        return ToolReturn(answer.text, metadata=answer.structured)

    tool = DelegateTool.from_schema(call, host_tool.name, host_tool.description, host_tool.parameters, takes_ctx=True)
    tool.function_schema.validator = _ANY_ARGUMENTS
    return tool


tool, read_tool, think_tool, follow_up_tools = tool_functions(_framework_tool)
_NOT_AN_OBJECT = "<not an object>"


def _as_keywords(arguments: object) -> JsonObject:
    """Arguments as keywords. Anything but an object is passed on as JSON text, so that delegate can refuse it."""
    return cast("JsonObject", arguments) if isinstance(arguments, dict) else {_NOT_AN_OBJECT: json.dumps(arguments)}


_ANY_ARGUMENTS = SchemaValidator(core_schema.no_info_plain_validator_function(_as_keywords))


async def _call_with_progress(host_tool: HostTool, arguments: Arguments, context: RunContext[Any]) -> ToolAnswer:
    """Answer the call, and emit its progress as events of the run."""
    invocation = Invocation(parent=_parent(context), session=object(), native=context)
    async with aclosing(steps(lambda sink: host_tool.call(arguments, replace(invocation, on_event=sink)))) as stream:
        async for step in stream:
            if isinstance(step, ToolAnswer):
                return step
            event = ChildProgressEvent(kind=step.kind, task_index=step.task_index, text=progress.line(step))
            with suppress(UserError):  # a context that was created by hand has no event stream
                await context.emit(event)
    raise AssertionError("the stream of a call ended without its answer")


# ----------------------------------------------------------------------------- what Pydantic AI knows about a call


def _parent(context: RunContext[Any]) -> Parent:
    left = context.remaining_time()
    last = next((one for one in reversed(context.messages) if isinstance(one, ModelResponse)), None)
    return Parent(
        run_id=context.run_id or None,
        model=(last and last.model_name) or None,  # by the name in the provider's response
        seconds_left=None if left is None else max(0.0, left * TIME_SHARE),
        tools=tuple(context.tools) or None,
    )


def _run_usage(answer: ToolAnswer) -> RunUsage:
    usage, cost = answer.usage, answer.result.totals.cost_usd if answer.result else None
    return RunUsage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        output_reasoning_tokens=usage.reasoning_tokens,
        details={"delegated_requests": usage.model_calls} if usage.model_calls else {},
        cost=Decimal(str(cost)) if cost else None,
    )

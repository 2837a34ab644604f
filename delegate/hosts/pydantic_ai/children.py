"""Converts Pydantic AI tools for children, and runs children as agents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import uuid4

import pydantic_ai
from pydantic import TypeAdapter, ValidationError
from pydantic_ai import FunctionToolset, RunContext, ToolReturn
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, WrapToolExecuteHandler
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    UsageLimitExceeded,
)
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDefinition
from pydantic_ai.usage import RunUsage, UsageLimits

from delegate.child.job import ChildRunner, Job
from delegate.codes import ChildCode
from delegate.errors import ConfigError, ToolDenied, ToolError
from delegate.hosts.declarations import declared
from delegate.hosts.host_tool import approval_denied, read_only_hint
from delegate.hosts.pydantic_ai.tool import DelegateTool, parent_context
from delegate.ports import Tool, ToolOutput
from delegate.types import ChildRun, ErrorDetail, JsonObject, Usage


@dataclass(frozen=True, slots=True)
class _NativeTool(Tool):
    """A converted tool that still has its Pydantic AI form."""

    native: pydantic_ai.Tool[Any] = field(kw_only=True)


def child_tools(tools: Sequence[pydantic_ai.Tool[Any] | Callable[..., Any]]) -> list[Tool]:
    """Convert an agent's tools for `Delegator(tools=…)`. They get the dependencies of the run that delegates.

    Delegate's own tools are omitted. A tool that needs an approval, or that is executed outside of the run, is denied
    to children, since no person is available. Pass the tools of toolsets and capabilities one by one.
    """
    return [_child_tool(_as_tool(one)) for one in tools if not isinstance(one, DelegateTool)]


def _as_tool(tool: pydantic_ai.Tool[Any] | Callable[..., Any]) -> pydantic_ai.Tool[Any]:
    return cast("pydantic_ai.Tool[Any]", tool) if isinstance(tool, pydantic_ai.Tool) else pydantic_ai.Tool(tool)


def _child_tool(native: pydantic_ai.Tool[Any]) -> Tool:
    toolset = FunctionToolset[Any]([native])

    async def call(arguments: Mapping[str, Any]) -> ToolOutput:
        if (parent := parent_context.get()) is None:
            raise ToolError(f"{native.name} is available only in a run of its agent: continue without it")
        context = replace(parent, usage=(used := RunUsage()), retries={})
        manager = await ToolManager[Any](toolset).for_run_step(context)
        tool_call = ToolCallPart(native.name, dict(arguments), f"call_{uuid4().hex}")
        try:
            answer = await manager.handle_call(tool_call, wrap_validation_errors=False)
        except (ModelRetry, ToolFailed, ValidationError) as error:
            raise ToolError(str(error)) from None
        except (ApprovalRequired, CallDeferred):
            raise approval_denied(native.name) from None
        finally:
            parent.usage.incr(replace(used, tool_calls=0))  # the tool's usage, but the call itself isn't the parent's
        return _output(native.name, answer)

    definition = native.tool_def
    annotations = (definition.metadata or {}).get("annotations")
    made = _NativeTool(
        native.name,
        native.description or "",
        definition.parameters_json_schema,
        call,
        parallel=not definition.sequential,
        read_only=read_only_hint(annotations),
        native=native,
    )
    return declared(made, annotations)


def _output(name: str, answer: object) -> ToolOutput:
    """What a tool returned, as the text that the framework shows to a model."""
    if isinstance(answer, pydantic_ai.ToolDenied):
        return ToolOutput(answer.message, "denied")
    value: Any = cast("ToolReturn[Any]", answer).return_value if isinstance(answer, ToolReturn) else answer
    return ToolOutput(ToolReturnPart(name, value, "").model_response_str())


# ----------------------------------------------------------------------------------------- children that are agents


def runner(agent: AbstractAgent[Any, Any], *, deps: Any = None) -> ChildRunner:
    """Run children as Pydantic AI agents, for `Delegator(runner=…)`. Each is a run of `agent`, with the job's tools.

    These are the Pydantic AI tools given as `Delegator(tools=child_tools(…))`, or otherwise delegate's built-in tools,
    which work in the child's workspace. `deps` defaults to the dependencies of the run that delegates. A tool that
    needs an approval is denied.

    The agent chooses its model: the parent's tier isn't enforced. The cost is the framework's estimate.

    Raises:
        ConfigError: the agent has tools or toolsets of its own, which a task couldn't restrict.
    """
    if any(not isinstance(one, FunctionToolset) or one.tools for one in agent.toolsets):
        raise ConfigError(
            f"runner: the child's agent {agent.name or ''!r} has tools of its own; "
            "remove them and pass them as Delegator(tools=child_tools(…))"
        )
    return _AgentRunner(agent, deps)


@dataclass(frozen=True, slots=True)
class _AgentRunner:
    agent: AbstractAgent[Any, Any]
    deps: Any
    needs_model = False
    records_tools = True

    async def run(self, job: Job) -> ChildRun:
        parent = parent_context.get()
        deps = self.deps if self.deps is not None or parent is None else parent.deps
        toolset = FunctionToolset[Any]([_framework_tool(one) for one in job.tools])
        try:
            result = await self.agent.run(
                job.prompt,
                deps=deps,
                toolsets=[toolset],
                capabilities=[_ChildRecorder(job)],
                usage_limits=UsageLimits(request_limit=job.max_steps),
            )
        except UsageLimitExceeded as error:
            return job.recorder.finish("max_steps", error=ErrorDetail(code="max_steps", message=str(error)))
        output = _as_text(result.output)
        if (code := _FAILURES.get(result.response.finish_reason or "")) is not None:
            message = f"the model's last message has the finish reason {result.response.finish_reason}"
            return job.recorder.finish("failed", output=output, error=ErrorDetail(code=code, message=message))
        return job.recorder.finish("completed", output=output)


_FAILURES: Mapping[str, ChildCode] = {"length": "truncated", "content_filter": "refused", "error": "unexpected_stop"}
"""The error code for each finish reason that isn't a clean end."""


def _as_text(output: object) -> str:
    """An agent's output, which may have any type; everything but a string becomes JSON."""
    return output if isinstance(output, str) else TypeAdapter[Any](type(output)).dump_json(output, indent=1).decode()


class _Denied(ToolFailed):
    """A tool of the job denied the call."""


def _framework_tool(tool: Tool) -> pydantic_ai.Tool[Any]:
    """A tool of the job as a Pydantic AI tool."""
    if isinstance(tool, _NativeTool):
        return tool.native

    async def call(**arguments: Any) -> ToolReturn[str]:
        try:
            answer = await tool.call(arguments)
        except ToolDenied as error:
            raise _Denied(str(error)) from None
        except ToolError as error:
            raise ToolFailed(str(error)) from None
        except Exception as error:  # the child reads it and continues, as in delegate's own loop
            raise ToolFailed(f"{tool.name} failed: {type(error).__name__}: {error}") from None
        output = answer if isinstance(answer, ToolOutput) else ToolOutput(answer)
        return ToolReturn(output.text, metadata=output)

    return pydantic_ai.Tool[Any].from_schema(
        call, tool.name, tool.description, tool.parameters, sequential=not tool.parallel
    )


class _ChildRecorder(AbstractCapability[Any]):
    """Records the model calls and tool calls of one child, and offers it only the tools of its job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._tools = {tool.name for tool in job.tools}

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        return [one for one in tool_defs if one.name in self._tools]

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self._job.ledger.reserve({"model_calls": 1, "tokens": 1}).settle({})  # raises if the budget is used up
        return request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        used = response.usage
        usage = Usage(
            model_calls=1,
            input_tokens=used.input_tokens,
            cached_tokens=used.cache_read_tokens,
            cache_write_tokens=used.cache_write_tokens,
            output_tokens=used.output_tokens,
            reasoning_tokens=used.output_reasoning_tokens,
        )
        cost = None if used.cost is None else float(used.cost)
        self._job.record_usage(usage, cost, provenance="estimated", model=response.model_name, text=response.text or "")
        return response

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: JsonObject,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        with self._job.tool_call(call.tool_name, args) as receipt:
            try:
                answer = await handler(args)
            except Exception as error:
                receipt.output = _failure(call.tool_name, error)
                raise
            metadata = getattr(answer, "metadata", None)  # of a tool of the job: its `ToolOutput`
            receipt.output = metadata if isinstance(metadata, ToolOutput) else _output(call.tool_name, answer)
        return answer

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        def message(call: ToolCallPart) -> str:
            return str(approval_denied(call.tool_name))

        return requests.build_results(
            approvals={one.tool_call_id: pydantic_ai.ToolDenied(message(one)) for one in requests.approvals},
            calls={one.tool_call_id: ToolFailed(message(one)) for one in requests.calls},
        )


def _failure(name: str, error: Exception) -> ToolOutput:
    if isinstance(error, (ApprovalRequired, CallDeferred)):
        return ToolOutput(str(approval_denied(name)), "denied")
    denied = isinstance(error, _Denied) or isinstance(error.__cause__, _Denied)
    return ToolOutput(str(error), "denied" if denied else "error")

"""Converts Pydantic AI tools for children, and runs children as agents."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import uuid4

import pydantic_ai
from pydantic import ValidationError
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
from pydantic_ai.usage import RunUsage, UsageBase, UsageLimits

from delegate.child.job import ChildRunner, Job, call_tool
from delegate.codes import ChildCode
from delegate.errors import ConfigError, ToolError
from delegate.hosts.declarations import declared
from delegate.hosts.host_tool import approval_denied, read_only_hint
from delegate.hosts.own_agents import as_report, calls_besides, failed, refuse_tools_of_task, too_many_turns
from delegate.hosts.pydantic_ai.tool import DelegateTool, parent_context
from delegate.ports import Tool, ToolOutput
from delegate.types import ChildRun, JsonObject, Usage


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
        ConfigError: the agent has tools or toolsets of its own, which a task couldn't restrict: see `child`.
    """
    if any(not isinstance(one, FunctionToolset) or one.tools for one in agent.toolsets):
        raise ConfigError(
            f"runner: the child's agent {agent.name or ''!r} has tools of its own; use `child(agent)` to run it with "
            "them, or remove them and pass them as Delegator(tools=child_tools(…))"
        )
    return _AgentRunner(agent, deps)


def child(
    agent: AbstractAgent[Any, Any], *, deps: Any = None, make_deps: Callable[[Job], Any] | None = None
) -> ChildRunner:
    """Run each child as this agent as it is, for `Delegator(runner=…)`: with its own tools and toolsets.

    Delegate adds no tools, and a task that sets `tools` is refused, since it couldn't restrict the agent's. Every call
    of a tool that runs here, or on an MCP server, gets a receipt. What the model's provider runs itself, such as its
    web search, and what happens inside of an agent that a tool runs aren't recorded; once an agent was offered tools of
    the first kind, receipts prove nothing (`receipts: reported`). The tokens of agents inside of tools are counted when
    the child ends, if they are run with `usage=ctx.usage`.

    The tools learn the child's folder by `delegate.workspace()`, or from the dependencies: `make_deps` creates them
    from the job. Without it, they are `deps`, or those of the run that delegates. Approvals, the model and the cost are
    as with `runner`.
    """
    return _AgentRunner(agent, deps, make_deps, is_whole=True)


@dataclass(slots=True)
class _AgentRunner:
    agent: AbstractAgent[Any, Any]
    deps: Any
    make_deps: Callable[[Job], Any] | None = None
    is_whole: bool = False
    records_tools: bool = True
    """False once a child was offered tools whose calls the framework doesn't tell."""
    needs_model = False

    async def run(self, job: Job) -> ChildRun:
        if self.is_whole and (refused := refuse_tools_of_task(job)):
            return refused
        parent = parent_context.get()
        deps = self.deps if self.deps is not None or parent is None else parent.deps
        deps = self.make_deps(job) if self.make_deps else deps
        toolsets = [] if self.is_whole else [FunctionToolset[Any]([_framework_tool(one) for one in job.tools])]
        recorder = _ChildRecorder(job, None if self.is_whole else {one.name for one in job.tools})
        try:
            result = await self.agent.run(
                job.prompt,
                deps=deps,
                toolsets=toolsets,
                capabilities=[recorder],
                usage=recorder.all_used,
                usage_limits=UsageLimits(request_limit=job.max_steps),
            )
        except UsageLimitExceeded as error:
            return too_many_turns(job, str(error))
        finally:
            self.records_tools = self.records_tools and recorder.sees_all_calls
            recorder.record_other_usage()
        output = as_report(result.output)
        if (code := _FAILURES.get(result.response.finish_reason or "")) is not None:
            message = f"the model's last message has the finish reason {result.response.finish_reason}"
            return failed(job, code, message, output=output)
        return job.recorder.finish("completed", output=output)


_FAILURES: Mapping[str, ChildCode] = {"length": "truncated", "content_filter": "refused", "error": "unexpected_stop"}
"""The error code for each finish reason that isn't a clean end."""


def _framework_tool(tool: Tool) -> pydantic_ai.Tool[Any]:
    """A tool of the job as a Pydantic AI tool."""
    if isinstance(tool, _NativeTool):
        return tool.native

    async def call(**arguments: Any) -> ToolReturn[str]:
        output = await call_tool(tool, arguments)
        return ToolReturn(output.text, metadata=output)

    return pydantic_ai.Tool[Any].from_schema(
        call, tool.name, tool.description, tool.parameters, sequential=not tool.parallel
    )


class _ChildRecorder(AbstractCapability[Any]):
    """Records the model calls and tool calls of one child, and offers it only these tools; None: all of its agent."""

    def __init__(self, job: Job, tools: Set[str] | None) -> None:
        self._job = job
        self._tools = tools
        self.sees_all_calls = True
        self.all_used = RunUsage()
        """The usage of the run, to which agents that its tools run may add theirs."""
        self._recorded = Usage()

    def record_other_usage(self) -> None:
        """Record the model calls of agents that tools have run."""
        if other := calls_besides(_usage(self.all_used, self.all_used.requests), self._recorded):
            self._job.record_usage(other)

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        return [one for one in tool_defs if self._tools is None or one.name in self._tools]

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self._job.ledger.reserve({"model_calls": 1, "tokens": 1}).settle({})  # raises if the budget is used up
        if request_context.model_request_parameters.native_tools:
            self.sees_all_calls = False
        return request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        used = response.usage
        usage = _usage(used, 1)
        self._recorded += usage
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


def _usage(used: UsageBase, requests: int) -> Usage:
    return Usage(
        model_calls=requests,
        input_tokens=used.input_tokens,
        cached_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
        output_tokens=used.output_tokens,
        reasoning_tokens=used.output_reasoning_tokens,
    )


def _failure(name: str, error: Exception) -> ToolOutput:
    if isinstance(error, (ApprovalRequired, CallDeferred)):
        return ToolOutput(str(approval_denied(name)), "denied")
    return ToolOutput(str(error), "error")

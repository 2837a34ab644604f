"""Converts Pydantic AI tools for children, and runs children as agents."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

import pydantic_ai
from pydantic import ValidationError
from pydantic_ai import FunctionToolset, RunContext, ToolReturn
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, WrapToolExecuteHandler
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, UsageLimitExceeded
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDefinition
from pydantic_ai.usage import RunUsage, UsageBase, UsageLimits

from delegate.child.job import ChildRunner, Job, call_tool
from delegate.hosts.declarations import declared
from delegate.hosts.host_tool import Invocation, approval_denied
from delegate.hosts.own_agents import AgentRunner, ChildRecorder, Ending, NativeTool, TooManyTurns, as_report
from delegate.hosts.pydantic_ai.tool import DelegateTool
from delegate.types import JsonObject, Usage
from delegate.types.codes import ChildCode
from delegate.types.errors import ConfigError, ToolError
from delegate.types.ports import Tool, ToolOutput


def child_tools(tools: Sequence[pydantic_ai.Tool[Any] | Callable[..., Any]]) -> list[Tool]:
    """Convert an agent's tools for `Delegator(tools=…)`. They get the dependencies of the run that delegates.

    Delegate's own tools are omitted. A tool that needs an approval, or that is executed outside of the run, is denied
    to children, since no person is available. Pass the tools of toolsets and capabilities one by one.
    """
    native = [cast("Any", one) if isinstance(one, pydantic_ai.Tool) else pydantic_ai.Tool[Any](one) for one in tools]
    return [_child_tool(one) for one in native if not isinstance(one, DelegateTool)]


def _child_tool(native: pydantic_ai.Tool[Any]) -> Tool:
    toolset = FunctionToolset[Any]([native])

    async def call(arguments: Mapping[str, Any]) -> ToolOutput:
        parent: RunContext[Any] | None = Invocation.current(RunContext)
        if parent is None:
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
    made = NativeTool(
        native.name,
        native.description or "",
        definition.parameters_json_schema,
        call,
        parallel=not definition.sequential,
        native=native,
    )
    return declared(made, (definition.metadata or {}).get("annotations"))


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
    return AgentRunner(
        lambda job: _ChildRecorder(job, {one.name for one in job.tools}),
        lambda job, recorder: _play(agent, job, recorder, deps, [_framework_tool(one) for one in job.tools]),
        gives_job_tools=True,
    )


def child(
    agent: AbstractAgent[Any, Any], *, deps: Any = None, make_deps: Callable[[Job], Any] | None = None
) -> ChildRunner:
    """Run each child as this agent as it is, for `Delegator(runner=…)`: with its own tools and toolsets.

    A task that sets `tools` is refused, since it can't restrict the agent's. Every call of a tool that runs here, or on
    an MCP server, gets a receipt. What the model's provider runs, such as its web search, and what happens inside an
    agent that a tool runs aren't recorded; once an agent was offered tools of the first kind, receipts prove nothing
    (`receipts: reported`). Tokens of agents inside tools count when the child ends, if run with `usage=ctx.usage`.

    The tools learn the child's folder by `delegate.workspace()`, or from the dependencies that `make_deps` creates from
    the job. Without it, they are `deps`, or the delegating run's. Approvals, model and cost are as with `runner`.
    """
    make: Callable[[Job], Any] = make_deps or (lambda _: deps)
    return AgentRunner(_ChildRecorder, lambda job, recorder: _play(agent, job, recorder, make(job)))


async def _play(
    agent: AbstractAgent[Any, Any],
    job: Job,
    recorder: "_ChildRecorder",
    deps: Any,
    tools: Sequence[pydantic_ai.Tool[Any]] = (),
) -> Ending:
    parent: RunContext[Any] | None = Invocation.current(RunContext)
    try:
        result = await agent.run(
            job.prompt,
            deps=parent.deps if parent and deps is None else deps,
            toolsets=[FunctionToolset[Any](tools)],
            capabilities=[recorder],
            usage=recorder.all_used,
            usage_limits=UsageLimits(request_limit=job.max_steps),
        )
    except UsageLimitExceeded as error:
        raise TooManyTurns(str(error)) from None
    finally:  # agents that tools have run may have added their model calls
        recorder.record_besides(_usage(recorder.all_used, recorder.all_used.requests))
    report = as_report(result.output)
    if (code := _FAILURES.get(result.response.finish_reason or "")) is not None:
        return Ending(report, code, f"the model's last message has the finish reason {result.response.finish_reason}")
    return Ending(report)


_FAILURES: Mapping[str, ChildCode] = {"length": "truncated", "content_filter": "refused", "error": "unexpected_stop"}
"""The error code for each finish reason that isn't a clean end."""


def _framework_tool(tool: Tool) -> pydantic_ai.Tool[Any]:
    """A tool of the job as a Pydantic AI tool."""
    if isinstance(tool, NativeTool):
        return tool.native

    async def call(**arguments: Any) -> ToolReturn[str]:
        output = await call_tool(tool, arguments)
        return ToolReturn(output.text, metadata=output)

    return pydantic_ai.Tool[Any].from_schema(
        call, tool.name, tool.description, tool.parameters, sequential=not tool.parallel
    )


class _ChildRecorder(AbstractCapability[Any], ChildRecorder):
    """Records the model calls and tool calls of one child, and offers it only these tools; None: all of its agent."""

    def __init__(self, job: Job, tools: Set[str] | None = None) -> None:
        ChildRecorder.__init__(self, job)
        self._tools = tools
        self.all_used = RunUsage()

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        return [one for one in tool_defs if self._tools is None or one.name in self._tools]

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self.begin_turn()
        if request_context.model_request_parameters.native_tools:
            self.sees_all_calls = False
        return request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        used = response.usage
        cost = None if used.cost is None else float(used.cost)
        self.end_turn(_usage(used, 1), cost, model=response.model_name, text=response.text or "")
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
        with self.job.tool_call(call.tool_name, args) as receipt:
            try:
                answer = await handler(args)
            except (ApprovalRequired, CallDeferred):
                receipt.output = ToolOutput(str(approval_denied(call.tool_name)), "denied")
                raise
            except Exception as error:
                receipt.output = ToolOutput(str(error), "error")
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

"""The parent's tools for children, and children that are agents of the framework."""

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
from delegate.errors import ConfigError, ToolDenied, ToolError
from delegate.hosts.pydantic_ai.tool import OwnTool, parent_context
from delegate.ports import Tool, ToolOutput
from delegate.types import ChildRun, ErrorDetail, JsonObject, Usage


@dataclass(frozen=True, slots=True)
class _Native(Tool):
    native: pydantic_ai.Tool[Any] = field(kw_only=True)


def child_tools(tools: Sequence[pydantic_ai.Tool[Any] | Callable[..., Any]]) -> list[Tool]:
    """The tools of an agent, for `Delegator(tools=…)`, with the dependencies of the run that called.

    Left out are delegate's own. A tool that needs an approval, or an answer from outside of the run, is refused to a
    child, since nobody is there to give it. Toolsets and what capabilities bring have to be given as single tools.
    """
    usable = [_as_tool(one) for one in tools if not isinstance(one, OwnTool)]
    return [_child_tool(one) for one in usable]


def _as_tool(tool: pydantic_ai.Tool[Any] | Callable[..., Any]) -> pydantic_ai.Tool[Any]:
    return cast("pydantic_ai.Tool[Any]", tool) if isinstance(tool, pydantic_ai.Tool) else pydantic_ai.Tool(tool)


def _child_tool(native: pydantic_ai.Tool[Any]) -> Tool:
    toolset = FunctionToolset[Any]([native])

    async def call(arguments: Mapping[str, Any]) -> ToolOutput:
        if (asking := parent_context.get()) is None:
            raise ToolError(f"{native.name} needs the run of an agent, and there is none: do without it")
        context = replace(asking, usage=(used := RunUsage()), retries={})
        manager = await ToolManager[Any](toolset).for_run_step(context)
        asked = ToolCallPart(native.name, dict(arguments), f"call_{uuid4().hex}")
        try:
            answer = await manager.handle_call(asked, wrap_validation_errors=False)
        except (ModelRetry, ToolFailed, ValidationError) as error:
            raise ToolError(str(error)) from None
        except (ApprovalRequired, CallDeferred):
            raise ToolDenied(_NOBODY.format(native.name)) from None
        finally:
            asking.usage.incr(replace(used, tool_calls=0))  # what the tool spent; its call isn't the parent's
        return _output(native.name, answer)

    definition = native.tool_def
    return _Native(
        native.name,
        native.description or "",
        definition.parameters_json_schema,
        call,
        parallel=not definition.sequential,
        native=native,
    )


_NOBODY = "{} needs an approval, or an answer from outside, which there isn't here: do without it"


def _output(name: str, answer: object) -> ToolOutput:
    """What a tool gave, in the words in which the framework's model reads it."""
    if isinstance(answer, pydantic_ai.ToolDenied):
        return ToolOutput(answer.message, "denied")
    given: Any = cast("ToolReturn[Any]", answer).return_value if isinstance(answer, ToolReturn) else answer
    return ToolOutput(ToolReturnPart(name, given, "").model_response_str())


# ----------------------------------------------------------------------------------------- children that are agents


def runner(agent: AbstractAgent[Any, Any], *, deps: Any = None) -> ChildRunner:
    """Children as agents of the framework, for `Delegator(runner=…)`: each is a run of `agent`, with the job's tools.

    Those are the ones of `Delegator(tools=child_tools(…))`, as the framework's own objects; without them, delegate's
    built-in ones, which work in the child's workspace. `deps` are by default those of the run that called. A tool that
    needs an approval is refused.

    The model is the agent's: it is not held under the parent's tier. Its cost is what the framework knows of it.

    Raises:
        ConfigError: the agent has tools or toolsets of its own, which no task could narrow down.
    """
    if any(not isinstance(one, FunctionToolset) or one.tools for one in agent.toolsets):
        mend = "give it none, and its tools to Delegator(tools=child_tools(…))"
        raise ConfigError(f"the child's agent {agent.name or ''!r} has tools of its own: {mend}")
    return _AgentRunner(agent, deps)


@dataclass(frozen=True, slots=True)
class _AgentRunner:
    agent: AbstractAgent[Any, Any]
    deps: Any
    needs_model = False
    records_tools = True

    async def run(self, job: Job) -> ChildRun:
        asking = parent_context.get()
        deps = self.deps if self.deps is not None or asking is None else asking.deps
        toolset = FunctionToolset[Any]([_lent(one) for one in job.tools])
        try:
            result = await self.agent.run(
                job.prompt,
                deps=deps,
                toolsets=[toolset],
                capabilities=[_ChildAtWork(job)],
                usage_limits=UsageLimits(request_limit=job.max_steps),
            )
        except UsageLimitExceeded as error:
            return job.recorder.finish("max_steps", error=ErrorDetail(code="max_steps", message=str(error)))
        output = _words(result.output)
        if (stop := _STOPS.get(result.response.finish_reason or "")) is not None:
            message = f"the model's last message ended as {result.response.finish_reason}"
            return job.recorder.finish("failed", output=output, error=ErrorDetail(code=stop, message=message))
        return job.recorder.finish("completed", output=output)


_STOPS = {"length": "truncated", "content_filter": "refused", "error": "unexpected_stop"}


def _words(output: object) -> str:
    """An agent's output, which may be of any type."""
    return output if isinstance(output, str) else TypeAdapter[Any](type(output)).dump_json(output, indent=1).decode()


class _Refused(ToolFailed):
    """A tool of the job refused."""


def _lent(tool: Tool) -> pydantic_ai.Tool[Any]:
    """A tool of the job, as the framework's."""
    if isinstance(tool, _Native):
        return tool.native

    async def call(**arguments: Any) -> ToolReturn[str]:
        try:
            answer = await tool.call(arguments)
        except ToolDenied as error:
            raise _Refused(str(error)) from None
        except ToolError as error:
            raise ToolFailed(str(error)) from None
        except Exception as error:  # the child reads it and goes on, as in our own loop
            raise ToolFailed(f"{tool.name} failed: {type(error).__name__}: {error}") from None
        output = answer if isinstance(answer, ToolOutput) else ToolOutput(answer)
        return ToolReturn(output.text, metadata=output)

    return pydantic_ai.Tool[Any].from_schema(
        call, tool.name, tool.description, tool.parameters, sequential=not tool.parallel
    )


class _ChildAtWork(AbstractCapability[Any]):
    """Writes down what one child does, and keeps it to the tools of its job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._tools = {tool.name for tool in job.tools}

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        return [one for one in tool_defs if one.name in self._tools]

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self._job.ledger.reserve({"model_calls": 1, "tokens": 1}).settle({})  # refused where nothing is left
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
        self._job.record_usage(usage, cost, provenance="estimated", model=response.model_name)
        self._job.notify("model_called", (response.text or "")[:200], tokens=usage.total_tokens)
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
            receipt.output = _told(call.tool_name, answer)
        return answer

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        said = {one.tool_call_id: _NOBODY.format(one.tool_name) for one in (*requests.approvals, *requests.calls)}
        return requests.build_results(
            approvals={one.tool_call_id: pydantic_ai.ToolDenied(said[one.tool_call_id]) for one in requests.approvals},
            calls={one.tool_call_id: ToolFailed(said[one.tool_call_id]) for one in requests.calls},
        )


def _told(name: str, answer: object) -> ToolOutput:
    """What goes on the receipt: what a tool of ours said beside its text, or what the model reads."""
    metadata = getattr(answer, "metadata", None)
    return metadata if isinstance(metadata, ToolOutput) else _output(name, answer)


def _failure(name: str, error: Exception) -> ToolOutput:
    if isinstance(error, (ApprovalRequired, CallDeferred)):
        return ToolOutput(_NOBODY.format(name), "denied")
    refused = isinstance(error, _Refused) or isinstance(error.__cause__, _Refused)
    return ToolOutput(str(error), "denied" if refused else "error")

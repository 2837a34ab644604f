"""Converts the SDK's tools for children, and runs children as agents."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import uuid4

import agents
from agents import Agent, FunctionTool, ModelResponse, RunConfig, RunHooks, Runner
from agents.run_config import ToolExecutionConfig
from agents.tool import (
    maybe_invoke_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext

from delegate.child.job import ChildRunner, Job
from delegate.errors import ConfigError, ToolDenied
from delegate.hosts.openai_agents.tool import DelegateTool, model_name, parent_context
from delegate.ports import Tool, ToolOutput
from delegate.types import ChildRun, ErrorDetail, JsonObject, ReceiptStatus, Usage


@dataclass(frozen=True, slots=True)
class _NativeTool(Tool):
    """A converted tool that still has its SDK form."""

    native: FunctionTool = field(kw_only=True)


def child_tools(tools: Sequence[agents.Tool]) -> list[Tool]:
    """Convert an agent's function tools for `Delegator(tools=…)`. They get the context of the run that delegates.

    Delegate's own tools, and tools that OpenAI runs, are omitted. A tool that has guardrails or needs an approval is
    denied to children in delegate's own loop, since only the SDK's loop enforces them: see `runner`.
    """
    return [_child_tool(one) for one in tools if isinstance(one, FunctionTool) and not isinstance(one, DelegateTool)]


def _child_tool(tool: FunctionTool) -> Tool:
    async def call(arguments: Mapping[str, Any]) -> ToolOutput:
        if tool.needs_approval is not False or tool.tool_input_guardrails or tool.tool_output_guardrails:
            raise ToolDenied(f"{tool.name} needs an approval or a guardrail, which a child lacks: continue without it")
        parent, raw = parent_context.get(), json.dumps(dict(arguments))
        context = ToolContext[Any](
            parent.context if parent else None,
            parent.usage if parent else agents.Usage(),
            tool.name,
            f"call_{uuid4().hex}",
            raw,
            agent=parent.agent if parent else None,
            run_config=parent.run_config if parent else None,
        )
        try:
            async with asyncio.timeout(tool.timeout_seconds):
                answer, status = await _invoke(tool, context, raw)
        except TimeoutError:
            return ToolOutput(f"stopped at its timeout of {tool.timeout_seconds:g} s", "timeout")
        return ToolOutput(_text(answer), status)

    return _NativeTool(tool.name, tool.description, tool.params_json_schema, call, native=tool)


async def _invoke(tool: FunctionTool, context: ToolContext[Any], arguments: str) -> tuple[Any, ReceiptStatus]:
    """The tool's answer for the model, and its status: the SDK's own result doesn't tell whether it is an error."""
    raising = set_function_tool_failure_error_function(copy(tool), None)
    try:
        return await raising.on_invoke_tool(context, arguments), "ok"
    except Exception as error:
        message = await maybe_invoke_function_tool_failure_error_function(
            function_tool=tool, context=context, error=error
        )
        if message is None:
            raise
        return message, "error"


def _text(answer: object) -> str:
    return answer.text if isinstance(answer, agents.ToolOutputText) else str(answer)


# ------------------------------------------------------------------------------------------- children that are agents


def runner(agent: Agent[Any], *, context: Any = None, run_config: RunConfig | None = None) -> ChildRunner:
    """Run children as agents of the SDK, for `Delegator(runner=…)`: each is a run of `agent` with the job's tools.

    These are the SDK's tools given as `Delegator(tools=child_tools(…))`, with their guardrails, or otherwise delegate's
    built-in tools, which work in the child's workspace. A tool that may need an approval ends the child that calls it,
    since no person is available. `context` and `run_config` default to those of the run that delegates.

    The agent chooses its model: the parent's tier isn't enforced, and the cost is unknown.

    Raises:
        ConfigError: the agent has tools, handoffs or MCP servers of its own, which a task couldn't restrict.
    """
    if agent.tools or agent.handoffs or agent.mcp_servers:
        raise ConfigError(
            f"runner: the child's agent {agent.name!r} has tools, handoffs or MCP servers of its own; "
            "remove them and pass its tools as Delegator(tools=child_tools(…))"
        )
    return _AgentRunner(agent, context, run_config)


@dataclass(frozen=True)
class _AgentRunner:
    agent: Agent[Any]
    context: Any
    run_config: RunConfig | None
    needs_model = False
    records_tools = True

    async def run(self, job: Job) -> ChildRun:
        context, config = self._run_settings()
        recorder = _ChildRecorder(job, model_name(self.agent, config))
        child = self.agent.clone(tools=[recorder.tool(one) for one in job.tools], output_type=None)
        if not all(one.parallel for one in job.tools):
            config = replace(config, tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1))
        try:
            result = await Runner.run(
                child, job.prompt, context=context, run_config=config, hooks=recorder, max_turns=job.max_steps
            )
        except agents.MaxTurnsExceeded as error:
            return job.recorder.finish("max_steps", error=ErrorDetail(code="max_steps", message=str(error)))
        finally:
            await recorder.wait_for_tools()
        if result.interruptions:
            tools = ", ".join(str(one.name) for one in result.interruptions)
            message = f"the child called {tools}, which needs an approval, and no person is available to give it"
            return job.recorder.finish("failed", error=ErrorDetail(code="needs_approval", message=message))
        return job.recorder.finish("completed", output=str(result.final_output))

    def _run_settings(self) -> tuple[Any, RunConfig]:
        parent = parent_context.get()
        context = parent.context if parent and self.context is None else self.context
        config = self.run_config
        if config is None:  # the parent's, without its model, which would replace the child's
            config = replace((parent.run_config if parent else None) or RunConfig(), model=None)
        return context, replace(config, tool_not_found_behavior="return_error_to_model")


class _ChildRecorder(RunHooks[Any]):
    """Records the model calls and tool calls of one child."""

    def __init__(self, job: Job, model: str | None) -> None:
        self._job = job
        self._model = model
        self._calls: set[asyncio.Future[str]] = set()

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self._job.ledger.reserve({"model_calls": 1, "tokens": 1}).settle({})  # raises if the budget is used up

    async def on_llm_end(self, context: Any, agent: Any, response: ModelResponse) -> None:
        used = response.usage
        usage = Usage(
            model_calls=used.requests,
            input_tokens=used.input_tokens,
            cached_tokens=used.input_tokens_details.cached_tokens,
            output_tokens=used.output_tokens,
            reasoning_tokens=used.output_tokens_details.reasoning_tokens,
        )
        self._job.record_usage(usage, model=self._model)

    def tool(self, tool: Tool) -> FunctionTool:
        """A tool of the job as an SDK tool that writes receipts."""

        async def invoke(context: ToolContext[Any], arguments: str) -> Any:
            call = asyncio.ensure_future(self._call(tool, context, arguments))
            self._calls.add(call)
            return await call

        if not isinstance(tool, _NativeTool):
            return FunctionTool(tool.name, tool.description, tool.parameters, invoke, strict_json_schema=False)
        recorded = copy(tool.native)
        recorded.on_invoke_tool = invoke
        # An approval policy is a function of the arguments, and those it sees here could differ from the tool's.
        recorded.needs_approval = recorded.needs_approval is not False
        return recorded

    async def wait_for_tools(self) -> None:
        """Wait until all tool calls have ended: the SDK doesn't wait for those it cancels."""
        if self._calls:
            await asyncio.wait(self._calls)

    async def _call(self, tool: Tool, context: ToolContext[Any], arguments: str) -> Any:
        with self._job.tool_call(tool.name, _parse_object(arguments)) as receipt:
            if isinstance(tool, _NativeTool):
                answer, status = await _invoke(tool.native, context, arguments)
                receipt.output = ToolOutput(_text(answer), status)
                return answer
            receipt.output = await _call_tool(tool, arguments)
            return receipt.output.text


async def _call_tool(tool: Tool, arguments: str) -> ToolOutput:
    try:
        answer = await tool.call(_parse_object(arguments))
    except ToolDenied as error:
        return ToolOutput(str(error), "denied")
    except Exception as error:
        return ToolOutput(str(error) or type(error).__name__, "error")
    return answer if isinstance(answer, ToolOutput) else ToolOutput(answer)


def _parse_object(arguments: str) -> JsonObject:
    """A call's arguments; empty if the model's text isn't a JSON object."""
    try:
        parsed: object = json.loads(arguments or "{}")
    except ValueError:
        return {}
    return cast("JsonObject", parsed) if isinstance(parsed, dict) else {}

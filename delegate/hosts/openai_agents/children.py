"""The parent's tools for children, and children that are agents of the framework."""

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
from delegate.hosts.openai_agents.tool import OwnTool, model_name, parent_context
from delegate.ports import Tool, ToolOutput
from delegate.types import ChildRun, ErrorDetail, JsonObject, ReceiptStatus, Usage


@dataclass(frozen=True, slots=True)
class _Native(Tool):
    native: FunctionTool = field(kw_only=True)


def child_tools(tools: Sequence[agents.Tool]) -> list[Tool]:
    """The function tools of an agent, for `Delegator(tools=…)`. They get the context of the run that delegates.

    Left out are delegate's own, and those that OpenAI runs. A tool that has guardrails or needs approval is refused to
    children in delegate's own loop, since only the SDK's loop keeps them: see `runner`.
    """
    return [_child_tool(one) for one in tools if isinstance(one, FunctionTool) and not isinstance(one, OwnTool)]


def _child_tool(tool: FunctionTool) -> Tool:
    async def call(arguments: Mapping[str, Any]) -> ToolOutput:
        if tool.needs_approval is not False or tool.tool_input_guardrails or tool.tool_output_guardrails:
            raise ToolDenied(f"{tool.name} needs an approval or a guardrail, which isn't to be had here")
        asking, raw = parent_context.get(), json.dumps(dict(arguments))
        context = ToolContext[Any](
            asking.context if asking else None,
            asking.usage if asking else agents.Usage(),
            tool.name,
            f"call_{uuid4().hex}",
            raw,
            agent=asking.agent if asking else None,
            run_config=asking.run_config if asking else None,
        )
        try:
            async with asyncio.timeout(tool.timeout_seconds):
                said, status = await _invoked(tool, context, raw)
        except TimeoutError:
            return ToolOutput(f"stopped after its {tool.timeout_seconds:g} s", "timeout")
        return ToolOutput(_text(said), status)

    return _Native(tool.name, tool.description, tool.params_json_schema, call, native=tool)


async def _invoked(tool: FunctionTool, context: ToolContext[Any], arguments: str) -> tuple[Any, ReceiptStatus]:
    """What the model is told, and whether it is an error: the SDK itself doesn't say which of its words are one."""
    raising = set_function_tool_failure_error_function(copy(tool), None)
    try:
        return await raising.on_invoke_tool(context, arguments), "ok"
    except Exception as error:
        said = await maybe_invoke_function_tool_failure_error_function(function_tool=tool, context=context, error=error)
        if said is None:
            raise
        return said, "error"


def _text(said: object) -> str:
    return said.text if isinstance(said, agents.ToolOutputText) else str(said)


# ------------------------------------------------------------------------------------------- children that are agents


def runner(agent: Agent[Any], *, context: Any = None, run_config: RunConfig | None = None) -> ChildRunner:
    """Children as agents of the SDK, for `Delegator(runner=…)`: each is a run of `agent`, with the job's tools.

    Those are the ones of `Delegator(tools=child_tools(…))`, with their guardrails; without them, delegate's built-in
    ones, which work in the child's workspace. A tool that may need approval ends the child that calls it, since nobody
    is there to give it. `context` and `run_config` are by default those of the run that delegates.

    The model is the agent's: it isn't held under the parent's tier, and its cost is unknown.

    Raises:
        ConfigError: the agent has tools, handoffs or MCP servers of its own, which no task could narrow down.
    """
    if agent.tools or agent.handoffs or agent.mcp_servers:
        mend = "give it none, and its tools to Delegator(tools=child_tools(…))"
        raise ConfigError(f"the child's agent {agent.name!r} has tools, handoffs or MCP servers of its own: {mend}")
    return _AgentRunner(agent, context, run_config)


@dataclass(frozen=True)
class _AgentRunner:
    agent: Agent[Any]
    context: Any
    run_config: RunConfig | None
    needs_model = False
    records_tools = True

    async def run(self, job: Job) -> ChildRun:
        context, config = self._surroundings()
        at_work = _AtWork(job, model_name(self.agent, config))
        child = self.agent.clone(tools=[at_work.tool(one) for one in job.tools], output_type=None)
        if not all(one.parallel for one in job.tools):
            config = replace(config, tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1))
        try:
            result = await Runner.run(
                child, job.prompt, context=context, run_config=config, hooks=at_work, max_turns=job.max_steps
            )
        except agents.MaxTurnsExceeded as error:
            return job.recorder.finish("max_steps", error=ErrorDetail(code="max_steps", message=str(error)))
        finally:
            await at_work.ended()
        if result.interruptions:
            named = ", ".join(str(one.name) for one in result.interruptions)
            message = f"the child called {named}, which needs an approval that nobody can give here"
            return job.recorder.finish("failed", error=ErrorDetail(code="needs_approval", message=message))
        return job.recorder.finish("completed", output=str(result.final_output))

    def _surroundings(self) -> tuple[Any, RunConfig]:
        asking = parent_context.get()
        context = asking.context if asking and self.context is None else self.context
        config = self.run_config
        if config is None:  # the parent's, but for its model, which would take the place of the child's
            config = replace((asking.run_config if asking else None) or RunConfig(), model=None)
        return context, replace(config, tool_not_found_behavior="return_error_to_model")


class _AtWork(RunHooks[Any]):
    """Puts on record what one child does."""

    def __init__(self, job: Job, model: str | None) -> None:
        self._job = job
        self._model = model
        self._calls: set[asyncio.Future[str]] = set()

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self._job.ledger.reserve({"model_calls": 1, "tokens": 1}).settle({})  # refused where nothing is left

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
        self._job.notify("model_called", tokens=usage.total_tokens)

    def tool(self, tool: Tool) -> FunctionTool:
        """A tool of the job as one of the SDK's, which writes its receipts."""

        async def invoke(context: ToolContext[Any], arguments: str) -> Any:
            call = asyncio.ensure_future(self._called(tool, context, arguments))
            self._calls.add(call)
            return await call

        if not isinstance(tool, _Native):
            return FunctionTool(tool.name, tool.description, tool.parameters, invoke, strict_json_schema=False)
        watched = copy(tool.native)
        watched.on_invoke_tool = invoke
        # A policy that decides by the arguments could see others here than the tool gets.
        watched.needs_approval = watched.needs_approval is not False
        return watched

    async def ended(self) -> None:
        """The SDK doesn't wait for the tools that it cancels."""
        if self._calls:
            await asyncio.wait(self._calls)

    async def _called(self, tool: Tool, context: ToolContext[Any], arguments: str) -> Any:
        with self._job.tool_call(tool.name, _object(arguments)) as receipt:
            if isinstance(tool, _Native):
                answer, status = await _invoked(tool.native, context, arguments)
                receipt.output = ToolOutput(_text(answer), status)
                return answer
            receipt.output = await _answered(tool, arguments)
            return receipt.output.text


async def _answered(tool: Tool, arguments: str) -> ToolOutput:
    try:
        answer = await tool.call(_object(arguments))
    except ToolDenied as error:
        return ToolOutput(str(error), "denied")
    except Exception as error:
        return ToolOutput(str(error) or type(error).__name__, "error")
    return answer if isinstance(answer, ToolOutput) else ToolOutput(answer)


def _object(arguments: str) -> JsonObject:
    """A call's arguments; none where the model's text isn't a JSON object."""
    try:
        given: object = json.loads(arguments or "{}")
    except ValueError:
        return {}
    return cast("JsonObject", given) if isinstance(given, dict) else {}

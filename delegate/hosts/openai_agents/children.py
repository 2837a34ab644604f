"""Converts the SDK's tools for children, and runs children as agents."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, cast
from uuid import uuid4

import agents
from agents import Agent, FunctionTool, Handoff, ModelResponse, RunConfig, RunContextWrapper, RunHooks, Runner
from agents.mcp import MCPServer
from agents.run_config import ToolExecutionConfig
from agents.tool import maybe_invoke_function_tool_failure_error_function as failure_message
from agents.tool import set_function_tool_failure_error_function
from agents.tool_context import ToolContext

from delegate._util.cancellation import contained
from delegate.child.job import ChildRunner, Job, call_tool
from delegate.hosts.host_tool import Invocation
from delegate.hosts.openai_agents.tool import DelegateTool, model_name
from delegate.hosts.own_agents import AgentRunner, ChildRecorder, Ending, NativeTool, as_report
from delegate.types import JsonObject, Usage
from delegate.types.errors import ConfigError, ToolDenied
from delegate.types.ports import Tool, ToolOutput

_Answer = tuple[Any, ToolOutput]
"""What a call returns to the SDK, and what its receipt says."""
_errors: ContextVar[list[str]] = ContextVar("delegate_openai_agents_errors")
"""The tools that failed in the call that runs here."""


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
        parent: ToolContext[Any] | None = Invocation.current(ToolContext)
        raw = json.dumps(dict(arguments))
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
                return (await _invoke(tool, context, raw))[1]
        except TimeoutError:
            return ToolOutput(f"stopped at its timeout of {tool.timeout_seconds:g} s", "timeout")

    return NativeTool(tool.name, tool.description, tool.params_json_schema, call, native=tool)


async def _invoke(tool: FunctionTool, context: ToolContext[Any], arguments: str) -> _Answer:
    """Call a tool. The SDK's own result doesn't tell whether it is an error."""
    raising = set_function_tool_failure_error_function(copy(tool), None)
    _errors.set(errors := [])
    try:
        answer = await raising.on_invoke_tool(context, arguments)
    except Exception as error:
        answer = await failure_message(function_tool=tool, context=context, error=error)
        if answer is None:
            raise
        errors.append(tool.name)
    text = answer.text if isinstance(answer, agents.ToolOutputText) else str(answer)
    return answer, ToolOutput(text, "error" if errors else "ok")


# ------------------------------------------------------------------------------------------- children that are agents


def runner(agent: Agent[Any], *, context: Any = None, run_config: RunConfig | None = None) -> ChildRunner:
    """Run children as agents of the SDK, for `Delegator(runner=…)`: each is a run of `agent` with the job's tools.

    These are the SDK's tools given as `Delegator(tools=child_tools(…))`, with their guardrails, or otherwise delegate's
    built-in tools, which work in the child's workspace. A tool that may need an approval ends the child that calls it,
    since no person is available. `context` and `run_config` default to those of the run that delegates.

    The agent chooses its model: the parent's tier isn't enforced, and the cost is unknown.

    Raises:
        ConfigError: the agent has tools, handoffs or MCP servers of its own, which a task couldn't restrict: see
            `child`.
    """
    if agent.tools or agent.handoffs or agent.mcp_servers:
        raise ConfigError(
            f"runner: the child's agent {agent.name!r} has tools, handoffs or MCP servers of its own; "
            "use `child(agent)` to run it with them, or remove them and pass its tools as "
            "Delegator(tools=child_tools(…))"
        )

    async def play(job: Job, recorder: "_ChildRecorder") -> Ending:
        child = agent.clone(tools=[recorder.tool(one) for one in job.tools], output_type=None)
        alone = not all(one.parallel for one in job.tools)
        return await _play(job, recorder, child, context, run_config, one_tool_at_a_time=alone)

    return AgentRunner(_ChildRecorder, play, gives_job_tools=True)


def child(
    agent: Agent[Any],
    *,
    context: Any = None,
    make_context: Callable[[Job], Any] | None = None,
    run_config: RunConfig | None = None,
) -> ChildRunner:
    """Run each child as this agent as it is, for `Delegator(runner=…)`: with its own tools, handoffs and MCP servers.

    A task that sets `tools` is refused, since it couldn't restrict the agent's. Every call of a function or of an MCP
    server's tool gets a receipt, and so does every handoff. What OpenAI runs itself, such as its web search, and what
    happens inside of an agent that is a tool aren't recorded: once a child was an agent with such tools, receipts prove
    nothing (`receipts: reported`). The tokens of agents that are tools are counted when the child ends.

    The tools learn the child's folder by `delegate.workspace()`, or from the context that `make_context` creates from
    the job. Without it, that is `context`, or the delegating run's. Approvals, model and cost are as with `runner`.
    """
    make: Callable[[Job], Any] = make_context or (lambda _: context)
    return AgentRunner(
        _ChildRecorder, lambda job, recorder: _play(job, recorder, recorder.agent(agent), make(job), run_config)
    )


async def _play(
    job: Job,
    recorder: "_ChildRecorder",
    agent: Agent[Any],
    context: Any,
    config: RunConfig | None,
    *,
    one_tool_at_a_time: bool = False,
) -> Ending:
    """Run a child. Its context and configuration default to those of the parent."""
    parent: ToolContext[Any] | None = Invocation.current(ToolContext)
    if config is None:  # the parent's, without its model, which would replace the child's
        config = replace((parent.run_config if parent else None) or RunConfig(), model=None)
    config = recorder.config = replace(config, tool_not_found_behavior="return_error_to_model")
    if one_tool_at_a_time:
        config = replace(config, tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1))
    try:
        result = await Runner.run(
            agent,
            job.prompt,
            context=parent.context if parent and context is None else context,
            run_config=config,
            hooks=recorder,
            max_turns=None,  # the recorder counts them
        )
    finally:
        await recorder.end()
    if result.interruptions:
        tools = ", ".join(str(one.name) for one in result.interruptions)
        message = f"the child called {tools}, which needs an approval, and no person is available to give it"
        return Ending(code="needs_approval", message=message)
    return Ending(as_report(result.final_output))


class _ChildRecorder(RunHooks[Any], ChildRecorder):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.config: RunConfig | None = None
        self._calls: set[asyncio.Future[Any]] = set()
        self._copies: dict[int, tuple[Agent[Any], Agent[Any]]] = {}
        """For each agent's id, the agent and its copy that is recorded."""
        self._all_used: agents.Usage | None = None
        """The usage of the run, to which agents that are tools add theirs."""

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self._all_used = context.usage
        self.begin_turn()

    async def on_llm_end(self, context: Any, agent: Any, response: ModelResponse) -> None:
        self.end_turn(_usage(response.usage), model=model_name(agent, self.config))

    async def end(self) -> None:
        """Wait for all tool calls, since the SDK doesn't wait for those it cancels, and count what they used."""
        if self._calls:
            await asyncio.wait(self._calls)
        if self._all_used:
            self.record_besides(_usage(self._all_used))

    def agent(self, agent: Agent[Any]) -> Agent[Any]:
        """A copy of an agent whose tools write receipts, as do those of the agents that it hands over to."""
        if id(agent) not in self._copies:
            servers: list[Any] = [_McpServer(one) for one in agent.mcp_servers]
            copied = agent.clone(mcp_servers=servers)
            self._copies[id(agent)] = agent, copied  # before its handoffs, which may lead back to it
            copied.handoffs = [self._handoff(one) for one in agent.handoffs]
            copied.get_all_tools = partial(self._recorded_tools, copied)
        return self._copies[id(agent)][1]

    async def _recorded_tools(self, agent: Agent[Any], run_context: RunContextWrapper[Any]) -> list[agents.Tool]:
        tools = await type(agent).get_all_tools(agent, run_context)
        self.sees_all_calls &= all(isinstance(one, FunctionTool) and not one._is_agent_tool for one in tools)  # pyright: ignore[reportPrivateUsage]
        return [self._recorded_function(one) if isinstance(one, FunctionTool) else one for one in tools]

    def _handoff(self, given: Agent[Any] | Handoff[Any, Any]) -> Handoff[Any, Any]:
        handoff = copy(given) if isinstance(given, Handoff) else agents.handoff(given)
        invoke = handoff.on_invoke_handoff

        async def hand_over(context: RunContextWrapper[Any], arguments: str) -> _Answer:
            agent = await invoke(context, arguments)
            return self.agent(agent), ToolOutput(f"handed over to {agent.name}")

        handoff.on_invoke_handoff = self._recording(handoff.tool_name, hand_over)
        return handoff

    def _recorded_function(self, tool: FunctionTool) -> FunctionTool:
        recorded = copy(tool)
        recorded.on_invoke_tool = self._recording(tool.name, partial(_invoke, tool))
        return recorded

    def tool(self, tool: Tool) -> FunctionTool:
        """A tool of the job as an SDK tool that writes receipts."""
        if isinstance(tool, NativeTool):
            recorded = self._recorded_function(tool.native)
            # An approval policy is a function of the arguments, and those it sees here could differ from the tool's.
            recorded.needs_approval = recorded.needs_approval is not False
            return recorded

        async def call(_: object, arguments: str) -> _Answer:
            output = await call_tool(tool, _parse_object(arguments))
            return output.text, output

        invoke = self._recording(tool.name, call)
        return FunctionTool(tool.name, tool.description, tool.parameters, invoke, strict_json_schema=False)

    def _recording(
        self, name: str, call: Callable[[Any, str], Awaitable[_Answer]]
    ) -> Callable[[Any, str], Awaitable[Any]]:
        """The function as one that the SDK can call, which writes receipts."""

        async def record(context: object, arguments: str) -> Any:
            with self.job.tool_call(name, _parse_object(arguments)) as receipt:
                answer, receipt.output = await call(context, arguments)
                return answer

        async def invoke(context: object, arguments: str) -> Any:
            running = asyncio.ensure_future(contained(record(context, arguments)))
            self._calls.add(running)
            return await running

        return invoke


class _McpServer:
    """An agent's MCP server, which also tells which calls failed: the SDK returns their text like any other."""

    def __init__(self, server: MCPServer) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    async def call_tool(self, tool_name: str, *arguments: Any, **options: Any) -> Any:
        result: Any = await self._server.call_tool(tool_name, *arguments, **options)
        if getattr(result, "isError", False) or getattr(result, "is_error", False):  # SDK 1 and 2 of MCP
            _errors.get([]).append(tool_name)
        return result


def _usage(used: agents.Usage) -> Usage:
    return Usage(
        model_calls=used.requests,
        input_tokens=used.input_tokens,
        cached_tokens=used.input_tokens_details.cached_tokens,
        output_tokens=used.output_tokens,
        reasoning_tokens=used.output_tokens_details.reasoning_tokens,
    )


def _parse_object(arguments: str) -> JsonObject:
    """A call's arguments; empty if the model's text isn't a JSON object."""
    try:
        parsed: object = json.loads(arguments or "{}")
    except ValueError:
        return {}
    return cast("JsonObject", parsed) if isinstance(parsed, dict) else {}

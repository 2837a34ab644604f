"""Converts ADK tools for children, and runs children as agents."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, cast
from uuid import uuid4

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.apps import App
from google.adk.events.event import Event
from google.adk.flows.llm_flows.functions import handle_function_call_list_async
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import BaseNode
from google.genai import types

from delegate.child.job import ChildRunner, Job
from delegate.hosts import declarations
from delegate.hosts.google_adk.tool import DelegateTool
from delegate.hosts.host_tool import Invocation, approval_denied
from delegate.hosts.own_agents import AgentRunner, ChildRecorder, Ending, TooManyTurns, as_report
from delegate.types import JsonObject, Usage
from delegate.types.codes import ChildCode
from delegate.types.errors import BudgetExceeded, ConfigError, ToolError
from delegate.types.ports import Tool, ToolOutput


def child_tools(tools: Sequence[BaseTool | Callable[..., Any]]) -> list[Tool]:
    """Convert an agent's tools for `Delegator(tools=…)`. Delegate's own tools are omitted.

    A child's calls go through ADK's own pipeline in the parent's run, so the parent's callbacks and plugins see them. A
    tool that asks a person for confirmation is denied to children.

    Raises:
        ConfigError: a toolset was given, which only an agent can open: pass `await toolset.get_tools()`.
    """
    return [_child_tool(one) for one in tools if not isinstance(one, DelegateTool)]


def _child_tool(given: object) -> Tool:
    if not isinstance(given, BaseTool) and not callable(given):
        raise ConfigError(
            f"child_tools: {type(given).__name__} is neither a tool nor a function; "
            "for a toolset, pass the result of `await toolset.get_tools()`"
        )
    tool = given if isinstance(given, BaseTool) else FunctionTool(given)
    declared = tool._get_declaration()  # pyright: ignore[reportPrivateUsage] — ADK documents it for overriding
    if declared is None:
        raise ConfigError(
            f"child_tools: {tool.name} has no declaration: it is built into the model, and children can't call it; "
            "remove it"
        )
    parameters: JsonObject = {"type": "object", "properties": {}}
    if declared.parameters_json_schema is not None:
        parameters = declared.parameters_json_schema
    elif declared.parameters is not None:
        parameters = declared.parameters.json_schema.model_dump(mode="json", exclude_none=True)
    name, description = declared.name or tool.name, declared.description or tool.description
    annotations = getattr(getattr(tool, "raw_mcp_tool", None), "annotations", None)
    return declarations.declared(Tool(name, description, parameters, partial(_call_native, tool)), annotations)


async def _call_native(tool: BaseTool, arguments: Mapping[str, Any]) -> ToolOutput:
    """Call a parent's tool as ADK's own loop does, and apply its changes to the parent's session."""
    if (context := Invocation.current(ToolContext)) is None:
        raise ToolError(f"{tool.name} is available only in a run of its ADK agent: continue without it")
    function_call = types.FunctionCall(id=f"child-{uuid4().hex}", name=tool.name, args=dict(arguments))
    event = await handle_function_call_list_async(context.get_invocation_context(), [function_call], {tool.name: tool})
    responses = event.get_function_responses() if event else []
    if event is None or not responses:
        raise ToolError(f"{tool.name} returns its result later, and a child can't wait for it: continue without it")
    if event.actions.requested_tool_confirmations or event.actions.requested_auth_configs:
        raise approval_denied(tool.name)
    context.state.update(event.actions.state_delta)
    context.actions.artifact_delta.update(event.actions.artifact_delta)
    return _output(responses[0].response or {})


def _output(response: Mapping[str, Any]) -> ToolOutput:
    (only,) = response.values() if len(response) == 1 else (None,)
    text = only if isinstance(only, str) else json.dumps(response, ensure_ascii=False, default=str)
    return ToolOutput(text, "error" if "error" in response else "ok")


# ------------------------------------------------------------------------------------------- children that are agents


def child(agent: BaseNode | App, *, make_state: Callable[[Job], JsonObject] | None = None) -> ChildRunner:
    """Run each child as this agent as it is, for `Delegator(runner=…)`: with its own tools, sub-agents and callbacks.

    It may be a `Workflow` too, or an `App`, whose plugins run then. Each child has a session of its own, in memory. A
    task that sets `tools` is refused, since it couldn't restrict the agent's. Every call of a tool gets a receipt, also
    of sub-agents and of agents that are tools, and so does a transfer to another agent. What the model's provider runs
    itself, such as its web search, what a code executor runs, and what remote agents do isn't recorded: once a child
    was an agent with one of these, receipts prove nothing (`receipts: reported`).

    The tools learn the child's folder by `delegate.workspace()`, or from the session's state, which `make_state`
    creates from the job. A tool that asks a person for confirmation ends the child, since no person is available. The
    agent's toolsets stay open for its other children: close them after the delegator. The agent chooses its model: the
    parent's tier isn't enforced, and the cost is unknown. The limit of steps counts the model calls of all its agents.
    """
    make: Callable[[Job], JsonObject | None] = make_state or (lambda _: None)
    return AgentRunner(_ChildRecorder, lambda job, recorder: _play(agent, make(job), job, recorder))


async def _play(agent: BaseNode | App, state: JsonObject | None, job: Job, recorder: "_ChildRecorder") -> Ending:
    app = agent if isinstance(agent, App) else App(name="delegate", root_agent=agent)
    runner = InMemoryRunner(app=app.model_copy(update={"plugins": [recorder, *app.plugins]}))
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="delegate", state=state)
    last: Event | None = None
    prompt = types.UserContent(job.prompt)
    events = runner.run_async(
        user_id=session.user_id, session_id=session.id, new_message=prompt, abort_signal=recorder.stopped
    )
    async with aclosing(events):
        async for event in events:
            last = event if event.is_final_response() else last
    if recorder.over_limit:
        raise recorder.over_limit
    if recorder.waits_for is not None:
        waits_for = f"the child called {recorder.waits_for}, which needs a confirmation"
        return Ending(code="needs_approval", message=f"{waits_for}, and no person is available to give it")
    if last is None:
        return Ending(code="bad_report", message="the child's agent ended without a response")
    if last.long_running_tool_ids:
        return Ending(code="needs_a_person", message="the child waits for the result of a tool that runs elsewhere")
    parts = (last.content and last.content.parts) or ()
    text = "".join(part.text or "" for part in parts if not part.thought)
    if (reason := last.finish_reason) not in (None, types.FinishReason.STOP):
        code: ChildCode = "truncated" if reason is types.FinishReason.MAX_TOKENS else "refused"
        return Ending(text or None, code, f"the model's last message has the finish reason {reason}")
    if last.error_code:
        return Ending(text or None, "unexpected_stop", f"{last.error_code}: {last.error_message}")
    return Ending(text or as_report(last.output or ""))


class _ChildRecorder(ChildRecorder, BasePlugin):
    def __init__(self, job: Job) -> None:
        BasePlugin.__init__(self, name="delegate_child")
        ChildRecorder.__init__(self, job)
        self.stopped = asyncio.Event()
        """Set when the child has used up its turns or its budget. Raising instead makes ADK log several tracebacks."""
        self.waits_for: str | None = None
        """The tool that waits for a person."""

    async def before_agent_callback(self, *, agent: BaseAgent, **_: Any) -> None:
        # One without a model and sub-agents may be on another machine.
        self.sees_all_calls &= agent.code_executor is None if isinstance(agent, LlmAgent) else bool(agent.sub_agents)

    async def before_model_callback(self, *, llm_request: LlmRequest, **_: Any) -> LlmResponse | None:
        try:
            self.begin_turn()
        except (BudgetExceeded, TooManyTurns):
            self.stopped.set()
            return LlmResponse()  # in place of the model's
        tools = cast("Any", llm_request.config).tools or ()
        self.sees_all_calls &= all(isinstance(one, types.Tool) and bool(one.function_declarations) for one in tools)
        return None

    async def after_model_callback(self, *, llm_response: LlmResponse, **_: Any) -> None:
        used = llm_response.usage_metadata
        if llm_response.partial or used is None:
            return
        thoughts = used.thoughts_token_count or 0
        usage = Usage(
            model_calls=1,
            input_tokens=(used.prompt_token_count or 0) + (used.tool_use_prompt_token_count or 0),
            cached_tokens=used.cached_content_token_count or 0,
            output_tokens=(used.candidates_token_count or 0) + thoughts,
            reasoning_tokens=thoughts,
        )
        self.end_turn(usage, model=llm_response.model_version)

    async def before_tool_callback(self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext) -> None:
        self.sees_all_calls &= not isinstance(tool, AgentTool) or tool.include_plugins
        self.began(tool_context, tool.name, tool_args)

    async def after_tool_callback(self, *, tool: BaseTool, tool_context: ToolContext, result: Any, **_: Any) -> None:
        output = _output(cast("JsonObject", result) if isinstance(result, dict) else {"result": result})
        actions = tool_context.actions
        if actions.requested_tool_confirmations or actions.requested_auth_configs:
            self.waits_for = tool.name
            output = ToolOutput(output.text, "denied")
        self.ended(tool_context, output)

    async def on_tool_error_callback(self, *, tool_context: ToolContext, error: BaseException, **_: Any) -> None:
        if not isinstance(error, asyncio.CancelledError):  # the child was stopped: see `stop`
            self.ended(tool_context, ToolOutput(f"{type(error).__name__}: {error}", "error"))

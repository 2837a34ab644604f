"""Converts LangChain tools for children, and runs children as graphs."""

# The methods of LangGraph's generic classes are partly untyped:
# pyright: reportUnknownMemberType=false

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, cast
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as as_tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.errors import GraphRecursionError
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.pregel import Pregel
from langgraph.types import Command

from delegate._util.cancellation import contained
from delegate.child.job import ChildRunner, Job, call_tool
from delegate.hosts.declarations import declared
from delegate.hosts.host_tool import Invocation, approval_denied
from delegate.hosts.langchain.tool import (
    AnyToolRuntime,
    DelegateTool,
    Graph,
    Injected,
    RawTool,
    content_and_artifact,
    messages,
)
from delegate.hosts.own_agents import AgentRunner, ChildRecorder, Ending, NativeTool, TooManyTurns
from delegate.types import JsonObject, Usage
from delegate.types.errors import ConfigError
from delegate.types.ports import Tool, ToolOutput


def child_tools(tools: Sequence[BaseTool | Callable[..., Any] | JsonObject]) -> list[Tool]:
    """Convert an agent's tools for `Delegator(tools=…)`. They get the context and store of the run that delegates.

    Delegate's own tools, and tools that a provider runs (plain dicts), are omitted. A tool that asks a person
    (`interrupt`) or changes the graph's state (`Command`) is denied to children in delegate's own loop; children that
    are graphs have a state of their own, see `runner`.
    """
    usable = [one if isinstance(one, BaseTool) else as_tool(one) for one in tools if not isinstance(one, dict)]
    return [_child_tool(one) for one in usable if not isinstance(one, DelegateTool)]


def _child_tool(native: BaseTool) -> Tool:
    async def call(arguments: Mapping[str, Any]) -> ToolOutput:
        parent = cast("AnyToolRuntime | None", Invocation.current(ToolRuntime))
        node = ToolNode([native], handle_tool_errors=True, awrap_tool_call=_refuse_state_changes)
        graph = StateGraph(MessagesState).add_node("tools", node).set_entry_point("tools").set_finish_point("tools")
        tool_call = ToolCall(type="tool_call", name=native.name, args=dict(arguments), id=f"call_{uuid4().hex}")
        compiled = graph.compile(store=parent and parent.store)
        state = await _run_isolated(compiled, AIMessage("", tool_calls=[tool_call]))
        if "__interrupt__" in state:
            raise approval_denied(native.name)
        return _output(messages(state)[-1])

    function = convert_to_openai_tool(native)["function"]
    made = NativeTool(native.name, function.get("description", ""), function["parameters"], call, native=native)
    return declared(made, native.metadata)  # where LangChain's MCP adapters put the annotations


async def _refuse_state_changes(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
) -> ToolMessage:
    answer = await execute(request)
    if isinstance(answer, ToolMessage):
        return answer
    name, call_id = request.tool_call["name"], request.tool_call["id"]
    text = f"{name} changes a graph's state, which a child doesn't have; nothing was changed: continue without it"
    return ToolMessage(text, name=name, tool_call_id=call_id, status="error")


def _output(answer: object) -> ToolOutput:
    """What a tool returned. Tools of the job keep their `ToolOutput` as the message's artifact."""
    if not isinstance(answer, ToolMessage):
        return ToolOutput(str(answer))
    if isinstance(answer.artifact, ToolOutput):
        return answer.artifact
    return ToolOutput(answer.text, "error" if answer.status == "error" else "ok")


async def _run_isolated(graph: Graph, message: AnyMessage, callbacks: Sequence[BaseCallbackHandler] = ()) -> JsonObject:
    """Run a graph that isn't part of the parent's graph, which would count its messages, checkpoints and tokens.

    It gets the parent's context and configurable settings. Its trace is nested under the parent's call.
    """
    parent = cast("AnyToolRuntime | None", Invocation.current(ToolRuntime))
    variables = copy_context()
    for variable, value in variables.items():
        if isinstance(value, BaseCallbackHandler):
            variables.run(variable.set, None)
    variables.run(var_child_runnable_config.set, None)
    settings = parent.config.get("configurable", {}) if parent else {}
    kept = {name: value for name, value in settings.items() if not name.startswith(("__", "checkpoint", "thread_id"))}
    config = RunnableConfig(callbacks=list(callbacks), configurable=kept)
    run = graph.ainvoke({"messages": [message]}, config, context=parent.context if parent else None)
    return await asyncio.create_task(contained(run), context=variables)


# ----------------------------------------------------------------------------------------- children that are graphs


def runner(make: Callable[[list[BaseTool]], Graph]) -> ChildRunner:
    """Run children as graphs whose state has `messages`, for `Delegator(runner=…)`.

    `make` creates the graph of each child from the tools that this child may use: the LangChain tools given as
    `Delegator(tools=child_tools(…))`, or otherwise delegate's built-in tools, which work in the child's workspace.

    Every tool whose callbacks run gets a receipt, in nested graphs too. A graph that waits for a person ends the child.
    The graph chooses its model: the parent's tier isn't enforced, and the cost is unknown.

    Raises:
        ConfigError: it is a compiled graph, which has its own tools: see `child`.
    """
    if isinstance(make, Pregel):
        raise ConfigError("runner: a compiled graph has its own tools; use `child(graph)` to run it with them")
    return AgentRunner(
        _ChildRecorder,
        lambda job, recorder: _play(make([_langchain_tool(one) for one in job.tools]), job, recorder),
        gives_job_tools=True,
    )


def child(graph: Graph) -> ChildRunner:
    """Run each child as this compiled graph as it is, for `Delegator(runner=…)`: with its own tools and subgraphs.

    A task that sets `tools` is refused, since it couldn't restrict the graph's. The tools learn the child's folder by
    `delegate.workspace()`. What a model's provider runs itself, such as its web search, isn't recorded. Receipts, model
    and cost are as with `runner`.
    """
    return AgentRunner(_ChildRecorder, partial(_play, graph))


async def _play(graph: Graph, job: Job, recorder: "_ChildRecorder") -> Ending:
    try:
        state = await _run_isolated(graph, HumanMessage(job.prompt), [recorder])
    except GraphRecursionError as error:
        raise TooManyTurns(str(error)) from None
    last = next(reversed(messages(state)), None)
    if "__interrupt__" in state:
        message = "the child's graph waits for a person, and no person is available"
        return Ending(code="needs_a_person", message=message)
    if not isinstance(last, BaseMessage):
        return Ending(code="bad_report", message="the child's graph ended without a message")
    metadata = last.response_metadata
    return Ending.by_reason(last.text, metadata.get("finish_reason", metadata.get("stop_reason")))


def _langchain_tool(tool: Tool) -> BaseTool:
    """A tool of the job as a LangChain tool."""
    if isinstance(tool, NativeTool):
        return tool.native

    async def call(langchain_runtime: Injected = None, **arguments: Any) -> tuple[Any, object]:
        output = await call_tool(tool, arguments)
        return content_and_artifact(tool.name, output.text, output, langchain_runtime, is_error=output.status != "ok")

    return RawTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.parameters,
        coroutine=call,
        response_format="content_and_artifact",
    )


class _ChildRecorder(BaseCallbackHandler, ChildRecorder):
    """Records the model calls and tool calls of one child, and ends the child when it exceeds its limits."""

    run_inline = True  # keeps the events in order
    raise_error = True  # lets `on_chat_model_start` end the child

    def __init__(self, job: Job) -> None:
        ChildRecorder.__init__(self, job)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        self.begin_turn()

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        for generation in response.generations[0]:
            if isinstance(generation, ChatGeneration) and isinstance(generation.message, AIMessage):
                self._on_loop(self._record_usage, generation.message)

    def on_tool_start(
        self, serialized: JsonObject, input_str: str, *, run_id: UUID, inputs: JsonObject | None = None, **_: Any
    ) -> None:
        self._on_loop(self.began, run_id, str(serialized.get("name")), inputs or {})

    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        self._on_loop(self.ended, run_id, _output(output))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        if isinstance(error, asyncio.CancelledError):  # the child was stopped: see `stop`
            return
        self._on_loop(self.ended, run_id, ToolOutput(f"{type(error).__name__}: {error}", "error"))

    def _on_loop(self, record: Callable[..., None], *arguments: Any) -> None:
        """Call `record` on the event loop. The callbacks of sync tools run in other threads."""
        if threading.get_ident() == self._thread:
            record(*arguments)
        else:
            self._loop.call_soon_threadsafe(record, *arguments)

    def _record_usage(self, message: AIMessage) -> None:
        used = message.usage_metadata or UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
        read, written = used.get("input_token_details", {}), used.get("output_token_details", {})
        usage = Usage(
            model_calls=1,
            input_tokens=used["input_tokens"],
            cached_tokens=read.get("cache_read") or 0,
            cache_write_tokens=read.get("cache_creation") or 0,
            output_tokens=used["output_tokens"],
            reasoning_tokens=written.get("reasoning") or 0,
        )
        self.end_turn(usage, model=message.response_metadata.get("model_name"), text=message.text)

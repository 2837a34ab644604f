"""The parent's tools for children, and children that are agents of the framework."""

# LangGraph's generic classes leave parts of their methods' types open:
# pyright: reportUnknownMemberType=false

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import (
    var_child_runnable_config,
)
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as as_tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.errors import GraphRecursionError
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.pregel import Pregel
from langgraph.types import Command

from delegate.child.job import ChildRunner, Job, PendingReceipt
from delegate.errors import ToolDenied, ToolError
from delegate.hosts.langchain.tool import (
    AnyToolRuntime,
    Graph,
    Injected,
    OwnTool,
    RawTool,
    messages,
    parent_context,
    returned,
)
from delegate.ports import Tool, ToolOutput
from delegate.types import ChildRun, ErrorDetail, JsonObject, Usage

_CUT_SHORT = ("length", "max_tokens", "MAX_TOKENS")


@dataclass(frozen=True, slots=True)
class _Native(Tool):
    native: BaseTool = field(kw_only=True)


def child_tools(tools: Sequence[BaseTool | Callable[..., Any] | JsonObject]) -> list[Tool]:
    """The tools of an agent, for `Delegator(tools=…)`, with the context and the store of the run that called.

    Left out are delegate's own, and those that a provider runs (plain dicts). A tool that asks a person (`interrupt`)
    or changes the graph's state (`Command`) is refused to a child, which has neither: see `runner` for the state.
    """
    usable = [one if isinstance(one, BaseTool) else as_tool(one) for one in tools if not isinstance(one, dict)]
    return [_child_tool(one) for one in usable if not isinstance(one, OwnTool)]


def _child_tool(native: BaseTool) -> Tool:
    async def call(arguments: Mapping[str, Any]) -> ToolOutput:
        asking = parent_context.get()
        node = ToolNode([native], handle_tool_errors=True, awrap_tool_call=_without_state)
        graph = StateGraph(MessagesState).add_node("tools", node).set_entry_point("tools").set_finish_point("tools")
        asked = ToolCall(type="tool_call", name=native.name, args=dict(arguments), id=f"call_{uuid4().hex}")
        state = await _apart(graph.compile(store=asking and asking.store), [AIMessage("", tool_calls=[asked])], asking)
        if "__interrupt__" in state:
            raise ToolDenied(f"{native.name} asks a person, and there is none here: do without it")
        return _output(messages(state)[-1])

    function = convert_to_openai_tool(native)["function"]
    return _Native(native.name, function.get("description", ""), function["parameters"], call, native=native)


async def _without_state(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
) -> ToolMessage:
    answer = await execute(request)
    if isinstance(answer, ToolMessage):
        return answer
    name, call_id = request.tool_call["name"], request.tool_call["id"]
    text = f"{name} changes a graph's state, which there isn't here: nothing came of it, do without it"
    return ToolMessage(text, name=name, tool_call_id=call_id, status="error")


def _output(answer: object) -> ToolOutput:
    """What a tool gave, in text. Ours put it beside their messages."""
    if not isinstance(answer, ToolMessage):
        return ToolOutput(str(answer))
    if isinstance(answer.artifact, ToolOutput):
        return answer.artifact
    return ToolOutput(answer.text, "error" if answer.status == "error" else "ok")


async def _apart(
    graph: Graph,
    messages: list[AnyMessage],
    asking: AnyToolRuntime | None,
    callbacks: Sequence[BaseCallbackHandler] = (),
) -> JsonObject:
    """Run a graph as no part of the one that asks, which would take its messages, checkpoints and tokens for its own.

    It has that one's context and settings; its trace hangs under the call.
    """
    around = copy_context()
    for variable, value in around.items():
        if isinstance(value, BaseCallbackHandler):
            around.run(variable.set, None)
    around.run(var_child_runnable_config.set, None)
    settings = asking.config.get("configurable", {}) if asking else {}
    kept = {name: value for name, value in settings.items() if not name.startswith(("__", "checkpoint", "thread_id"))}
    config = RunnableConfig(callbacks=list(callbacks), configurable=kept)
    work = graph.ainvoke({"messages": messages}, config, context=asking.context if asking else None)
    return await asyncio.create_task(work, context=around)


# ----------------------------------------------------------------------------------------- children that are graphs


def runner(agent: Graph | Callable[[list[BaseTool]], Graph]) -> ChildRunner:
    """Children as runs of a graph whose state has `messages`, for `Delegator(runner=…)`.

    `agent` makes the graph for each child from the tools that this child may use: those of
    `Delegator(tools=child_tools(…))` as LangChain's own objects, or else delegate's built-in ones, which work in the
    child's workspace. A graph that is compiled already has the tools it has: a task that names its own is refused.

    Receipts are written for every tool whose callbacks run, also in graphs inside the graph. A graph that waits for a
    person ends the child. The model is the graph's: it is not held under the parent's tier, and its cost is unknown.
    """
    if isinstance(agent, Pregel):
        compiled = cast("Graph", agent)
        return _GraphRunner(lambda _: compiled, tools_fixed=True)
    return _GraphRunner(agent)


@dataclass(frozen=True, slots=True)
class _GraphRunner:
    make: Callable[[list[BaseTool]], Graph]
    tools_fixed: bool = False
    needs_model = False
    records_tools = True

    async def run(self, job: Job) -> ChildRun:
        if self.tools_fixed and job.task.tools is not None:
            return _failed(job, "tools_fixed", "this child's tools are built in: `tools` can't narrow them")
        graph, at_work = self.make([_lent(one) for one in job.tools]), _ChildAtWork(job)
        try:
            state = await _apart(graph, [HumanMessage(job.prompt)], parent_context.get(), [at_work])
        except (GraphRecursionError, _TooManyTurns) as error:
            return job.recorder.finish("max_steps", error=ErrorDetail(code="max_steps", message=str(error)))
        finally:
            at_work.stopped()
        return _end(job, state)


def _end(job: Job, state: JsonObject) -> ChildRun:
    last = next(reversed(messages(state)), None)
    if "__interrupt__" in state:
        return _failed(job, "needs_a_person", "the child's graph waits for a person, and there is none")
    if not isinstance(last, BaseMessage):
        return _failed(job, "bad_report", "the child's graph ended without a message")
    if last.response_metadata.get("finish_reason", last.response_metadata.get("stop_reason")) in _CUT_SHORT:
        return _failed(job, "truncated", "the model's last message was cut off by a token limit", output=last.text)
    return job.recorder.finish("completed", output=last.text)


def _failed(job: Job, code: str, message: str, *, output: str | None = None) -> ChildRun:
    return job.recorder.finish("failed", output=output, error=ErrorDetail(code=code, message=message))


def _lent(tool: Tool) -> BaseTool:
    """A tool of the job, as LangChain's."""
    if isinstance(tool, _Native):
        return tool.native

    async def call(langchain_runtime: Injected = None, **arguments: Any) -> tuple[Any, object]:
        try:
            answer = await tool.call(arguments)
        except ToolDenied as error:
            answer = ToolOutput(str(error), "denied")
        except ToolError as error:
            answer = ToolOutput(str(error), "error")
        except Exception as error:  # the child reads it and goes on, as in our own loop
            answer = ToolOutput(f"{tool.name} failed: {type(error).__name__}: {error}", "error")
        output = answer if isinstance(answer, ToolOutput) else ToolOutput(answer)
        return returned(tool.name, output.text, output, langchain_runtime, is_error=output.status != "ok")

    return RawTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.parameters,
        coroutine=call,
        response_format="content_and_artifact",
    )


class _TooManyTurns(Exception):
    """The child's model was asked more often than its task allows."""


class _ChildAtWork(BaseCallbackHandler):
    """Writes down what one child does, as LangChain tells it."""

    run_inline = True  # in the order in which it happens
    raise_error = True  # a child beyond its limits ends

    def __init__(self, job: Job) -> None:
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._turns = 0
        self._pending: dict[UUID, PendingReceipt] = {}

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        self._job.ledger.reserve({"model_calls": 1, "tokens": 1}).settle({})  # refused where nothing is left
        self._turns += 1
        if self._turns > self._job.max_steps:
            raise _TooManyTurns(f"the child still called tools after {self._job.max_steps} turns")

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        for generation in response.generations[0]:
            if isinstance(generation, ChatGeneration) and isinstance(generation.message, AIMessage):
                self._on_loop(self._book, generation.message)

    def on_tool_start(
        self, serialized: JsonObject, input_str: str, *, run_id: UUID, inputs: JsonObject | None = None, **_: Any
    ) -> None:
        self._on_loop(self._begin, run_id, str(serialized.get("name")), inputs or {})

    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        self._on_loop(self._write, run_id, _output(output))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        self._on_loop(self._write, run_id, ToolOutput(f"{type(error).__name__}: {error}", "error"))

    def stopped(self) -> None:
        """Write the receipts of calls that were cut short."""
        while self._pending:
            self._pending.popitem()[1].write()

    def _on_loop(self, write: Callable[..., None], *what: Any) -> None:
        """Tools that aren't async tell it from threads of their own."""
        if threading.get_ident() == self._thread:
            write(*what)
        else:
            self._loop.call_soon_threadsafe(write, *what)

    def _book(self, message: AIMessage) -> None:
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
        self._job.record_usage(usage, model=message.response_metadata.get("model_name"))
        self._job.notify("model_called", message.text[:200], tokens=usage.total_tokens)

    def _begin(self, run_id: UUID, tool: str, arguments: JsonObject) -> None:
        self._pending[run_id] = self._job.tool_call(tool, arguments)

    def _write(self, run_id: UUID, output: ToolOutput) -> None:
        if (receipt := self._pending.pop(run_id, None)) is not None:
            receipt.output = output
            receipt.write()

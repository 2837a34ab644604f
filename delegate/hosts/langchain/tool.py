"""The tool, and what the framework knows of a call of it."""

# LangGraph's generic classes leave parts of their methods' types open:
# pyright: reportUnknownMemberType=false

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Annotated, Any, cast
from uuid import uuid4

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import ensure_config
from langchain_core.runnables.config import (
    get_async_callback_manager_for_config,
    get_callback_manager_for_config,
)
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool
from langgraph.constants import TAG_NOSTREAM
from langgraph.prebuilt import ToolRuntime
from langgraph.pregel import Pregel
from langgraph.runtime import RunControl, Runtime, get_runtime

from delegate import Delegator
from delegate.budget.runs import KEPT_RUNS
from delegate.hosts import progress
from delegate.hosts.host_tool import (
    HostTool,
    Invocation,
    ToolAnswer,
    make_delegate_tool,
    make_read_tool,
    make_think_tool,
)
from delegate.ports import Event, EventSink
from delegate.types import Parent, Report, Usage

Graph = Pregel[Any, Any, Any, Any]
AnyToolRuntime = ToolRuntime[Any, Any]
Injected = Annotated[AnyToolRuntime | None, InjectedToolArg]

"""How providers say that a token limit ended a message."""

parent_context: ContextVar[AnyToolRuntime | None] = ContextVar("delegate_langchain_asking", default=None)
"""The call under which children work: their tools get its context and store."""


def tool(delegator: Delegator | None = None, *, parent: Parent | None = None, **options: Any) -> BaseTool:
    """The tool, for an agent's `tools`. `options` are settings, where no delegator is given; see `delegate_tool`.

    Raises:
        ConfigError: the settings are wrong.
    """
    return _structured_tool(make_delegate_tool(delegator, parent=parent, **options))


def read_tool(delegator: Delegator) -> BaseTool:
    """The second tool, which reads a report that was cut."""
    return _structured_tool(make_read_tool(delegator), by_run=False)


def think_tool(delegator: Delegator) -> BaseTool:
    """The scratchpad."""
    return _structured_tool(make_think_tool(delegator), by_run=False)


class RawTool(StructuredTool):
    """Hands on all arguments as they came. LangChain would fill in some itself, and lose what the model wrote there."""

    def _run(self, /, *args: Any, **arguments: Any) -> Any:
        assert self.func is not None
        return self.func(**arguments)

    async def _arun(self, /, *args: Any, **arguments: Any) -> Any:
        assert self.coroutine is not None
        return await self.coroutine(**arguments)


class OwnTool(RawTool):
    """Never a child's: what a child may delegate is decided by the depth."""


def _structured_tool(host_tool: HostTool, *, by_run: bool = True) -> BaseTool:
    """An offer as LangChain's tool. Not `by_run`, the call isn't tied to the run in which it is made."""

    def call(langchain_runtime: Injected = None, **arguments: Any) -> tuple[Any, object]:
        parent_context.set(langchain_runtime)
        answer = host_tool.call_sync(arguments, _known(langchain_runtime) if by_run else Invocation())
        _tell(answer)
        return returned(host_tool.name, answer.text, answer.structured, langchain_runtime, is_error=answer.is_error)

    async def call_async(langchain_runtime: Injected = None, **arguments: Any) -> tuple[Any, object]:
        parent_context.set(langchain_runtime)
        answer = await host_tool.call(arguments, _known(langchain_runtime) if by_run else Invocation())
        await _tell_async(answer)
        return returned(host_tool.name, answer.text, answer.structured, langchain_runtime, is_error=answer.is_error)

    return OwnTool(
        name=host_tool.name,
        description=host_tool.description,
        args_schema=host_tool.parameters,
        func=call,
        coroutine=call_async,
        response_format="content_and_artifact",
    )


def returned(
    name: str, text: str, artifact: object, runtime: AnyToolRuntime | None, *, is_error: bool
) -> tuple[Any, object]:
    """Content and artifact. An error is a whole message, which alone can say that it is one."""
    if not is_error or runtime is None or runtime.tool_call_id is None:
        return text, artifact
    message = ToolMessage(text, name=name, tool_call_id=runtime.tool_call_id, artifact=artifact, status="error")
    return message, None


# ------------------------------------------------------------------------------------------- what LangChain knows


def _known(runtime: AnyToolRuntime | None) -> Invocation:
    if runtime is None:  # not in a graph
        return Invocation(session=object())
    graph = _graph_runtime()
    parent = Parent(
        run_id=_run_id(graph.control) if graph and graph.control else None,
        model=_model_name(runtime.state),
        tools=tuple(one.name for one in runtime.tools) or None,
    )
    return Invocation(parent=parent, session=object(), on_event=_sink(runtime, graph))


def _graph_runtime() -> Runtime[Any] | None:
    try:
        return cast("Runtime[Any] | None", get_runtime())
    except (RuntimeError, KeyError):  # called by hand, outside of any graph
        return None


_run_ids: OrderedDict[RunControl, str] = OrderedDict()
_run_ids_lock = threading.Lock()


def _run_id(control: RunControl) -> str:
    """A root graph's run has one control, which all graphs inside it share. It has no id unless somebody gave one."""
    with _run_ids_lock:
        name = _run_ids.setdefault(control, f"langgraph-{uuid4().hex}")
        _run_ids.move_to_end(control)
        if len(_run_ids) > KEPT_RUNS:
            _run_ids.popitem(last=False)
        return name


def _model_name(state: object) -> str | None:
    """The model that wrote the last message of an AI, under the name that its provider gave."""
    for message in reversed(messages(state)):
        if isinstance(message, AIMessage):
            return message.response_metadata.get("model_name") or None
    return None


def messages(state: object) -> Sequence[object]:
    found: object = state
    if isinstance(state, Mapping):
        found = cast("Mapping[str, object]", state).get("messages")
    elif not isinstance(state, list):
        found = getattr(state, "messages", None)
    return cast("list[object]", found) if isinstance(found, list) else ()


def _sink(runtime: AnyToolRuntime, graph: Runtime[Any] | None) -> EventSink:
    def sink(event: Event) -> None:
        said = progress.line(event)
        told = {"kind": event.kind, "task_index": event.task_index, "text": said}
        runtime.stream_writer({"tool_call_id": runtime.tool_call_id, "delegate": told})
        runtime.emit_output_delta(said)
        if graph is not None:
            graph.heartbeat()

    return sink


# -------------------------------------------------------------------------------------------------------- usage


def _tell(answer: ToolAnswer) -> None:
    """Tell the run's callbacks of the tokens: that is all the totals that LangChain has."""
    for name, model, usage in _spent(answer.report):
        manager = get_callback_manager_for_config(ensure_config())
        _mark(manager, model)
        for run in manager.on_chat_model_start({}, [[]], name=name):
            run.on_llm_end(_result(model, usage))


async def _tell_async(answer: ToolAnswer) -> None:
    for name, model, usage in _spent(answer.report):
        manager = get_async_callback_manager_for_config(ensure_config())
        _mark(manager, model)
        for run in await manager.on_chat_model_start({}, [[]], name=name):
            await run.on_llm_end(_result(model, usage))


def _mark(manager: BaseCallbackManager, model: str) -> None:
    """For tracers, the name; for the stream of messages, that this is none."""
    manager.add_tags([TAG_NOSTREAM], inherit=False)
    manager.add_metadata({"ls_model_name": model, "ls_model_type": "chat"}, inherit=False)


def _spent(report: Report | None) -> Iterator[tuple[str, str, Usage]]:
    """Who spent it, on which model, and how much."""
    for result in report.results if report else ():
        task, judge, below = f"task {result.task_index}", result.verdict and result.verdict.judge, result.delegated
        parts = [(f"{task}: child", result.model, result.usage)]
        if judge:
            parts.append((f"{task}: judge", judge.model_served or judge.model, judge.usage))
        if below:
            parts.append((f"{task}: delegated", None, below.child_usage + below.judge_usage))
        yield from ((name, model or "unknown", usage) for name, model, usage in parts if usage.total_tokens)


def _result(model: str, usage: Usage) -> LLMResult:
    metadata = UsageMetadata(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_token_details={"cache_read": usage.cached_tokens, "cache_creation": usage.cache_write_tokens},
        output_token_details={"reasoning": usage.reasoning_tokens},
    )
    message = AIMessage("", usage_metadata=metadata, response_metadata={"model_name": model})
    return LLMResult(generations=[[ChatGeneration(message=message)]])

"""The tools, and what LangChain knows about each call of them."""

# The methods of LangGraph's generic classes are partly untyped:
# pyright: reportUnknownMemberType=false

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, cast
from uuid import uuid4

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import ensure_config
from langchain_core.runnables.config import get_async_callback_manager_for_config, get_callback_manager_for_config
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool
from langgraph.constants import TAG_NOSTREAM
from langgraph.prebuilt import ToolRuntime
from langgraph.pregel import Pregel
from langgraph.runtime import RunControl, Runtime, get_runtime

from delegate.budget.runs import KEPT_RUNS
from delegate.hosts import progress
from delegate.hosts.host_tool import HostTool, Invocation, ToolAnswer
from delegate.hosts.tool_functions import tool_functions
from delegate.types import Parent, RunResult, Usage
from delegate.types.events import Event, EventSink

Graph = Pregel[Any, Any, Any, Any]
AnyToolRuntime = ToolRuntime[Any, Any]
Injected = Annotated[AnyToolRuntime | None, InjectedToolArg]
"""A parameter that LangChain fills in and doesn't show to the model."""


class RawTool(StructuredTool):
    """Passes on all arguments unchanged. LangChain would replace some of them and lose what the model wrote."""

    def _run(self, /, *args: Any, **arguments: Any) -> Any:
        assert self.func is not None
        return self.func(**arguments)

    async def _arun(self, /, *args: Any, **arguments: Any) -> Any:
        assert self.coroutine is not None
        return await self.coroutine(**arguments)


class DelegateTool(RawTool):
    """A tool of delegate's own. `child_tools` omits it: the depth limit decides whether a child may delegate."""


def _structured_tool(host_tool: HostTool) -> BaseTool:
    name = host_tool.name

    def call(langchain_runtime: Injected = None, **arguments: Any) -> tuple[Any, object]:
        answer = host_tool.call_sync(arguments, _invocation(langchain_runtime))
        _report_usage(answer)
        return content_and_artifact(name, answer.text, answer.structured, langchain_runtime, is_error=answer.is_error)

    async def call_async(langchain_runtime: Injected = None, **arguments: Any) -> tuple[Any, object]:
        answer = await host_tool.call(arguments, _invocation(langchain_runtime))
        await _report_usage_async(answer)
        return content_and_artifact(name, answer.text, answer.structured, langchain_runtime, is_error=answer.is_error)

    return DelegateTool(
        name=name,
        description=host_tool.description,
        args_schema=host_tool.parameters,
        func=call,
        coroutine=call_async,
        response_format="content_and_artifact",
    )


tool, read_tool, think_tool, follow_up_tools = tool_functions(_structured_tool)


def content_and_artifact(
    name: str, text: str, artifact: object, runtime: AnyToolRuntime | None, *, is_error: bool
) -> tuple[Any, object]:
    """What a tool returns. An error has to be a whole `ToolMessage`, the only form that has a status."""
    if not is_error or runtime is None or runtime.tool_call_id is None:
        return text, artifact
    message = ToolMessage(text, name=name, tool_call_id=runtime.tool_call_id, artifact=artifact, status="error")
    return message, None


# ------------------------------------------------------------------------------- what LangChain knows about a call


def _invocation(runtime: AnyToolRuntime | None) -> Invocation:
    if runtime is None:  # called outside of a graph
        return Invocation(session=object())
    graph: Runtime[Any] | None = None
    with suppress(RuntimeError, KeyError):  # called outside of a graph
        graph = cast("Runtime[Any] | None", get_runtime())
    last = next((one for one in reversed(messages(runtime.state)) if isinstance(one, AIMessage)), None)
    parent = Parent(
        run_id=_run_id(graph.control) if graph and graph.control else None,
        model=(last and last.response_metadata.get("model_name")) or None,  # by the name in the provider's response
        tools=tuple(one.name for one in runtime.tools) or None,
    )
    return Invocation(parent=parent, session=object(), on_event=_sink(runtime, graph), native=runtime)


_run_ids: OrderedDict[RunControl, str] = OrderedDict()
_run_ids_lock = threading.Lock()


def _run_id(control: RunControl) -> str:
    """A generated id for the run of a root graph, recognized by its control, which all graphs inside it share."""
    with _run_ids_lock:
        run_id = _run_ids.setdefault(control, f"langgraph-{uuid4().hex}")
        _run_ids.move_to_end(control)
        if len(_run_ids) > KEPT_RUNS:
            _run_ids.popitem(last=False)
        return run_id


def messages(state: object) -> Sequence[object]:
    """The messages in a graph's state, which may be a mapping, a list or an object."""
    found: object = state
    if isinstance(state, Mapping):
        found = cast("Mapping[str, object]", state).get("messages")
    elif not isinstance(state, list):
        found = getattr(state, "messages", None)
    return cast("list[object]", found) if isinstance(found, list) else ()


def _sink(runtime: AnyToolRuntime, graph: Runtime[Any] | None) -> EventSink:
    def write(event: Event, line: str) -> None:
        data = {"kind": event.kind, "task_index": event.task_index, "text": line}
        runtime.stream_writer({"tool_call_id": runtime.tool_call_id, "delegate": data})
        runtime.emit_output_delta(line)
        if graph is not None:
            graph.heartbeat()

    return progress.news(write)


# -------------------------------------------------------------------------------------------------------- usage


def _report_usage(answer: ToolAnswer) -> None:
    """Report the tokens to the run's callbacks, since LangChain has no other totals."""
    for name, model, usage in _usage_entries(answer.result):
        manager = get_callback_manager_for_config(ensure_config())
        _annotate(manager, model)
        for run in manager.on_chat_model_start({}, [[]], name=name):
            run.on_llm_end(_llm_result(model, usage))


async def _report_usage_async(answer: ToolAnswer) -> None:
    for name, model, usage in _usage_entries(answer.result):
        manager = get_async_callback_manager_for_config(ensure_config())
        _annotate(manager, model)
        for run in await manager.on_chat_model_start({}, [[]], name=name):
            await run.on_llm_end(_llm_result(model, usage))


def _annotate(manager: BaseCallbackManager, model: str) -> None:
    """Give tracers the model's name, and keep the empty message out of the stream of messages."""
    manager.add_tags([TAG_NOSTREAM], inherit=False)
    manager.add_metadata({"ls_model_name": model, "ls_model_type": "chat"}, inherit=False)


def _usage_entries(run: RunResult | None) -> Iterator[tuple[str, str, Usage]]:
    """The name, model and usage of each child, each judge, and what the children delegated."""
    for result in run.results if run else ():
        task, judge = f"task {result.task_index + 1}", result.verdict and result.verdict.judge
        delegated = result.delegated
        entries = [(f"{task}: child", result.model, result.usage)]
        if judge:
            entries.append((f"{task}: judge", judge.model_served or judge.model, judge.usage))
        if delegated:
            entries.append((f"{task}: delegated", None, delegated.child_usage + delegated.judge_usage))
        yield from ((name, model or "unknown", usage) for name, model, usage in entries if usage.total_tokens)


def _llm_result(model: str, usage: Usage) -> LLMResult:
    metadata = UsageMetadata(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_token_details={"cache_read": usage.cached_tokens, "cache_creation": usage.cache_write_tokens},
        output_token_details={"reasoning": usage.reasoning_tokens},
    )
    message = AIMessage("", usage_metadata=metadata, response_metadata={"model_name": model})
    return LLMResult(generations=[[ChatGeneration(message=message)]])

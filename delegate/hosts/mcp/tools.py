"""The tools that the server lists and its answers, as protocol messages, independent of the SDK version."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import anyio

from delegate._util.cancellation import Cancellation
from delegate._util.resources import schema
from delegate.engine.admission import refusal
from delegate.errors import CallError
from delegate.hosts.host_tool import HostTool, Invocation, ToolAnswer
from delegate.hosts.mcp.clients import Clients
from delegate.ports import Event, EventSink
from delegate.types import JsonObject, Report

T = TypeVar("T")
ProgressCallback = Callable[[float, float, str], Awaitable[None]]
"""Sends the client one progress notification: the progress, the total, and a line of text."""

_HINTS: Mapping[str, JsonObject] = {
    # Children may change whatever the operator allows, so a client that asks its user for permission should do so.
    "delegate": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True},
    "read": {"readOnlyHint": True, "openWorldHint": False},
    "think": {"readOnlyHint": True, "openWorldHint": False},
}
_TITLES = {"delegate": "Delegate tasks", "read": "Read a delegated task's report", "think": "Think"}


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """One `tools/call` request."""

    tool: str
    arguments: JsonObject
    http: Any
    """The SDK's HTTP request that brought it; None over other transports."""
    run_name: object
    """The name that the client gave its run, unvalidated; None if it gave none."""
    report_progress: ProgressCallback | None
    """None if the client didn't request progress."""
    disconnected: Cancellation | None
    """Canceled when nobody can read the answer any more; None if the SDK cancels the handler itself."""


class Tools:
    """The tools of the server. Each keyword, `delegate`, `read` or `think`, gives the kind of its tool."""

    def __init__(self, clients: Clients, **host_tools: HostTool) -> None:
        self._clients = clients
        self.listed = [_definition(kind, host_tool) for kind, host_tool in host_tools.items()]
        self._host_tools = {host_tool.name: host_tool for host_tool in host_tools.values()}

    async def answer(self, request: ToolRequest) -> JsonObject:
        """Answer one call. Raises only CancelledError, after all children have ended."""
        host_tool = self._host_tools.get(request.tool)
        if host_tool is None:
            names = ", ".join(self._host_tools)
            return _result(f"unknown tool {request.tool!r}; the available tools are {names}", is_error=True)
        client = self._clients.identify(request.http)
        try:
            parent = self._clients.parent(client, request.run_name)
        except CallError as error:
            report = refusal(error)
            return _result(host_tool.delegator.render(report), report.model_dump(mode="json"), is_error=True)
        invocation = Invocation(parent=parent, session=client, cancellation=request.disconnected)
        answer = await _run_to_completion(_answer(host_tool, request, invocation))
        if run_id := answer.get("structuredContent", {}).get("run_id"):
            self._clients.add_run(client, run_id)
        return answer


@asynccontextmanager
async def _reported(send: ProgressCallback | None) -> AsyncGenerator[EventSink | None]:
    """Send progress notifications while the block runs, after every event but not more than two a second, and at least
    every ten seconds. Yields the sink for the events, or None if the client requested no progress.
    """
    if send is None:
        yield None
        return
    progress, changed = CallProgress(), asyncio.Event()

    def sink(event: Event) -> None:
        progress.add(event)
        changed.set()

    reporting = asyncio.create_task(_report(progress, changed, send))
    try:
        yield sink
    finally:
        reporting.cancel()
        await asyncio.wait([reporting])
    if progress.total:
        await _send(send, progress)


async def _report(progress: CallProgress, changed: asyncio.Event, send: ProgressCallback) -> None:
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await changed.wait()
        changed.clear()
        if progress.total:
            await _send(send, progress)
        await asyncio.sleep(_PAUSE_SECONDS)


async def _send(send: ProgressCallback, progress: CallProgress) -> None:
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the client has disconnected
        await send(progress.advance(), progress.total, progress.line())


def _definition(kind: str, host_tool: HostTool) -> JsonObject:
    tool: JsonObject = {
        "name": host_tool.name,
        "title": _TITLES[kind],
        "description": host_tool.description,
        "inputSchema": host_tool.parameters,
        "annotations": {"title": _TITLES[kind], **_HINTS[kind]},
    }
    if kind == "delegate":
        tool["outputSchema"] = {key: value for key, value in schema("report").items() if key != "$comment"}
    return tool


def _result(text: str, structured: JsonObject | None = None, *, is_error: bool) -> JsonObject:
    result: JsonObject = {"content": [{"type": "text", "text": text}], "isError": is_error}
    return result if structured is None else {**result, "structuredContent": structured}


async def _run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` in a task of its own and cancel that task only once.

    The SDK uses an anyio cancel scope, which cancels again and again as long as something in it awaits, but children
    need time to end.
    """
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([running])
        raise

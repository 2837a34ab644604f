"""The tools that the server lists and its answers, as protocol messages, independent of the SDK version."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio

from delegate._util.cancellation import Cancellation
from delegate._util.resources import schema
from delegate.hosts.host_tool import HostTool, Invocation
from delegate.hosts.mcp.call_progress import CallProgress
from delegate.hosts.progress import line
from delegate.ports import Event, EventSink
from delegate.types import JsonObject

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
    session: Hashable
    report_progress: ProgressCallback | None
    """None if the client didn't request progress."""
    disconnected: Cancellation | None
    """Canceled when nobody can read the answer any more; None if the SDK cancels the handler itself."""


class Tools:
    """The tools of the server. Each keyword, `delegate`, `read` or `think`, gives the kind of its tool."""

    def __init__(self, **host_tools: HostTool) -> None:
        self.listed = [_definition(kind, host_tool) for kind, host_tool in host_tools.items()]
        self._host_tools = {host_tool.name: host_tool for host_tool in host_tools.values()}

    async def answer(self, request: ToolRequest) -> JsonObject:
        """Answer one call. Raises only CancelledError, after all children have ended."""
        host_tool = self._host_tools.get(request.tool)
        if host_tool is None:
            names = ", ".join(self._host_tools)
            return _result(f"unknown tool {request.tool!r}; the available tools are {names}", is_error=True)
        progress = _ProgressSender(request.report_progress)
        # Never None, so that the calls share a session even if the transport has no id for it: one server, one client.
        session = ("mcp", request.session)
        invocation = Invocation(session=session, on_event=progress.sink, cancellation=request.disconnected)
        try:
            answer = await _run_to_completion(
                host_tool.call(request.arguments, invocation), before_cancel=progress.stop
            )
            await progress.finish()
        finally:
            progress.stop()
        return _result(answer.text, answer.structured, is_error=answer.is_error)


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


async def _run_to_completion(work: Coroutine[Any, Any, T], *, before_cancel: Callable[[], None]) -> T:
    """Await `work` in a task of its own and cancel that task only once. `before_cancel` is called first.

    The SDK uses an anyio cancel scope, which cancels again and again as long as something in it awaits, but children
    need time to end.
    """
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        before_cancel()
        running.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([running])
        raise


class _ProgressSender:
    """Sends the events of a call as progress notifications, in order; none if the client didn't request them."""

    def __init__(self, report_progress: ProgressCallback | None) -> None:
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._sender = asyncio.create_task(self._send(report_progress)) if report_progress else None

    @property
    def sink(self) -> EventSink | None:
        """Takes the call's events; None if the client didn't request progress."""
        return self._events.put_nowait if self._sender else None

    async def finish(self) -> None:
        """Send the remaining notifications, so that all of them precede the answer."""
        self._events.put_nowait(None)
        if self._sender:
            await self._sender

    def stop(self) -> None:
        """Send nothing more: a client gets no notifications for a call that it has canceled."""
        if self._sender:
            self._sender.cancel()

    async def _send(self, report_progress: ProgressCallback) -> None:
        progress = CallProgress()
        while (event := await self._events.get()) is not None:
            progress.count(event)
            try:
                await report_progress(progress.done, progress.total, line(event))
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                return  # the client has disconnected

"""What the server lists, and how it answers, in the words of the protocol: no matter which SDK carries them."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio

from delegate._util.cancellation import Cancellation
from delegate._util.resources import schema
from delegate.hosts.host_tool import HostTool, Invocation
from delegate.hosts.mcp.share import Share
from delegate.hosts.progress import line
from delegate.ports import Event, EventSink
from delegate.types import JsonObject

T = TypeVar("T")
ProgressCallback = Callable[[float, float, str], Awaitable[None]]
"""Sends the client one notification of progress: how far it is, of how much, and a line."""

_HINTS: Mapping[str, JsonObject] = {
    # What children may touch is the operator's choice, so a client that asks its user should ask.
    "delegation": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True},
    "reading": {"readOnlyHint": True, "openWorldHint": False},
    "thinking": {"readOnlyHint": True, "openWorldHint": False},
}
_TITLES = {"delegation": "Delegate tasks", "reading": "Read a delegated task's report", "thinking": "Think"}


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """One `tools/call`, as far as it concerns us."""

    tool: str
    arguments: JsonObject
    session: Hashable
    report: ProgressCallback | None
    """None where the client didn't ask for progress."""
    gone: Cancellation | None
    """Cancelled when nobody can read the answer any more; None where the SDK cancels the handler itself."""


class Tools:
    """Tools on offer, by what they are for: delegation, reading, thinking."""

    def __init__(self, **host_tools: HostTool) -> None:
        self.listed = [_definition(use, host_tool) for use, host_tool in host_tools.items()]
        self._host_tools = {host_tool.name: host_tool for host_tool in host_tools.values()}

    async def answer(self, request: ToolRequest) -> JsonObject:
        """The result of one call. Raises nothing but CancelledError, once all children have ended."""
        host_tool = self._host_tools.get(request.tool)
        if host_tool is None:
            return _result(f"there is no tool {request.tool!r}; there are {', '.join(self._offers)}", is_error=True)
        progress = _Progress(request.report)
        session = ("mcp", request.session)  # also where the transport has no name for it: one server, one client
        known = Invocation(session=session, on_event=progress.sink, cancellation=request.gone)
        try:
            given = await _to_its_end(host_tool.call(request.arguments, known), stopping=progress.stop)
            await progress.finish()
        finally:
            progress.stop()
        return _result(given.text, given.structured, is_error=given.is_error)


def _definition(use: str, host_tool: HostTool) -> JsonObject:
    tool: JsonObject = {
        "name": host_tool.name,
        "title": _TITLES[use],
        "description": host_tool.description,
        "inputSchema": host_tool.parameters,
        "annotations": {"title": _TITLES[use], **_HINTS[use]},
    }
    if use == "delegation":
        tool["outputSchema"] = {key: value for key, value in schema("report").items() if key != "$comment"}
    return tool


def _result(text: str, structured: JsonObject | None = None, *, is_error: bool) -> JsonObject:
    beside = {} if structured is None else {"structuredContent": structured}
    return {"content": [{"type": "text", "text": text}], "isError": is_error, **beside}


async def _to_its_end(work: Coroutine[Any, Any, T], *, stopping: Callable[[], None]) -> T:
    """Await `work` in a task of its own, which a cancel reaches once. `stopping` is called before it does.

    The SDK cancels by a scope of anyio, which does so again and again for as long as anything in it waits; children
    need a moment to end.
    """
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stopping()
        running.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([running])
        raise


class _Progress:
    """Sends what happens to a call's tasks, in its order; where nobody asked, nothing."""

    def __init__(self, report: ProgressCallback | None) -> None:
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._sending = asyncio.create_task(self._send(report)) if report else None

    @property
    def sink(self) -> EventSink | None:
        """Where events go; None where nobody asked."""
        return self._events.put_nowait if self._sending else None

    async def finish(self) -> None:
        """Send what is left, so that all of it comes before the answer."""
        self._events.put_nowait(None)
        if self._sending:
            await self._sending

    def stop(self) -> None:
        """Send nothing more: a client hears no more of a call that it has cancelled."""
        if self._sending:
            self._sending.cancel()

    async def _send(self, report: ProgressCallback) -> None:
        share = Share()
        while (event := await self._events.get()) is not None:
            share.count(event)
            try:
                await report(share.done, share.of, line(event))
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                return  # nobody listens

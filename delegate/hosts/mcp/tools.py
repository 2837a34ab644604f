"""The tools that the server lists and its answers, as protocol messages, independent of the SDK version."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import anyio

from delegate._util.cancellation import Cancellation
from delegate._util.resources import schema
from delegate.engine.admission import refusal
from delegate.errors import CallError
from delegate.hosts.host_tool import HostTool, Invocation, ToolAnswer
from delegate.hosts.mcp.call_progress import CallProgress
from delegate.hosts.mcp.clients import Clients
from delegate.hosts.progress import line
from delegate.hosts.stream import steps
from delegate.ports import EventSink
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


async def _answer(host_tool: HostTool, request: ToolRequest, invocation: Invocation) -> JsonObject:
    """Answer one call and send its events as progress notifications, in order, if the client requested them."""
    progress, send = CallProgress(), request.report_progress

    def call(sink: EventSink) -> Coroutine[Any, Any, ToolAnswer]:
        return host_tool.call(request.arguments, replace(invocation, on_event=sink))

    async with aclosing(steps(call)) as stream:
        async for step in stream:
            if isinstance(step, ToolAnswer):
                return _result(step.text, step.structured, is_error=step.is_error)
            progress.count(step)
            try:
                if send is not None:
                    await send(progress.done, progress.total, line(step))
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                send = None  # the client has disconnected
    raise AssertionError("the stream of a call ended without its answer")


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

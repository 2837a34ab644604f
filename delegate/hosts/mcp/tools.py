"""Answers the calls of the server's tools, as protocol messages, independent of the SDK version."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar
from weakref import WeakSet

import anyio

from delegate._util.cancellation import Cancellation
from delegate.contract import CallProgress
from delegate.contract.readback import run_of
from delegate.delegator import Delegator
from delegate.delegator.background import Delegation
from delegate.engine.consumers import Consumer
from delegate.engine.error_mapping import refusal
from delegate.hosts import host_tool
from delegate.hosts.host_tool import HostTool, Invocation, ToolAnswer
from delegate.hosts.mcp import definitions
from delegate.hosts.mcp.approvals import ClientApprovals, Elicit
from delegate.hosts.mcp.clients import ONE_CALL, WITHOUT_ERRORS, Clients
from delegate.hosts.mcp.projects import ClientFolders, ListRoots
from delegate.hosts.workspaces import WorkspacePolicy
from delegate.types import JsonObject, Parent, RunResult
from delegate.types.errors import CallError
from delegate.types.events import Event, EventSink

T = TypeVar("T")
ProgressCallback = Callable[[float, float, str], Awaitable[None]]
"""Sends the client one progress notification: the progress, the total, and a line of text."""

HEARTBEAT_SECONDS = 10.0
"""The longest time between two progress notifications."""
_PAUSE_SECONDS = 0.5
"""The shortest time between two progress notifications."""
ANSWER_WITHIN = "delegate/answerWithin"
"""The key in a request's `_meta` for the seconds that its client waits for the answer."""
_CLIENTS_OWN = frozenset({"wait_for_previous"})
"""Parameters that clients add to every tool for themselves, and send on: this one is of Gemini CLI."""


@dataclass(slots=True)
class ToolRequest:
    """One `tools/call` request."""

    tool: str
    arguments: JsonObject
    http: Any
    """The SDK's HTTP request that brought it; None over other transports."""
    meta: Mapping[str, Any]
    """What the client says besides the arguments, unvalidated."""
    report_progress: ProgressCallback | None = None
    """None if the client didn't request progress."""
    disconnected: Cancellation | None = None
    """Cancelled when nobody can read the answer any more; None if the SDK cancels the handler itself."""
    as_task: Callable[[str, Delegation, Callable[[], Awaitable[JsonObject]]], JsonObject] | None = None
    """Turns a call into a task of the protocol, given its client and what makes its result. None if the client doesn't
    support them.
    """
    list_roots: ListRoots | None = None
    """Asks the client for its roots; None if it has none to name."""
    elicit: Elicit | None = None
    """Asks the client's user something; None if it has no elicitation."""
    id: object = None
    """The request's id."""
    client_name: str = ""
    """What the client calls itself; empty if it doesn't."""


@dataclass(eq=False)
class Tools:
    """The tools of one server.

    A call that takes longer than `answer_within` seconds goes on in the background, and is answered with its handles;
    `client` is for as long as the client is known to wait. With `structured`, results have a small `structuredContent`
    besides the text. With a `problem`, no call is run: each is answered with it.
    """

    delegator: Delegator
    clients: Clients
    parent: Parent | None = None
    answer_within: float | Literal["client"] | None = "client"
    structured: bool = False
    workspaces: WorkspacePolicy | None = None
    problem: str = ""
    since: dict[object, float] = field(default_factory=dict[object, float])
    """When requests were made that are answered late, by their ids, in seconds of the monotonic clock."""
    open_calls: int = 0
    _folders: ClientFolders = field(default_factory=ClientFolders)
    _approvals: ClientApprovals = field(default_factory=ClientApprovals)
    _running: dict[str, WeakSet[Delegation]] = field(default_factory=dict[str, WeakSet[Delegation]])
    """For each client, its calls in the background."""

    def __post_init__(self) -> None:
        delegator, workspace = self.delegator, self.workspaces or WorkspacePolicy()
        self._delegate = host_tool.make_delegate_tool(
            delegator, parent=self.parent, background=True, workspace=workspace
        )
        self._host_tools = {
            one.name: one
            for one in (
                self._delegate,
                host_tool.make_read_tool(delegator),
                host_tool.make_stop_tool(delegator),
                *host_tool.make_follow_up_tools(delegator),
                host_tool.make_think_tool(delegator),
            )
        }
        self.listed = definitions.listed(delegator.settings, structured=self.structured, workspaces=self.workspaces)

    async def answer(self, request: ToolRequest) -> JsonObject:
        """Answer one call. Raises only CancelledError, after all children have ended."""
        result = await self._answer(request)
        return {**result, "isError": False} if request.client_name in WITHOUT_ERRORS and "isError" in result else result

    async def _answer(self, request: ToolRequest) -> JsonObject:
        tool = self._host_tools.get(request.tool)
        if tool is None:
            names = ", ".join(self._host_tools)
            return _text(f"unknown tool {request.tool!r}; the available tools are {names}", is_error=True)
        if self.problem:
            hint = "nothing was run; tell the user, who can fix it and then has to restart this MCP server"
            return self._refused(CallError("config_error", f"delegate isn't set up: {self.problem}", hint=hint))
        client, as_task = self.clients.identify(request.http), request.as_task if tool is self._delegate else None
        try:
            parent = self.clients.parent(client, request.meta)
            invocation = Invocation(
                parent=parent,
                session=client,
                folders=partial(self._folders.of_call, client, request.meta, request.list_roots),
                may_read=partial(self.clients.may_read, client),
                on_approval=self._approvals.asker(client) if request.elicit is not None else None,
                on_question=self._approvals.answerer(client) if request.elicit is not None else None,
                asks=request.elicit is not None or (as_task is None and request.client_name not in ONE_CALL),
                cancellation=request.disconnected,
                answer_within=self._seconds(request) if as_task is None else 0,
            )
        except CallError as error:
            return self._refused(error)
        self.open_calls += 1
        with self._approvals.waits(client, request.elicit):
            try:
                answer = await run_to_completion(asyncio.ensure_future(_call(tool, request, invocation)))
            finally:
                self.open_calls -= 1
        refused = answer.result and answer.result.error
        if refused and refused.code == "budget_exceeded" and parent.window_seconds is None:
            refused = refused.model_copy(update={"hint": f"{refused.hint}; the user's next turn has limits of its own"})
            answer = replace(answer, text=tool.delegator.render(RunResult(error=refused)))
        if answer.result and answer.result.run_id:
            self.clients.add_run(client, answer.result.run_id)
        if answer.running is not None:
            self._running.setdefault(client, WeakSet()).add(answer.running)
            for handle in answer.running.handles:
                self.clients.add_run(client, run_of(handle))
            if as_task is not None:
                return as_task(client, answer.running, partial(self._finished, answer.running))
        return self._result(answer)

    def stop(self, client: str) -> None:
        """Stop what runs in the background for a client that has left."""
        for delegation in self._running.pop(client, WeakSet[Delegation]()):
            delegation.cancel()

    async def _finished(self, delegation: Delegation) -> JsonObject:
        """The result of a call in the background that has ended."""
        return self._result(host_tool.finished(self.delegator, await delegation))

    def _refused(self, error: CallError) -> JsonObject:
        return _text(self.delegator.render(refusal(error)), is_error=True)

    def _seconds(self, request: ToolRequest) -> float | None:
        """How long the client may still be kept waiting for an answer: from its request on, as long as it waits."""
        given = request.meta.get(ANSWER_WITHIN)
        if given is not None:
            if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < float("inf"):
                message = "the time that the client waits is not a number of seconds"
                raise CallError("wrong_type", message, field=f'_meta["{ANSWER_WITHIN}"]', hint="leave it out")
            seconds = float(given)
        else:
            within = self.answer_within
            seconds = self.clients.patience(request.client_name) if isinstance(within, str) else within
        since = self.since.pop(request.id, None)
        return seconds if seconds is None or since is None else max(0.0, seconds - (time.monotonic() - since))

    def _result(self, answer: ToolAnswer) -> JsonObject:
        result, running = _text(answer.text, is_error=answer.is_error), answer.running
        if self.structured and answer.result is not None:
            result["structuredContent"] = definitions.structured(answer.result)
        elif self.structured and running is not None:
            result["structuredContent"] = definitions.structured_running(running.handles, running.questions)
        return result


async def _call(tool: HostTool, request: ToolRequest, invocation: Invocation) -> ToolAnswer:
    arguments = {name: value for name, value in request.arguments.items() if name not in _CLIENTS_OWN}
    async with _reported(request.report_progress) as sink:
        return await tool.call(arguments, replace(invocation, on_event=sink))


@asynccontextmanager
async def _reported(send: ProgressCallback | None) -> AsyncGenerator[EventSink | None]:
    """Send progress notifications while the block runs: after an event, and at least every ten seconds.

    Yields the sink for the events, or None if the client requested no progress.
    """
    if send is None:
        yield None
        return
    progress, changed = CallProgress(), asyncio.Event()

    def sink(event: Event) -> None:
        progress.add(event)
        changed.set()

    async def report() -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the client has disconnected
            await send(progress.advance(), progress.total, progress.line())

    async def report_changes() -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await changed.wait()
            if progress.total and not progress.is_done:
                changed.clear()
                await report()
            await asyncio.sleep(_PAUSE_SECONDS)

    reporting = asyncio.create_task(report_changes())
    try:
        yield Consumer(sink, direct=True)
    finally:
        reporting.cancel()
        await asyncio.wait([reporting])
    if changed.is_set():
        await report()


def _text(text: str, *, is_error: bool) -> JsonObject:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


async def run_to_completion(running: "asyncio.Future[T]") -> T:
    """Await work, and cancel it only once.

    The SDK uses an anyio cancel scope, which cancels again and again as long as something in it awaits, but children
    need time to end.
    """
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([running])
        raise

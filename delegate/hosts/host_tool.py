"""What every host's module wraps: a tool on offer, and one call of it with all that the host knows about it."""

import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from delegate._util.cancellation import Cancellation
from delegate.delegator import Arguments, Delegator
from delegate.ports import EventSink
from delegate.types import JsonObject, Parent, Report, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What a host knows of one call; all of it is optional."""

    parent: Parent = field(default_factory=Parent)
    """Its run, model, tools and time. What the operator said when the tool was made goes before."""
    session: Hashable = None
    """Calls of one session that overlap share a ledger, where the host has no `parent.run_id`. None: they don't."""
    on_event: EventSink | None = None
    cancellation: Cancellation | None = None


_NOTHING_KNOWN = Invocation()


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What the parent's model reads, and what the host may keep beside it."""

    text: str
    is_error: bool = False
    """The call itself was wrong, or beyond a limit: nothing was run."""
    report: Report | None = None

    @property
    def structured(self) -> JsonObject | None:
        """The report as JSON; a refused call's is `{"error": …}`."""
        return self.report.model_dump(mode="json") if self.report else None

    @property
    def usage(self) -> Usage:
        """Tokens of all children and judges, for the host's own totals."""
        totals = self.report.totals if self.report else None
        return totals.child_usage + totals.judge_usage if totals else Usage()


ToolHandler = Callable[[Arguments, Invocation], Awaitable[ToolAnswer]]


@dataclass(frozen=True, slots=True)
class HostTool:
    """A tool as a host may register it."""

    name: str
    description: str
    parameters: JsonObject
    """JSON schema. It tells the model; what is let through is decided when the call comes."""
    delegator: Delegator
    _call: Callable[[Arguments, Invocation], Coroutine[Any, Any, ToolAnswer]] = field(repr=False)

    async def call(self, arguments: Arguments, invocation: Invocation = _NOTHING_KNOWN) -> ToolAnswer:
        """Answer one call, whatever it says. Raises nothing but CancelledError, once all children have ended."""
        return await self._call(arguments, invocation)

    def call_sync(
        self,
        arguments: Arguments,
        invocation: Invocation = _NOTHING_KNOWN,
        *,
        stopped: Callable[[], bool] | None = None,
    ) -> ToolAnswer:
        """`call` for hosts that aren't async. `stopped` is asked, on this thread, whether the host wants an end."""
        cancellation = invocation.cancellation or Cancellation()
        known = replace(invocation, cancellation=cancellation)

        def look() -> None:
            if stopped is not None and stopped():
                cancellation.cancel()

        return self.delegator.wait_for(self._call(arguments, known), on_poll=look if stopped else None)


def make_delegate_tool(delegator: Delegator | None = None, *, parent: Parent | None = None, **options: Any) -> HostTool:
    """The tool itself, of a delegator that is given or made with `options` (settings).

    `parent` is what the operator knows and the host doesn't, such as the tier of a model that isn't in the catalog.

    Raises:
        ConfigError: the settings are wrong.
    """
    delegator, known, turns = delegator or Delegator(**options), parent or Parent(), _Turns()
    definition = delegator.tool("mcp", parent=parent)

    async def call(arguments: Arguments, invocation: Invocation) -> ToolAnswer:
        who = _joined(invocation.parent, known, keep_tools=delegator.child_tools is not None)
        with turns.run_of(who, invocation.session) as context:
            report = await delegator.call(
                arguments, parent=context, on_event=invocation.on_event, cancellation=invocation.cancellation
            )
        return ToolAnswer(delegator.render(report), report.error is not None, report)

    return HostTool(definition["name"], definition["description"], definition["inputSchema"], delegator, call)


def make_read_tool(delegator: Delegator) -> HostTool:
    """The second tool, which reads a report that was cut."""
    definition = delegator.read_tool("mcp")

    async def call(arguments: Arguments, invocation: Invocation) -> ToolAnswer:
        # A conversation's later run reads what an earlier one was given: who has a handle may.
        return ToolAnswer(await delegator.read_answer(arguments))

    return HostTool(definition["name"], definition["description"], definition["inputSchema"], delegator, call)


def make_think_tool(delegator: Delegator) -> HostTool:
    """The scratchpad: a thought comes back as a checklist of its criteria. No model is asked, and nothing is run."""
    definition = delegator.think_tool("mcp")

    async def call(arguments: Arguments, invocation: Invocation) -> ToolAnswer:
        return ToolAnswer(await delegator.think_answer(arguments))

    return HostTool(definition["name"], definition["description"], definition["inputSchema"], delegator, call)


def _joined(host: Parent, operator: Parent, *, keep_tools: bool) -> Parent:
    """What both know. The host's names of tools say nothing where children have tools of their own."""
    said = {name: value for name, value in operator if value is not None}
    known = host.model_copy(update=said)
    return known if keep_tools else known.model_copy(update={"tools": None})


class _Turns:
    """Gives overlapping calls of one session a run in common: those of one turn of a parent's model, mostly."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_work: dict[Hashable, tuple[str, int]] = {}

    @contextmanager
    def run_of(self, parent: Parent, session: Hashable) -> Generator[Parent]:
        if parent.run_id is not None or session is None:
            yield parent
            return
        with self._lock:
            run_id, calls = self._at_work.get(session, (f"turn-{uuid4().hex}", 0))
            self._at_work[session] = run_id, calls + 1
        try:
            yield parent.model_copy(update={"run_id": run_id})
        finally:
            with self._lock:
                run_id, calls = self._at_work.pop(session)
                if calls > 1:
                    self._at_work[session] = run_id, calls - 1

"""Handlers for Hermes's tool registry. They run on the thread on which Hermes makes the call."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from delegate.delegator import Delegator
from delegate.hosts import progress
from delegate.hosts.hermes import terminal
from delegate.hosts.hermes.compat import hermes_attribute, is_interrupted
from delegate.hosts.hermes.delegators import DelegatorSource
from delegate.hosts.hermes.result import as_json, error_json, record_usage
from delegate.hosts.hermes.sessions import Session, sessions
from delegate.hosts.host_tool import HostTool, Invocation, ToolAnswer
from delegate.types import JsonObject, Parent, RunResult

Handler = Callable[..., str]
"""A handler of Hermes's registry: it gets the arguments, and as keywords `session_id`, `task_id` and more."""

KEEPALIVE_SECONDS = 10.0
"""How often a call without new events reports activity."""

_log = logging.getLogger(__name__)


def delegate_handler(source: DelegatorSource, *, wait_seconds: float) -> Handler:
    """The handler of the delegate tool. It doesn't raise."""

    def answer(args: Mapping[str, Any], *, session_id: str = "", task_id: str = "", **_: Any) -> str:
        if sessions.get(session_id).is_child:
            return error_json("too_deep", "a child can't delegate to children of its own", "do the work yourself")
        with sessions.call_from(session_id or "", task_id or "") as session:
            host_tool = source.tool(session.model)
            judged_by_hermes = source.judged_by_hermes(session.model)
            done = _call(host_tool, args, session, wait_seconds)
        if done.result is not None:
            record_usage(done.result, judged_by_hermes=judged_by_hermes)
            terminal.show(done.result, session.platform)
        return as_json(done, _receipts(host_tool.delegator, done.result))

    return _errors_as_json(answer)


def simple_handler(source: DelegatorSource, make_tool: Callable[[Delegator], HostTool]) -> Handler:
    """The handler of the read or think tool, which runs no children. It doesn't raise."""

    def answer(args: Mapping[str, Any], *, session_id: str = "", **_: Any) -> str:
        host_tool = make_tool(source.tool(sessions.get(session_id).model).delegator)
        return host_tool.call_sync(args, Invocation(session=session_id or None)).text

    return _errors_as_json(answer)


def _call(host_tool: HostTool, args: Mapping[str, Any], session: Session, wait_seconds: float) -> ToolAnswer:
    """Answer the call. Meanwhile, check for an interrupt and report progress to Hermes."""
    reporter = _ActivityReporter()
    parent = Parent(
        run_id=session.turn_id or None,
        model=session.model or None,
        tools=session.tools or (),
        seconds_left=wait_seconds,
    )
    invocation = Invocation(parent=parent, session=session.id or None, on_event=progress.lines(reporter.add))

    def stopped() -> bool:
        reporter.report()
        return is_interrupted()

    try:
        return host_tool.call_sync(args, invocation, stopped=stopped)
    finally:
        reporter.report()


def _errors_as_json(answer: Handler) -> Handler:
    """Return exceptions as errors: after an exception, Hermes might fall back to its own delegation without a judge."""

    def handler(args: Mapping[str, Any] | None = None, **keywords: Any) -> str:
        try:
            return answer(args or {}, **keywords)
        except Exception as error:
            _log.exception("a tool call failed inside delegate")
            return error_json("internal_error", f"{type(error).__name__}: {error}", "continue without this tool")

    return handler


def _receipts(delegator: Delegator, run: RunResult | None) -> dict[int, list[JsonObject]]:
    """The recorded receipts of the children's tool calls, by task index."""
    used = [(one.task_index, one.handle) for one in run.results if one.receipts.total] if run else []

    async def read() -> dict[int, list[JsonObject]]:
        records = {index: await delegator.records.read(handle) for index, handle in used if handle}
        return {index: record["run"]["receipts"] for index, record in records.items() if record}

    return delegator.wait_for(read()) if used else {}


class _ActivityReporter:
    """Reports lines of progress as the agent's activity in Hermes.

    Hermes keeps the recipient of activity per thread, so reports are made on the thread of the call. Its gateway ends
    agents that are inactive, so a line is repeated while nothing happens.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._last = "delegating"
        self._started = self._reported = time.monotonic()
        self._touch = hermes_attribute("tools.environments.base", "touch_activity_if_due")

    def add(self, line: str) -> None:
        """Queue a line, from any thread."""
        self._lines.append(line)

    def report(self) -> None:
        """Report the queued lines, or the last one again. Call it on the thread of the call."""
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        now = time.monotonic()
        if not lines and now - self._reported < KEEPALIVE_SECONDS:
            return
        self._reported, self._last = now, lines[-1] if lines else self._last
        for line in lines or (self._last,):
            if self._touch:
                self._touch({"last_touch": 0.0, "interval": 0.0, "start": self._started}, line)

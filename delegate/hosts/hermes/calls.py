"""Answers calls of the tool on the thread on which Hermes makes them."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from delegate.delegator import Delegator
from delegate.hosts import progress
from delegate.hosts.hermes.accounting import Accounts
from delegate.hosts.hermes.borrowed import borrow, is_interrupted
from delegate.hosts.hermes.result import as_json, error_json, used_tools
from delegate.hosts.hermes.sessions import Session, sessions
from delegate.hosts.host_tool import HostTool, Invocation, ToolAnswer
from delegate.types import JsonObject, Parent, Report

Handler = Callable[..., str]
"""As Hermes's registry calls it: with the arguments, and by keyword `session_id`, `task_id` and more."""

STILL_SECONDS = 10.0
"""How often a call that has nothing new to tell shows that it is alive."""

_log = logging.getLogger(__name__)


def delegating(host_tool: HostTool, *, wait_seconds: float, judged_by_hermes: bool) -> Handler:
    """The handler of the tool itself. It raises nothing."""

    def answer(args: Mapping[str, Any], *, session_id: str = "", task_id: str = "", **_: Any) -> str:
        if sessions.is_child(session_id):
            return error_json("too_deep", "a child may not delegate in its turn", "do the work yourself")
        accounts = Accounts.of_this_turn(judges=not judged_by_hermes)
        with sessions.call_from(session_id or "", task_id or "") as session:
            given = _watched(host_tool, args, session, wait_seconds)
        if given.report is not None:
            accounts.book(given.report)
        return as_json(given, _receipts(host_tool.delegator, given.report))

    return _raising_nothing(answer)


def small(host_tool: HostTool) -> Handler:
    """The handler of a tool that is answered at once."""

    def answer(args: Mapping[str, Any], *, session_id: str = "", **_: Any) -> str:
        return host_tool.call_sync(args, Invocation(session=session_id or None)).text

    return _raising_nothing(answer)


def _watched(host_tool: HostTool, args: Mapping[str, Any], session: Session, wait_seconds: float) -> ToolAnswer:
    """Answer while watching for an interrupt, and telling Hermes what goes on."""
    telling = _Telling()
    parent = Parent(
        run_id=session.turn_id or None,
        model=session.model or None,
        tools=session.tools or (),
        seconds_left=wait_seconds,
    )
    known = Invocation(parent=parent, session=session.id or None, on_event=progress.lines(telling.say))

    def stopped() -> bool:
        telling.tell()
        return is_interrupted()

    try:
        return host_tool.call_sync(args, known, stopped=stopped)
    finally:
        telling.tell()


def _raising_nothing(answer: Handler) -> Handler:
    """An error instead of an exception, after which Hermes might fall back on its own, unjudged delegation."""

    def safely(args: Mapping[str, Any] | None = None, **known: Any) -> str:
        try:
            return answer(args or {}, **known)
        except Exception as error:
            _log.exception("a call failed inside delegate")
            return error_json("internal_error", f"{type(error).__name__}: {error}", "do it without this tool")

    return safely


def _receipts(delegator: Delegator, report: Report | None) -> dict[int, list[JsonObject]]:
    """What is on record of the children's tool calls."""

    async def read() -> dict[int, list[JsonObject]]:
        records = {index: await delegator.read(handle) for index, handle in used_tools(report)} if report else {}
        return {index: record["run"]["receipts"] for index, record in records.items() if record}

    return delegator.wait_for(read()) if report and used_tools(report) else {}


class _Telling:
    """Lines of progress, on their way to what Hermes shows as the agent's activity.

    They are told on the thread of the call: Hermes keeps where to tell them per thread. Its gateway ends an agent
    without any activity, so there is some while children think.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._last = "delegating"
        self._began = self._told = time.monotonic()
        self._touch = borrow("tools.environments.base", "touch_activity_if_due")

    def say(self, line: str) -> None:
        """From any thread."""
        self._lines.append(line)

    def tell(self) -> None:
        """From the thread of the call."""
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        now = time.monotonic()
        if not lines and now - self._told < STILL_SECONDS:
            return
        self._told, self._last = now, lines[-1] if lines else self._last
        for line in lines or (self._last,):
            if self._touch:
                self._touch({"last_touch": 0.0, "interval": 0.0, "start": self._began}, line)

"""Tracks Hermes's sessions through its hooks, since a tool's handler gets only the session's id.

A child gets only tools that its parent has, so the tools of each session are tracked. A child can't delegate to
children of its own, so sessions that are children are tracked too.
"""

import threading
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

MAX_SESSIONS = 10_000
"""The number of sessions to remember; the least recently seen one is dropped first."""


@dataclass(frozen=True, slots=True)
class Session:
    """What is known about one session in its current turn."""

    id: str = ""
    task_id: str = ""
    """The id of the terminal and working directory that Hermes's tools use."""
    turn_id: str = ""
    model: str = ""
    provider: str = ""
    platform: str = ""
    """Where its user is: `cli` is a terminal."""
    tools: tuple[str, ...] | None = None
    """Names of the tools in the last request to its model; None if not known."""
    is_child: bool = False
    """Whether it is a child, created by Hermes or by delegate."""


calling_session: ContextVar[Session | None] = ContextVar("delegate_hermes_session", default=None)
"""The session whose call is being answered."""


class Sessions:
    """All known sessions. The `on_…` methods are hooks and middleware for Hermes; they change nothing in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Session] = OrderedDict()

    def on_turn_start(
        self, *, session_id: str = "", turn_id: str = "", model: str = "", platform: str = "", **_: Any
    ) -> None:
        """The hook `pre_llm_call`: once per user turn."""
        self._update(session_id, turn_id=turn_id, model=model, platform=platform)

    def on_llm_request(
        self,
        *,
        session_id: str = "",
        model: str = "",
        provider: str = "",
        request: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """The middleware `llm_request`: before each model call, with its tools."""
        tools: list[Any] = (request or {}).get("tools") or []  # in the format of chat completions or another API
        names = [tool.get("function", tool).get("name") for tool in tools]
        self._update(session_id, model=model, provider=provider, tools=tuple(name for name in names if name))

    def on_subagent_start(self, *, child_session_id: str | None = None, **_: Any) -> None:
        """The hook `subagent_start`: Hermes created a child of its own, which has delegate's tool like its parent."""
        self.add_child(child_session_id or "")

    def add_child(self, session_id: str) -> None:
        """Mark this session as a child, which can't delegate."""
        if session_id:
            self._update(session_id, is_child=True)

    def get(self, session_id: str) -> Session:
        """What is known about this session."""
        return self._known.get(session_id) or Session(session_id)

    @contextmanager
    def call_from(self, session_id: str, task_id: str) -> Generator[Session]:
        """Set the session as the calling one inside the block."""
        session = replace(self.get(session_id), task_id=task_id)
        token = calling_session.set(session)
        try:
            yield session
        finally:
            calling_session.reset(token)

    def _update(self, session_id: str, **fields: Any) -> None:
        with self._lock:
            known = {name: value for name, value in fields.items() if value is not None and value != ""}
            self._known[session_id] = replace(self.get(session_id), **known)
            self._known.move_to_end(session_id)
            if len(self._known) > MAX_SESSIONS:
                self._known.popitem(last=False)


sessions = Sessions()
"""One per process, like Hermes's plugin manager."""

"""What Hermes's hooks tell of the sessions that call: a tool's handler learns no more than a session's id.

A child's tools are among its parent's, so it matters which those are; and a child may not delegate in its turn, so it
matters whose child a session is.
"""

import threading
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")

KEPT = 10_000
"""Sessions that are remembered; the one that was heard of longest ago makes room for a new one."""


@dataclass(frozen=True, slots=True)
class Session:
    """What is known of one session, in the turn that it is in."""

    id: str = ""
    task_id: str = ""
    """Under which Hermes keeps the terminal and the working directory that its tools use."""
    turn_id: str = ""
    model: str = ""
    provider: str = ""
    tools: tuple[str, ...] | None = None
    """Names of the tools that its model was offered last; None: not known."""


calling: ContextVar[Session | None] = ContextVar("delegate_hermes_session", default=None)
"""The session whose call is being answered."""


class Sessions:
    """Listens to Hermes. The methods that take keywords are hooks and middleware: they change nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Session] = OrderedDict()
        self._children: OrderedDict[str, None] = OrderedDict()

    def turn_begins(self, *, session_id: str = "", turn_id: str = "", model: str = "", **_: Any) -> None:
        """`pre_llm_call`: once per turn of a user."""
        self._learn(session_id, turn_id=turn_id, model=model)

    def request_goes_out(
        self,
        *,
        session_id: str = "",
        model: str = "",
        provider: str = "",
        request: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """`llm_request`: before each model call, with the tools that it offers."""
        self._learn(session_id, model=model, provider=provider, tools=_names(request))

    def subagent_begins(self, *, child_session_id: str | None = None, **_: Any) -> None:
        """`subagent_start`: Hermes made a child of its own, which sees our tool as its parent does."""
        self.add_child(child_session_id or "")

    def add_child(self, session_id: str) -> None:
        """From now on this session may not delegate."""
        if session_id:
            with self._lock:
                _remember(self._children, session_id, None)

    def is_child(self, session_id: str) -> bool:
        """Whether this session is a child, of Hermes's or ours."""
        return session_id in self._children

    @contextmanager
    def call_from(self, session_id: str, task_id: str) -> Generator[Session]:
        """Answer a call of this session inside."""
        session = replace(self._known.get(session_id) or Session(session_id), task_id=task_id)
        token = calling.set(session)
        try:
            yield session
        finally:
            calling.reset(token)

    def _learn(self, session_id: str, **known: Any) -> None:
        with self._lock:
            before = self._known.get(session_id) or Session(session_id)
            said = {name: value for name, value in known.items() if value is not None and value != ""}
            _remember(self._known, session_id, replace(before, **said))


sessions = Sessions()
"""Of this process, as Hermes has one plugin manager."""


def _remember(kept: OrderedDict[str, T], key: str, value: T) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > KEPT:
        kept.popitem(last=False)


def _names(request: dict[str, Any] | None) -> tuple[str, ...]:
    """The names of a request's tools, as chat completions and the other APIs write them."""
    offered: list[Any] = request.get("tools") or [] if request else []
    names: list[Any] = [tool.get("function", tool).get("name") for tool in offered]
    return tuple(name for name in names if name)

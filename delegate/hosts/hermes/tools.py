"""Hermes's tools for children on our own loop."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from delegate.errors import ConfigError, ToolError
from delegate.hosts.hermes.borrowed import borrow
from delegate.hosts.hermes.runner import may_have
from delegate.hosts.hermes.sessions import Session, calling
from delegate.hosts.hermes.threads import Thread
from delegate.ports import Tool


def child_tools(tools: Iterable[str]) -> list[Tool]:
    """Hermes's tools of these names, for `Delegator(tools=…)`. They use the parent's terminal and folder.

    Raises:
        ConfigError: Hermes has no such tool, or its children may not have it.
    """
    return [_tool(name) for name in tools]


def _tool(name: str) -> Tool:
    registry = borrow("tools.registry", "registry")
    schema = registry.get_schema(name) if registry else None
    if schema is None:
        raise ConfigError(f"child_tools: Hermes has no tool {name!r}; `hermes tools` lists those there are")
    if not may_have(name):
        raise ConfigError(f"child_tools: {name} is not for children; take it out")

    async def call(arguments: Mapping[str, Any]) -> str:
        session = calling.get() or Session()
        return await _stoppable(lambda: _dispatch(name, dict(arguments), session))

    return Tool(name, schema.get("description", ""), schema.get("parameters", {}), call, parallel=False)


def _dispatch(name: str, arguments: dict[str, Any], session: Session) -> str:
    """Call it as Hermes's own loop does, with its hooks and its approvals; whatever needs a person is denied."""
    handle = borrow("model_tools", "handle_function_call")
    if handle is None:
        raise ToolError("this Hermes lets no plugin call its tools")
    return str(handle(name, arguments, task_id=session.task_id or None, session_id=session.id or None))


async def _stoppable(work: Callable[[], str]) -> str:
    """Run `work` in a thread. A cancel interrupts it as Hermes interrupts its tools, and doesn't wait for it."""
    thread = Thread(work, "delegate-hermes-tool")
    try:
        return await thread.ended
    except asyncio.CancelledError:
        thread.interrupt()
        raise

"""Converts Hermes's tools for children in delegate's own loop."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from delegate.errors import ConfigError, ToolError
from delegate.hosts.hermes.compat import hermes_attribute
from delegate.hosts.hermes.runner import may_have
from delegate.hosts.hermes.sessions import Session, calling_session
from delegate.hosts.hermes.threads import WorkThread
from delegate.ports import Tool


def child_tools(tools: Iterable[str]) -> list[Tool]:
    """Convert Hermes's tools of these names for `Delegator(tools=…)`. They use the parent's terminal and directory.

    Raises:
        ConfigError: Hermes has no tool of that name, or children can't have it.
    """
    return [_tool(name) for name in tools]


def _tool(name: str) -> Tool:
    registry = hermes_attribute("tools.registry", "registry")
    schema = registry.get_schema(name) if registry else None
    if schema is None:
        raise ConfigError(f"child_tools: Hermes has no tool {name!r}; run `hermes tools` for a list")
    if not may_have(name):
        raise ConfigError(f"child_tools: {name} is not for children; remove it from the list")

    async def call(arguments: Mapping[str, Any]) -> str:
        session = calling_session.get() or Session()
        return await _run_interruptible(lambda: _dispatch(name, dict(arguments), session))

    return Tool(name, schema.get("description", ""), schema.get("parameters", {}), call, parallel=False)


def _dispatch(name: str, arguments: dict[str, Any], session: Session) -> str:
    """Call a tool as Hermes's own loop does, with its hooks and approvals. What needs a person's approval is denied."""
    handle = hermes_attribute("model_tools", "handle_function_call")
    if handle is None:
        raise ToolError("this version of Hermes doesn't let plugins call its tools: continue without them")
    return str(handle(name, arguments, task_id=session.task_id or None, session_id=session.id or None))


async def _run_interruptible(work: Callable[[], str]) -> str:
    """Run `work` in a thread. Cancellation interrupts it like Hermes interrupts its tools, without waiting for it."""
    thread = WorkThread(work, "delegate-hermes-tool")
    try:
        return await thread.result
    except asyncio.CancelledError:
        thread.interrupt()
        raise

"""Converts Hermes's tools for children in delegate's own loop."""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
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

    def dispatch(arguments: Mapping[str, Any], session: Session) -> str:
        """Call it as Hermes's own loop does, with its hooks and approvals. What needs a person's approval is denied."""
        handle = hermes_attribute("model_tools", "handle_function_call")
        if handle is None:
            raise ToolError("this version of Hermes doesn't let plugins call its tools: continue without them")
        return str(handle(name, dict(arguments), task_id=session.task_id or None, session_id=session.id or None))

    async def call(arguments: Mapping[str, Any]) -> str:
        thread = WorkThread(partial(dispatch, arguments, calling_session.get() or Session()), "delegate-hermes-tool")
        try:
            return await thread.result
        except asyncio.CancelledError:
            thread.interrupt()  # as Hermes interrupts its tools, without waiting for it
            raise

    return Tool(name, schema.get("description", ""), schema.get("parameters", {}), call, parallel=False)

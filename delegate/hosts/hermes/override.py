"""Replaces Hermes's own `delegate_task` (the option `takeover`).

Hermes's loop handles calls of that name itself, whatever tool is registered. Overriding the tool alone would change the
schema, but Hermes would silently drop the fields that it doesn't know. Middleware alone would answer calls whose schema
has no criteria. So both are installed, or neither.
"""

import logging
from collections.abc import Callable
from typing import Any

from delegate.hosts.hermes.calls import Handler
from delegate.hosts.hermes.compat import hermes_attribute, toolset_of
from delegate.types import JsonObject

HERMES_NAME = "delegate_task"
_MIDDLEWARE = "tool_execution"

_log = logging.getLogger(__name__)


class DelegateTaskMiddleware:
    """Middleware that answers `delegate_task`. It does nothing until it is activated."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.active = False

    def __call__(self, *, tool_name: str = "", args: Any = None, next_call: Callable[..., Any], **keywords: Any) -> Any:
        """Answer a call of `delegate_task` without raising; pass on every other call."""
        if self.active and tool_name == HERMES_NAME:
            return self._handler(args, session_id=keywords.get("session_id"), task_id=keywords.get("task_id"))
        return next_call()


def override_delegate_task(ctx: Any, entry: JsonObject) -> bool:
    """Register the tool in place of `delegate_task`. `entry` has the arguments of `register_tool`.

    Returns False if Hermes doesn't allow it. Then `delegate_task` is unchanged, and the reason is logged.
    """
    supported = hermes_attribute("hermes_cli.middleware", "VALID_MIDDLEWARE") or ()
    if not hasattr(ctx, "register_middleware") or _MIDDLEWARE not in supported:
        _log.warning("%s stays Hermes's own: this version has no %s middleware", HERMES_NAME, _MIDDLEWARE)
        return False
    middleware = DelegateTaskMiddleware(entry["handler"])
    try:
        ctx.register_middleware(_MIDDLEWARE, middleware)
        ctx.register_tool(**entry, override=True)
    except Exception as error:
        _log.warning("%s stays Hermes's own: %s", HERMES_NAME, error)
        return False
    middleware.active = toolset_of(HERMES_NAME) == entry["toolset"]
    if not middleware.active:
        _log.warning("%s stays Hermes's own: its registry did not accept the override", HERMES_NAME)
    return middleware.active

"""Answering `delegate_task` in place of Hermes's own.

Hermes's loop sends calls of that name to its own code, whatever is registered under it: an overriding tool alone
changes the schema, and what the model adds there is dropped without a word. Middleware alone answers calls whose schema
has no criteria. So there are both, or neither.
"""

import logging
from collections.abc import Callable
from typing import Any

from delegate.hosts.hermes.borrowed import borrow, toolset_of
from delegate.hosts.hermes.calls import Handler
from delegate.types import JsonObject

NAME = "delegate_task"
_MIDDLEWARE = "tool_execution"

_log = logging.getLogger(__name__)


class Takeover:
    """Middleware that is idle until the tool stands in the registry under Hermes's own name."""

    def __init__(self, answer: Handler) -> None:
        self._answer = answer
        self.active = False

    def __call__(self, *, tool_name: str = "", args: Any = None, next_call: Callable[..., Any], **known: Any) -> Any:
        """Answer a call of `delegate_task`, which raises nothing; let every other one pass."""
        if self.active and tool_name == NAME:
            return self._answer(args, session_id=known.get("session_id"), task_id=known.get("task_id"))
        return next_call()


def take_over(ctx: Any, entry: JsonObject) -> bool:
    """Put the tool, as the registry takes it, in the place of `delegate_task`.

    False where Hermes doesn't let it: then nothing has changed, and the log says why.
    """
    known = borrow("hermes_cli.middleware", "VALID_MIDDLEWARE") or ()
    if not hasattr(ctx, "register_middleware") or _MIDDLEWARE not in known:
        _log.warning("this Hermes has no %s middleware, so %s stays its own", _MIDDLEWARE, NAME)
        return False
    middleware = Takeover(entry["handler"])
    try:
        ctx.register_middleware(_MIDDLEWARE, middleware)
        ctx.register_tool(**entry, override=True)
    except Exception as error:
        _log.warning("%s stays Hermes's own: %s", NAME, error)
        return False
    middleware.active = toolset_of(NAME) == entry["toolset"]
    if not middleware.active:
        _log.warning("Hermes's registry kept its own %s", NAME)
    return middleware.active

"""What is taken from Hermes beyond the context that it hands to a plugin. Any of it may be missing in another version:
then the caller says what it does without.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast


def borrow(module: str, name: str) -> Any:
    """A name from a module of Hermes; None where there is no such thing."""
    try:
        return getattr(import_module(module), name, None)
    except ImportError:
        return None


def config(*path: str) -> Mapping[str, Any]:
    """A part of Hermes's config.yaml; empty where it isn't there."""
    load = borrow("hermes_cli.config", "load_config_readonly") or borrow("hermes_cli.config", "load_config")
    part: object = load() if load else None
    for name in path:
        part = cast("Mapping[str, Any]", part).get(name) if isinstance(part, Mapping) else None
    return cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else {}


def is_interrupted() -> bool:
    """Whether Hermes wants what this thread does to end. Without its flag, never."""
    asked = borrow("tools.interrupt", "is_interrupted")
    return bool(asked()) if asked else False


def toolset_of(tool: str) -> str | None:
    """The toolset that a registered tool belongs to."""
    registry = borrow("tools.registry", "registry")
    return registry.get_toolset_for_tool(tool) if registry else None


def deny_dangerous_commands() -> None:
    """Answer for the user on this thread, where nobody could: no. Without it, Hermes would ask on standard input."""
    if set_callback := borrow("tools.terminal_tool", "set_approval_callback"):
        set_callback(_deny)


def _deny(*_: object, **_known: object) -> str:
    return "deny"

"""Accesses the parts of Hermes that it doesn't pass to a plugin.

Any of them may be missing in another version of Hermes. Then these functions return a neutral value, or None, and the
caller works without that part.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast


def hermes_attribute(module: str, name: str) -> Any:
    """An attribute of one of Hermes's modules; None if it doesn't exist."""
    try:
        return getattr(import_module(module), name, None)
    except ImportError:
        return None


def config(*path: str) -> Mapping[str, Any]:
    """A section of Hermes's config.yaml; empty if it doesn't exist."""
    load = hermes_attribute("hermes_cli.config", "load_config_readonly") or hermes_attribute(
        "hermes_cli.config", "load_config"
    )
    section: object = load() if load else None
    for name in path:
        section = cast("Mapping[str, Any]", section).get(name) if isinstance(section, Mapping) else None
    return cast("Mapping[str, Any]", section) if isinstance(section, Mapping) else {}


def home() -> Path:
    """Hermes's folder."""
    find = hermes_attribute("hermes_constants", "get_hermes_home")
    return Path(find()) if find else Path.home() / ".hermes"


def is_interrupted() -> bool:
    """Whether Hermes has interrupted the current thread."""
    check = hermes_attribute("tools.interrupt", "is_interrupted")
    return bool(check()) if check else False


def toolset_of(tool: str) -> str | None:
    """The toolset of a registered tool."""
    registry = hermes_attribute("tools.registry", "registry")
    return registry.get_toolset_for_tool(tool) if registry else None


def deny_dangerous_commands() -> None:
    """Deny every approval request on the current thread. Hermes would otherwise ask for approval on standard input."""
    if set_callback := hermes_attribute("tools.terminal_tool", "set_approval_callback"):
        set_callback(_deny)


def _deny(*_: object, **_keywords: object) -> str:
    return "deny"


def terminal_folder() -> Path:
    """The folder that Hermes's terminal works in; `/` for a terminal in a container or on another machine."""
    if os.environ.get("TERMINAL_ENV", "local") != "local":
        return Path("/")
    return Path(os.environ.get("TERMINAL_CWD") or ".").expanduser().absolute()

"""The plugin's options in Hermes's config.yaml, under `plugins.entries.<the plugin's name>.config`."""

from typing import Any, Literal

from pydantic import Field, ValidationError

from delegate.hosts.hermes.compat import config
from delegate.types import Value
from delegate.types.errors import ConfigError
from delegate.types.faults import problem_of


class Options(Value):
    """How the tool works in Hermes. Everything else is set in `settings` or `DELEGATE_…` variables."""

    children: Literal["own", "hermes"] = "own"
    """`own`: delegate's loop and tools in a workspace. `hermes`: Hermes's agents, with the parent's model and tools."""
    child_tools: tuple[str, ...] | None = None
    """Tools of Hermes's for `own` children, instead of the built-in tools. A child gets those that its parent has."""
    takeover: bool = False
    """Replace Hermes's own `delegate_task`; requires `allow_tool_override: true` in the plugin's entry."""
    workspace: str = "auto"
    """Where children work, as in `delegate mcp --workspace`. `auto`: a git worktree of the repository that Hermes's
    terminal is in, or else an empty folder."""
    wait_seconds: float = Field(default=380, gt=0)
    """The maximum duration of a call, including judging. Newer versions of Hermes stop a tool after 420 s."""
    also: tuple[Literal["read", "think", "message", "merge"], ...] = ("read",)
    """Additional tools: `read` reads the rest of a report that was cut, `think` checks a thought against criteria,
    `message` sends a task an instruction, and `merge` merges its changes, if the setting `merge_tool` is on."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings by name; they override the variables."""


def options_of(plugin: str) -> Options:
    """Read the options of the plugin with this name.

    Raises:
        ConfigError: an option in config.yaml is invalid; the message names it.
    """
    try:
        return Options.model_validate(dict(config("plugins", "entries", plugin, "config")))
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(("plugins.entries", plugin, "config", *(str(part) for part in first["loc"])))
        raise ConfigError(f"config.yaml: {path}: {problem_of(first)}") from None

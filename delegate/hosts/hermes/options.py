"""What an operator decides in Hermes's own config.yaml, under `plugins.entries.<the plugin's name>.config`."""

from typing import Any, Literal

from pydantic import Field, ValidationError

from delegate.errors import ConfigError
from delegate.hosts.hermes.borrowed import config
from delegate.types import Value


class Options(Value):
    """How the tool works in Hermes. What isn't Hermes's is in `settings`, or in `DELEGATE_…` variables."""

    children: Literal["own", "hermes"] = "own"
    """`own`: our loop, with our tools in a workspace. `hermes`: Hermes's agent, with the parent's model and tools."""
    child_tools: tuple[str, ...] | None = None
    """Tools of Hermes's that children on our loop get in place of ours: those of them that the parent has."""
    takeover: bool = False
    """Answer `delegate_task` itself; needs `allow_tool_override: true` beside `config`."""
    wait_seconds: float = Field(default=380, gt=0)
    """How long a call may take, children and judging: newer Hermes gives a tool up after 420 s, with all it runs."""
    also: tuple[Literal["read", "think"], ...] = ()
    """Small tools beside it: `read` reads a report that was cut, `think` holds a thought against criteria."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings, by name; they outrank the variables."""


def options_of(plugin: str) -> Options:
    """What config.yaml says for the plugin of that name. Raises ConfigError naming the field."""
    try:
        return Options.model_validate(dict(config("plugins", "entries", plugin, "config")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(("plugins.entries", plugin, "config", *(str(part) for part in first["loc"])))
        raise ConfigError(f"config.yaml: {place}: {first['msg']}") from None

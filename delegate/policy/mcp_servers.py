"""The setting `mcp_servers`: servers of the Model Context Protocol whose tools children may call. It is data only."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from delegate._util.documents import loads
from delegate.types.base import Input, Text

ServerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*$", max_length=30)]
"""Without two underscores in a row and none at its end, so that `SERVER__TOOL` can be read in one way only."""
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def _by_name(env: object) -> object:
    """A list of names of variables is short for each under its own name."""
    if not isinstance(env, (list, tuple)):
        return env
    return {str(name): f"${{{name}}}" for name in cast("Sequence[object]", env)}


class McpServer(Input):
    """A server, which is started with `command` or reached at `url`. It isn't confined: its tools do what they do."""

    command: Text | None = None
    """The program that is started, and that speaks the protocol over its standard streams."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: Annotated[Mapping[str, str], BeforeValidator(_by_name)] = Field(default_factory=dict)
    """Its environment variables, in addition to a few such as PATH and HOME. A list of names passes these variables
    on; in a table, `${NAME}` is replaced by the value of a variable."""
    url: Annotated[str, StringConstraints(pattern=r"^https?://")] | None = None
    """The address of a server that is running (streamable HTTP)."""
    token_env: Text | None = None
    """The name of the environment variable with the token for `url`."""
    tools: tuple[Text, ...] | None = None
    """The names of the tools that children get. None: all."""
    read_only: tuple[Text, ...] | Literal["all"] = ()
    """The names of the tools that change nothing. What the server says of itself doesn't count."""
    timeout_seconds: float = Field(default=60, gt=0, le=3_600)
    """How long a call may go on without progress, in seconds, and how long the server may take to start."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise PydanticCustomError("server", "name its `command`, which starts it, or the `url` of one that runs")
        if self.token_env is not None and self.url is None:
            raise PydanticCustomError("server", "`token_env` is for servers with a `url`; use `env` for a command")
        if self.url is not None and (self.args or self.env):
            raise PydanticCustomError("server", "`args` and `env` are for servers with a `command`")
        return self

    @property
    def variables(self) -> frozenset[str]:
        """The names of the variables whose values the server gets."""
        named = {match[1] for text in self.env.values() for match in _VARIABLE.finditer(text)}
        return frozenset(named | ({self.token_env} if self.token_env else set()))

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables of its process. Raises KeyError for one that isn't set."""
        return {name: _VARIABLE.sub(lambda match: _value(match, environ), text) for name, text in self.env.items()}


def _value(match: "re.Match[str]", environ: Mapping[str, str]) -> str:
    name, default = match.groups()
    return environ[name] if default is None else environ.get(name) or default


def read_mcp_json(text: str) -> dict[str, Any]:
    """The setting for the servers of a `.mcp.json`, which other clients read too. delegate itself is left out.

    Raises:
        ValueError: It isn't such a file.
    """
    document = loads(text, "json")
    servers = cast("dict[str, Any]", document).get("mcpServers") if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise ValueError("it has no object `mcpServers`")
    read: dict[str, Any] = {}
    for name, entry in cast("dict[str, Any]", servers).items():
        fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        if unread := set(fields) - {"command", "args", "env", "url", "type"}:
            raise ValueError(f"mcpServers.{name}: `{min(unread)}` isn't supported; declare the server in delegate.toml")
        if PurePath(str(fields.get("command", ""))).name != "delegate":
            read[name] = {key: value for key, value in fields.items() if key != "type"}
    return read

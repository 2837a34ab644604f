"""Adds to a host's MCP tools what their calls prove, where the servers don't say it: `Tool.acts` and the like.

It comes from `tools.toml`: the operator's own, in the folder of its `delegate.toml`; that beside the file which
`DELEGATE_CONFIG` names, or else that of the working folder, if it is trusted as it is; and the one that ships with
delegate, for common servers. Who trusts a `tools.toml` trusts what it says is a success.
"""

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from delegate._util.resources import text as text_of
from delegate.hosts.host_tool import read_only_hint
from delegate.policy import trust
from delegate.types.errors import ConfigError
from delegate.types.ports import Tool

NAME = "tools.toml"
T = TypeVar("T", bound=Tool)


class Declaration(BaseModel):
    """What a file says of one tool. None: it doesn't say."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str
    server: str = ""
    parameters: list[str] = []
    """Parameters that the tool must have, if it is the one that is meant."""
    acts: bool | None = None
    succeeded: dict[str, Any] | None = None
    identifies: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    open_world: bool | None = None
    """Whether a call reaches others than the server, as a search of the web does; in place of `openWorldHint`."""

    def is_of(self, tool: Tool) -> bool:
        """Whether it is about this tool, which may have the name of its server before its own."""
        properties: Any = tool.parameters.get("properties")
        if not isinstance(properties, Mapping) or any(parameter not in properties for parameter in self.parameters):
            return False
        before = tool.name.removesuffix(self.name)
        if not before or before == tool.name:
            return tool.name == self.name
        is_of_server = bool(self.server) and self.server in before.casefold()
        return before.endswith(("__", ".", "/", ":")) or (is_of_server and before.endswith(("_", "-")))


def declared(tool: T, annotations: object = None) -> T:
    """The tool with what the files and its MCP annotations say of its calls. What it declares itself stays.

    A tool that only reads may still hand on what it is asked, as a search of the web does. It has the effect `network`
    unless its server or a file says that it reaches nobody else.

    Raises:
        ConfigError: a `tools.toml` is wrong.
    """
    only_reads = read_only_hint(annotations)
    said = [one for one in _declarations() if one.is_of(tool)]
    known = {name: _first(getattr(one, name) for one in (tool, *said)) for name in ("acts", "succeeded", "identifies")}
    tool = replace(tool, read_only=tool.read_only or only_reads, **known)
    hinted = _hint(annotations, "openWorldHint") is not False  # MCP: true where it isn't given
    open_world = _first((*(one.open_world for one in said), hinted))
    if only_reads and tool.effects is None and open_world:
        return replace(tool, effects=frozenset({"network"}))
    # `readOnlyHint: false` alone is also said of tools that run commands, whose output proves less.
    only_adds = all(_hint(annotations, hint) is False for hint in ("readOnlyHint", "destructiveHint"))
    return replace(tool, acts=True) if tool.acts is None and only_adds else tool


def _first(values: Iterable[Any]) -> Any:
    """The first value that is given."""
    return next((value for value in values if value is not None), None)


def _hint(annotations: object, name: str) -> object:
    """One of the MCP annotations, which may be an object or a mapping."""
    if isinstance(annotations, Mapping):
        return cast("Mapping[str, object]", annotations).get(name)
    return getattr(annotations, name, None)


def _declarations() -> Iterator[Declaration]:
    """All that is said, the operator's word first."""
    files = [trust.own_folder() / NAME]
    config = trust.named_file(os.environ)
    if config:
        files.append(config.with_name(NAME))
    for path in files:
        if path.is_file():
            yield from _parsed(str(path), path.read_bytes())
    if not config and Path(NAME).is_file() and (file := trust.read(Path(NAME))).trusted:
        yield from _parsed(str(file.path), file.data)
    yield from _parsed(NAME, text_of("judges", NAME).encode())


@lru_cache(maxsize=16)
def _parsed(name: str, data: bytes) -> Sequence[Declaration]:
    try:
        tools = tomllib.loads(data.decode("utf-8-sig")).get("tools", [])
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{name} can't be read as TOML: {error}; correct it there") from error
    if not isinstance(tools, list):
        raise ConfigError(f"{name}: tools is not a list; begin each tool with [[tools]]")
    return tuple(_one(name, fields) for fields in cast("list[Any]", tools))


def _one(file: str, fields: Any) -> Declaration:
    try:
        return Declaration.model_validate(fields)
    except ValidationError as error:
        wrong = {str(one["loc"][0]) if one["loc"] else "name" for one in error.errors()}
    if "name" in wrong:
        raise ConfigError(f'{file}: a tool has no name; begin it with [[tools]] and name = "…"')
    where, known = f"{file}: {fields['name']}", sorted(Declaration.model_fields)
    if unknown := sorted(wrong.difference(known)):
        raise ConfigError(f"{where}: there is no field {unknown[0]}; the fields are {', '.join(known)}")
    raise ConfigError(f"{where}: {min(wrong)} has a value of the wrong type; docs/criteria.md has an example")

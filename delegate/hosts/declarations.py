"""Adds to the tools of MCP servers what their calls prove, where the servers don't say it: `Tool.acts` and the like.

It comes from `tools.toml`: the operator's own, in the folder of its `delegate.toml`; that beside the file which
`DELEGATE_CONFIG` names, or else that of the working folder, if it is trusted as it is; and the one that ships with
delegate, for common servers. Who trusts a `tools.toml` trusts what it says is a success.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from delegate._util.resources import text as text_of
from delegate.hosts.host_tool import read_only_hint
from delegate.policy import trust
from delegate.types.errors import ConfigError
from delegate.types.ports import Effect, Tool

NAME = "tools.toml"
T = TypeVar("T", bound=Tool)
_REACHES_OUT: frozenset[Effect] = frozenset({"network"})
_FIELDS = frozenset({"name", "server", "parameters", "acts", "succeeded", "identifies", "open_world"})


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a file says of one tool. None: it doesn't say."""

    name: str
    server: str = ""
    parameters: tuple[str, ...] = ()
    """Parameters that the tool must have, if it is the one that is meant."""
    acts: bool | None = None
    succeeded: Mapping[str, Any] | None = None
    identifies: tuple[str, ...] | None = None
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
    open_world: bool | None = None
    only_reads = read_only_hint(annotations)
    tool = replace(tool, read_only=tool.read_only or only_reads)
    for one in _declarations():
        if one.is_of(tool):
            open_world = one.open_world if open_world is None else open_world
            tool = replace(
                tool,
                acts=one.acts if tool.acts is None else tool.acts,
                succeeded=dict(one.succeeded)
                if tool.succeeded is None and one.succeeded is not None
                else tool.succeeded,
                identifies=one.identifies if tool.identifies is None else tool.identifies,
            )
    if open_world is None:
        open_world = _hint(annotations, "openWorldHint") is not False  # MCP: true where it isn't given
    if only_reads and tool.effects is None and open_world:
        return replace(tool, effects=_REACHES_OUT)
    # `readOnlyHint: false` alone is also said of tools that run commands, whose output proves less.
    only_adds = all(_hint(annotations, hint) is False for hint in ("readOnlyHint", "destructiveHint"))
    return replace(tool, acts=True) if tool.acts is None and only_adds else tool


def _hint(annotations: object, name: str) -> object:
    """One of the MCP annotations, which may be an object or a mapping."""
    if isinstance(annotations, Mapping):
        return cast("Mapping[str, object]", annotations).get(name)
    return getattr(annotations, name, None)


def _declarations() -> Iterator[Declaration]:
    """All that is said, the operator's word first."""
    files = [trust.own_folder() / NAME]
    config = os.environ.get("DELEGATE_CONFIG")
    if config:
        files.append(Path(config).with_name(NAME))
    for path in files:
        if path.is_file():
            yield from _parsed(str(path), path.read_bytes())
    if not config and Path(NAME).is_file() and (file := trust.read(Path(NAME))).trusted:
        yield from _parsed(str(file.path), file.data)
    yield from _parsed(NAME, text_of("judges", NAME).encode())


@lru_cache(maxsize=16)
def _parsed(name: str, data: bytes) -> Sequence[Declaration]:
    try:
        tools = tomllib.loads(data.decode()).get("tools", [])
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{name} can't be read as TOML: {error}; correct it there") from error
    if not isinstance(tools, list):
        raise ConfigError(f"{name}: tools is not a list; begin each tool with [[tools]]")
    return tuple(_one(name, fields) for fields in cast("list[Any]", tools))


def _one(file: str, fields: Any) -> Declaration:
    given = cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}
    if not isinstance(given.get("name"), str):
        raise ConfigError(f'{file}: a tool has no name; begin it with [[tools]] and name = "…"')
    where = f"{file}: {given['name']}"
    if unknown := given.keys() - _FIELDS:
        raise ConfigError(
            f"{where}: there is no field {sorted(unknown)[0]}; the fields are {', '.join(sorted(_FIELDS))}"
        )
    kinds = {"server": str, "acts": bool, "succeeded": dict, "open_world": bool, "parameters": list, "identifies": list}
    wrong = [name for name, kind in kinds.items() if name in given and not isinstance(given[name], kind)]
    lists = [name for name in ("parameters", "identifies") if name in given and name not in wrong]
    wrong += [name for name in lists if not all(isinstance(one, str) for one in given[name])]
    if wrong:
        raise ConfigError(f"{where}: {wrong[0]} has a value of the wrong type; docs/criteria.md has an example")
    as_tuples: dict[str, Any] = {name: tuple(given[name]) for name in lists}
    return Declaration(**{**given, **as_tuples})

"""Changes the server's entry in the settings file of an MCP client, and leaves all else in it as it is."""

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, cast

from delegate.cli.input import jsonc
from delegate.cli.mcp_clients import SERVER, Launch, McpClient
from delegate.types import JsonObject


def block(client: McpClient, launch: Launch) -> str:
    """The text of a settings file that has the server alone."""
    return edited(client, "", client.block(launch))


def entry_in(client: McpClient, text: str) -> JsonObject:
    """The server's entry in a file; empty if there is none. Raises ValueError."""
    found: Any = _parsed(client, text)
    for key in client.keys:
        found = cast("JsonObject", found).get(key) if isinstance(found, dict) else None
    if isinstance(found, list):
        servers = cast("list[JsonObject]", found)
        found = next((one for one in servers if isinstance(cast("Any", one), dict) and one.get("name") == SERVER), None)
    return {**cast("JsonObject", found)} if isinstance(found, dict) else {}


def edited(client: McpClient, text: str, entry: JsonObject | None) -> str:
    """The text with this entry, or without one. Raises ValueError if that can't be done without losing something."""
    before, current = _parsed(client, text), entry_in(client, text)
    if entry is None and not current:
        return text
    expected = _put(client, deepcopy(before), entry, current)
    if expected == before:
        return text
    if client.format == "toml":
        import tomlkit  # loaded only where it is needed

        new = tomlkit.dumps(_put(client, tomlkit.parse(text), entry, current))
    elif client.format == "yaml":  # values are written as JSON, which YAML includes
        server: JsonObject = expected[client.keys[0]][0]
        lines = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in server.items())
        new = f"{text.rstrip()}\n" if text else ""
        new += f"{client.keys[0]}:\n  - " + "\n    ".join(lines) + "\n"
    elif entry is None or not current:
        new = jsonc.changed(text if text.strip() else "{}\n", client.keys, entry)
    else:
        new = text
        for name in (name for name, value in entry.items() if name not in current or current[name] != value):
            new = jsonc.changed(new, (*client.keys, name), entry[name])
    if _parsed(client, new) != expected:
        raise ValueError("its form is unusual")
    return new


def _put(client: McpClient, whole: Any, entry: JsonObject | None, current: JsonObject) -> Any:
    """Set or remove the server's entry in the content of a file, and its name in the list that it has to be in."""
    if client.format == "yaml":
        if current != (entry or {}):
            if entry is None or client.keys[0] in whole:
                raise ValueError("a list of servers in YAML has to be changed by hand")
            whole[client.keys[0]] = [{"name": SERVER, **entry}]
        return whole
    create = entry is not None
    if entry is None:
        _inside(whole, client.keys[:-1], {}, create=create).pop(SERVER, None)
    else:  # value by value: comments stay, and what is in an inline table is written inline
        inside = _inside(whole, client.keys, {}, create=create)
        for name in (name for name, value in entry.items() if name not in inside or inside[name] != value):
            inside[name] = entry[name]
    if client.also:
        *keys, name = client.also
        listed = _inside(whole, keys, [], create=create)
        if (name in listed) != create:
            (listed.append if create else listed.remove)(name)
    return whole


def _inside(whole: Any, keys: Sequence[str], empty: Any, *, create: bool) -> Any:
    """What is under these keys, which may be created if they don't exist: objects, and `empty` as the last."""
    for n, key in enumerate(keys, start=1):
        default: Any = {} if n < len(keys) else empty
        whole = whole.setdefault(key, default) if create else whole.get(key, default)
        if not isinstance(whole, type(default)):
            kind = "an object" if isinstance(default, dict) else "a list"
            raise ValueError(f"`{'.'.join(keys[:n])}` isn't {kind} in it")
    return whole


def _parsed(client: McpClient, text: str) -> JsonObject:
    """What a file says. Raises ValueError."""
    if not text.strip():
        return {}
    import tomllib

    import yaml

    parse: Callable[[str], Any] = {"json": jsonc.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}[client.format]
    try:
        whole = parse(text)
    except Exception as error:  # each parser has errors of its own
        raise ValueError(f"it can't be read ({' '.join(str(error).split())[:200]})") from None
    if not isinstance(whole, dict):
        raise ValueError("it has no keys")
    return cast("JsonObject", whole)

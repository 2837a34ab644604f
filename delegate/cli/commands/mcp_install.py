"""`delegate mcp install`: the settings with which a client starts the server, printed or written into its file."""

import os
import shutil
import sys
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from delegate.cli import PROGRAM
from delegate.cli.mcp_clients import CLIENTS, SERVER, Launch, McpClient, config

if TYPE_CHECKING:
    from delegate.types import JsonObject

_ClientArgument = typer.Argument(metavar="CLIENT", help=f"One of {', '.join(CLIENTS)}.")
_WriteOption = typer.Option(
    "--write", help="Write it into the client's settings file, and keep a copy of the old file next to it."
)
_FileOption = typer.Option("--file", help="The client's settings file, if it isn't in the usual place.")
_CommandOption = typer.Option("--command", help="The command that the client starts. Default: this one.")
_KeyOption = typer.Option(
    "--key",
    metavar="NAME",
    help="A variable of yours that the server gets, by its name and not its value; may be repeated. Default: the "
    "providers' keys and addresses that are set.",
)
_ServerArgument = typer.Argument(
    metavar="SERVER_OPTION", help='Options of the server, after `--`, such as `-- --runner "claude -p"`.'
)
_KEYS = (
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    *("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
)


def install(
    client: Annotated[str, _ClientArgument],
    options: Annotated[list[str] | None, _ServerArgument] = None,
    write: Annotated[bool, _WriteOption] = False,
    file: Annotated[Path | None, _FileOption] = None,
    command: Annotated[str | None, _CommandOption] = None,
    key: Annotated[list[str] | None, _KeyOption] = None,
) -> None:
    """Print what a client's settings need to start the server, or write it there.

    With --write, everything else in the file stays as it is, and an entry of
    the server that is there already is replaced. No key is written, only the
    names of variables.
    """
    from delegate.errors import ConfigError

    if client not in CLIENTS:
        raise typer.BadParameter(f"there is no client {client!r}; there are: {', '.join(CLIENTS)}", param_hint="CLIENT")
    keys = tuple(key) if key is not None else tuple(name for name in _KEYS if os.environ.get(name))
    launch = _this_command() if command is None else Launch(command)
    launch = replace(launch, args=(*launch.args, *(options or ())), keys=keys)
    path, block = config(client, launch)
    file = (file or Path(path)).expanduser()
    if hint := CLIENTS[client].hint:
        print(f"{PROGRAM}: {CLIENTS[client].title}: {hint}", file=sys.stderr)
    if not write:
        print(f"{PROGRAM}: put this into {file}, or call this command with --write\n", file=sys.stderr)
        print(block, end="")
        return
    try:
        backup = _write(file, _merged(CLIENTS[client], launch, file, block))
    except (ValueError, OSError) as error:
        raise ConfigError(f"can't add the server to {file}: {error}; add this yourself:\n\n{block}") from None
    print(f"{file} has the server now" + (f"; what it was is in {backup}" if backup else ""))


def _this_command() -> Launch:
    """The command and its arguments, with a path, because an editor may have another PATH than a terminal."""
    program = Path(sys.executable).with_name(PROGRAM)
    if program.exists():
        return Launch(str(program))
    # Without -P, Python would run a `delegate.py` of the folder that the client has opened.
    return Launch(sys.executable, ("-P", "-m", "delegate", "mcp"))


def _merged(client: McpClient, launch: Launch, file: Path, block: str) -> str:
    """The file's text with the server's entry. Raises ValueError if that can't be done without losing something."""
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    if not old.strip():
        return client.head + block
    if client.format == "json":
        return _merged_json(client, launch, old)
    return _merged_toml(client, launch, old) if client.format == "toml" else _merged_yaml(client, old, block)


def _merged_json(client: McpClient, launch: Launch, old: str) -> str:
    import json

    try:
        whole = json.loads(old)
    except ValueError as error:
        raise ValueError(f"it isn't JSON, or has comments ({error})") from None
    if not isinstance(whole, dict):
        raise ValueError("it isn't an object")
    _add(whole, client, launch)
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _merged_toml(client: McpClient, launch: Launch, old: str) -> str:
    """The text with the server's entry, and all else as it is, comments too."""
    import tomllib

    import tomlkit

    expected, whole = _parsed(tomllib.loads, old), _parsed(tomlkit.parse, old)
    _add(expected, client, launch)
    _add(whole, client, launch)
    new = tomlkit.dumps(whole)
    if _parsed(tomllib.loads, new) != expected:
        raise ValueError("its form is unusual")
    return new


def _add(whole: Any, client: McpClient, launch: Launch) -> None:
    """Add the server's entry to the content of a file, and its name to the list that it has to be in."""
    _inside(whole, client.keys[:-1])[client.keys[-1]] = client.block(launch)
    if client.also is None:
        return
    table, key, name = client.also
    listed = _inside(whole, table).setdefault(key, [])
    if not isinstance(listed, list):
        raise ValueError(f"`{'.'.join((*table, key))}` isn't a list in it")
    if name not in listed:
        listed.append(name)  # pyright: ignore[reportUnknownMemberType]


def _inside(whole: Any, keys: Sequence[str]) -> Any:
    """What is under these keys, which are created if they don't exist."""
    for n, key in enumerate(keys, start=1):
        inside = whole.setdefault(key, {})
        if not isinstance(inside, MutableMapping):
            raise ValueError(f"`{'.'.join(keys[:n])}` isn't an object in it")
        whole = cast("Any", inside)
    return whole


def _merged_yaml(client: McpClient, old: str, block: str) -> str:
    """The text with the block's item. Raises ValueError if anything else would change."""
    import yaml

    new = _with_item(client, old, block)
    if _others(client, _parsed(yaml.safe_load, new)) != _others(client, _parsed(yaml.safe_load, old)):
        raise ValueError("its form is unusual")
    return new


def _with_item(client: McpClient, old: str, block: str) -> str:
    """The old text with the block's item as the first one of the list of servers."""
    import re

    listed = re.search(rf"^{client.keys[0]}:[ \t]*(?:\[\])?[ \t]*\n", old + "\n", re.MULTILINE)
    if listed is None:
        return f"{old.rstrip()}\n{block}"
    rest = (old + "\n")[listed.end() :]
    first = re.match(r"(?:[ \t]*(?:#.*)?\n)*([ \t]*)- ", rest)
    item = block.partition("\n")[2]
    if first:
        item = "".join(line[2:] and f"{first[1]}{line[2:]}" for line in item.splitlines(keepends=True))
    ours = re.compile(rf"^([ \t]*)- name: [\"']?{SERVER}[\"']?[ \t]*\n(?:\1[ \t]+.*\n)*", re.MULTILINE)
    return f"{old[: listed.start()]}{client.keys[0]}:\n{item}{ours.sub('', rest, count=1)}".rstrip() + "\n"


def _parsed(parse: "Callable[[str], Any]", text: str) -> "JsonObject":
    try:
        whole = parse(text)
    except Exception as error:  # each parser has errors of its own
        raise ValueError(f"it can't be read ({' '.join(str(error).split())[:200]})") from None
    if not isinstance(whole, dict):
        raise ValueError("it has no keys")
    return whole  # pyright: ignore[reportUnknownVariableType]


def _others(client: McpClient, whole: "JsonObject") -> "JsonObject":
    """All that is in a file with a list of servers besides the server's own entry."""
    servers: Any = whole.get(client.keys[0]) or []
    others = [one for one in servers if not isinstance(one, dict) or one.get("name") != SERVER]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return {**whole, client.keys[0]: others or None}


def _write(file: Path, text: str) -> Path | None:
    """Replace the file at once, with its permissions. Returns where its old text is, if it had any."""
    target = file.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    backup = None
    if target.exists():
        backup = next(
            path for n in range(1, 1_000) if not (path := target.with_name(f"{target.name}.{n}.bak")).exists()
        )
        shutil.copy2(target, backup)
    new = target.with_name(f".{target.name}.new")
    new.unlink(missing_ok=True)  # a link of this name, in a project that somebody else wrote, would lead elsewhere
    new.touch(mode=0o600, exist_ok=False)
    new.write_text(text, encoding="utf-8")
    if backup:
        shutil.copymode(backup, new)
    new.replace(target)
    return backup

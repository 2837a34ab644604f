"""`delegate mcp install`: the settings with which a client starts the server, printed or written into its file."""

import os
import re
import stat
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from delegate._util.documents import replace_text
from delegate._util.similar import most_similar
from delegate.cli import PROGRAM
from delegate.cli.app import command_of
from delegate.cli.input.client_settings import block, edited, entry_in
from delegate.cli.mcp_clients import CLIENTS, Launch, McpClient
from delegate.types.errors import ConfigError

if TYPE_CHECKING:
    from delegate.types import JsonObject

_ClientArgument = typer.Argument(metavar="CLIENT", help=f"One of {', '.join(CLIENTS)}.")
_WriteOption = typer.Option(
    "--write", help="Write it into the client's settings file, and keep a copy of the old file next to it."
)
_DryRunOption = typer.Option("--dry-run", help="Print what --write, or --remove, would change, and change nothing.")
_RemoveOption = typer.Option("--remove", help="Take the server out of the client's settings file again.")
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
_APPROVES = ("trust", "default_tools_approval_mode")
"""Keys of entries that let the model call the tools without a question to the user."""
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


def install(
    client: Annotated[str, _ClientArgument],
    options: Annotated[list[str] | None, _ServerArgument] = None,
    write: Annotated[bool, _WriteOption] = False,
    dry_run: Annotated[bool, _DryRunOption] = False,
    remove: Annotated[bool, _RemoveOption] = False,
    file: Annotated[Path | None, _FileOption] = None,
    command: Annotated[str | None, _CommandOption] = None,
    key: Annotated[list[str] | None, _KeyOption] = None,
) -> None:
    """Print what a client's settings need to start the server, or write it there.

    With --write, everything else in the file stays as it is. Of an entry of the
    server that is there already, only the command is replaced, its options if
    you give others, and what is missing is added. No key is written, only the
    names of variables.
    """
    if client not in CLIENTS:
        near = next((one for one in CLIENTS if client.startswith(one)), None) or most_similar(client, CLIENTS)
        meant = f"did you mean {near}? All" if near else "all"
        message = f"there is no client {client!r}; {meant} clients are {', '.join(CLIENTS)}"
        raise typer.BadParameter(message, param_hint="CLIENT")
    for name in key or ():
        if not (_VARIABLE.fullmatch(name) or name in os.environ):
            message = "this is no variable's name; name the variable that holds the key, such as OPENAI_API_KEY"
            raise typer.BadParameter(message, param_hint="--key")
    known, keys = CLIENTS[client], key if key is not None else [name for name in _KEYS if os.environ.get(name)]
    if command is None:
        command_of("mcp").make_context(f"{PROGRAM} mcp", [*(options or ())])  # refuses what the server would refuse
    launch = _this_command() if command is None else Launch(command)
    launch = replace(launch, args=(*launch.args, *(options or ())), keys=tuple(keys))
    file = (file or Path(known.path)).expanduser()
    if not write and not dry_run and not remove:
        _explain(known, known.block(launch), keys, options or ())
        print(f"{PROGRAM}: put this into {file}, or call this command with --write\n", file=sys.stderr)
        print(block(known, launch), end="")
        return
    try:
        old = file.read_text(encoding="utf-8") if file.exists() else ""
        entry = None if remove else _merged(known.block(launch), entry_in(known, old), keep_options=not options)
        new = edited(known, old if remove or old.strip() else known.head, entry)
        if entry is not None:
            _explain(known, entry, keys, options or ())
        if dry_run:
            _print_difference(old, new, file)
        elif new == old:
            print(f"{file} {'has no entry of the server' if remove else 'has the server already'}: nothing was changed")
        else:
            backup = _write(file, new)
            done = "has the server no longer" if remove else "has the server now"
            print(f"{file} {done}" + (f"; what it was is in {backup}" if backup else ""))
    except (ValueError, OSError) as error:
        what = "remove the server from" if remove else "add the server to"
        reason = error.strerror if isinstance(error, OSError) else str(error)
        by_hand = "" if remove else ", or add by hand what this command prints without --write"
        raise ConfigError(f"can't {what} {file}: {reason}; correct the file{by_hand}") from None


def _explain(client: McpClient, entry: "JsonObject", keys: Sequence[str], options: Sequence[str]) -> None:
    """Say which line spares the user a question, and where no key will reach the server."""
    lines: list[str] = []
    if approves := next((name for name in _APPROVES if entry.get(name) in (True, "approve")), None):
        lines.append(f"with `{approves}`, it doesn't ask its user before calls of these tools; remove it to be asked")
    given = [*(entry.get("env") or ()), *(entry.get("environment") or ()), *(entry.get("env_vars") or ())]
    if not any(one.startswith("--runner") for one in (*options, *map(str, entry.get("args") or ()))):
        if client.hint and not given:
            lines.append(client.hint)
        elif not keys and not given:
            lines.append(f"no key will reach the server: set one of {', '.join(_KEYS[::2])}, or give it a --runner")
    for line in lines:
        print(f"{PROGRAM}: {client.title}: {line}", file=sys.stderr)


def _print_difference(old: str, new: str, file: Path) -> None:
    import difflib

    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), str(file), str(file), lineterm="")
    print("\n".join(lines) or f"nothing would change in {file}")


def _this_command() -> Launch:
    """The command and its arguments, with a path, because an editor may have another PATH than a terminal."""
    program = Path(sys.executable).with_name(PROGRAM)
    if program.exists():
        return Launch(str(program))
    # Without -P, Python would run a `delegate.py` of the folder that the client has opened.
    return Launch(sys.executable, ("-P", "-m", "delegate", "mcp"))


def _merged(block: "JsonObject", old: "JsonObject", *, keep_options: bool) -> "JsonObject":
    """The server's entry. What its user has set wins, except for the command, and for options if others are given."""
    merged = {**block, **old, "command": block["command"]}
    for name in ("env", "environment", "env_vars"):
        if isinstance(block.get(name), dict) and isinstance(old.get(name), dict):
            merged[name] = {**block[name], **old[name]}
        elif isinstance(block.get(name), list) and isinstance(old.get(name), list):
            merged[name] = list(dict.fromkeys([*old[name], *block[name]]))
    if isinstance(block["command"], list):  # opencode: the command with its options
        if keep_options and isinstance(old.get("command"), list):
            merged["command"] = [block["command"][0], *old["command"][1:]]
    elif not keep_options:
        merged["args"] = block["args"]
    return merged


def _write(file: Path, text: str) -> Path | None:
    """Replace the file at once, with its permissions. Returns where its old text is, if it had any."""
    target = file.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    backup, mode = target.with_name(f"{target.name}.bak"), 0o600
    if had_text := target.exists():
        mode = stat.S_IMODE(target.stat().st_mode)
        replace_text(backup, target.read_text(encoding="utf-8"), mode)
    replace_text(target, text, mode)
    return backup if had_text else None

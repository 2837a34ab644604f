"""`delegate trust`: lets a folder's settings file, or a file of tasks, count in full, as long as it stays as it is."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from delegate._util.fencing import clean
from delegate.cli.commands.lint import tasks_in
from delegate.cli.input.hooks import CRITERIA_FILE, criteria_as_tasks
from delegate.cli.input.task_trust import lines_of, requests_of
from delegate.policy import trust as trusting
from delegate.policy.settings import Settings, load_settings, parse
from delegate.policy.trust import SettingsFile, is_model_key
from delegate.types import Task
from delegate.types.errors import ConfigError

_TASKS = (".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".toml")
_PATH = typer.Argument(help="The settings file, its folder, a .mcp.json, a role or their folder, or a file of tasks.")
_LIST = typer.Option("--list", help="List the trusted files instead.")
_REVOKE = typer.Option("--revoke", help="End the trust in this file instead.")


def trust(
    path: Annotated[Path, _PATH] = Path("delegate.toml"),
    listed: Annotated[bool, _LIST] = False,
    revoke: Annotated[bool, _REVOKE] = False,
) -> None:
    """Let a folder's delegate.toml, .mcp.json or roles, a file of tasks, or a .delegate/criteria.toml count in full.

    Read the file first: it may have come with a repository. Any change of it
    ends the trust. Without trust,

    - a delegate.toml can only restrict what your own settings allow;

    - a .mcp.json and roles (agents/NAME.md) aren't read;

    - a file of tasks can't ask for more than your settings do, or for a
    workspace outside of its folder;

    - commands in .delegate/criteria.toml run only where commands of models may.
    """
    if listed:
        for file in sorted(trusting.trusted()):
            print(f"{file}  {_state(file)}")
    elif revoke:
        if not trusting.revoke(path):
            raise ConfigError(f"{path} isn't trusted; `delegate trust --list` shows what is")
        print(f"{path} is no longer trusted")
    elif path.parts[-2:] == CRITERIA_FILE.parts:
        _trust_tasks(path, criteria_as_tasks)
    elif _is_of_settings(path):
        has_roles = path.is_dir() and path.resolve().name == "agents"
        paths = sorted(filter(trusting.is_role, path.resolve().iterdir())) if has_roles else [path]
        files = list(map(trusting.read, paths))
        print("\n".join(map(_reach, files)) or f"{path} has no roles")
        for file in files:
            trusting.trust(file)
    else:
        _trust_tasks(path, tasks_in)


def _is_of_settings(path: Path) -> bool:
    is_named = path.name in (trusting.NAME, trusting.MCP_NAME) or trusting.is_role(path.absolute())
    return path.is_dir() or is_named or path.suffix.lower() not in _TASKS


def _trust_tasks(path: Path, read: Callable[[Path], list[tuple[str, Task]] | None]) -> None:
    """Trust a file of tasks, and print what it asks for. Raises ConfigError, and CallError for an invalid file."""
    digest = trusting.digest_of(path)
    if (tasks := read(path)) is None:
        raise ConfigError(f"{path} isn't a file of tasks; name one, or a {trusting.NAME}")
    requests = requests_of(None, ((f"task {id}", task) for id, task in tasks), load_settings())
    if trusting.digest_of(path) != digest:
        raise ConfigError(f"{path} was changed while it was read; trust it when it no longer changes")
    print("\n".join((f"trusted as it is now: {path.resolve()}", *lines_of(requests, path))))
    trusting.trust_tasks(path, digest)


def _state(file: Path) -> str:
    """Whether a file that was trusted still is."""
    try:
        return "trusted" if trusting.is_trusted(file) else "changed since, so no longer trusted"
    except ConfigError:
        return "missing"


def _reach(file: SettingsFile) -> str:
    """What a file sets, and which variables it sends where. Raises ConfigError if it is invalid."""
    fields = parse(file)
    lines = [f"trusted as it is now: {file.path}", f"it sets: {', '.join(fields) or 'nothing'}"]
    settings = Settings(**fields)
    for name, server in settings.mcp_servers.items():
        where = server.url or f"`{shlex.join((server.command or '', *server.args))}`, which runs outside of any sandbox"
        gets = ", ".join(f"${variable}" for variable in sorted(server.variables)) or "no variable"
        lines.append(f"the MCP server {name} is {where}; it gets {gets}, and what children send to its tools")
    for name, role in settings.roles.items():
        lines.append(f"the role {name} has {len(role.instructions):,} characters of instructions for its children")
    for endpoint in settings.endpoints:
        what = f"${endpoint.key_env}" if endpoint.key_env else "no key"
        if endpoint.key_command:
            what = f"what `{shlex.join(endpoint.key_command)}` prints, which is run outside of any sandbox,"
        warning = "" if not endpoint.key_env or is_model_key(endpoint.key_env) else "; that is not a model key's name"
        lines.append(f"model calls and {what} go to {endpoint.base_url}{warning}")
    return clean("\n".join(lines)).text

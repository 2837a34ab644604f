"""What MCP clients want in their settings to start `delegate mcp`: one block of configuration per client.

`delegate mcp install` prints and writes these blocks, and `make clients` plays its scenarios with them.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from delegate.types import JsonObject

SERVER = "delegate"
"""The server's name in every client. Most clients put it before the names of its tools."""
CALL_SECONDS = 3_600
"""How long a client should wait for one call."""
START_SECONDS = 30
"""How long a client should wait for the server to start."""


@dataclass(frozen=True)
class Launch:
    """How a client starts the server, and how long it waits for it."""

    command: str = "delegate"
    args: Sequence[str] = ("mcp",)
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    keys: Sequence[str] = ()
    """Names of the client's own variables that the server gets too."""
    call_seconds: int | None = CALL_SECONDS
    """None: as long as the client waits by default."""

    def plain(self, reference: str = "") -> "JsonObject":
        """What most clients share. `reference` is how a client writes a variable `NAME` of its own.

        Without it, the client passes on all of its variables, or there is no way to name one.
        """
        return {"command": self.command, "args": list(self.args), **self.variables("env", reference)}

    def variables(self, key: str, reference: str = "") -> "JsonObject":
        """The server's environment, under this key."""
        named = {name: reference.replace("NAME", name) for name in self.keys} if reference else {}
        return {key: {**named, **self.env}} if named or self.env else {}

    def timeout(self, key: str, units_per_second: int = 1000) -> "JsonObject":
        """The timeout of a call, in the client's units."""
        return {} if self.call_seconds is None else {key: self.call_seconds * units_per_second}


@dataclass(frozen=True)
class McpClient:
    """An MCP client and its settings file."""

    title: str
    path: str
    """Where the client keeps the settings of its user (`~`) or of the project that it is started in."""
    keys: tuple[str, ...]
    """The keys in the settings file that lead to the server's entry, or to the list of servers."""
    block: Callable[[Launch], "JsonObject"]
    """The server's entry."""
    format: Literal["json", "toml", "yaml"] = "json"
    head: str = ""
    """What a new file needs besides."""
    hint: str = ""
    """What else its user has to do."""
    also: tuple[tuple[str, ...], str, str] | None = None
    """A list elsewhere in the file that the server's name has to be in: its table, its key, and the name."""
    approves: str = ""
    """The key of the entry that lets the model call the tools without a question to the user."""


def content(client: str, launch: Launch) -> "JsonObject":
    """The client's settings file with this server alone. Raises KeyError for an unknown client."""
    known = CLIENTS[client]
    inside: Any = known.block(launch)
    if known.format == "yaml":
        inside = [{"name": SERVER, **inside}]
    for key in reversed(known.keys):
        inside = {key: inside}
    return inside


def config(client: str, launch: Launch) -> tuple[str, str]:
    """The path of the client's settings file, and the text that adds the server to it.

    Raises KeyError for an unknown client.
    """
    known, inside = CLIENTS[client], content(client, launch)
    if known.format == "toml":
        import tomlkit  # loaded only where it is needed

        if known.also is not None:
            table, key, name = known.also
            listed: JsonObject = {key: [name]}
            for one in reversed(table):
                listed = {one: listed}
            inside |= listed
        return known.path, tomlkit.dumps(inside)
    if known.format == "yaml":
        return known.path, yaml_block(inside)
    return known.path, json.dumps(inside, indent=2, ensure_ascii=False) + "\n"


def yaml_block(inside: "JsonObject") -> str:
    """A list of servers. Their values are written as JSON, which YAML includes."""
    lines: list[str] = []
    for key, servers in inside.items():
        lines.append(f"{key}:")
        for server in servers:
            first, *rest = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in server.items())
            lines += [f"  - {first}", *(f"    {line}" for line in rest)]
    return "\n".join(lines) + "\n"


def _codex(launch: Launch) -> "JsonObject":
    return {
        **_patient(launch).plain(),
        **({"env_vars": list(launch.keys)} if launch.keys else {}),
        # Codex would ask its model before the server has started, and the tool couldn't be found then.
        "required": True,
        "startup_timeout_sec": START_SECONDS,
        **launch.timeout("tool_timeout_sec", 1),
        "supports_parallel_tool_calls": True,
        "default_tools_approval_mode": "approve",
    }


def _claude(launch: Launch) -> "JsonObject":
    # Without alwaysLoad, the model must find the tool by a search first.
    return {"type": "stdio", **launch.plain(), **launch.timeout("timeout"), "alwaysLoad": True}


def _opencode(launch: Launch) -> "JsonObject":
    command = {"type": "local", "command": [launch.command, *_patient(launch).args], **launch.variables("environment")}
    return {**command, "enabled": True, **launch.timeout("timeout")}


def _patient(launch: Launch) -> Launch:
    """The same with a server that answers only when the children have ended, or shortly before the client gives up."""
    if any(one.startswith("--answer-within") for one in launch.args):
        return launch  # the user's own
    return replace(launch, args=(*launch.args, "--answer-within", str(CALL_SECONDS - 60)))


def _gemini(launch: Launch) -> "JsonObject":
    # It ends a conversation in which the model waits by the same call five times.
    return {**_patient(launch).plain("$NAME"), **launch.timeout("timeout"), "trust": True}


def _copilot(launch: Launch) -> "JsonObject":
    return {"type": "local", **launch.plain(), "tools": ["*"], **launch.timeout("timeout")}


def _cline(launch: Launch) -> "JsonObject":
    # Like Gemini CLI, it counts the same calls.
    return {**_patient(launch).plain(), **launch.timeout("timeout", 1), "disabled": False}


def _continue(launch: Launch) -> "JsonObject":
    return {**launch.plain(), "connectionTimeout": START_SECONDS * 1000}


def _cursor(launch: Launch) -> "JsonObject":
    return launch.plain("${env:NAME}")


def _vscode(launch: Launch) -> "JsonObject":
    return {"type": "stdio", **launch.plain("${env:NAME}")}


def _plain(launch: Launch) -> "JsonObject":
    return launch.plain()


def _one_call(launch: Launch) -> "JsonObject":
    # It starts a server for each call and ends it with the answer, which must not come before the children have ended.
    return _patient(launch).plain()


_NO_KEYS = "it keeps variables that look like keys from the server, so write the keys themselves into its `env`"
_CONTINUE = "name: Local\nversion: 1.0.0\nschema: v1\n"
_SERVERS = ("mcpServers", SERVER)
_DESKTOP = "~/Library/Application Support/Claude" if sys.platform == "darwin" else "~/.config/Claude"
CLIENTS: Mapping[str, McpClient] = {
    "codex": McpClient(
        "Codex CLI",
        "~/.codex/config.toml",
        ("mcp_servers", SERVER),
        _codex,
        "toml",
        # Without it, the request to the model doesn't even name the tools of servers.
        also=(("features", "code_mode"), "direct_only_tool_namespaces", f"mcp__{SERVER}"),
        approves="default_tools_approval_mode",
    ),
    "claude": McpClient("Claude Code", "~/.claude.json", _SERVERS, _claude),
    "claude-desktop": McpClient(
        "Claude Desktop", f"{_DESKTOP}/claude_desktop_config.json", _SERVERS, _plain, hint=_NO_KEYS
    ),
    "opencode": McpClient("opencode", "~/.config/opencode/opencode.json", ("mcp", SERVER), _opencode),
    "gemini": McpClient("Gemini CLI", "~/.gemini/settings.json", _SERVERS, _gemini, approves="trust"),
    "qwen": McpClient("Qwen Code", "~/.qwen/settings.json", _SERVERS, _gemini, approves="trust"),
    "copilot": McpClient("Copilot CLI", "~/.copilot/mcp-config.json", _SERVERS, _copilot, hint=_NO_KEYS),
    "cline": McpClient("Cline CLI", "~/.cline/data/settings/cline_mcp_settings.json", _SERVERS, _cline),
    "continue": McpClient("Continue CLI", "~/.continue/config.yaml", ("mcpServers",), _continue, "yaml", _CONTINUE),
    "cursor": McpClient("Cursor", "~/.cursor/mcp.json", _SERVERS, _cursor),
    "vscode": McpClient("VS Code", ".vscode/mcp.json", ("servers", SERVER), _vscode),
    "mcporter": McpClient("mcporter", "config/mcporter.json", _SERVERS, _one_call),
    "inspector": McpClient("MCP Inspector", "mcp.json", _SERVERS, _one_call),
}
"""All known clients, by the names that `delegate mcp install` accepts."""

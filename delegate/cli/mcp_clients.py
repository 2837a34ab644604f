"""What MCP clients want in their settings to start `delegate mcp`: one block of configuration per client.

`delegate mcp install` prints and writes these blocks, and `make clients` plays its scenarios with them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from delegate.types import JsonObject

SERVER = "delegate"
"""The server's name in every client. Most clients put it before the names of its tools."""
CALL_SECONDS = 3_600
"""How long a client should wait for one call."""
START_SECONDS = 30
"""How long a client should wait for the server to start."""

Block = Callable[[str, Sequence[str], Mapping[str, str]], JsonObject]


@dataclass(frozen=True)
class McpClient:
    """An MCP client and its settings file."""

    title: str
    path: str
    """Where the client keeps the settings of its user (`~`) or of the project that it is started in."""
    keys: tuple[str, ...]
    """The keys in the settings file that lead to its servers."""
    block: Block
    """The server's entry, from its command, its arguments and its environment."""
    format: Literal["json", "toml", "yaml"] = "json"


def entry(client: str, command: str, args: Sequence[str], env: Mapping[str, str]) -> JsonObject:
    """The content of the settings file with this server alone. Raises KeyError for an unknown client."""
    known = CLIENTS[client]
    content: JsonObject = known.block(command, args, env)
    for key in reversed(known.keys):
        content = {key: content}
    return content


def config(client: str, command: str, args: Sequence[str], env: Mapping[str, str]) -> tuple[str, str]:
    """The path of the client's settings file, and the text that adds the server to it.

    Raises KeyError for an unknown client.
    """
    known, content = CLIENTS[client], entry(client, command, args, env)
    if known.format == "toml":
        text = _toml(content)
    elif known.format == "yaml":
        text = _yaml(content)
    else:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return known.path, text


def _toml(content: JsonObject, path: str = "") -> str:
    """TOML with one table per object that has values of its own. Objects within a server's entry stay on one line."""
    lines: list[str] = []
    for key, value in content.items():
        inside = f"{path}.{key}" if path else key
        if isinstance(value, dict) and inside.count(".") <= 1:
            lines.append(_toml(value, inside))
        else:
            lines.append(f"{key} = {_toml_value(value)}")
    head = [f"[{path}]"] if any(not isinstance(value, dict) for value in content.values()) else []
    return "\n".join([*head, *lines]).strip() + "\n" if not path else "\n".join([*head, *lines])


def _toml_value(value: object) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{key} = {_toml_value(one)}" for key, one in value.items())  # pyright: ignore
        return f"{{ {inside} }}" if inside else "{}"
    return json.dumps(value, ensure_ascii=False)


def _yaml(content: JsonObject) -> str:
    """YAML, whose values are written as JSON, which YAML includes."""
    (key, servers), *_ = content.items()
    lines = [f"{key}:"]
    for server in servers:
        first, *rest = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in server.items())
        lines += [f"  - {first}", *(f"    {line}" for line in rest)]
    return "\n".join(lines) + "\n"


def _plain(command: str, args: Sequence[str], env: Mapping[str, str]) -> JsonObject:
    return {"command": command, "args": list(args), "env": dict(env)}


def _codex(command: str, args: Sequence[str], env: Mapping[str, str]) -> JsonObject:
    return {
        **_plain(command, args, env),
        "startup_timeout_sec": START_SECONDS,
        "tool_timeout_sec": CALL_SECONDS,
        "supports_parallel_tool_calls": True,
        "default_tools_approval_mode": "approve",
    }


def _claude(command: str, args: Sequence[str], env: Mapping[str, str]) -> JsonObject:
    # Without alwaysLoad, the model must first find the tool by a search.
    return {"type": "stdio", **_plain(command, args, env), "timeout": CALL_SECONDS * 1000, "alwaysLoad": True}


def _opencode(command: str, args: Sequence[str], env: Mapping[str, str]) -> JsonObject:
    timeout = {"timeout": CALL_SECONDS * 1000}
    return {"type": "local", "command": [command, *args], "environment": dict(env), "enabled": True, **timeout}


def _gemini(command: str, args: Sequence[str], env: Mapping[str, str]) -> JsonObject:
    return {**_plain(command, args, env), "timeout": CALL_SECONDS * 1000, "trust": True}


def _copilot(command: str, args: Sequence[str], env: Mapping[str, str]) -> JsonObject:
    return {"type": "local", **_plain(command, args, env), "tools": ["*"], "timeout": CALL_SECONDS * 1000}


def _cline(command: str, args: Sequence[str], env: Mapping[str, str]) -> JsonObject:
    return {**_plain(command, args, env), "timeout": CALL_SECONDS, "disabled": False}


def _typed(command: str, args: Sequence[str], env: Mapping[str, str]) -> JsonObject:
    return {"type": "stdio", **_plain(command, args, env)}


def _continue(command: str, args: Sequence[str], env: Mapping[str, str]) -> JsonObject:
    timeouts = {"timeout": CALL_SECONDS * 1000, "connectionTimeout": START_SECONDS * 1000}
    return [{"name": SERVER, **_plain(command, args, env), **timeouts}]  # type: ignore[return-value]


CLIENTS: Mapping[str, McpClient] = {
    "codex": McpClient("Codex CLI", "~/.codex/config.toml", ("mcp_servers", SERVER), _codex, "toml"),
    "claude": McpClient("Claude Code", "~/.claude.json", ("mcpServers", SERVER), _claude),
    "claude-desktop": McpClient(
        "Claude Desktop", "~/.config/Claude/claude_desktop_config.json", ("mcpServers", SERVER), _plain
    ),
    "opencode": McpClient("opencode", "~/.config/opencode/opencode.json", ("mcp", SERVER), _opencode),
    "gemini": McpClient("Gemini CLI", "~/.gemini/settings.json", ("mcpServers", SERVER), _gemini),
    "qwen": McpClient("Qwen Code", "~/.qwen/settings.json", ("mcpServers", SERVER), _gemini),
    "copilot": McpClient("Copilot CLI", "~/.copilot/mcp-config.json", ("mcpServers", SERVER), _copilot),
    "cline": McpClient(
        "Cline CLI", "~/.cline/data/settings/cline_mcp_settings.json", ("mcpServers", SERVER), _cline
    ),
    "continue": McpClient("Continue CLI", "~/.continue/config.yaml", ("mcpServers",), _continue, "yaml"),
    "cursor": McpClient("Cursor", "~/.cursor/mcp.json", ("mcpServers", SERVER), _plain),
    "vscode": McpClient("VS Code", ".vscode/mcp.json", ("servers", SERVER), _typed),
    "mcporter": McpClient("mcporter", "config/mcporter.json", ("mcpServers", SERVER), _plain),
    "inspector": McpClient("MCP Inspector", "mcp.json", ("mcpServers", SERVER), _plain),
}
"""All known clients, by the names that `delegate mcp install` accepts."""

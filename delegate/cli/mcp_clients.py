"""What MCP clients want in their settings to start `delegate mcp`: one block of configuration per client.

`delegate mcp install` prints and writes these blocks, and `make clients` plays its scenarios with them.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class McpClient:
    """An MCP client, its settings file, and what it wants in the server's entry there."""

    title: str
    path: str
    """Where the client keeps the settings of its user (`~`) or of the project that it is started in."""
    keys: tuple[str, ...] = ("mcpServers", SERVER)
    """The keys in the settings file that lead to the server's entry, or to the list of servers."""
    format: Literal["json", "toml", "yaml"] = "json"
    type: str = ""
    """The kind of server, where the client wants to be told."""
    reference: str = ""
    """How it writes a variable `NAME` of its own. Empty if it passes on all of them, or there is no way to name one."""
    passes: str = ""
    """The key of the names of variables that it passes on."""
    one_list: bool = False
    """Whether its command is a list with the arguments, and its environment is called so."""
    timeout: tuple[str, int] | None = None
    """The key of the timeout of a call, and its units per second."""
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else the entry has."""
    patient: bool = False
    """Whether the server answers only when the children have ended, or shortly before the client gives up."""
    head: str = ""
    """What a new file needs besides."""
    hint: str = ""
    """What else its user has to do."""
    also: tuple[str, ...] = ()
    """A list elsewhere in the file that the server's name has to be in: its keys, and the name."""

    def block(self, launch: Launch) -> "JsonObject":
        """The server's entry."""
        args = list(launch.args)
        if self.patient and not any(one.startswith("--answer-within") for one in args):  # else it is the user's own
            args += ["--answer-within", str(CALL_SECONDS - 60)]
        entry: JsonObject = {"type": self.type} if self.type else {}
        entry |= {"command": launch.command, "args": args}
        if self.one_list:
            entry["command"] = [launch.command, *entry.pop("args")]
        named = {name: self.reference.replace("NAME", name) for name in launch.keys} if self.reference else {}
        if named or launch.env:
            entry["environment" if self.one_list else "env"] = {**named, **launch.env}
        if self.passes and launch.keys:
            entry[self.passes] = list(launch.keys)
        if self.timeout and launch.call_seconds is not None:
            entry[self.timeout[0]] = launch.call_seconds * self.timeout[1]
        return {**entry, **self.more}


_NO_KEYS = "it keeps variables that look like keys from the server, so write the keys themselves into its `env`"
_DESKTOP = "~/Library/Application Support/Claude" if sys.platform == "darwin" else "~/.config/Claude"
_IN_MS = ("timeout", 1000)
# Gemini CLI ends a conversation in which the model waits by the same call five times, and Cline counts them too.
_GEMINI: dict[str, Any] = {
    "reference": "$NAME", "timeout": _IN_MS, "more": {"trust": True}, "patient": True
}  # fmt: skip
CLIENTS: Mapping[str, McpClient] = {
    "codex": McpClient(
        "Codex CLI",
        "~/.codex/config.toml",
        ("mcp_servers", SERVER),
        "toml",
        passes="env_vars",
        timeout=("tool_timeout_sec", 1),
        more={
            # Codex would ask its model before the server has started, and the tool couldn't be found then.
            "required": True,
            "startup_timeout_sec": START_SECONDS,
            "supports_parallel_tool_calls": True,
            "default_tools_approval_mode": "approve",
        },
        patient=True,
        # Without it, the request to the model doesn't even name the tools of servers.
        also=("features", "code_mode", "direct_only_tool_namespaces", f"mcp__{SERVER}"),
    ),
    # Without alwaysLoad, the model must find the tool by a search first.
    "claude": McpClient("Claude Code", "~/.claude.json", type="stdio", timeout=_IN_MS, more={"alwaysLoad": True}),
    "claude-desktop": McpClient("Claude Desktop", f"{_DESKTOP}/claude_desktop_config.json", hint=_NO_KEYS),
    "opencode": McpClient(
        "opencode",
        "~/.config/opencode/opencode.json",
        ("mcp", SERVER),
        type="local",
        one_list=True,
        timeout=_IN_MS,
        more={"enabled": True},
        patient=True,
    ),
    "gemini": McpClient("Gemini CLI", "~/.gemini/settings.json", **_GEMINI),
    "qwen": McpClient("Qwen Code", "~/.qwen/settings.json", **_GEMINI),
    "copilot": McpClient(
        "Copilot CLI", "~/.copilot/mcp-config.json", type="local", timeout=_IN_MS, more={"tools": ["*"]}, hint=_NO_KEYS
    ),
    "cline": McpClient(
        "Cline CLI",
        "~/.cline/data/settings/cline_mcp_settings.json",
        timeout=("timeout", 1),
        more={"disabled": False},
        patient=True,
    ),
    "continue": McpClient(
        "Continue CLI",
        "~/.continue/config.yaml",
        ("mcpServers",),
        "yaml",
        more={"connectionTimeout": START_SECONDS * 1000},
        head="name: Local\nversion: 1.0.0\nschema: v1\n",
    ),
    "cursor": McpClient("Cursor", "~/.cursor/mcp.json", reference="${env:NAME}"),
    "vscode": McpClient("VS Code", ".vscode/mcp.json", ("servers", SERVER), type="stdio", reference="${env:NAME}"),
    # These start a server for each call and end it with the answer, which must not come before the children have ended.
    "mcporter": McpClient("mcporter", "config/mcporter.json", patient=True),
    "inspector": McpClient("MCP Inspector", "mcp.json", patient=True),
}
"""All known clients, by the names that `delegate mcp install` accepts."""

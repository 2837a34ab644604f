"""Writes the plugins for coding agents: `PYTHONPATH=. python scripts/write_plugins.py`.

Each is the same skill, MCP server and hook, in the files that its host wants. `tests/test_plugins.py` says what differs
from what is in the repository.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from delegate.cli.mcp_clients import CALL_SECONDS

ROOT = Path(__file__).parents[1]
Json = dict[str, Any]
PROGRAM = "delegate-task"
"""The command, by the name that no other package installs."""
HOOK_SECONDS = 60
OPENCODE = "plugins/opencode/delegate.js"
_ABOUT = "Hand work to child agents, and let no subagent end before what was asked for is there."

SKILL = """\
---
name: delegate
description: >-
  Hand tasks to child agents whose work is checked, and brief subagents so that theirs can be. Use it before you
  delegate work, launch a subagent, or report that delegated work is done.
---

# Delegating work that can be checked

Delegate a task if it is complex and can be done alone, or if several don't depend on each other. Do it yourself if it
is one step, or needs this conversation.

With `delegate_task`, give each task a goal with all that its child has to know, since the child sees nothing of this
conversation, and acceptance criteria. Each result is PASS or FAIL with the evidence for it. Nothing is retried: read
the reasons of a FAIL, then send a better task or do the work yourself. Never report a FAIL as done.

Give a subagent of your own the same in its prompt: a line `Acceptance criteria`, and a list below it. A hook judges the
work when the subagent ends, and sends it back with what is missing.

Write criteria that code can decide, as far as there are any:

- `file: report.md`: the file is there
- `shell: make test`: the command succeeds
- `file report.md: each claim names its source`: a judge reads the file, and has to quote it
- `report: the answer names the cause`: the same for what the agent says at its end

A criterion says what is true when the work is done, not how to do it. One that can't fail is worth nothing.
"""
COMMAND = """\
---
description: Show the verdicts of the latest delegated tasks.
allowed-tools: Bash(delegate-task runs:*), Bash(delegate-task show:*)
---

Run `delegate-task runs`, then `delegate-task show RUN` for the latest run, or for the one that this names: $ARGUMENTS

Say for each task whether it is PASS or FAIL, and for a FAIL which criteria aren't met, and why.
"""


def documents() -> Mapping[str, str]:
    """All files, by their paths in the repository."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    head: Json = {"name": "delegate", "version": project["version"], "description": _ABOUT}
    listing: Json = {"name": "delegate", "source": "./plugins/delegate", "description": _ABOUT}
    server: Json = {"command": PROGRAM, "args": ["mcp", "--answer-within", str(CALL_SECONDS - 60)]}
    codex: Json = {**server, "tool_timeout_sec": CALL_SECONDS, "startup_timeout_sec": 30}
    gemini: Json = {**server, "timeout": 1000 * CALL_SECONDS}
    entries = {
        ".claude-plugin/marketplace.json": {
            "name": "delegate",
            "owner": {"name": "delegate"},
            "metadata": {"description": _ABOUT},
            "plugins": [listing],
        },
        ".agents/plugins/marketplace.json": {
            "name": "delegate",
            "interface": {"displayName": "delegate"},
            "plugins": [
                {
                    "name": "delegate",
                    "source": {"source": "local", "path": "./plugins/delegate"},
                    "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"},
                    "category": "Productivity",
                }
            ],
        },
        "plugins/delegate/.claude-plugin/plugin.json": {
            **head,
            "author": {"name": "delegate"},
            "license": project["license"],
            "keywords": project["keywords"],
            "mcpServers": {"delegate": server},
        },
        "plugins/delegate/.codex-plugin/plugin.json": {
            **head,
            "license": project["license"],
            "keywords": project["keywords"],
            "skills": "./skills/",
            "mcpServers": "./codex-mcp.json",
        },
        "plugins/delegate/codex-mcp.json": {"mcpServers": {"delegate": codex}},
        "plugins/delegate/hooks/hooks.json": _hooks(("SubagentStop", "Stop"), HOOK_SECONDS),
        "plugins/gemini-cli/gemini-extension.json": {**head, "mcpServers": {"delegate": gemini}},
        "plugins/gemini-cli/hooks/hooks.json": _hooks(("AfterAgent",), 1000 * HOOK_SECONDS),
    }
    return {
        **{path: json.dumps(entry, indent=2) + "\n" for path, entry in entries.items()},
        "plugins/delegate/commands/verdicts.md": COMMAND,
        "plugins/delegate/skills/delegate/SKILL.md": SKILL,
        "plugins/gemini-cli/skills/delegate/SKILL.md": SKILL,
        OPENCODE: _opencode(server),
        "delegate/hosts/hermes_plugin/plugin.yaml": _hermes(project),
    }


def _opencode(server: Json) -> str:
    """The plugin as it is in the repository, with its constants."""
    entry: Json = {"type": "local", "command": [server["command"], *server["args"]], "timeout": 1000 * CALL_SECONDS}
    text = (ROOT / OPENCODE).read_text(encoding="utf-8")
    for name, value in (("SERVER", entry), ("HOOK_MILLISECONDS", 1000 * HOOK_SECONDS), ("PROGRAM", PROGRAM)):
        text = re.sub(rf"(?m)^const {name} = .*$", f"const {name} = {json.dumps(value)}", text)
    return text


def _hermes(project: Json) -> str:
    """The manifest of a plugin that Hermes installs from a repository, with the fields of its catalog."""
    manifest: Json = {
        "manifest_version": 1,
        "name": project["name"],
        "version": project["version"],
        "description": "Hand work to child agents and get it back with a PASS/FAIL verdict that rests on evidence.",
        "author": "delegate",
        "license": project["license"],
        "kind": "standalone",
        "python_dependencies": [project["name"]],
        "provides_tools": ["delegate_verified", "read_delegation"],
        "provides_hooks": ["pre_llm_call", "subagent_start"],
    }
    return yaml.safe_dump(manifest, sort_keys=False, width=1_000)


def _hooks(events: tuple[str, ...], timeout: int) -> Json:
    hook: Json = {"type": "command", "command": f"{PROGRAM} hook", "timeout": timeout}
    return {"hooks": {event: [{"hooks": [hook]}] for event in events}}


def main() -> None:
    """Write all files."""
    for path, text in documents().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

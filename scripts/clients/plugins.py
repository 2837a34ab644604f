"""Plays the plugins in coding agents, headless: `python -m scripts.clients.plugins [CLIENT …]`.

Each plugin is installed with the client's own command, from this clone.

A scripted model says that it has written a file. In one run it hasn't, and writes it only when it is told what is
missing; in the other it has. In Claude Code and opencode, a subagent does so, whom the hook keeps from ending. In
Hermes, whose own `delegate_task` the plugin answers, a subagent's FAIL is read by the agent that called it, which calls
again. In the others it is the main agent.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scripts.clients.driven import ALL, ROOT, Driven, Setup, cache, installed
from scripts.clients.fakes import serving
from scripts.clients.wire import answered, calling, listed
from tests.support.model_server import Call, Reply

Json = dict[str, Any]
PROMPT = "Write made.txt with the word done.\n\nAcceptance criteria:\n- file: made.txt\n"
SHELLS: Mapping[str, Callable[[str], Json]] = {
    "Bash": lambda command: {"command": command, "description": "Write the file"},
    "exec_command": lambda command: {"cmd": command},
    "shell_command": lambda command: {"command": command},
    "run_shell_command": lambda command: {"command": command},
    "bash": lambda command: {"command": command, "description": "Do the work"},
    "terminal": lambda command: {"command": command},
}
"""The shell tool of each client, and its arguments for a command."""


@dataclass(frozen=True)
class Host:
    """How a client installs the plugin, and is started."""

    install: tuple[tuple[str, ...], ...]
    """What the client's program is called with."""
    argv: Callable[[Setup, str], list[str]]
    """The command line for a prompt."""
    files: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Files that are copied, below the home folder, where the client has no command for a plugin on this machine."""
    by_subagent: bool = False
    told: str = "delegate: FAIL"
    """What the model reads when the work isn't done."""
    program: Callable[[str], str] = str
    """The program to start, from the one that is installed."""
    settings: str = ""
    """Its settings file, below the home folder, for what names the model."""
    transcript: Callable[[Setup, Mapping[str, str], list[Json]], str] = lambda setup, env, told: _told_of(told)
    """Its session, from where it is, or from what the hook was told."""


def _told_of(told: list[Json]) -> str:
    of_subagents = [one["agent_transcript_path"] for one in told if one.get("agent_transcript_path")]
    return Path(of_subagents[-1] if of_subagents else told[-1]["transcript_path"]).read_text(encoding="utf-8")


def _exported(setup: Setup, env: Mapping[str, str], session: str) -> str:
    done = run([setup.program, "export", session], setup.project, dict(env))
    return done.stdout[done.stdout.index("{") :]


def _of_hermes(setup: Setup, env: Mapping[str, str]) -> str:
    sessions = run([setup.program, "sessions", "export", "-"], setup.project, dict(env)).stdout.splitlines()
    return max(sessions, key=lambda line: json.loads(line)["started_at"])


def _delegating_in_hermes(setup: Setup, _prompt: str) -> list[str]:
    return [setup.program, "-z", "Let an agent do the work.", "--yolo"]


HERMES = Driven(
    "hermes",
    "hermes-agent==0.19.0",
    lambda setup: [],
    env=lambda setup: {"HERMES_HOME": str(setup.home / ".hermes"), "OPENAI_API_KEY": "test"},
    more_settings=lambda setup: {
        "model": {
            "provider": "custom",
            "base_url": f"{setup.model_url}/v1",
            "default": "test-model",
            "context_length": 128_000,
        },
        "plugins": {
            "entries": {
                "delegate-task": {"allow_tool_override": True, "config": {"takeover": True, "children": "hermes"}}
            }
        },
    },
)
_MARKETPLACE = ("plugin", "marketplace", "add", str(ROOT))
HOSTS: Mapping[str, Host] = {
    "claude": Host(
        (_MARKETPLACE, ("plugin", "install", "delegate@delegate")),
        lambda setup, _: [
            *(setup.program, "-p", "Let an agent do the work.", "--allowedTools", "Bash", "Agent", "Task"),
        ],
        by_subagent=True,
    ),
    "codex-gpt-5.5": Host(
        (_MARKETPLACE, ("plugin", "add", "delegate@delegate")),
        lambda setup, prompt: [
            *(setup.program, "exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"),
            *("--dangerously-bypass-approvals-and-sandbox", prompt),
        ],
        settings=".codex/config.toml",
    ),
    "gemini": Host(
        (("extensions", "install", str(ROOT / "plugins" / "gemini-cli"), "--consent"),),
        lambda setup, prompt: [setup.program, "--skip-trust", "--yolo", "-m", "gemini-2.5-pro", "-p", prompt],
        settings=".gemini/settings.json",
    ),
    "opencode": Host(
        (),
        lambda setup, _: [setup.program, "run", "Let an agent do the work."],
        files={".config/opencode/plugin/delegate.js": ROOT / "plugins" / "opencode" / "delegate.js"},
        by_subagent=True,
        settings=".config/opencode/opencode.json",
        transcript=lambda setup, env, told: _exported(setup, env, told[-1]["agent_id"]),
    ),
    "hermes": Host(
        (),
        lambda setup, prompt: [setup.program, "-z", prompt, "--yolo"],
        program=lambda python: str(Path(python).with_name("hermes")),
        settings=".hermes/config.yaml",
        transcript=lambda setup, env, told: _of_hermes(setup, env),
    ),
}
WITH_PLUGIN: Mapping[str, Host] = {
    **HOSTS,
    "hermes": replace(
        HOSTS["hermes"],
        install=(("plugins", "install", f"file://{ROOT}#delegate/hosts/hermes_plugin", "--enable"),),
        argv=_delegating_in_hermes,
        by_subagent=True,
        told="made.txt does not exist",
    ),
}
"""Hermes is recorded without its plugin, since its sessions show an agent that nothing is asked of."""


AGENTS = {"Agent": "general-purpose", "Task": "general-purpose", "task": "general"}
"""The tool that starts a subagent in each client, and the kind of subagent."""
OURS = "delegate_task"


def asking(tools: Mapping[str, Any], prompt: str) -> Reply:
    """The reply that starts a subagent."""
    name = next(name for name in (*AGENTS, OURS) if name in tools)
    if name == OURS:
        return Reply(tool_calls=((OURS, {"goal": prompt, "acceptance_criteria": ["file: made.txt"]}),))
    return Reply(tool_calls=((name, {"description": "Work", "prompt": prompt, "subagent_type": AGENTS[name]}),))


class Model:
    """The model of the client, which lies at first or not."""

    def __init__(self, host: Host, *, lies: bool) -> None:
        self.host = host
        self.lies = lies
        self.told = 0
        self.has_tool = False
        self.read = ""
        """The verdict of the last call of `delegate_task`."""

    def __call__(self, call: Call) -> Any:
        tools = {tool.name: tool for tool in listed(call)}
        if not tools or call.wants_json:
            return Reply('{"title": "Write a file", "complexity_score": 1}')
        self.has_tool = self.has_tool or "delegate_task" in call.raw.decode()
        text, answers = call.raw.decode(), answered(call)
        done, told = {one.tool for one in answers}, self.host.told in text
        self.told += told
        if OURS in done:
            self.read = json.dumps(json.loads(answers[-1].text)["results"][0]["judge"])
            return (
                Reply("It is written.")
                if '"verdict": "PASS"' in self.read
                else asking(tools, f"{PROMPT}\n{self.host.told}")
            )
        if self.host.by_subagent and "made.txt with the word" not in text:
            return asking(tools, PROMPT)
        if self.host.by_subagent and done & AGENTS.keys():
            return Reply("It is written.")
        shell = next(tools[name] for name in SHELLS if name in tools)
        if shell.name not in done and (told or not self.lies):
            return calling(call, shell, [SHELLS[shell.name]("echo done > made.txt")], "function")
        return Reply("I wrote made.txt, as I was asked.")


def client_of(name: str) -> Driven:
    """The client of a host."""
    return next(one for one in (*ALL, HERMES) if one.name == name)


def recording_command(folder: Path) -> Path:
    """The command that plugins start. What a hook is told is kept in `told.jsonl`, its answers in `answers.jsonl`."""
    shim = folder / "bin" / "delegate-task"
    shim.parent.mkdir()
    start = f"env PYTHONPATH={ROOT} DELEGATE_HOME={folder}/delegate {sys.executable} -m delegate"
    keeping = f"tee -a {folder}/told.jsonl | {start} hook | tee -a {folder}/answers.jsonl"
    shim.write_text(f'#!/bin/sh\n[ "$1" = hook ] || exec {start} "$@"\n{keeping}\n')
    shim.chmod(0o755)
    return shim


def play(name: str, *, lies: bool) -> str:
    """Play one client; what was seen, or how it failed."""
    host, client = WITH_PLUGIN[name], client_of(name)
    program, version = installed(client)
    program = host.program(program)
    folder = cache() / "plugins" / name / ("lies" if lies else "honest")
    shutil.rmtree(folder, ignore_errors=True)
    home, project = folder / "home", folder / "project"
    home.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    shim = recording_command(folder)
    model = Model(host, lies=lies)
    with serving(model) as server:
        setup = Setup(home, project, server.url, program, {})
        path = f"{shim.parent}:{os.environ['PATH']}"
        env = {"PATH": path, "HOME": str(home), "TERM": "dumb", "CI": "1", "PYTHONPATH": str(ROOT), **client.env(setup)}
        if host.settings:
            more = client.more_settings(setup)
            (home / host.settings).parent.mkdir(parents=True, exist_ok=True)
            (home / host.settings).write_text(more if isinstance(more, str) else json.dumps(more))
        for path, file in host.files.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, home / path)
        for command in host.install:
            run([program, *command], project, env).check_returncode()
        ended = run(host.argv(setup, PROMPT), project, env)
    answers = folder / "answers.jsonl"
    said = answers.read_text().strip() if answers.exists() else model.read or "the hook was never run"
    written = bool(model.read) or (project / "made.txt").exists()
    passed = written and ended.returncode == 0 and (model.told > 0) == lies and "PASS" in said and model.has_tool
    seen = f"exit code {ended.returncode}, told in {model.told} requests, tool {'' if model.has_tool else 'not '}there"
    failure = "" if passed else f"\n{ended.stdout[-800:]}\n{ended.stderr[-800:]}"
    return f"{name} {version}: {'yes' if passed else 'no'} ({seen}): {said}{failure}"


def run(command: list[str], folder: Path, env: dict[str, str], answer: str = "y\n") -> subprocess.CompletedProcess[str]:
    """Run a command of the client. It may ask whether it is meant so."""
    return subprocess.run(
        command, cwd=folder, env=env, input=answer, capture_output=True, text=True, timeout=180, check=False
    )


def main() -> None:
    """Play the clients that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="*", default=list(WITH_PLUGIN), metavar="CLIENT")
    for name in parser.parse_args().clients:
        for lies in (True, False):
            print(("lies" if lies else "honest") + ": " + play(name, lies=lies), flush=True)


if __name__ == "__main__":
    main()

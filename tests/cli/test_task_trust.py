"""A file of tasks that a repository brings along asks for nothing beyond its folder and the operator's settings."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from delegate.cli.input.task_trust import refuse_untrusted
from delegate.cli.input.taskfile import read_tasks
from delegate.policy.settings import Settings, load_settings
from delegate.policy.trust import own_folder
from delegate.types.errors import CallError
from tests.cli.command import COMMAND, delegate, openai_at
from tests.support.model_server import ModelServer
from tests.support.operator import own_settings

SHELL = {"kind": "shell", "command": "true"}
WIDER: dict[str, tuple[dict[str, Any], str, str]] = {
    "the home folder": ({"workspace": "~"}, "", "task 1: workspace {home}"),
    "the folder above": ({"workspace": {"mode": "copy", "path": ".."}}, "", "task 1: workspace {above}"),
    "a link to the outside": ({"workspace": "link"}, "", "task 1: workspace {above}"),
    "the machine's network": (
        {"acceptance_criteria": [SHELL | {"network": "host"}]}, "", "task 1: acceptance_criteria[0].network host",
    ),
    "a command": (
        {"acceptance_criteria": ["shell: true"]}, 'commands = "deny"', "task 1: acceptance_criteria[0].command",
    ),
    "a long command": (
        {"acceptance_criteria": [SHELL | {"timeout_seconds": 3600}]}, "",
        "task 1: acceptance_criteria[0].timeout_seconds 3600",
    ),
    "more time": ({"timeout_seconds": 601}, "", "task 1: timeout_seconds 601.0"),
    "more steps": ({"max_steps": 31}, "", "task 1: max_steps 31"),
    "more money": ({"max_cost_usd": 2}, "max_cost_usd = 1", "task 1: max_cost_usd 2.0"),
    "a lower level": ({"min_level": "said"}, 'min_level = "seen"', "task 1: min_level said"),
}  # fmt: skip


@pytest.fixture(params=["tasks.json", "tasks.yaml"])
def file(request: pytest.FixtureRequest) -> Path:
    """A file for tasks in a repository."""
    Path("repository").mkdir()
    Path("repository", "link").symlink_to("..")
    return Path("repository", request.param)


def _write(file: Path, *tasks: dict[str, Any]) -> None:
    file.write_text(json.dumps([{"goal": "Say hello"} | task for task in tasks]))


@pytest.mark.parametrize("command", ["run", "batch", "lint"])
def test_an_untrusted_file_is_refused_with_the_fields_and_runs_once_trusted(file: Path, command: str) -> None:
    _write(file, {"acceptance_criteria": [SHELL | {"network": "host"}], "workspace": "~", "max_steps": 99}, {})
    argv = {
        "run": ["run", "--file", file],
        "batch": ["batch", file, "-o", "r.jsonl"],
        "lint": ["lint", "--files", file],
    }
    with ModelServer([]) as server:
        refused = delegate(*map(str, argv[command]), **openai_at(server))
        assert server.calls == []
    assert refused.returncode == 2
    for words in ("asks for more than a file of tasks may", ": workspace ", ": max_steps 99", "network host",
                  "`delegate trust ", f"{file}`"):  # fmt: skip
        assert words in " ".join(refused.stderr.split())
    trusted = delegate("trust", str(file))
    assert trusted.returncode == 0, trusted.stderr
    assert (
        f"trusted as it is now: {file.resolve()}\ncommands of its checks:\n  true\nfolders:\n  shared /"
        in trusted.stdout
    )
    refuse_untrusted(file, [("task 1", read_tasks(file)[0])], Settings())
    assert delegate("trust", "--list").stdout == f"{file.resolve()}  trusted\n"
    file.write_text(file.read_text() + " ")
    with pytest.raises(CallError):
        refuse_untrusted(file, [("task 1", read_tasks(file)[0])], Settings())
    assert delegate("trust", "--revoke", str(file)).returncode == 0


@pytest.mark.parametrize("name", WIDER)
def test_what_reaches_further_needs_trust(name: str) -> None:
    Path("repository").mkdir()
    Path("repository", "link").symlink_to("..")
    file, (task, toml, named) = Path("repository", "tasks.json"), WIDER[name]
    own_settings(toml)
    _write(file, task)
    with pytest.raises(CallError) as caught:
        refuse_untrusted(file, [("task 1", one) for one in read_tasks(file)], load_settings())
    assert caught.value.code == "untrusted_file"
    expected = named.format(home=Path.home().resolve(), above=Path.cwd().resolve())
    assert caught.value.message.endswith(expected)


def test_what_is_within_the_folder_and_the_settings_needs_no_trust(file: Path) -> None:
    shell = SHELL | {"network": "none", "timeout_seconds": 600}
    _write(
        file,
        {"workspace": ".", "acceptance_criteria": [shell, "file: a.txt", "It is polite"], "timeout_seconds": 600},
        {"workspace": {"mode": "copy", "path": "sub/.."}, "max_steps": 30, "max_cost_usd": 5, "tier": "deep"},
        {"min_level": "proven", "mode": "goal", "acceptance_criteria": ["shell: true"]},
    )
    refuse_untrusted(file, [("task", one) for one in read_tasks(file)], Settings())


def test_files_in_the_operators_own_folder_are_theirs() -> None:
    own_folder().mkdir(parents=True, exist_ok=True)
    file = own_folder() / "tasks.json"
    _write(file, {"workspace": "~", "max_steps": 99})
    refuse_untrusted(file, [("task 1", read_tasks(file)[0])], Settings())


@pytest.mark.parametrize("command", ["run", "batch"])
def test_a_plan_says_what_a_file_asks_for(file: Path, command: str) -> None:
    host = SHELL | {"command": "curl x.example\u001b[2J", "network": "host"}
    _write(file, {"acceptance_criteria": [host, "shell: make check"], "workspace": {"mode": "copy", "path": "."}})
    argv = ["run", "--file", str(file), "--plan"] if command == "run" else ["batch", str(file), "--plan"]
    with ModelServer([]) as server:
        shown = delegate(*argv, **openai_at(server))
        document = json.loads(delegate(*argv, "--format", "json", **openai_at(server)).stdout)
        assert server.calls == []
    assert (shown.returncode, "\u001b" in shown.stdout) == (0, False), shown.stderr
    for words in ("commands of its checks:", "make check", "folders:", "copy ", "the machine's network:",
                  "needs `delegate trust", "nothing was run"):  # fmt: skip
        assert words in shown.stdout
    assert document["commands"] == [host["command"], "make check"]
    assert document["folders"] == [f"copy {file.parent.resolve()}"]
    assert document["host_network"] == [host["command"]]
    (needed,) = document["needs_trust"]
    assert needed.endswith("1: acceptance_criteria[0].network host")


def test_a_persons_options_need_no_trust() -> None:
    Path("t.csv").write_text("goal\nSay hello\n")
    with ModelServer([]) as server:
        shown = delegate("batch", "t.csv", "-c", json.dumps(SHELL | {"network": "host"}), "--plan", "--format", "json",
                         **openai_at(server))  # fmt: skip
    assert json.loads(shown.stdout)["needs_trust"] == []


def test_what_is_no_file_of_tasks_is_not_trusted() -> None:
    Path("x.json").write_text('["a criterion"]')
    done = delegate("trust", "x.json")
    assert (done.returncode, "isn't a file of tasks" in done.stderr) == (2, True)
    assert delegate("trust", "missing.yaml").returncode == 2
    assert delegate("trust", "--list").stdout == ""


def test_python_m_delegate_imports_nothing_from_the_working_folder(home: Path) -> None:
    """A child may have written there, and the command imports much when it needs it."""
    for name in ("yaml", "jsonschema", "rich", "typer"):
        Path(f"{name}.py").write_text("open('ran', 'w')\n", encoding="utf-8")
    Path("tasks.yaml").write_text("tasks: [{goal: x}]\n", encoding="utf-8")
    subprocess.run([*COMMAND, "batch", "tasks.yaml", "--plan"], capture_output=True, check=False)
    assert not Path("ran").exists()

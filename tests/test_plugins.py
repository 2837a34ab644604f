"""The plugins for coding agents are those that their script writes, and run commands that the package installs."""

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from delegate.cli.app import COMMANDS
from scripts import write_plugins

ROOT = Path(__file__).parents[1]
DOCUMENTS = write_plugins.documents()


@pytest.mark.parametrize("path", DOCUMENTS)
def test_each_file_is_as_it_is_written(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == DOCUMENTS[path], "run scripts/write_plugins.py"


def test_there_are_no_other_files() -> None:
    found = {str(path.relative_to(ROOT)) for path in (ROOT / "plugins").rglob("*") if path.is_file()}
    assert found == {path for path in DOCUMENTS if path.startswith("plugins/")}


def test_their_program_and_its_subcommands_are_installed_by_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert write_plugins.PROGRAM in project["scripts"]
    assert project["scripts"][write_plugins.PROGRAM] == project["scripts"]["delegate"]
    hooks = [json.loads(text) for path, text in DOCUMENTS.items() if path.endswith("hooks.json")]
    commands = {hook["command"] for one in hooks for groups in one["hooks"].values() for hook in groups[0]["hooks"]}
    assert commands == {"delegate-task hook"}
    assert {"hook", "mcp", "runs", "show"} <= set(COMMANDS)


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path.endswith(".md")])
def test_what_is_said_before_a_text_is_yaml(path: str) -> None:
    _, head, _ = DOCUMENTS[path].split("---\n", 2)
    assert set(yaml.safe_load(head)) >= {"description"}

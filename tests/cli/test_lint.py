"""`delegate lint`: says which criteria can't fail, and how that was found out."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import delegate

CANNOT = "it succeeds in an empty folder"


def test_a_command_that_cannot_fail_exits_with_1() -> None:
    done = delegate("lint", "false || true")
    assert (done.returncode, done.stdout) == (1, f"can't fail: {CANNOT}\n")


def test_a_sound_command_from_stdin_exits_with_0() -> None:
    done = delegate("lint", "-", stdin="set -o pipefail\nfalse | tee log\n")
    assert (done.returncode, done.stdout) == (0, "can fail: it fails in an empty folder\n")


def test_the_expected_exit_code_decides_what_cannot_fail() -> None:
    document: dict[str, Any] = {"command": "false", "exit_code": 1, "can_fail": False, "how": CANNOT, "warnings": []}
    for format in ("json", "jsonl"):
        done = delegate("lint", "false", "--exit-code", "1", "--format", format)
        assert json.loads(done.stdout) == {**document, "findings": [f"it can't fail: {CANNOT}"]}
        assert done.returncode == 1


@pytest.mark.parametrize("arguments", [("",), (), ("-",), ("true", "--exit-code", "256")])
def test_without_a_command_lint_is_invalid_usage(arguments: tuple[str, ...]) -> None:
    done = delegate("lint", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""


def test_what_succeeds_only_in_the_workspace_is_a_warning_and_changes_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("a")
    done = delegate("lint", "test -s a.md && touch b.md", "--workspace", str(tmp_path), "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, said["can_fail"], len(said["warnings"])) == (0, True, 1)
    assert not (tmp_path / "b.md").exists()


def test_a_workspace_that_does_not_exist_is_refused() -> None:
    done = delegate("lint", "true", "--workspace", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere is not a folder" in done.stderr


def test_without_a_sandbox_a_command_is_not_run_unless_the_settings_allow_it(tmp_path: Path) -> None:
    done = delegate("lint", f"touch {tmp_path}/ran", DELEGATE_SANDBOX="off")
    assert done.returncode == 0
    assert done.stdout.startswith("not known: it couldn't be run: ")
    assert not (tmp_path / "ran").exists()
    assert delegate("lint", "true", DELEGATE_SANDBOX="off", DELEGATE_COMMANDS="allow").returncode == 1


def test_every_criterion_of_a_file_is_shown_with_how_it_was_tried(tmp_path: Path) -> None:
    file = tmp_path / "criteria.json"
    regex = {"kind": "regex", "pattern": ".*"}
    file.write_text(json.dumps(["report: it names a line", regex, {"kind": "shell", "command": "test -f a"}]))
    done = delegate("lint", "--criteria", str(file))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "c1 it names a line [about: report]",
        "  not known: a judge decides it",
        "c2 report matches /.*/",
        "  can't fail: it is found in any text, such as the goal",
        "c3 `test -f a` exits with 0",
        "  can fail: it fails in an empty folder",
    ]


def test_of_files_only_what_was_found_is_shown_and_tasks_have_their_own_workspace(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("a")
    tasks, criteria = tmp_path / "tasks.json", tmp_path / "criteria.txt"
    checks = [{"kind": "shell", "command": one} for one in ("true", "test -f b.md", "test -f a.md")]
    tasks.write_text(json.dumps([{"goal": "g", "acceptance_criteria": checks, "workspace": "."}]))
    criteria.write_text("shell: false; true\n")
    done = delegate("lint", "--files", str(tasks), str(criteria))
    assert done.returncode == 1
    lines = [line.removeprefix(f"{tmp_path}/") for line in done.stdout.splitlines()]
    assert lines == [
        f"tasks.json: task 1, c1: it can't fail: {CANNOT}, and on the files of before",
        "tasks.json: task 1, c3: warning: it fails in an empty folder, but succeeds on the files of before: it shows"
        " only that this stays so",
        f"criteria.txt: c1: it can't fail: {CANNOT}",
    ]


def test_an_invalid_criterion_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "criteria.json"
    file.write_text('[{"kind": "json_schema", "schema": {"requird": ["a"]}}]')
    done = delegate("lint", "--criteria", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert "criterion 1: at $: `requird` is not a keyword of JSON Schema; did you mean `required`?" in done.stderr

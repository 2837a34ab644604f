"""`delegate take-over`: the changes of tasks come from their worktrees into the checkout, all or nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import delegate
from tests.support.git import git


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a committed file and an uncommitted one."""
    folder = tmp_path / "my project"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "old.md").write_text("old\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    (folder / "mine.md").write_text("not committed\n")
    return folder


def ran(project: Path, command: str, *options: str) -> dict[str, Any]:
    """The result of a child that is this shell command, in a worktree of the project."""
    where = options or ("--worktree",)
    done = delegate("run", "g", "--in", str(project), *where, "--runner", command, "--format", "json")
    (result,) = json.loads(done.stdout)["results"]
    return result


def test_changes_of_several_tasks_are_taken_over_with_one_command(project: Path) -> None:
    handles = [ran(project, f"sh -c 'printf x > {name}; echo done'")["handle"] for name in ("a.md", "b.bin")]
    done = delegate("take-over", *handles)
    assert done.stdout == f"the changes of {', '.join(handles)} are in {project} now\n"
    assert done.returncode == 0
    assert git(project, "status", "--porcelain") == "?? a.md\n?? b.bin\n?? mine.md\n"


def test_changes_that_do_not_fit_change_nothing(project: Path) -> None:
    results = [ran(project, f"sh -c 'printf {name} > old.md; printf x > {name}; echo done'") for name in ("a", "b")]
    done = delegate("take-over", *(result["handle"] for result in results))
    assert done.returncode == 1
    assert done.stderr.startswith(f"nothing was changed in {project}: error: ")
    assert "old.md" in done.stderr
    assert git(project, "status", "--porcelain") == "?? mine.md\n"


def test_a_run_is_taken_over_by_its_id_or_as_the_last_one(project: Path) -> None:
    result = ran(project, "sh -c 'rm old.md; echo done'")
    run_id = result["handle"].rpartition("-")[0]
    assert delegate("take-over", run_id, "last", result["handle"]).returncode == 0
    assert not (project / "old.md").exists()
    again = delegate("take-over", run_id)
    assert (again.returncode, "these changes are there already" in again.stderr) == (1, True)


@pytest.mark.parametrize(
    ("command", "options", "why"),
    [
        ("sh -c 'echo done'", (), "it changed nothing in a worktree"),
        ("sh -c 'echo x > new; echo done'", ("--copy",), "the workspace is a copy"),
        ("sh -c 'mkdir __pycache__ && echo x > __pycache__/a.pyc; echo x > b; rm b; echo x > .git/x; echo done'",
         (), "it changed nothing in a worktree"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_over_says_why(command: str, options: tuple[str, ...], why: str, project: Path) -> None:
    result = ran(project, command, *options)
    assert result["take_over"] is None
    done = delegate("take-over", result["handle"])
    assert done.returncode == 2
    assert f"the changes of {result['handle']} can't be taken over: {why}" in done.stderr


def test_a_diff_that_was_changed_after_its_verdict_is_refused(project: Path) -> None:
    result = ran(project, "sh -c 'printf x > a.md; echo done'")
    diff = Path(f"{result['workspace']}.diff")
    diff.write_text(diff.read_text().replace("+x", "+y"))
    done = delegate("take-over", result["handle"])
    assert done.returncode == 2
    assert "was changed after its verdict" in done.stderr
    diff.unlink()
    assert "can't be read" in delegate("take-over", result["handle"]).stderr
    assert not (project / "a.md").exists()


def test_work_is_merged_once_its_checks_hold_in_the_checkout(project: Path) -> None:
    check = ("--criterion", "shell: test -e a.md && ! test -e no.md")
    handle = ran(project, "sh -c 'printf x > a.md; echo done'", "--worktree", *check)["handle"]
    (project / "no.md").write_text("")
    refused = delegate("merge", handle)
    assert (refused.returncode, refused.stdout) == (1, "")
    why = "c1: exit code 1, wanted 0 (nothing was changed)"
    assert refused.stderr == f"{handle} doesn't hold once it is merged: {why}\n"
    (project / "no.md").unlink()
    done = delegate("merge", "last")
    merged, checked, undo = done.stdout.splitlines()
    assert merged == f"the work of {handle} is in {project} now"
    assert checked == f"checked again there: {handle} c1"
    assert (project / "a.md").read_text() == "x"
    undone = delegate(*undo.partition("delegate ")[2].split())
    assert undone.stdout == f"merge {undo.split()[-1]} is undone: {project} is without {handle}\n"
    assert not (project / "a.md").exists()
    assert delegate("merge").returncode == delegate("merge", "--undo", "a", "b").returncode == 2


def test_the_checkout_is_found_from_any_folder(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(project)
    result = ran(Path("."), "sh -c 'printf x > a.md; echo done'")
    monkeypatch.chdir(tmp_path)
    assert delegate("take-over", result["handle"]).stdout == f"the changes of {result['handle']} are in {project} now\n"

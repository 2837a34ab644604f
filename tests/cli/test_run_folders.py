"""`delegate run --in`, `--worktree`, `--copy` and `--out`: which folder a child gets, and where its files go."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import delegate, openai_at, worker
from tests.support.model_server import ModelServer


@pytest.fixture
def project() -> Path:
    """A repository with a committed file and an uncommitted one, as a subfolder of the working folder."""
    folder = Path("project").absolute()
    folder.mkdir()
    (folder / "old.md").write_text("old\n")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    for command in (("init", "--quiet"), ("add", "."), (*author, "commit", "--quiet", "-m", "first")):
        subprocess.run(["git", *command], cwd=folder, check=True)
    (folder / "new.md").write_text("new\n")
    return folder


@pytest.mark.parametrize(
    ("options", "seen", "lands"),
    [
        ([], ["new.md", "note.md", "old.md"], True),
        (["--copy"], ["new.md", "note.md", "old.md"], False),
        (["--worktree"], ["note.md", "old.md"], False),
    ],
)
def test_a_child_gets_the_folder_itself_a_copy_or_a_worktree(
    project: Path, options: list[str], seen: list[str], lands: bool
) -> None:
    with ModelServer(worker()) as server:
        done = delegate("run", "Write note.md", "--in", "project", *options, "--format", "json", **openai_at(server))
    (result,) = json.loads(done.stdout)["results"]
    workspace = Path(result["workspace"])
    assert sorted(file.name for file in workspace.glob("*.md")) == seen
    assert (project / "note.md").exists() is lands


def test_out_brings_the_files_and_says_where() -> None:
    with ModelServer(worker()) as server:
        done = delegate("run", "Write note.md", "-c", "file: note.md", "--out", "results/new", **openai_at(server))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 file copied to results/new\n" in done.stdout
    assert Path("results/new/note.md").read_text() == "hello reader\n"


def test_out_brings_the_files_of_a_failed_task_too() -> None:
    with ModelServer(worker()) as server:
        done = delegate("run", "Write note.md", "-c", "file: other.md", "--out", "out", **openai_at(server))
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL")
    assert Path("out/note.md").read_text() == "hello reader\n"


def test_out_replaces_nothing_without_force_and_then_exits_with_1() -> None:
    Path("out").mkdir()
    Path("out/note.md").write_text("mine")
    with ModelServer(worker()) as server:
        command = ("run", "Write note.md", "-c", "file: note.md", "--out", "out")
        done = delegate(*command, "--format", "json", **openai_at(server))
        assert done.returncode == 1
        assert json.loads(done.stdout)["results"][0]["verdict"]["verdict"] == "PASS"
        assert done.stderr.count("\n") == 1
        assert "they exist in out: note.md; name another folder, or replace them with --force" in done.stderr
        assert Path("out/note.md").read_text() == "mine"
        assert delegate(*command, "--force", **openai_at(server)).returncode == 0
    assert Path("out/note.md").read_text() == "hello reader\n"


def test_each_task_of_a_file_gets_a_folder_in_out(project: Path) -> None:
    Path("tasks.yaml").write_text("- goal: Write note.md\n- goal: Write note.md too\n")
    with ModelServer(worker()) as server:
        done = delegate("run", "--file", "tasks.yaml", "--out", "out", **openai_at(server))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(map(str, Path("out").rglob("*.md"))) == ["out/1/note.md", "out/2/note.md"]


def test_a_worktree_brings_its_files_and_the_command_to_apply(project: Path) -> None:
    with ModelServer(worker()) as server:
        done = delegate(
            "run", "Write note.md", "--worktree", "--in", "project", "--out", "out", **openai_at(server)
        )  # fmt: skip
    assert list(Path("out").iterdir()) == [Path("out/note.md")]
    _, _, command = done.stdout.partition("1 file copied to out; to apply all changes: ")
    assert not (project / "note.md").exists()
    subprocess.run(shlex.split(command), check=True, capture_output=True)
    assert (project / "note.md").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--worktree", "--copy"], "can't be used with --copy"),
        (["--force"], "can only be used with --out"),
        (["--in", "nowhere"], "workspace nowhere is not a folder (name a folder that exists)"),
        (["--in", ".", "--out", "out"], "out is in ., where the child works itself"),
        (["--in", ".", "--out", "/dev/null/out"], "the folder /dev/null/out can't be created"),
    ],
)
def test_folders_that_cannot_be_used_are_refused_before_a_call(options: list[str], message: str) -> None:
    with ModelServer([]) as server:
        done = delegate("run", "Write note.md", *options, **openai_at(server))
        assert server.calls == []
    assert done.returncode == 2
    assert message in " ".join(done.stderr.replace("│", "").split())
    assert list(Path().iterdir()) == []

"""Copying what a child left in its workspace, also where the child is hostile."""

import hashlib
import os
from pathlib import Path

import pytest

from delegate.sandbox.filesystem.changes import changes_since
from delegate.sandbox.filesystem.copy_out import copy_out, open_target
from delegate.types import Artifact
from delegate.types.errors import CallError


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return open_target(tmp_path / "out")


def _artifacts(workspace: Path) -> tuple[Artifact, ...]:
    return changes_since({}, workspace).artifacts


def _artifact(path: str, data: bytes = b"x") -> Artifact:
    return Artifact(path=path, change="created", bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def test_files_keep_their_paths_their_bytes_and_may_be_run(workspace: Path, target: Path) -> None:
    (workspace / "a").mkdir()
    (workspace / "a" / "run.sh").write_bytes(b"#!/bin/sh\n")
    (workspace / "a" / "run.sh").chmod(0o4755)
    (workspace / "big.bin").write_bytes(os.urandom(3_000_000))
    done = copy_out(workspace, _artifacts(workspace), target)
    assert done.copied == ["a/run.sh", "big.bin"]
    assert (target / "big.bin").read_bytes() == (workspace / "big.bin").read_bytes()
    assert (target / "a" / "run.sh").stat().st_mode & 0o7111 == 0o111  # runs, and isn't setuid
    assert (target / "big.bin").stat().st_mode & 0o111 == 0


def test_what_exists_is_replaced_only_with_force(workspace: Path, target: Path) -> None:
    (workspace / "note.md").write_text("new")
    (target / "note.md").write_text("old")
    os.link(target / "note.md", target / "second name")
    assert copy_out(workspace, _artifacts(workspace), target).exists == ["note.md"]
    assert (target / "note.md").read_text() == "old"
    assert copy_out(workspace, _artifacts(workspace), target, force=True).copied == ["note.md"]
    assert (target / "note.md").read_text() == "new"
    assert (target / "second name").read_text() == "old"
    assert sorted(os.listdir(target)) == ["note.md", "second name"]


def test_links_in_the_workspace_are_named_and_not_copied(workspace: Path, target: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the key")
    (workspace / "file").symlink_to(tmp_path / "secret")
    (workspace / "folder").symlink_to(tmp_path)
    done = copy_out(workspace, _artifacts(workspace), target)
    assert done.links == ["file", "folder"]
    assert os.listdir(target) == []


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_file_replaced_by_a_link_since_is_not_followed(
    workspace: Path, target: Path, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("x")
    (workspace / "a").mkdir()
    (workspace / "a" / "key").write_text("x")
    listed = _artifacts(workspace)
    (workspace / "a" / "key").unlink()
    if kind == "file":
        (workspace / "a" / "key").symlink_to(tmp_path / "secrets" / "key")
    else:
        (workspace / "a").rmdir()
        (workspace / "a").symlink_to(tmp_path / "secrets")
    done = copy_out(workspace, listed, target)
    assert done.copied == []
    assert list(done.refused) == ["a/key"]
    assert not (target / "a" / "key").exists()


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("kind", ["file", "dangling", "folder"])
def test_a_link_in_the_target_is_not_followed(
    workspace: Path, target: Path, tmp_path: Path, kind: str, force: bool
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "key").write_text("mine")
    (workspace / "a").mkdir()
    (workspace / "a" / "key").write_text("theirs")
    if kind == "folder":
        (target / "a").symlink_to(victim)
    else:
        (target / "a").mkdir()
        (target / "a" / "key").symlink_to(victim / ("key" if kind == "file" else "new"))
    done = copy_out(workspace, _artifacts(workspace), target, force=force)
    assert done.copied == []
    assert list(done.refused) == ["a/key"]
    assert os.listdir(victim) == ["key"]
    assert (victim / "key").read_text() == "mine"


@pytest.mark.parametrize("path", ["../up", "a/../../up", "/etc/up", "a//b", "./a", ""])
def test_a_path_that_leads_elsewhere_is_refused(workspace: Path, target: Path, path: str) -> None:
    (workspace.parent / "up").write_text("x")
    done = copy_out(workspace, [_artifact(path)], target)
    assert done.copied == []
    assert os.listdir(target) == []


@pytest.mark.parametrize("path", [".git/hooks/post-checkout", ".GIT/config", "a/.git", "git~1/config"])
def test_nothing_that_git_would_run_is_copied(workspace: Path, target: Path, path: str) -> None:
    (workspace / path).parent.mkdir(parents=True, exist_ok=True)
    (workspace / path).write_text("x")
    done = copy_out(workspace, [_artifact(path)], target, force=True)
    assert ".git" in done.refused[path]
    assert os.listdir(target) == []


def test_settings_of_the_operator_are_not_replaced(workspace: Path) -> None:
    (workspace / "delegate.toml").write_text("x")
    done = copy_out(workspace, [_artifact("delegate.toml")], Path(os.path.realpath(".")), force=True)
    assert "settings" in done.refused["delegate.toml"]
    assert not Path("delegate.toml").exists()


def test_a_file_changed_after_its_verdict_is_not_copied(workspace: Path, target: Path) -> None:
    (workspace / "note.md").write_text("judged")
    (workspace / "grown.md").write_text("judged")
    listed = _artifacts(workspace)
    (workspace / "note.md").write_text("forged")
    (workspace / "grown.md").write_bytes(b"x" * 4_000_000)
    (target / "note.md").write_text("old")
    done = copy_out(workspace, listed, target, force=True)
    assert set(done.refused) == {"note.md", "grown.md"}
    assert (target / "note.md").read_text() == "old"
    assert os.listdir(target) == ["note.md"]


def test_a_file_where_a_folder_would_be_is_left_alone(workspace: Path, target: Path) -> None:
    (workspace / "a").mkdir()
    (workspace / "a" / "b").write_text("x")
    (workspace / "c").write_text("x")
    (target / "a").write_text("mine")
    (target / "c").mkdir()
    os.mkfifo(workspace / "pipe")
    done = copy_out(workspace, [*_artifacts(workspace), _artifact("pipe")], target, force=True)
    assert set(done.refused) == {"a/b", "c", "pipe"}
    assert "not a regular file" in done.refused["pipe"]
    assert (target / "a").read_text() == "mine"


def test_a_target_where_the_child_works_itself_is_refused(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(workspace)
    with pytest.raises(CallError, match="where the child works itself"):
        open_target(tmp_path / "link" / "out", shared=[workspace])
    assert os.listdir(workspace) == []
    with pytest.raises(CallError, match="can't be created"):
        open_target(Path("/dev/null/out"))

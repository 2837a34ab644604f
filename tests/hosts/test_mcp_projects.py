"""Which folder the children of an MCP client work in, and what happens to it. No SDK is needed."""

import asyncio
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from delegate import Delegator, Job, Parent, TaskResult
from delegate.engine.results import program
from delegate.errors import CallError, ConfigError
from delegate.hosts.mcp import projects
from delegate.hosts.mcp.policy import WorkspacePolicy
from delegate.hosts.mcp.projects import Project, Projects


def git(folder: Path, *args: str) -> str:
    identity = ("-c", "user.name=u", "-c", "user.email=u@example.com")
    done = subprocess.run(["git", *identity, *args], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A checkout with a commit, an uncommitted change, a new file and an ignored one."""
    folder = tmp_path / "my project"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "a.txt").write_text("committed\n")
    (folder / ".gitignore").write_text("ignored.txt\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    (folder / "a.txt").write_text("changed\n")
    (folder / "new.txt").write_text("new\n")
    (folder / "ignored.txt").write_text("ignored\n")
    return folder


def uri(path: Path) -> str:
    return f"file://{quote(str(path))}"


async def project_of(
    tmp_path: Path, *roots: str, policy: WorkspacePolicy | None = None, meta: dict[str, Any] | None = None
) -> Project:
    async def list_roots() -> list[str]:
        return list(roots)

    found = Projects(policy or WorkspacePolicy("auto"), home=tmp_path / "home of delegate")
    return await found.of_call("a client", meta or {}, list_roots if roots else None)


async def delegated(project: Project, child: Any) -> TaskResult:
    async with Delegator(runner=child) as delegator:
        report = await delegator.call({"goal": "g"}, parent=Parent(workspace=project.workspace))
    (result,) = report.results
    return result


async def test_children_see_uncommitted_changes_and_the_checkout_stays(tmp_path: Path, repository: Path) -> None:
    async def child(job: Job) -> str:
        (job.workspace / "a.txt").write_text("changed\nby the child\n")
        (job.workspace / "b.txt").write_text("of the child\n")
        return " ".join(sorted(path.name for path in job.workspace.iterdir()))

    before = git(repository, "status", "--porcelain"), git(repository, "for-each-ref"), git(repository, "stash", "list")
    project = await project_of(tmp_path, uri(repository))
    result = await delegated(project, child)
    assert result.summary == ".git .gitignore a.txt b.txt new.txt"
    assert before == (
        git(repository, "status", "--porcelain"),
        git(repository, "for-each-ref"),
        git(repository, "stash", "list"),
    )
    assert (repository / "a.txt").read_text() == "changed\n"
    assert result.take_over == f"{program()} take-over {result.handle}"
    subprocess.run(result.take_over, shell=True, check=True)
    assert (repository / "a.txt").read_text() == "changed\nby the child\n"
    assert (repository / "b.txt").read_text() == "of the child\n"


async def test_a_result_without_changes_names_no_command(tmp_path: Path, repository: Path) -> None:
    async def idle(job: Job) -> str:
        return "done"

    result = await delegated(await project_of(tmp_path, uri(repository)), idle)
    assert (result.take_over, result.no_take_over) == (None, None)


async def test_the_text_of_a_result_says_how_to_take_changes_over(tmp_path: Path, repository: Path) -> None:
    async def child(job: Job) -> str:
        (job.workspace / "b.txt").write_text("of the child\n")
        return "done"

    project = await project_of(tmp_path, uri(repository))
    async with Delegator(runner=child) as delegator:
        report = await delegator.call({"goal": "g"}, parent=Parent(workspace=project.workspace))
        text = delegator.render(report)
    assert f"- to take the changes over: {report.results[0].take_over}" in text


async def test_nothing_that_a_hostile_repository_names_is_run(tmp_path: Path, repository: Path) -> None:
    ran = tmp_path / "ran"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\necho $0 $* >> {ran}\ncat\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit", "post-commit"):
        (repository / ".git" / "hooks" / hook).symlink_to(script)
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    git(repository, "add", ".gitattributes")
    for key in (
        "core.fsmonitor",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "diff.evil.command",
    ):
        git(repository, "config", key, str(script))
    git(repository, "config", "commit.gpgSign", "true")
    git(repository, "config", "gpg.program", str(script))

    async def child(job: Job) -> str:
        (job.workspace / "b.txt").write_text("of the child\n")
        return (job.workspace / "new.txt").read_text()

    ran.unlink(missing_ok=True)
    result = await delegated(await project_of(tmp_path, uri(repository)), child)
    assert result.summary.strip() == "new"
    assert not ran.exists()


@pytest.mark.parametrize("trick", ["gitdir", "link", "commondir", "refs"])
async def test_a_folder_that_refers_to_another_repository_is_no_worktree_of_it(
    trick: str, tmp_path: Path, repository: Path
) -> None:
    folder = tmp_path / "downloaded"
    folder.mkdir()
    if trick == "gitdir":
        (folder / ".git").write_text(f"gitdir: {repository / '.git'}\n")
    elif trick == "link":
        (folder / ".git").symlink_to(repository / ".git")
    else:
        git(folder, "init", "--quiet", "--initial-branch=main")
    if trick == "commondir":
        (folder / ".git" / "commondir").write_text(str(repository / ".git"))
    elif trick == "refs":
        for name in ("refs", "objects"):
            shutil.rmtree(folder / ".git" / name)
            (folder / ".git" / name).symlink_to(repository / ".git" / name)
    project = await project_of(tmp_path, uri(folder))
    assert project.workspace
    assert project.workspace.mode == "copy"


async def test_a_setting_of_the_repository_adds_no_files_from_elsewhere(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.txt").write_text("secret\n")
    git(repository, "config", "core.worktree", str(tmp_path / "elsewhere"))

    async def child(job: Job) -> str:
        return " ".join(sorted(path.name for path in job.workspace.iterdir()))

    result = await delegated(await project_of(tmp_path, uri(repository)), child)
    assert result.summary == ".git .gitignore a.txt new.txt"
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["secret.txt"]


async def test_a_worktree_of_the_user_is_a_project(tmp_path: Path, repository: Path) -> None:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "branch"))
    (tmp_path / "branch" / "new.txt").write_text("new\n")

    async def child(job: Job) -> str:
        return " ".join(sorted(path.name for path in job.workspace.iterdir()))

    project = await project_of(tmp_path, uri(tmp_path / "branch"))
    assert project.workspace
    assert project.workspace.mode == "worktree"
    assert (await delegated(project, child)).summary == ".git .gitignore a.txt new.txt"


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("file:///", "contains the home folder"),
        ("/", "contains the home folder"),
        ("HOME", "contains the home folder"),
        ("file://HOME/..", "contains the home folder"),
        ("file://HOME/.ssh", "credentials"),
        ("file://HOME/.aws/deep", "credentials"),
        ("file://HOME/link", "credentials"),
        ("file:///no/such/folder", "is not a folder"),
        ("file://HOME/file", "is not a folder"),
        ("file://elsewhere/srv", "is not a file:// URI"),
        ("https://example.com/srv", "is not a file:// URI"),
        ("file:srv", "is not a file:// URI"),
        ("srv", "is not a file:// URI"),
        ("file:///%00", "is not a file:// URI"),
        ("file://HOME/bare.git", "bare repository"),
    ],
)
async def test_what_is_no_project_is_given_to_no_child(
    named: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "user"
    (home / ".ssh").mkdir(parents=True)
    (home / ".aws" / "deep").mkdir(parents=True)
    (home / "link").symlink_to(home / ".ssh")
    (home / "file").touch()
    git(home, "init", "--quiet", "--bare", "bare.git")
    monkeypatch.setenv("HOME", str(home))
    project = await project_of(tmp_path, named.replace("HOME", str(home)))
    assert project.workspace is None
    assert why in project.note


async def test_a_small_folder_without_commits_is_copied(tmp_path: Path) -> None:
    for name in ("plain", "unborn"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("a\n")
    git(tmp_path / "unborn", "init", "--quiet")
    for name in ("plain", "unborn"):
        project = await project_of(tmp_path, uri(tmp_path / name))
        assert project.workspace
        assert (project.workspace.mode, project.workspace.path) == ("copy", tmp_path / name)


async def test_a_large_folder_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projects, "MAX_COPY_FILES", 3)
    folder = tmp_path / "large"
    folder.mkdir()
    for n in range(4):
        (folder / str(n)).touch()
    project = await project_of(tmp_path, uri(folder))
    assert project.workspace is None
    assert "has over 3 files" in project.note
    project = await project_of(tmp_path, uri(folder), policy=WorkspacePolicy("copy"))
    assert project.workspace


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
@pytest.mark.parametrize("name", ["a folder", "a file"])
async def test_a_folder_that_cannot_be_read_in_full_is_not_copied(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a folder").mkdir()
    (folder / "a file").touch()
    (folder / name).chmod(0)
    project = await project_of(tmp_path, uri(folder))
    (folder / name).chmod(0o700)
    assert project.workspace is None
    assert f"{name} can't be read" in project.note


async def test_too_many_uncommitted_changes_are_left_out_and_named(tmp_path: Path, repository: Path) -> None:
    with (repository / "huge").open("wb") as file:
        file.truncate(60_000_000)
    project = await project_of(tmp_path, uri(repository))
    assert project.workspace
    assert project.workspace.base is None
    assert "too much is uncommitted" in project.note


@pytest.mark.parametrize("as_text", [False, True])
async def test_a_repository_that_codex_names_is_the_project(as_text: bool, tmp_path: Path, repository: Path) -> None:
    turn = {"turn_id": "t", "workspaces": {str(repository): {"has_changes": True}}}
    meta = {"x-codex-turn-metadata": json.dumps(turn) if as_text else turn}
    project = await project_of(tmp_path, uri(tmp_path), meta=meta)
    assert project.workspace
    assert project.workspace.path == repository


@pytest.mark.parametrize("given", ["{", "[]", "7", 7, None, [], {"workspaces": ["/"]}, {"workspaces": None}], ids=str)
async def test_other_metadata_names_no_project(given: object, tmp_path: Path) -> None:
    project = await project_of(tmp_path, meta={"x-codex-turn-metadata": given})
    assert project.workspace is None or project.workspace.path == Path.cwd()


async def test_the_working_folder_is_a_project_only_if_it_is_a_repository(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    project = await project_of(tmp_path)
    assert project.workspace
    assert project.workspace.path == repository
    monkeypatch.chdir(tmp_path)
    assert await project_of(tmp_path) == Project(note="the client names no project")


async def test_a_client_that_does_not_answer_is_asked_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projects, "ROOTS_SECONDS", 0.01)
    monkeypatch.chdir(tmp_path)
    asked: list[int] = []

    async def list_roots() -> list[str]:
        asked.append(1)
        await asyncio.Event().wait()
        return []

    found = Projects(WorkspacePolicy("auto"), home=tmp_path / "home of delegate")
    for _ in range(2):
        assert (await found.of_call("a client", {}, list_roots)).workspace is None
    assert len(asked) == 1


async def test_the_operators_folder_wins_over_what_a_client_names(tmp_path: Path, repository: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    meta = {"x-codex-turn-metadata": json.dumps({"workspaces": {str(repository): {}}})}
    policy = WorkspacePolicy.parse(f"shared:{own}")
    project = await project_of(tmp_path, uri(repository), policy=policy, meta=meta)
    assert project.workspace
    assert (project.workspace.mode, project.workspace.path) == ("shared", own)
    assert await project_of(tmp_path, uri(repository), policy=WorkspacePolicy("fresh")) == Project()
    with pytest.raises(CallError, match="git repository"):
        await project_of(tmp_path, policy=WorkspacePolicy.parse(f"worktree:{own}"))


async def test_a_call_can_name_no_workspace(tmp_path: Path, repository: Path) -> None:
    async def child(job: Job) -> str:
        return str(job.workspace)

    async with Delegator(runner=child) as delegator:
        report = await delegator.call({"goal": "g", "workspace": str(repository)}, parent=Parent())
    assert report.error
    assert report.error.code == "unknown_field"


@pytest.mark.parametrize("text", ["", "home", "fresh:/tmp", "shared:/no/such/folder", "worktree :/tmp"])
def test_a_policy_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        WorkspacePolicy.parse(text)

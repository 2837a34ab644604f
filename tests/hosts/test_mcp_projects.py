"""Which folder the children of an MCP client work in, and what happens to it. No SDK is needed."""

import asyncio
import json
import os
import shutil
import stat
import subprocess
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from delegate import Delegator, Job, Parent, TaskResult
from delegate.child.command import CommandRunner
from delegate.engine.results import program
from delegate.hosts import projects
from delegate.hosts.mcp import projects as client_projects
from delegate.hosts.mcp.projects import ClientFolders
from delegate.hosts.projects import Project, Projects
from delegate.hosts.workspaces import WorkspacePolicy
from delegate.types import Workspace
from delegate.types.errors import CallError, ConfigError
from tests.support.git import git


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "a.txt").write_text("committed\n")
    (folder / ".gitignore").write_text("ignored.txt\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    for name, text in (("a.txt", "changed\n"), ("new.txt", "new\n"), ("ignored.txt", "ignored\n")):
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def repository(tmp_path: Path, made: Path) -> Path:
    """A checkout with a commit, an uncommitted change, a new file and an ignored one."""
    return shutil.copytree(made, tmp_path / "my project", symlinks=True)


def uri(path: Path) -> str:
    return f"file://{quote(str(path))}"


async def project_of(
    tmp_path: Path, *roots: str, policy: WorkspacePolicy | None = None, meta: dict[str, Any] | None = None
) -> Project:
    async def list_roots() -> list[str]:
        return list(roots)

    folders = partial(ClientFolders().of_call, "a client", meta or {}, list_roots if roots else None)
    found = Projects(policy or WorkspacePolicy("auto"), home=tmp_path / "home of delegate")
    return await found.find(folders, Path.cwd())


async def names(job: Job) -> str:
    """A child that lists its workspace."""
    return " ".join(sorted(path.name for path in job.workspace.iterdir()))


async def delegated(project: Project, child: Any) -> TaskResult:
    async with Delegator(runner=child) as delegator:
        run = await delegator.call({"goal": "g"}, parent=Parent(workspace=project.workspace))
    (result,) = run.results
    return result


async def test_children_see_uncommitted_changes_and_the_checkout_stays(tmp_path: Path, repository: Path) -> None:
    async def child(job: Job) -> str:
        (job.workspace / "a.txt").write_text("changed\nby the child\n")
        (job.workspace / "b.txt").write_text("of the child\n")
        return await names(job)

    before = git(repository, "status", "--porcelain"), git(repository, "for-each-ref"), git(repository, "stash", "list")
    project = await project_of(tmp_path, uri(repository))
    async with Delegator(runner=child) as delegator:
        run = await delegator.call({"goal": "g"}, parent=Parent(workspace=project.workspace))
        (result,) = run.results
        assert f"- to take the changes over: {result.take_over}" in delegator.render(run)
    assert result.report == ".git .gitignore a.txt b.txt new.txt"
    assert before == (
        git(repository, "status", "--porcelain"),
        git(repository, "for-each-ref"),
        git(repository, "stash", "list"),
    )
    assert (repository / "a.txt").read_text() == "changed\n"
    assert result.take_over
    assert result.take_over == f"{program()} take-over {result.handle}"
    subprocess.run(result.take_over, shell=True, check=True)
    assert (repository / "a.txt").read_text() == "changed\nby the child\n"
    assert (repository / "b.txt").read_text() == "of the child\n"


async def test_nothing_that_a_hostile_repository_names_is_run(tmp_path: Path, repository: Path) -> None:
    ran = tmp_path / "ran"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\necho $0 $* >> {ran}\ncat\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit", "post-commit"):
        (repository / ".git" / "hooks" / hook).symlink_to(script)
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    git(repository, "add", ".gitattributes")
    filters = [f"filter.evil.{name}" for name in ("clean", "smudge", "process")]
    for key in ("core.fsmonitor", *filters, "diff.evil.command", "gpg.program"):
        git(repository, "config", key, str(script))
    git(repository, "config", "commit.gpgSign", "true")

    async def child(job: Job) -> str:
        (job.workspace / "b.txt").write_text("of the child\n")
        return (job.workspace / "new.txt").read_text()

    ran.unlink(missing_ok=True)
    result = await delegated(await project_of(tmp_path, uri(repository)), child)
    assert result.report.strip() == "new"
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

    result = await delegated(await project_of(tmp_path, uri(repository)), names)
    assert result.report == ".git .gitignore a.txt new.txt"
    assert (result.take_over, result.no_take_over) == (None, None)
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["secret.txt"]


async def test_a_worktree_of_the_user_is_a_project(tmp_path: Path, repository: Path) -> None:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "branch"))
    (tmp_path / "branch" / "new.txt").write_text("new\n")

    project = await project_of(tmp_path, uri(tmp_path / "branch"))
    assert project.workspace
    assert project.workspace.mode == "worktree"
    assert (await delegated(project, names)).report == ".git .gitignore a.txt new.txt"


NO_PROJECT = {
    "contains the home folder": ("file:///", "/", "HOME", "file://HOME/.."),
    "credentials": ("file://HOME/.ssh", "file://HOME/.aws/deep", "file://HOME/link"),
    "is not a folder": ("file:///no/such/folder", "file://HOME/file"),
    "is not a file:// URI": ("file://elsewhere/srv", "https://example.com/srv", "file:srv", "srv", "file:///%00"),
    "bare repository": ("file://HOME/bare.git",),
}


async def test_what_is_no_project_is_given_to_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "user"
    (home / ".ssh").mkdir(parents=True)
    (home / ".aws" / "deep").mkdir(parents=True)
    (home / "link").symlink_to(home / ".ssh")
    (home / "file").touch()
    git(home, "init", "--quiet", "--bare", "bare.git")
    monkeypatch.setenv("HOME", str(home))
    for why, named in NO_PROJECT.items():
        for one in named:
            project = await project_of(tmp_path, one.replace("HOME", str(home)))
            assert project.workspace is None, one
            assert why in project.note, one


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


async def test_other_metadata_names_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    others: list[Any] = ["{", "[]", "7", 7, None, [], {"workspaces": ["/"]}, {"workspaces": None}]
    for given in others:
        assert (await project_of(tmp_path, meta={"x-codex-turn-metadata": given})).workspace is None, given


async def test_the_working_folder_is_a_project_only_if_it_is_a_repository(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    project = await project_of(tmp_path)
    assert project.workspace
    assert project.workspace.path == repository
    monkeypatch.chdir(tmp_path)
    nothing = "no project is named, and the working folder is in no git repository"
    assert await project_of(tmp_path) == Project(note=nothing)


@pytest.fixture
def monorepo(repository: Path) -> Path:
    """The repository with two packages, one of which has an odd name. Returns the folder of that one."""
    for name in ("web [a]* !#", "shared"):
        (repository / "packages" / name).mkdir(parents=True)
        (repository / "packages" / name / "index.js").write_text(f"// {name}\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "packages")
    (repository / "packages" / "web [a]* !#" / "new.js").write_text("new\n")
    return repository / "packages" / "web [a]* !#"


async def in_package(job: Job) -> str:
    """Change a file of the package, and list the files from its folder and from the top."""
    (job.working_folder / "made.js").write_text("made\n")
    found = [path for path in job.workspace.rglob("*") if path.is_file() and ".git" not in path.parts[-2:]]
    return "\n".join(sorted(os.path.relpath(path, job.working_folder) for path in found))


async def test_from_a_subfolder_the_repository_is_the_project_and_the_folder_is_kept(
    tmp_path: Path, monorepo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(monorepo)
    for roots in ((), (uri(monorepo.parents[1]),), (uri(tmp_path), uri(monorepo.parents[1]))):
        project = await project_of(tmp_path, *roots)
        assert project.workspace
        assert (project.workspace.path, project.workspace.folder) == (monorepo.parents[1], "packages/web [a]* !#")
        result = await delegated(project, in_package)
        assert {"made.js", "new.js", "index.js", "../shared/index.js", "../../a.txt"} <= set(result.report.split("\n"))
        assert [one.path for one in result.artifacts] == ["packages/web [a]* !#/made.js"]


async def test_what_criteria_name_by_relative_paths_is_meant_from_the_working_folder(
    tmp_path: Path, monorepo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(monorepo)
    project = await project_of(tmp_path)
    criteria = [
        {"kind": "file", "path": "made.js"},
        {"kind": "shell", "command": "grep -q made made.js", "deliverables": ["*.js"]},
        {"kind": "shell", "command": "grep -q made made.js; test -f index.js # here"},
        {"kind": "text", "text": "made.js has words", "about": "made.js"},
    ]
    async with Delegator(runner=in_package, commands="allow", judge_model="none") as delegator:
        call = {"goal": "g", "context": "c", "acceptance_criteria": criteria}
        run = await delegator.call(call, parent=Parent(workspace=project.workspace))
        (result,) = run.results
        record = await delegator.records.read(str(result.handle))
    assert record
    assert "given in the folder packages/web [a]* !# of the workspace" in record["task"]["context"]
    assert result.verdict
    assert [one.outcome for one in result.verdict.criteria][:3] == ["met"] * 3, result.verdict
    assert record["task"]["acceptance_criteria"][3]["about"] == {"file": "packages/web [a]* !#/made.js"}


async def test_a_program_that_is_the_child_starts_in_the_working_folder(
    tmp_path: Path, monorepo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(monorepo)
    runner = CommandRunner(["/bin/sh", "-c", 'basename "$PWD"'])
    assert (await delegated(await project_of(tmp_path), runner)).report == "web [a]* !#"


async def test_of_a_repository_around_its_root_a_client_gives_the_root_alone(tmp_path: Path, monorepo: Path) -> None:
    project = await project_of(tmp_path, uri(monorepo))
    result = await delegated(project, in_package)
    assert result.report.split("\n") == ["index.js", "made.js", "new.js"]
    assert result.take_over
    subprocess.run(result.take_over, shell=True, check=True)
    assert (monorepo / "made.js").read_text() == "made\n"
    assert "sparse" not in (monorepo.parents[1] / ".git" / "config").read_text()

    async def changes(job: Job) -> str:
        return git(job.workspace, "status", "--porcelain") + git(job.workspace, "diff", "HEAD", "--stat")

    (monorepo / "made.js").unlink()
    assert (await delegated(project, changes)).report.strip() == "", "it is clean to git"


async def test_a_repository_in_a_root_is_the_project_of_whoever_works_there(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "deep").mkdir()
    monkeypatch.chdir(repository / "deep")
    project = await project_of(tmp_path, uri(tmp_path))
    assert project.workspace
    assert (project.workspace.path, project.workspace.folder) == (repository, "deep")


async def test_a_repository_in_the_home_folder_is_no_project_of_what_lies_in_it(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(repository))
    (repository / "notes").mkdir()
    (repository / "notes" / "a.md").write_text("a\n")
    monkeypatch.chdir(repository / "notes")
    assert (await project_of(tmp_path)).workspace is None
    project = await project_of(tmp_path, uri(repository / "notes"))
    assert project.workspace
    assert (project.workspace.mode, project.workspace.path) == ("copy", repository / "notes")


async def test_the_description_says_which_folder_children_get_as_it_is_now(
    tmp_path: Path, monorepo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(monorepo)
    auto = WorkspacePolicy("auto")
    assert auto.sentence().startswith(f"Each child works in its own git worktree of {monorepo.parents[1]}, with ")
    named = "the client's project, or in an empty folder without one"
    monkeypatch.chdir(tmp_path)
    assert auto.sentence().startswith(f"Each child works in its own git worktree or copy of {named}, with ")
    assert auto.sentence(tmp_path) == WorkspacePolicy("fresh").sentence()
    assert auto.sentence(monorepo).startswith(
        f"Each child works in its own git worktree of {monorepo.parents[1]}, with "
    )
    here = WorkspacePolicy.parse(f"auto:{tmp_path}")
    assert here.sentence().startswith(f"Each child works in its own copy of {tmp_path}: ")
    assert WorkspacePolicy("shared").sentence(monorepo).startswith(f"Children work in {monorepo.parents[1]} itself")


@pytest.mark.parametrize("folder", ["/etc", "../up", "a/../../b"])
def test_a_working_folder_outside_of_the_workspace_is_refused(folder: str) -> None:
    with pytest.raises(CallError, match="relative path inside"):
        Workspace(mode="copy", path=Path("/srv"), folder=folder)


async def test_a_working_folder_that_is_a_link_in_the_commit_is_not_followed(tmp_path: Path, repository: Path) -> None:
    (repository / "link").symlink_to(tmp_path)
    git(repository, "add", "link")
    git(repository, "commit", "--quiet", "-m", "link")

    async def child(job: Job) -> str:
        return str(job.working_folder == job.workspace)

    project = Project(Workspace(mode="worktree", path=repository, folder="link"))
    assert (await delegated(project, child)).report == "True"


async def test_a_client_that_does_not_answer_is_asked_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_projects, "ROOTS_SECONDS", 0.01)
    monkeypatch.chdir(tmp_path)
    asked: list[int] = []

    async def list_roots() -> list[str]:
        asked.append(1)
        await asyncio.Event().wait()
        return []

    folders = partial(ClientFolders().of_call, "a client", {}, list_roots)
    found = Projects(WorkspacePolicy("auto"), home=tmp_path / "home of delegate")
    for _ in range(2):
        assert (await found.find(folders, tmp_path)).workspace is None
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


async def test_a_call_can_name_no_workspace(repository: Path) -> None:
    async with Delegator(runner=names) as delegator:
        result = await delegator.call({"goal": "g", "workspace": str(repository)}, parent=Parent())
    assert result.error
    assert result.error.code == "unknown_field"


@pytest.mark.parametrize("text", ["", "home", "fresh:/tmp", "shared:/no/such/folder", "worktree :/tmp"])
def test_a_policy_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        WorkspacePolicy.parse(text)

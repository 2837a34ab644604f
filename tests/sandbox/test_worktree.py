import asyncio
import os
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from delegate.sandbox.workspace.folder import Folder, discard
from delegate.sandbox.workspace.worktree import apply, snapshot
from delegate.types import Artifact, Workspace
from delegate.types.errors import CallError, ToolError
from tests.support.git import git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git isn't installed")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home" / "workspaces"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, and changes in its checkout that aren't committed."""
    place = tmp_path / "repository"
    (place / "src").mkdir(parents=True)
    git(place, "init", "--quiet")
    (place / "README.md").write_text("read me\n")
    (place / "src" / "main.py").write_text("print(1)\n")
    (place / ".gitignore").write_text("*.log\n")
    git(place, "add", ".")
    git(place, "commit", "--quiet", "--message", "first")
    (place / "README.md").write_text("half a thought\n")
    (place / "new.md").write_text("not committed\n")
    return place


async def opened(repository: Path, home: Path, base: str | None = None) -> Folder:
    return await Folder.open(Workspace(mode="worktree", path=repository, base=base), home=home)


def registered(repository: Path) -> list[str]:
    """The worktrees registered in git, except the checkout itself."""
    listed = git(repository, "worktree", "list", "--porcelain").split("\n\n")
    in_git = repository / (".git/worktrees" if (repository / ".git").exists() else "worktrees")
    left = os.listdir(in_git) if in_git.is_dir() else []
    assert len(left) == len([one for one in listed if one.strip()]) - 1
    return left


def changed(artifacts: tuple[Artifact, ...]) -> list[tuple[str, str]]:
    return [(artifact.path, artifact.change) for artifact in artifacts]


async def diff_of(folder: Folder) -> str:
    """The first artifact, which a judge reads."""
    first = (await folder.artifacts())[0]
    assert first.path == f"../{folder.root.name}.diff"
    assert folder.root.with_name(f"{folder.root.name}.diff").stat().st_mode & 0o777 == 0o600
    return folder.read(first.path, 1_000_000).text


# ------------------------------------------------------------------------------------------------------ opening


async def test_a_worktree_has_the_files_of_a_commit_and_leaves_the_users_alone(repository: Path, home: Path) -> None:
    git(repository, "tag", "v1")
    git(repository, "commit", "--quiet", "--all", "--message", "second")
    before = git(repository, "status", "--porcelain"), git(repository, "branch", "--all")
    for base, text in (("v1", "read me\n"), ("HEAD~1", "read me\n"), ("main", "half a thought\n")):
        folder = await opened(repository, home, base)
        assert folder.read("README.md", 100).text == text
        assert not (folder.root / "new.md").exists()
        assert (folder.root.parent, folder.root.stat().st_mode & 0o777) == (home, 0o700)
        (folder.root / "README.md").write_text("the child's\n")
        git(folder.root, "commit", "--quiet", "--all", "--message", "the child's")
        assert "+the child's" in await diff_of(folder)
        await folder.close()
    assert (git(repository, "status", "--porcelain"), git(repository, "branch", "--all")) == before
    assert (repository / "README.md").read_text() == "half a thought\n"


async def test_many_worktrees_of_one_repository_can_be_made_and_removed_at_once(repository: Path, home: Path) -> None:
    async def work(n: int) -> str:
        folder = await opened(repository, home)
        folder.write("README.md", f"{n}\n".encode())
        diff = await diff_of(folder)
        folder.write("README.md", b"read me\n")
        await folder.close(keep=False)
        discard(folder.root)
        return diff

    diffs = await asyncio.gather(*(work(n) for n in range(8)))
    assert [f"+{n}\n" in diff for n, diff in enumerate(diffs)] == [True] * 8
    assert registered(repository) == []
    assert list(home.iterdir()) == []


# ------------------------------------------------------------------------------------------------- what changed


async def test_the_diff_against_the_base_is_the_first_artifact(repository: Path, home: Path) -> None:
    folder = await opened(repository, home)
    folder.write("README.md", b"Read me\n")
    folder.write("docs/new.md", b"new\n")
    (folder.root / "src" / "main.py").unlink()
    artifacts = await folder.artifacts()
    assert changed(artifacts)[1:] == [("README.md", "changed"), ("docs/new.md", "created"), ("src/main.py", "deleted")]
    diff = await diff_of(folder)
    assert [line for line in diff.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")] == [
        "-read me", "+Read me", "+new", "-print(1)",
    ]  # fmt: skip
    assert artifacts[0].bytes == len(diff.encode())
    assert artifacts[0].sha256


async def test_the_diff_can_be_applied_to_the_base(repository: Path, home: Path, tmp_path: Path) -> None:
    folder = await opened(repository, home)
    folder.write("README.md", "Grüße\n".encode("latin-1"))
    folder.write("no newline at end.md", b"new")
    (folder.root / "src" / "main.py").rename(folder.root / "src" / "start.py")
    (folder.root / "run.sh").symlink_to("src/start.py")
    await folder.artifacts()
    git(tmp_path, "clone", "--quiet", str(repository), "clone")
    git(tmp_path / "clone", "apply", str(folder.root.with_name(f"{folder.root.name}.diff")))
    names = ("README.md", "no newline at end.md", "run.sh", "src/start.py")
    for name in names:
        assert (tmp_path / "clone" / name).read_bytes() == (folder.root / name).read_bytes()
    assert not (tmp_path / "clone" / "src" / "main.py").exists()


async def test_a_child_cannot_hide_a_change_from_the_diff_in_gits_index(repository: Path, home: Path) -> None:
    folder = await opened(repository, home)
    git(folder.root, "update-index", "--assume-unchanged", "README.md")
    git(folder.root, "update-index", "--skip-worktree", "src/main.py")
    folder.write("README.md", b"hidden\n")
    folder.write("src/main.py", b"hidden too\n")
    (folder.root / ".git").write_text("gitdir: /nowhere\n")
    assert changed(await folder.artifacts())[1:] == [("README.md", "changed"), ("src/main.py", "changed")]
    diff = await diff_of(folder)
    assert "+hidden\n" in diff
    assert "+hidden too\n" in diff


async def test_ignored_files_are_artifacts_but_not_in_the_diff(repository: Path, home: Path) -> None:
    folder = await opened(repository, home)
    folder.write("build.log", b"built\n")
    folder.write("new.md", b"new\n")
    assert changed(await folder.artifacts())[1:] == [("build.log", "created"), ("new.md", "created")]
    assert "build" not in await diff_of(folder)


async def test_large_and_binary_files_are_taken_over_and_shown_by_name(repository: Path, home: Path) -> None:
    (repository / "old").write_bytes(bytes(range(256)))
    git(repository, "add", "old")
    git(repository, "commit", "--quiet", "--message", "binary")
    folder = await opened(repository, home)
    left = {"new": b"\0\1\2", "old": bytes(range(255, -1, -1)), "z.txt": b"many words\n" * 600_000}
    for name, content in left.items():
        (folder.root / name).write_bytes(content)
    folder.write("README.md", b"text\n")
    shown = await diff_of(folder)
    assert [shown.count(words) for words in ("Binary content\n", "literal ", "+text\n")] == [2, 0, 1]
    assert folder.no_take_over == ""
    git(repository, "checkout", "README.md")
    diff = folder.root.with_name(f"{folder.root.name}.diff")
    assert await apply(diff.read_bytes(), repository) == ""
    assert {name: (repository / name).read_bytes() for name in left} == left


@pytest.mark.parametrize("name", ["__pycache__/a.pyc", "src/.pytest_cache/b", "node_modules/c/d.js", "build.log"])
async def test_caches_and_ignored_files_are_not_taken_over(name: str, repository: Path, home: Path) -> None:
    folder = await opened(repository, home)
    (folder.root / name).parent.mkdir(parents=True, exist_ok=True)
    (folder.root / name).write_bytes(b"cached")
    folder.write("other.log", b"ignored too\n")
    await folder.artifacts()
    assert folder.no_take_over == "only files changed that git ignores, or caches"
    folder.write("new.md", b"new\n")
    assert await diff_of(folder) == NEW_FILE
    assert folder.no_take_over == ""


NEW_FILE = """\
diff --git a/new.md b/new.md
new file mode 100644
index 0000000..3e75765
--- /dev/null
+++ b/new.md
@@ -0,0 +1 @@
+new
"""


async def test_a_diff_that_is_too_large_says_so(repository: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegate.sandbox.workspace.worktree.MAX_DIFF_BYTES", 100)
    folder = await opened(repository, home)
    folder.write("new.md", b"new\n" * 100)
    await folder.artifacts()
    assert folder.no_take_over
    assert "bytes, over 100" in folder.no_take_over


async def test_what_a_bare_repository_has_no_checkout_for_cannot_be_taken_over(
    repository: Path, home: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare.git")
    folder = await opened(tmp_path / "bare.git", home)
    assert (folder.root / "README.md").read_text() == "read me\n"
    folder.write("new.md", b"new\n")
    await folder.artifacts()
    assert folder.no_take_over == "its repository is bare: it has no checkout"
    await folder.close()
    assert registered(tmp_path / "bare.git") == []


async def test_diffs_of_several_worktrees_are_applied_together_or_not_at_all(repository: Path, home: Path) -> None:
    diffs: list[bytes] = []
    for name, line in (("new.md", b"a\n"), ("src/main.py", b"print(2)\n"), ("src/main.py", b"print(3)\n")):
        folder = await opened(repository, home)
        folder.write(name, line)
        await folder.artifacts()
        diffs.append(folder.root.with_name(f"{folder.root.name}.diff").read_bytes())
    (repository / "new.md").unlink()
    before = git(repository, "status", "--porcelain")
    assert "src/main.py" in await apply(b"".join(diffs), repository)
    assert git(repository, "status", "--porcelain") == before
    assert await apply(b"".join(diffs[:2]), repository) == ""
    assert (repository / "src" / "main.py").read_text() == "print(2)\n"
    assert await apply(b"".join(diffs[:2]), repository) == "these changes are there already"


async def test_a_diff_that_cannot_be_made_says_so(repository: Path, home: Path) -> None:
    folder = await opened(repository, home)
    folder.write("README.md", b"changed\n")
    shutil.rmtree(repository / ".git" / "objects")
    assert (await diff_of(folder)).startswith(f"There is no diff against {git_commit(folder)}: fatal:")


def git_commit(folder: Folder) -> str:
    """The commit that is checked out, from git's own files."""
    pointer = (folder.root / ".git").read_text().removeprefix("gitdir: ").strip()
    return (Path(pointer) / "HEAD").read_text().strip()


async def test_another_file_beside_the_worktree_cannot_be_read(repository: Path, home: Path) -> None:
    one, two = [await opened(repository, home) for _ in range(2)]
    two.write("README.md", b"changed\n")
    assert await diff_of(two)
    with pytest.raises(ToolError):
        one.read(f"../{two.root.name}.diff", 100)


# ---------------------------------------------------------------------------------------------- nothing is run


async def test_nothing_of_the_repositorys_configuration_is_run(repository: Path, home: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    touch = f"sh -c 'touch {ran}; cat' --"
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit"):
        hook = repository / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
        hook.chmod(0o755)
    settings = ("filter.f.smudge", "filter.f.clean", "filter.f.process", "diff.d.textconv", "diff.d.command",
                "diff.external", "core.fsmonitor", "filter.with.dots.clean")  # fmt: skip
    (repository / ".gitattributes").write_text("*.md filter=f diff=d\n*.py filter=with.dots\n")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "--quiet", "--message", "attributes")
    for setting in settings:
        git(repository, "config", setting, touch)
    git(repository, "config", "filter.f.required", "true")
    ran.unlink(missing_ok=True)
    folder = await opened(repository, home)
    folder.write("README.md", b"changed\n")
    folder.write("src/main.py", b"print(2)\n")
    folder.write("new.md", b"new\n")
    assert "+changed" in await diff_of(folder)
    await folder.close()
    assert not ran.exists()


async def test_a_filter_that_only_worktrees_have_is_not_run(repository: Path, home: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (repository / ".gitattributes").write_text("* filter=evil\n")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "--quiet", "--message", "attributes")
    only = repository / ".git" / "only"
    only.write_text(f'[filter "evil"]\n\tsmudge = touch {ran}; cat\n\tclean = touch {ran}; cat\n')
    git(repository, "config", "includeIf.gitdir:**/.git/worktrees/**.path", str(only))
    folder = await opened(repository, home)
    assert not ran.exists(), "when the files were checked out"
    git(repository, "config", "filter.late.clean", f"touch {ran}; cat")
    folder.write(".gitattributes", b"*.md filter=late\n*.py filter=evil\n")
    folder.write("src/main.py", b"print(2)\n")
    folder.write("README.md", b"changed\n")
    assert "+changed" in await diff_of(folder)
    assert not ran.exists(), "when they were compared"


async def test_a_repository_that_the_child_put_there_runs_nothing(repository: Path, home: Path, tmp_path: Path) -> None:
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    git(repository, "commit", "--quiet", "--message", "with a submodule")
    folder, ran = await opened(repository, home), tmp_path / "ran"
    for name in ("module", "sub", "gitdir"):
        (folder.root / name).mkdir(exist_ok=True)
        git(folder.root / name, "init", "--quiet")
        (folder.root / name / "x.md").write_text("x\n")
        (folder.root / name / ".gitattributes").write_text("* filter=evil\n")
        git(folder.root / name, "add", ".")
        git(folder.root / name, "commit", "--quiet", "--message", "inner")
        git(folder.root / name, "config", "core.fsmonitor", f"touch {ran}; false")
        git(folder.root / name, "config", "filter.evil.clean", f"touch {ran}; cat")
        (folder.root / name / "x.md").write_text("y\n")
    (folder.root / "empty").mkdir()
    git(folder.root / "empty", "init", "--quiet")
    (folder.root / ".git").write_text(f"gitdir: {folder.root}/gitdir/.git\n")
    folder.write("README.md", b"changed\n")
    assert "+changed" in await diff_of(folder)
    assert not ran.exists()


async def test_the_hosts_own_git_variables_are_not_obeyed(
    repository: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {tmp_path / 'ran'}")
    folder = await opened(repository, home)
    folder.write("README.md", b"changed\n")
    assert "+changed" in await diff_of(folder)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "elsewhere").exists()


# ------------------------------------------------------------------------------------------------------ closing


async def test_a_worktree_in_which_nothing_changed_is_removed_and_forgotten(repository: Path, home: Path) -> None:
    folder = await opened(repository, home)
    assert await folder.artifacts() == ()
    assert [path.name for path in home.iterdir()] == [folder.root.name]
    (folder.root / "empty").mkdir()
    await folder.close()
    await folder.close()
    assert list(home.iterdir()) == []
    assert registered(repository) == []


async def test_a_changed_worktree_is_kept_with_its_diff_until_discarded(repository: Path, home: Path) -> None:
    folder = await opened(repository, home)
    folder.write("new.md", b"new\n")
    await folder.artifacts()
    await folder.close()
    assert registered(repository) == []
    assert not (folder.root / ".git").exists()
    assert sorted(path.name for path in home.iterdir()) == [folder.root.name, f"{folder.root.name}.diff"]
    discard(folder.root)
    assert registered(repository) == []
    assert list(home.iterdir()) == []


async def test_a_kept_worktree_holds_no_commit_of_uncommitted_work(repository: Path, home: Path) -> None:
    commit = await snapshot(repository)
    folder = await opened(repository, home, commit)
    folder.write("other.md", b"new\n")
    await folder.close(keep=True)
    assert commit in git(repository, "fsck", "--unreachable", "--no-reflogs")
    assert git(repository, "worktree", "prune", "--dry-run", "--verbose") == ""
    assert (folder.root / "other.md").read_text() == "new\n"


async def test_worktrees_of_others_are_left_alone(repository: Path, home: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "stick"))
    shutil.rmtree(tmp_path / "stick")  # like an unplugged drive
    folder = await opened(repository, home)
    await folder.close()
    assert registered(repository) == ["stick"]


async def test_discarding_believes_no_pointer_that_the_child_wrote(repository: Path, home: Path) -> None:
    mine, other = [await opened(repository, home) for _ in range(2)]
    (mine.root / ".git").write_text(f"gitdir: {repository}/.git/worktrees/{other.root.name}\n")
    discard(mine.root)
    assert other.root.name in registered(repository)


async def test_a_cancelled_checkout_leaves_nothing(repository: Path, home: Path) -> None:
    for n in range(1_500):
        (repository / f"{n}").write_text("x")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "many")
    opening = asyncio.create_task(opened(repository, home))
    async with asyncio.timeout(20):
        while not list(home.glob("*/1*")):  # noqa: ASYNC110 - only the file system shows that it has started
            await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    assert opening.cancelled()
    assert list(home.iterdir()) == []
    assert registered(repository) == []


# ------------------------------------------------------------------------------------------------- refused repositories


async def refused(repository: Path, home: Path, base: str | None = None) -> CallError:
    with pytest.raises(CallError) as problem:
        await opened(repository, home, base)
    assert problem.value.field == "workspace"
    assert not home.exists() or list(home.iterdir()) == []
    return problem.value


async def test_what_is_no_repository_with_a_commit_is_refused(
    repository: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("plain", "new", "repository/a/b"):
        (tmp_path / name).mkdir(parents=True)
    git(tmp_path / "new", "init", "--quiet")
    error = await refused(tmp_path / "plain", home)
    assert (error.code, "not a git repository" in error.message) == ("workspace_not_a_repository", True)
    error = await refused(repository / "a" / "b", home)
    assert error.code == "workspace_not_a_repository"
    assert error.message.endswith(f"is a folder inside the repository {repository}")
    error = await refused(tmp_path / "new", home)
    assert (error.code, error.hint) == ("workspace_base_not_found", "commit something first")
    for base in ("no-such-branch", "HEAD~5", "HEAD:README.md", "main --force"):
        error = await refused(repository, home, base)
        assert (error.code, base in error.message) == ("workspace_base_not_found", True)
    blob = git(repository, "rev-parse", "HEAD:README.md").strip()
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    error = await refused(repository, home)
    assert (error.code, blob in error.message) == ("workspace_git_failed", True)
    assert registered(repository) == []
    monkeypatch.setenv("PATH", str(tmp_path))
    error = await refused(repository, home)
    assert (error.code, error.hint) == ("workspace_git_missing", "install git, or use mode copy or shared")


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "worktree"},
        {"mode": "worktree", "path": ".", "base": "--upload-pack=x"},
        {"mode": "worktree", "path": ".", "base": ""},
        {"mode": "copy", "path": ".", "base": "HEAD"},
    ],
)
def test_a_workspace_that_makes_no_sense_is_no_workspace(fields: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Workspace.model_validate(fields)

"""Merges of the work of children: only what holds in the result is merged, and no byte of the user's is lost."""

import asyncio
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL

import pytest

from delegate import Delegator, Job, Task
from delegate.child.function import FunctionRunner
from delegate.delegator.merges import Merge
from delegate.hosts.host_tool import Invocation, make_follow_up_tools, make_merge_tool
from delegate.models.providers.scripted import Scripted
from delegate.sandbox.filesystem.trees import remove_tree
from delegate.types import Parent, Workspace
from delegate.types.errors import CallError, ConfigError
from tests.support.git import git
from tests.support.samples import sampled
from tests.support.words import met_by, words

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git isn't installed")

LINES = "".join(f"{n}\n" for n in range(1, 21))
Edit = Callable[[Path], object]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a commit, and work in its checkout that isn't committed."""
    place = tmp_path / "project"
    place.mkdir()
    git(place, "init", "--quiet")
    git(place, "config", "user.name", "n")
    git(place, "config", "user.email", "n@localhost")
    (place / "lines.txt").write_text(LINES)
    (place / "api.py").write_text("def total(items):\n    return sum(items)\n")
    (place / "old.md").write_text("old\n")
    (place / ".gitignore").write_text("*.log\n")
    git(place, "add", ".")
    git(place, "commit", "--quiet", "--message", "first")
    (place / "mine.md").write_text("not committed\n")
    (place / "old.md").write_text("old\nand half a thought\n")
    git(place, "add", "old.md")
    return place


def state(place: Path) -> dict[str, tuple[int, bytes]]:
    """All that the user has there: files with their modes, the index, and the branches."""
    files = {
        str(path.relative_to(place)): (
            path.lstat().st_mode, os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
        )
        for path in place.rglob("*")
        if (path.is_symlink() or path.is_file()) and ".git" not in path.relative_to(place).parts
    }  # fmt: skip
    seen = (git(place, "diff", "--cached", "--no-ext-diff"), git(place, "show-ref"), git(place, "worktree", "list"))
    return {**files, "git": (0, "\n".join(seen).encode())}


class Children:
    """A delegator whose children edit a worktree as a function does."""

    def __init__(self, home: Path, project: Path) -> None:
        async def run(job: Job) -> str:
            self._edit(job.workspace)
            return "The work is done."

        client = words([], met_by("The work is done."))
        self.delegator = Delegator(home=home, runner=FunctionRunner(run), client=client)
        self.project = project

    async def work(self, edit: Edit, *criteria: str | dict[str, str], base: str | None = None) -> str:
        """The handle of a child's work. Unless there are other criteria, no process is started to check it."""
        self._edit = edit
        place = Workspace(mode="worktree", path=self.project, base=base)
        result = await self.delegator.run(
            Task(goal="g", acceptance_criteria=criteria or ({"kind": "regex", "pattern": "done"},), workspace=place)
        )
        assert result.results
        assert result.results[0].handle
        return result.results[0].handle

    async def merge(self, *handles: str, onto: str | None = None) -> Merge:
        return await self.delegator.merges.merge(*handles, onto=onto, min_level="trusted")

    async def refused(self, *handles: str, onto: str | None = None) -> str:
        """Why a merge is refused. Checks that nothing was changed."""
        before = state(self.project)
        with pytest.raises(CallError) as error:
            await self.merge(*handles, onto=onto)
        assert state(self.project) == before
        return error.value.message


@pytest.fixture
async def children(tmp_path: Path, project: Path) -> AsyncIterator[Children]:
    those = Children(tmp_path / "home", project)
    async with those.delegator:
        yield those
    assert not list((tmp_path / "home" / "workspaces").glob("*.start"))
    assert git(project, "worktree", "list").count("\n") == 1


def replaced(file: str, old: str, new: str) -> Edit:
    def edit(place: Path) -> None:
        path = place / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return edit


def written(**files: str) -> Edit:
    return lambda place: [(place / name.replace("__", ".")).write_text(text) for name, text in files.items()]


async def test_several_tasks_are_merged_in_order_each_checked_after_those_before_it(children: Children) -> None:
    first = await children.work(
        replaced("lines.txt", "1\n", "one\n"), "shell: grep -q one lines.txt", "The report says that the work is done."
    )
    second = await children.work(replaced("lines.txt", "20\n", "twenty\n"), "file: lines.txt", "shell: true")
    before = state(children.project)
    merge = await children.merge(first, second, first)
    assert merge.handles == (first, second)
    assert merge.checked == (f"{first} c1", f"{second} c1", f"{second} c2")
    expected = LINES.replace("1\n", "one\n", 1).replace("20\n", "twenty\n")
    assert (children.project / "lines.txt").read_text() == expected
    after = state(children.project)
    assert {name for name in after if after[name] != before.get(name)} == {"lines.txt"}
    assert (await children.delegator.merges.undo()).id == merge.id
    assert state(children.project) == before


async def test_work_that_breaks_what_came_before_is_not_merged(children: Children) -> None:
    """Each holds alone, and git merges them without a conflict."""

    def rename(place: Path) -> None:
        replaced("api.py", "total", "sum_of")(place)
        (place / "user.py").write_text("import api\nprint(api.sum_of([1]))\n")

    renamed = await children.work(rename, "shell: python3 user.py")
    uses = "import api\nassert api.total([1]) == 1\n"
    used = await children.work(written(report__py=uses), "shell: python3 report.py")
    assert f"{used} doesn't hold once it is merged: c1: " in await children.refused(renamed, used)
    await children.merge(used)
    assert (children.project / "report.py").read_text() == uses


KEPT: dict[str, tuple[Edit, Edit]] = {
    "other lines": (replaced("lines.txt", "10\n", "ten\n"), replaced("lines.txt", "1\n", "one\n")),
    "a new file beside": (written(mine2__md="x"), written(new__md="y")),
    "a staged change": (
        lambda place: (replaced("lines.txt", "10\n", "ten\n")(place), git(place, "add", ".")),
        replaced("lines.txt", "1\n", "one\n"),
    ),
    "a commit since": (
        lambda place: (written(since__md="x")(place), git(place, "add", "since.md"), git(place, "commit", "-qm", "x")),
        written(new__md="y"),
    ),
    "a deleted file": (lambda place: (place / "api.py").unlink(), written(new__md="y")),
    "a renamed file": (lambda place: (place / "api.py").rename(place / "api2.py"), written(new__md="y")),
    "an ignored file": (written(run__log="x"), written(new__md="y")),
    "a link": (lambda place: (place / "link").symlink_to("lines.txt"), written(new__md="y")),
    "the same change": (replaced("lines.txt", "1\n", "one\n"), lambda place: (
        replaced("lines.txt", "1\n", "one\n")(place), written(new__md="y")(place))),
    "a detached head": (lambda place: git(place, "checkout", "-q", "--detach"), written(new__md="y")),
    "settings of git": (
        lambda place: [git(place, "config", *setting.split("=")) for setting in (
            "diff.noprefix=true", "diff.mnemonicPrefix=true", "apply.whitespace=error", "commit.gpgsign=true",
            "color.ui=always", "diff.external=false", "status.showUntrackedFiles=no", "core.quotePath=false")],
        written(new__md="y \n"),
    ),
    "attributes": (written(__gitattributes="*.md text eol=crlf\n"), written(new__txt="y\n")),
}  # fmt: skip
"""What the user did since, and what the child did. Both must be there afterwards."""


@pytest.mark.parametrize("case", sampled(KEPT, 2))
async def test_what_the_user_did_since_stays(case: str, children: Children) -> None:
    users, childs = KEPT[case]
    handle = await children.work(childs)
    users(children.project)
    before = state(children.project)
    await children.merge(handle)
    after = state(children.project)
    assert {name for name in {*before, *after} if after.get(name) != before.get(name)} <= {
        "lines.txt",
        "new.md",
        "new.txt",
    }
    assert "one\n" in (children.project / "lines.txt").read_text() or {"new.md", "new.txt"} & set(after)
    assert after != before
    await children.delegator.merges.undo()
    assert state(children.project) == before


IN_THE_WAY: dict[str, tuple[Edit, Edit, str]] = {
    "the same line": (replaced("lines.txt", "1\n", "uno\n"), replaced("lines.txt", "1\n", "one\n"), "conflicts"),
    "an untracked file": (written(new__md="mine"), written(new__md="y"), "conflicts"),
    "an ignored file": (
        lambda place: (written(new__log="mine")(place)),
        lambda place: ((place / ".gitignore").unlink(), written(new__log="y")(place)),
        "new.log: already exists in working directory",
    ),
    "a folder": (lambda place: ((place / "new.md").mkdir(), (place / "new.md" / "x").write_text("x")),
                 written(new__md="y"), "new.md"),
    "a file deleted": (lambda place: (place / "lines.txt").unlink(),
                       replaced("lines.txt", "1\n", "one\n"), "lines.txt"),
    "a file renamed": (lambda place: (place / "lines.txt").rename(place / "other.txt"),
                       replaced("lines.txt", "1\n", "one\n"), "lines.txt"),
    "a file replaced by a link": (
        lambda place: ((place / "lines.txt").unlink(), (place / "lines.txt").symlink_to("api.py")),
        replaced("lines.txt", "1\n", "one\n"), "lines.txt"),
    "a change that git was told to overlook": (
        lambda place: (git(place, "update-index", "--assume-unchanged", "lines.txt"),
                       replaced("lines.txt", "1\n", "uno\n")(place)),
        replaced("lines.txt", "1\n", "one\n"), "lines.txt"),
    "other line ends": (lambda place: (place / "lines.txt").write_bytes(LINES.replace("\n", "\r\n").encode()),
                        replaced("lines.txt", "1\n", "one\n"), "lines.txt"),
    "the work itself": (replaced("lines.txt", "1\n", "one\n"), replaced("lines.txt", "1\n", "one\n"), "already"),
}  # fmt: skip


@pytest.mark.parametrize("case", sampled(IN_THE_WAY, 3))
async def test_what_is_in_the_way_stays_and_nothing_is_merged(case: str, children: Children) -> None:
    users, childs, why = IN_THE_WAY[case]
    handle = await children.work(childs)
    users(children.project)
    assert why in await children.refused(handle)
    assert (children.delegator.settings.home / "workspaces").exists()


def _many_kinds(place: Path) -> None:
    (place / "b.bin").write_bytes(bytes(range(256)) * 10)
    (place / "run.sh").write_text("#!/bin/sh\n")
    (place / "run.sh").chmod(0o755)
    (place / "a link").symlink_to("nowhere")
    (place / "empty").write_text("")
    (place / 'größe "x"\n.txt').write_text("x")
    (place / "deep" / "er").mkdir(parents=True)
    (place / "deep" / "er" / "no newline").write_text("x")
    (place / "api.py").unlink()
    (place / "lines.txt").rename(place / "moved.txt")


async def test_files_of_every_kind_are_merged_and_undone(children: Children) -> None:
    handle = await children.work(_many_kinds)
    before = state(children.project)
    await children.merge(handle)
    after = state(children.project)
    assert set(after) ^ set(before) == {
        "b.bin", "run.sh", "a link", "empty", "größe \"x\"\n.txt", "deep/er/no newline", "api.py", "lines.txt",
        "moved.txt",
    }  # fmt: skip
    assert after["run.sh"][0] & 0o111
    assert after["b.bin"][1] == bytes(range(256)) * 10
    await children.delegator.merges.undo()
    assert state(children.project) == before


async def test_hooks_and_filters_of_the_repository_are_not_run(children: Children, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for hook in ("post-checkout", "reference-transaction", "pre-commit", "post-index-change", "applypatch-msg"):
        path = children.project / ".git" / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {ran}\n")
        path.chmod(0o755)
    handle = await children.work(written(new__md="y"))
    git(children.project, "branch", "-q", "side")
    ran.unlink(missing_ok=True)
    await children.merge(handle)
    await children.merge(handle, onto="side")
    assert not ran.exists()


async def test_submodules_stay_as_they_are(children: Children, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    git(other, "commit", "--quiet", "--allow-empty", "--message", "x")
    git(children.project, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "sub")
    git(children.project, "commit", "--quiet", "--message", "sub")
    handle = await children.work(written(new__md="y"))
    (children.project / "sub" / "inside.md").write_text("mine\n")
    before = state(children.project)
    await children.merge(handle)
    after = state(children.project)
    assert {name for name in after if after[name] != before.get(name)} == {"new.md"}


async def test_a_branch_gets_one_commit_and_loses_it_again(children: Children) -> None:
    git(children.project, "branch", "side")
    one = await children.work(written(new__md="y"), "file: new.md")
    two = await children.work(replaced("lines.txt", "1\n", "one\n"))
    before = state(children.project)
    merge = await children.merge(one, two, onto="side")
    assert git(children.project, "log", "--format=%an %s", "main..side") == "n The work of 2 tasks\n"
    assert git(children.project, "show", "--stat=80", "--format=", "side").count("|") == 2
    assert (children.project / "new.md").exists() is False
    git(children.project, "branch", "later", "side")
    await children.delegator.merges.undo(merge.id)
    git(children.project, "branch", "-D", "later")
    assert state(children.project) == before


async def test_a_branch_that_moved_on_is_not_reset(children: Children) -> None:
    git(children.project, "branch", "side")
    handle = await children.work(written(new__md="y"))
    await children.merge(handle, onto="side")
    git(children.project, "worktree", "add", "-q", "../side", "side")
    git(children.project.parent / "side", "commit", "-q", "--allow-empty", "-m", "more")
    assert "is checked out" in await children.refused(handle, onto="side")
    git(children.project, "worktree", "remove", "../side")
    with pytest.raises(CallError, match="has other commits now"):
        await children.delegator.merges.undo()
    assert git(children.project, "log", "--format=%s", "main..side") == "more\ng\n".replace("g\n", f"g ({handle})\n")


@pytest.mark.parametrize(
    ("onto", "why"), [("main", "the branch main is checked out"), ("none", "has no commit refs/heads/none")]
)
async def test_a_branch_that_cannot_be_merged_onto(onto: str, why: str, children: Children) -> None:
    assert why in await children.refused(await children.work(written(new__md="y")), onto=onto)


async def test_only_a_verified_pass_is_merged(children: Children) -> None:
    failed = await children.work(written(new__md="y"), "file: other.md")
    assert "is a FAIL: " in await children.refused(failed)
    assert "no record 'x-0'" in await children.refused("x-0")
    trusted = await children.work(written(new__md="y"), {"kind": "manual", "text": "I like it"})
    with pytest.raises(CallError, match=r"is a PASS .*, below seen"):
        await children.delegator.merges.merge(trusted)
    assert (await children.merge(trusted)).checked == ()


async def test_a_diff_that_is_not_the_judged_one_is_not_merged(children: Children) -> None:
    handle = await children.work(written(new__md="y"))
    record = await children.delegator.records.read(handle)
    assert record is not None
    diff = Path(f"{record['workspace']}.diff")
    diff.write_text(diff.read_text().replace("+y", "+z"))
    assert "was changed after its verdict" in await children.refused(handle)
    diff.unlink()
    assert "can't be read" in await children.refused(handle)


async def test_a_checkout_that_changes_during_the_checks_is_not_merged_into(children: Children) -> None:
    """As soon as the merge has its worktree, the user saves a file."""
    handle = await children.work(written(new__md="y"), "shell: true", "shell: cat new.md", "file: new.md")
    began, entries = threading.Event(), children.project / ".git" / "worktrees"

    def save() -> None:
        while not (entries.is_dir() and any(entries.iterdir())) and not began.wait(0.001):
            pass
        (children.project / "mine.md").write_text("more\n")

    saving = threading.Thread(target=save)
    saving.start()
    try:
        with pytest.raises(CallError, match="has changed since the checks began"):
            await children.merge(handle)
    finally:
        began.set()
        saving.join()
    assert not (children.project / "new.md").exists()
    assert (children.project / "mine.md").read_text() == "more\n"


async def test_an_undo_keeps_what_was_changed_since(children: Children) -> None:
    handle = await children.work(replaced("lines.txt", "1\n", "one\n"))
    await children.merge(handle)
    replaced("lines.txt", "20\n", "twenty\n")(children.project)
    await children.delegator.merges.undo()
    assert (children.project / "lines.txt").read_text() == LINES.replace("20\n", "twenty\n")
    with pytest.raises(CallError, match="there is no merge to undo"):
        await children.delegator.merges.undo()
    await children.merge(handle)
    replaced("lines.txt", "one\n", "uno\n")(children.project)
    before = state(children.project)
    with pytest.raises(CallError, match="can't be undone"):
        await children.delegator.merges.undo()
    assert state(children.project) == before


async def test_two_merges_at_once_are_both_whole(children: Children) -> None:
    handles = [await children.work(written(**{f"new{n}__md": "y"})) for n in range(2)]
    done = await asyncio.gather(*(children.merge(handle) for handle in handles), return_exceptions=True)
    merged = [merge.handles[0] for merge in done if isinstance(merge, Merge)]
    there = [handle for n, handle in enumerate(handles) if (children.project / f"new{n}.md").exists()]
    assert there == merged
    assert all(isinstance(one, (Merge, CallError)) for one in done)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_merge_that_is_killed_at_any_moment_is_whole_or_not_there(children: Children) -> None:
    handle = await children.work(_many_kinds, "file: run.sh")
    before = state(children.project)
    command = (sys.executable, "-m", "delegate", "merge", "--min-level", "trusted", handle)
    temporary = children.project.parent / "temporary"  # where what is killed leaves what it would have removed
    temporary.mkdir()
    home = str(children.delegator.settings.home)
    environ = {**os.environ, "DELEGATE_HOME": home, "TMPDIR": str(temporary)}
    started = time.monotonic()
    merging = await asyncio.create_subprocess_exec(*command, env=environ, stdout=DEVNULL, stderr=DEVNULL)
    assert await merging.wait() == 0
    whole = time.monotonic() - started  # depends on the machine, and on what else it does
    after = state(children.project)
    await children.delegator.merges.undo()
    ends = Counter[str]()
    for n in range(10):
        merging = await asyncio.create_subprocess_exec(*command, env=environ, stdout=DEVNULL, stderr=DEVNULL)
        with suppress(TimeoutError):  # the last one isn't killed
            await asyncio.wait_for(merging.wait(), whole * (n + 1) / 8 if n < 9 else 60)
        if merging.returncode is None:
            merging.kill()
            await merging.wait()
        for entry in git(children.project, "worktree", "list", "--porcelain").split("worktree ")[2:]:
            git(children.project, "worktree", "remove", "-f", "-f", entry.split("\n")[0])
        for left in (children.delegator.settings.home / "workspaces").glob("*.start"):
            remove_tree(left)
        now = await _settled(children.project, (before, after))
        ends["merged" if now == after else "not there"] += 1
        if now == after:
            await children.delegator.merges.undo()
        assert state(children.project) == before
    assert len(ends) == 2


async def _settled(project: Path, expected: tuple[object, object]) -> object:
    """What is there once git, which outlives a killed command for a moment, has ended."""
    for _ in range(100):
        if (now := state(project)) in expected:
            return now
        await asyncio.sleep(0.05)
    pytest.fail("a part of the merge is there")


# ---------------------------------------------------------------------------------------------------- the parent's tool


def writing(name: str) -> Scripted:
    """A child of a model that writes a file."""
    return Scripted([Scripted.call("write_file", path=name, content="new\n"), "I wrote it."])


async def asked_by_a_model(delegator: Delegator, project: Path, *criteria: str) -> str:
    """The handle of a task that a parent's model wrote, in a worktree."""
    parent = Parent(workspace=Workspace(mode="worktree", path=project))
    result = await delegator.call({"goal": "Write it.", "acceptance_criteria": list(criteria)}, parent=parent)
    assert result.all_pass, result
    return result.results[0].handle or ""


async def test_a_parent_merges_with_a_tool_where_that_is_allowed(tmp_path: Path, project: Path) -> None:
    async with Delegator(client=writing("new.md"), home=tmp_path / "home") as delegator:
        handle = await asked_by_a_model(delegator, project, "file: new.md")
        assert [tool.name for tool in make_follow_up_tools(delegator)] == ["message_delegation"]
        with pytest.raises(ConfigError, match="merge_tool is off"):
            make_merge_tool(delegator)
    async with Delegator(client=Scripted([]), home=tmp_path / "home", merge_tool=True) as delegator:
        *_, tool = make_follow_up_tools(delegator)
        before = state(project)
        for arguments, code in (
            ({"handles": [handle], "onto": "main"}, "cannot_merge"),
            ({"handles": [f"{handle}1"]}, "unknown_handle"),
            ({"handles": [handle], "onto": "none"}, "workspace_base_not_found"),
            ({"handles": handle}, "wrong_type"),
        ):
            refused = await tool.call(arguments)
            assert (refused.is_error, f'"code": "{code}"' in refused.text) == (True, True), refused.text
        other = await tool.call({"handles": [handle]}, Invocation(may_read=lambda run_id: False))
        assert '"code": "unknown_handle"' in other.text
        assert state(project) == before
        merged = await tool.call({"handles": [handle]})
        assert not merged.is_error
        assert f"the work of {handle} is in {project} now\nchecked again there: {handle} c1\n" in merged.text
        assert (project / "new.md").read_text() == "new\n"
        await delegator.merges.undo()
    assert state(project) == before


async def test_the_checks_of_a_model_stay_its_own_whoever_merges(tmp_path: Path, project: Path) -> None:
    home = tmp_path / "home"
    async with Delegator(client=writing("new.md"), home=home, commands="allow") as delegator:
        handle = await asked_by_a_model(delegator, project, "shell: test -f new.md")
    async with Delegator(client=Scripted([]), home=home, commands="deny") as delegator:
        with pytest.raises(CallError, match="doesn't hold once it is merged"):
            await delegator.merges.merge(handle, min_level="trusted")
    assert not (project / "new.md").exists()

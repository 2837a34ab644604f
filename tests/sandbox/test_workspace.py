import asyncio
import hashlib
import itertools
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from delegate._util.threads import run_in_thread
from delegate.sandbox.filesystem.trees import remove_tree
from delegate.sandbox.workspace.folder import Folder, discard
from delegate.sandbox.workspace.snapshot import Snapshot
from delegate.sandbox.workspace.write_locks import WriteLocks
from delegate.types import Artifact, Workspace
from delegate.types.errors import CallError, ToolDenied, ToolError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home" / "workspaces"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder, outside of any workspace."""
    place = tmp_path / "project"
    (place / "src").mkdir(parents=True)
    (place / "README.md").write_text("read me\n")
    (place / "src" / "main.py").write_text("print(1)\n")
    return place


@pytest.fixture
async def fresh(home: Path) -> Folder:
    folder = await Folder.open(None, home=home)
    folder.make()
    return folder


async def opened(mode: Literal["copy", "shared"], path: Path, home: Path) -> Folder:
    return await Folder.open(Workspace(mode=mode, path=path), home=home)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A folder of a user other than root, since root can read everything."""
    place = Path(tempfile.mkdtemp(prefix="delegate-test-", dir="/tmp"))
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(place, 65_534, 65_534)
        os.seteuid(65_534)
    yield place
    if is_root:
        os.seteuid(0)
    shutil.rmtree(place)


def nest(root: Path, depth: int) -> None:
    """Nested folders, deeper than the longest path."""
    at = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


# ------------------------------------------------------------------------------------------------------ opening


async def test_a_fresh_folder_exists_once_something_is_written(home: Path) -> None:
    folder, other = await Folder.open(None, home=home), await Folder.open(Workspace(), home=home)
    with pytest.raises(ToolError, match="No such file"):
        folder.read("notes.md", 100)
    assert await folder.artifacts() == ()
    await folder.close()
    assert not home.exists()
    folder.write("sub/notes.md", b"noted")
    assert folder.root.stat().st_mode & 0o777 == 0o700
    assert [artifact.path for artifact in await folder.artifacts()] == ["sub/notes.md"]
    assert list(other.make().iterdir()) == []
    assert other.root != folder.root
    assert other.root.parent == folder.root.parent == home


async def test_a_copy_has_the_files_of_the_original_and_leaves_it_alone(home: Path, project: Path) -> None:
    (project / "link").symlink_to("README.md")
    os.mkfifo(project / "pipe")
    folder = await opened("copy", project, home)
    (folder.root / "README.md").write_text("changed\n")
    assert (project / "README.md").read_text() == "read me\n"
    assert (folder.root / "src" / "main.py").read_text() == "print(1)\n"
    assert (folder.root / "link").is_symlink()
    assert not (folder.root / "pipe").exists()


async def test_a_copy_skips_the_folder_that_contains_the_workspaces(project: Path) -> None:
    home = project / ".delegate"
    (await Folder.open(None, home=home)).make()
    folder = await opened("copy", project, home)
    assert sorted(path.name for path in folder.root.iterdir()) == ["README.md", "src"]


async def test_a_folder_too_large_to_copy_is_refused_and_leaves_nothing(home: Path, project: Path) -> None:
    with open(project / "disk.img", "wb") as sparse:
        sparse.truncate(2 << 30)
    with pytest.raises(CallError, match="too large") as refused:
        await opened("copy", project, home)
    assert (refused.value.code, refused.value.field) == ("workspace_too_large", "workspace")
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("mode", ["copy", "shared"])
async def test_a_workspace_that_is_not_a_folder_is_refused(
    home: Path, project: Path, mode: Literal["copy", "shared"]
) -> None:
    for path in (project / "gone", project / "README.md"):
        with pytest.raises(CallError) as refused:
            await opened(mode, path, home)
        assert refused.value.code == "workspace_not_found"


async def test_a_folder_nested_too_deep_to_copy_is_refused_and_leaves_nothing(home: Path, project: Path) -> None:
    nest(project, 600)
    with pytest.raises(CallError) as refused:
        await opened("copy", project, home)
    assert refused.value.code == "workspace_not_copied"
    await empty(home)
    discard(project)  # pytest can't remove it


async def test_a_file_that_cannot_be_copied_is_named_and_nothing_is_left(as_nobody: Path) -> None:
    (as_nobody / "project").mkdir()
    (as_nobody / "project" / "locked").touch(0o000)
    with pytest.raises(CallError, match=r"locked can't be copied: .*Permission denied"):
        await opened("copy", as_nobody / "project", as_nobody / "home")
    assert list((as_nobody / "home").iterdir()) == []


async def test_a_cancelled_copy_leaves_nothing(home: Path, project: Path) -> None:
    for n in range(1_000):
        (project / f"{n}").write_text("x")
    opening = asyncio.create_task(opened("copy", project, home))
    async with asyncio.timeout(20):
        while not list(home.glob("*/1*")):  # noqa: ASYNC110 - only the file system shows that it has started
            await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    assert opening.cancelled()
    assert list(home.iterdir()) == []


# ------------------------------------------------------------------------------------------------------ reading


async def test_reading_is_bounded_and_says_the_whole_size(fresh: Folder) -> None:
    (fresh.root / "a.txt").write_text("0123456789")
    found = fresh.read("a.txt", 4)
    assert (found.data, found.size, found.cut) == (b"0123", 10, True)
    assert fresh.read("a.txt", 100).text == "0123456789"
    (fresh.root / "b.txt").write_text("aü" * 10)
    assert fresh.read("b.txt", 2).is_text, "although a character is cut"
    (fresh.root / "b.bin").write_bytes(b"\xff\xd8\xff" * 10)
    assert not fresh.read("b.bin", 100).is_text


async def test_pipes_and_sockets_are_refused_without_blocking(fresh: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(fresh.root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(fresh.root)  # a socket's path must be short
        listener.bind("socket")
        for path in ("pipe", "socket", ".", "gone"):
            with pytest.raises(ToolError):
                fresh.read(path, 10)


# ------------------------------------------------------------------------------------------------------ changes


@pytest.mark.parametrize("mode", ["copy", "shared"])
async def test_created_changed_and_deleted_files_are_told_apart(
    home: Path, project: Path, mode: Literal["copy", "shared"]
) -> None:
    (project / "gone.txt").write_text("x")
    folder = await opened(mode, project, home)
    assert folder.changes() == ()
    (folder.root / "gone.txt").unlink()
    (folder.root / "README.md").write_text("Read me\n")
    (folder.root / "new.txt").write_text("new")
    assert await folder.artifacts() == (
        Artifact(path="README.md", change="changed", bytes=8, sha256=digest("Read me\n")),
        Artifact(path="gone.txt", change="deleted"),
        Artifact(path="new.txt", change="created", bytes=3, sha256=digest("new")),
    )


async def test_a_change_is_seen_although_its_time_and_size_were_put_back(home: Path, project: Path) -> None:
    folder = await opened("shared", project, home)
    times = (project / "README.md").stat()
    (project / "README.md").write_text("READ ME\n")
    os.utime(project / "README.md", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert [artifact.path for artifact in folder.changes()] == ["README.md"]


async def test_files_written_by_tools_are_not_artifacts(fresh: Folder) -> None:
    for name in (".git", "__pycache__", ".venv", "node_modules"):
        (fresh.root / "sub" / name).mkdir(parents=True)
        (fresh.root / "sub" / name / "x").write_text("x")
    assert fresh.changes() == ()


async def test_of_odd_files_those_that_can_be_are_listed_and_none_outside_is_read(fresh: Folder) -> None:
    (fresh.root / "link").symlink_to("/etc/passwd")
    (fresh.root / "folder").symlink_to("../else/where")
    os.mkfifo(fresh.root / "pipe")
    with open(os.fsencode(fresh.root) + b"/\xff.txt", "w") as file:
        file.write("x")
    found = fresh.changes()
    assert [(one.path, one.sha256, one.link_to) for one in found] == [
        ("folder", None, "../else/where"), ("link", None, "/etc/passwd"), ("\\xff.txt", digest("x"), None),
    ]  # fmt: skip
    assert found[-1].model_dump_json()


async def test_many_and_large_files_are_listed_with_digests_for_the_first_only(
    fresh: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("a", 60 << 20), ("b", 5 << 20), ("c", 4 << 20), ("d", 1 << 40)):
        with open(fresh.root / name, "wb") as sparse:
            sparse.truncate(size)
    assert [artifact.sha256 is None for artifact in fresh.changes()] == [False, True, False, True]
    monkeypatch.setattr("delegate.sandbox.filesystem.changes.MAX_HASHED_FILES", 10)
    monkeypatch.setattr("delegate.sandbox.filesystem.changes.MAX_ARTIFACTS", 15)
    for name in "abcd":
        (fresh.root / name).unlink()
    for n in range(18):
        (fresh.root / f"{n:04}").touch()
    found = await fresh.artifacts()
    assert [artifact.path for artifact in found if artifact.sha256 is None] == [f"{n:04}" for n in range(10, 15)]
    assert fresh.unlisted == 3


@pytest.mark.parametrize("mode", ["copy", "shared"])
async def test_a_file_that_became_a_folder_is_deleted_and_its_content_created(
    home: Path, project: Path, mode: Literal["copy", "shared"]
) -> None:
    folder = await opened(mode, project, home)
    (folder.root / "README.md").unlink()
    (folder.root / "README.md").mkdir()
    (folder.root / "README.md" / "x").write_text("x")
    shutil.rmtree(folder.root / "src")
    (folder.root / "src").symlink_to("README.md")
    found = [(artifact.path, artifact.change, artifact.link_to) for artifact in folder.changes()]
    assert found == [
        ("README.md", "deleted", None),
        ("README.md/x", "created", None),
        ("src", "created", "README.md"),
        ("src/main.py", "deleted", None),
    ]


async def test_what_cannot_be_read_any_more_is_neither_an_error_nor_deleted(as_nobody: Path) -> None:
    project = as_nobody / "project"
    for path in ("locked/a", "listed/b", "file", "gone"):
        (project / path).parent.mkdir(exist_ok=True, parents=True)
        (project / path).write_text("x")
    folder = await opened("copy", project, as_nobody / "home")
    (folder.root / "file").write_text("new")
    (folder.root / "file").chmod(0o000)
    (folder.root / "gone").unlink()
    (folder.root / "locked").chmod(0o000)
    (folder.root / "listed").chmod(0o400)
    assert await folder.artifacts() == (
        Artifact(path="file", change="changed", bytes=3),
        Artifact(path="gone", change="deleted"),
    )
    for path in ("file", "locked/a", "listed/b"):
        with pytest.raises(ToolError):
            folder.read(path, 10)
    await folder.close(keep=True)
    discard(folder.root)
    assert list((as_nobody / "home").iterdir()) == []


# ----------------------------------------------------------------------------------- two writers in one folder


async def shared(project: Path, home: Path, locks: WriteLocks, who: str) -> Folder:
    return await Folder.open(Workspace(mode="shared", path=project), home=home, write_locks=locks, who=who)


async def test_the_second_writer_of_a_file_reads_which_task_has_it(home: Path, project: Path) -> None:
    locks = WriteLocks()
    one = await shared(project, home, locks, "task 0 of this run")
    two = await shared(project / "src", home, locks, "task 1 of this run")
    one.write("src/main.py", b"one")
    with pytest.raises(ToolDenied, match=r"main\.py is written by task 0 of this run.*src/main\.py"):
        two.write("./../src/main.py", b"two")
    assert (project / "src" / "main.py").read_bytes() == b"one"
    one.write("src/main.py", b"one again")
    two.write("other.py", b"two")
    with pytest.raises(ToolDenied, match="task 1"):
        one.write("src/other.py", b"one")
    of_another_run = await shared(project, home, WriteLocks(), "task 0")
    of_another_run.write("src/main.py", b"mine")
    await one.close()
    two.write("main.py", b"two")
    assert (project / "src" / "main.py").read_bytes() == b"two"


async def test_names_that_differ_only_in_case_follow_the_file_system(home: Path, project: Path) -> None:
    locks = WriteLocks()
    one, two = [await shared(project, home, locks, f"task {n}") for n in range(2)]
    one.write("notes.md", b"one")
    are_two = not (project / "NOTES.md").exists()
    try:
        two.write("NOTES.md", b"two")
    except ToolDenied:
        assert not are_two
    assert (project / "notes.md").read_bytes() == b"one"


async def test_what_a_sibling_wrote_is_not_taken_for_this_childs_work(home: Path, project: Path) -> None:
    locks = WriteLocks()
    one, two = [await shared(project, home, locks, f"task {n}") for n in range(2)]
    one.write("one.md", b"one")
    two.write("two.md", b"two")
    (project / "by-a-command.md").write_text("nobody knows by whose")
    assert [artifact.path for artifact in one.changes()] == ["by-a-command.md", "one.md"]
    assert [artifact.path for artifact in two.changes()] == ["by-a-command.md", "two.md"]


async def test_what_a_sibling_writes_while_a_folder_is_opened_is_the_siblings(home: Path, project: Path) -> None:
    locks = WriteLocks()
    one = await shared(project, home, locks, "task 0")
    opening = asyncio.create_task(shared(project, home, locks, "task 1"))
    await asyncio.sleep(0)  # the snapshot has started
    one.write("README.md", b"one")
    assert (await opening).changes() == ()


# ------------------------------------------------------------------------------------------------------ closing


async def test_a_folder_of_its_own_that_the_child_left_empty_is_removed(fresh: Folder) -> None:
    (fresh.root / "empty" / "__pycache__").mkdir(parents=True)
    await fresh.close()
    assert not fresh.root.exists()
    await fresh.close()


async def test_a_copy_is_removed_if_nothing_changed_and_others_stay(home: Path, project: Path, fresh: Folder) -> None:
    untouched, touched, itself = [await opened(mode, project, home) for mode in ("copy", "copy", "shared")]
    (touched.root / "README.md").write_text("mine")
    (fresh.root / "report.md").write_text("done")
    for folder in (untouched, touched, itself, fresh):
        await folder.close()
    assert not untouched.root.exists()
    assert (touched.root / "README.md").read_text() == "mine"
    assert itself.root == project
    assert project.is_dir()
    assert (fresh.root / "report.md").read_text() == "done"


async def test_a_folder_with_deep_nesting_pipes_and_links_is_removed(home: Path, project: Path) -> None:
    (project / "outside").mkdir()
    (project / "outside" / "file").touch()
    folder = await opened("copy", project, home)
    nest(folder.root, 1_050)
    os.mkfifo(folder.root / "pipe")
    (folder.root / "link").symlink_to(project / "outside")
    await folder.close(keep=True)
    discard(folder.root)
    assert list(home.iterdir()) == []
    assert (project / "outside" / "file").exists()


async def end_of_removals() -> None:
    """Wait for what `close` left to another thread after a second."""
    await asyncio.wait_for(asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()})), 20)


async def test_files_nested_too_deeply_are_neither_listed_nor_removed(fresh: Folder) -> None:
    nest(fresh.root, 300)
    (fresh.root / "/".join("d" * 250) / "x").touch()
    assert await fresh.artifacts() == ()
    await fresh.close()
    await end_of_removals()
    assert fresh.root.is_dir()
    discard(fresh.root)


async def test_what_is_deleted_while_it_is_copied_is_not_part_of_the_copy(project: Path, tmp_path: Path) -> None:
    """Databases, for example, create and delete a journal all the time."""
    done, often = threading.Event(), threading.Event()

    def change_all_the_time() -> None:
        for rounds in itertools.count():
            for n in range(20):
                folder = project / f"temporary-{n}"
                folder.mkdir()
                (folder / "journal").write_bytes(b"x")
                (folder / "link").symlink_to("journal")
                shutil.rmtree(folder)
                (project / f"journal-{n}").touch()
                (project / f"journal-{n}").unlink()
            if rounds == 5:
                often.set()
            if done.is_set():
                return

    thread = threading.Thread(target=change_all_the_time)
    thread.start()
    try:
        for n in itertools.takewhile(lambda n: n < 5 or not often.is_set(), itertools.count()):
            taken = await Snapshot.take(project, tmp_path / "copies", name=f"{n}")
            assert taken.origin.keys() <= taken.copies.keys()
            assert (taken.tree / "README.md").read_bytes() == (project / "README.md").read_bytes()
    finally:
        done.set()
        thread.join()


async def test_a_cancelled_caller_waits_until_its_thread_has_ended() -> None:
    started, stop, ending = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        assert stop.wait(10)
        assert ending.wait(10)

    caller = asyncio.create_task(run_in_thread(work, stop=stop))
    assert await asyncio.to_thread(started.wait, 10)
    caller.cancel()
    assert await asyncio.to_thread(stop.wait, 10)
    assert not caller.done()
    ending.set()
    await asyncio.wait([caller])
    assert caller.cancelled()


async def test_an_unchanged_copy_with_unwritable_folders_is_removed(as_nobody: Path) -> None:
    for path in ("a", "a/b"):
        (as_nobody / "project" / path).mkdir(parents=True)
    (as_nobody / "project" / "a").chmod(0o500)
    folder = await opened("copy", as_nobody / "project", as_nobody / "home")
    await folder.close()
    assert list((as_nobody / "home").iterdir()) == []
    (as_nobody / "project" / "a").chmod(0o700)


async def test_an_artifact_that_changes_after_it_was_listed_is_noticed(tmp_path: Path) -> None:
    folder = await Folder.open(None, home=tmp_path)
    for name in ("kept", "changed", "same-text", "gone", os.fsdecode(b"odd-\xff")):
        folder.write(name, b"one")
    artifacts = await folder.artifacts()
    (folder.root / "changed").write_bytes(b"two")
    (folder.root / "same-text").write_bytes(b"one")
    (folder.root / "gone").unlink()
    watch = folder.watch(artifacts)
    assert sorted(watch.changed()) == ["changed", "gone"]
    assert watch.changed() == []


async def test_an_excerpt_is_what_was_digested_until_the_file_changes(fresh: Folder, project: Path) -> None:
    note, large = fresh.root / "note.md", fresh.root / "large.txt"
    note.write_text("as it was listed")
    large.write_text("x" * 5_000)
    listed = {one.path: one for one in await fresh.artifacts()}
    assert fresh.excerpt(listed["note.md"], 100).text == "as it was listed"
    cut = fresh.excerpt(listed["note.md"], 5)
    assert (cut.text, cut.size, cut.cut) == ("as it", 16, True)
    assert fresh.excerpt(listed["large.txt"], 10_000).data == b"x" * 5_000

    before = note.stat()
    while note.stat().st_ctime_ns == before.st_ctime_ns:  # until the file system's clock has moved on
        note.write_text("as it is by now!")  # as long as before, and its times are set back
    os.utime(note, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert fresh.excerpt(listed["note.md"], 100).text == "as it is by now!"
    note.unlink()
    with pytest.raises(ToolError):
        fresh.excerpt(listed["note.md"], 100)
    note.symlink_to(project / "README.md")
    with pytest.raises(ToolDenied):
        fresh.excerpt(listed["note.md"], 100)


async def test_an_answer_does_not_wait_for_the_removal_of_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go = threading.Event()

    def remove_later(root: Path) -> None:
        may_go.wait(10)
        remove_tree(root)

    monkeypatch.setattr("delegate.sandbox.filesystem.trees.REMOVAL_SECONDS", 0)
    monkeypatch.setattr("delegate.sandbox.filesystem.trees.remove_tree", remove_later)
    folder = await Folder.open(None, home=tmp_path)
    (folder.make() / "node_modules").mkdir()  # no work of the child's
    await folder.close()
    assert not folder.root.exists()
    assert list(tmp_path.iterdir()), "not removed yet"
    may_go.set()
    await empty(tmp_path)
    await end_of_removals()


async def test_what_an_ended_process_did_not_remove_the_next_one_does(tmp_path: Path) -> None:
    home = tmp_path / "workspaces"
    (home / "a" / "b").mkdir(parents=True)
    left = (home / "a").rename(home / "1.removed")
    (home / "kept").mkdir()
    await Folder.open(None, home=home)
    async with asyncio.timeout(10):
        while left.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert [path.name for path in home.iterdir()] == ["kept"]


async def empty(folder: Path) -> None:
    """Wait until nothing is left in the folder: what takes long is removed in the background."""
    async with asyncio.timeout(10):
        while list(folder.iterdir()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

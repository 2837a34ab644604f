import hashlib
import os
import socket
from pathlib import Path
from typing import Literal

import pytest

from delegate.errors import CallError, ToolDenied, ToolError
from delegate.sandbox.workspace import Folder
from delegate.types import Artifact, Workspace


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home" / "workspaces"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that somebody works in, outside of any workspace."""
    place = tmp_path / "project"
    (place / "src").mkdir(parents=True)
    (place / "README.md").write_text("read me\n")
    (place / "src" / "main.py").write_text("print(1)\n")
    return place


@pytest.fixture
async def fresh(home: Path) -> Folder:
    return await Folder.open(None, home=home)


async def opened(mode: Literal["copy", "shared"], path: Path, home: Path) -> Folder:
    return await Folder.open(Workspace(mode=mode, path=path), home=home)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# ------------------------------------------------------------------------------------------------------ opening


async def test_fresh_folders_are_empty_apart_from_each_other_and_private(home: Path) -> None:
    one, two = await Folder.open(None, home=home), await Folder.open(Workspace(), home=home)
    assert one.root != two.root
    assert list(one.root.iterdir()) == []
    assert one.root.stat().st_mode & 0o777 == 0o700
    assert one.root.parent == home


async def test_a_copy_has_the_files_of_the_original_and_leaves_it_alone(home: Path, project: Path) -> None:
    (project / "link").symlink_to("README.md")
    os.mkfifo(project / "pipe")
    folder = await opened("copy", project, home)
    (folder.root / "README.md").write_text("changed\n")
    assert (project / "README.md").read_text() == "read me\n"
    assert (folder.root / "src" / "main.py").read_text() == "print(1)\n"
    assert (folder.root / "link").is_symlink()
    assert not (folder.root / "pipe").exists()


async def test_a_copy_of_a_folder_that_holds_the_workspaces_does_not_copy_itself(project: Path) -> None:
    home = project / ".delegate"
    await Folder.open(None, home=home)
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


async def test_a_shared_folder_is_the_folder_itself(home: Path, project: Path) -> None:
    assert (await opened("shared", project, home)).root == project


# -------------------------------------------------------------------------------------------------- confinement


@pytest.mark.parametrize("path", ["notes.md", "./notes.md", "a/b/notes.md", "a/../notes.md", "...", "~", "a b", "ü"])
async def test_a_path_inside_is_found_inside(fresh: Folder, path: str) -> None:
    assert fresh.resolve(path) == Path(os.path.normpath(fresh.root / path))


async def test_an_absolute_path_inside_is_fine(fresh: Folder) -> None:
    assert fresh.resolve(str(fresh.root / "notes.md")) == fresh.root / "notes.md"


@pytest.mark.parametrize(
    "path",
    ["", "  ", "..", "../x", "a/../../x", "/", "/etc/passwd", "//etc/passwd", "a\0b", "\ud800", "./.././x"],
)
async def test_a_path_that_leads_out_is_denied(fresh: Folder, path: str) -> None:
    with pytest.raises(ToolDenied):
        fresh.resolve(path)


async def test_a_neighbour_whose_name_begins_alike_is_outside(fresh: Folder) -> None:
    with pytest.raises(ToolDenied):
        fresh.resolve(f"../{fresh.root.name}-too/x")


@pytest.mark.parametrize("target", ["/etc/passwd", "/etc", "..", "../..", "loop"])
async def test_a_link_that_leads_out_is_not_followed(fresh: Folder, target: str) -> None:
    (fresh.root / "loop").symlink_to("/")
    (fresh.root / "link").symlink_to(target)
    for path in ("link", "link/hosts"):
        with pytest.raises(ToolDenied):
            fresh.resolve(path)


async def test_a_link_that_stays_inside_is_followed(fresh: Folder) -> None:
    (fresh.root / "real").mkdir()
    (fresh.root / "link").symlink_to("real")
    assert fresh.resolve("link/x") == fresh.root / "real" / "x"


async def test_reading_is_bounded_and_says_the_whole_size(fresh: Folder) -> None:
    (fresh.root / "a.txt").write_text("0123456789")
    found = fresh.read("a.txt", 4)
    assert (found.data, found.size, found.cut) == (b"0123", 10, True)
    assert fresh.read("a.txt", 100).text == "0123456789"


async def test_a_cut_through_a_character_does_not_make_a_text_binary(fresh: Folder) -> None:
    (fresh.root / "a.txt").write_text("aü" * 10)
    assert fresh.read("a.txt", 2).is_text
    (fresh.root / "b.bin").write_bytes(b"\xff\xd8\xff" * 10)
    assert not fresh.read("b.bin", 100).is_text


async def test_traps_are_refused_without_waiting_for_them(fresh: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(fresh.root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(fresh.root)  # a socket's path must be short
        listener.bind("socket")
        for path in ("pipe", "socket", ".", "gone"):
            with pytest.raises(ToolError):
                fresh.read(path, 10)


# ------------------------------------------------------------------------------------------------------ changes


async def test_what_a_child_wrote_into_a_fresh_folder_is_listed_in_order(fresh: Folder) -> None:
    (fresh.root / "b").mkdir()
    (fresh.root / "b" / "c.txt").write_text("see")
    (fresh.root / "a.txt").write_text("")
    expected = (
        Artifact(path="a.txt", change="created", bytes=0, sha256=digest("")),
        Artifact(path="b/c.txt", change="created", bytes=3, sha256=digest("see")),
    )
    assert fresh.changes() == expected
    assert await fresh.artifacts() == expected


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


async def test_what_tools_leave_behind_is_no_artifact(fresh: Folder) -> None:
    for name in (".git", "__pycache__", ".venv", "node_modules"):
        (fresh.root / "sub" / name).mkdir(parents=True)
        (fresh.root / "sub" / name / "x").write_text("x")
    assert fresh.changes() == ()


async def test_a_link_is_listed_but_what_it_points_to_is_not_read(fresh: Folder) -> None:
    (fresh.root / "link").symlink_to("/etc/passwd")
    (fresh.root / "folder").symlink_to("/etc")
    os.mkfifo(fresh.root / "pipe")
    assert [(found.path, found.sha256) for found in fresh.changes()] == [("folder", None), ("link", None)]


async def test_many_files_are_listed_with_digests_for_the_first_only(fresh: Folder) -> None:
    for n in range(1_005):
        (fresh.root / f"{n:04}").touch()
    found = fresh.changes()
    assert len(found) == 1_005
    assert [artifact.path for artifact in found if artifact.sha256 is None] == [f"{n}" for n in range(1_000, 1_005)]


async def test_a_huge_file_is_listed_without_a_digest(fresh: Folder) -> None:
    with open(fresh.root / "huge", "wb") as sparse:
        sparse.truncate(1 << 40)
    assert fresh.changes() == (Artifact(path="huge", change="created", bytes=1 << 40),)


async def test_a_file_name_that_is_not_utf8_can_stand_in_json(fresh: Folder) -> None:
    with open(os.fsencode(fresh.root) + b"/\xff.txt", "w") as file:
        file.write("x")
    (artifact,) = fresh.changes()
    assert artifact.path == "\\xff.txt"
    assert artifact.model_dump_json()


# ------------------------------------------------------------------------------------------------------ closing


async def test_a_folder_of_its_own_that_the_child_left_empty_is_removed(fresh: Folder) -> None:
    (fresh.root / "empty" / "__pycache__").mkdir(parents=True)
    await fresh.close()
    assert not fresh.root.exists()
    await fresh.close()


async def test_a_fresh_folder_with_a_file_in_it_stays(fresh: Folder) -> None:
    (fresh.root / "report.md").write_text("done")
    await fresh.close()
    assert (fresh.root / "report.md").read_text() == "done"


async def test_a_copy_goes_when_nothing_changed_in_it_and_stays_otherwise(home: Path, project: Path) -> None:
    untouched, touched = await opened("copy", project, home), await opened("copy", project, home)
    (touched.root / "README.md").write_text("mine")
    await untouched.close()
    await touched.close()
    assert not untouched.root.exists()
    assert touched.root.exists()


async def test_a_shared_folder_is_never_removed(home: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    folder = await opened("shared", tmp_path / "empty", home)
    await folder.close()
    assert folder.root.is_dir()

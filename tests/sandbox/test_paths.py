import os
import socket
import time
from pathlib import Path

import pytest

from delegate.sandbox.filesystem import files
from delegate.sandbox.filesystem.search import find_lines
from delegate.sandbox.workspace.folder import Folder
from delegate.types.errors import ToolDenied, ToolError


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "root").mkdir()
    return Folder.of_existing(tmp_path / "root")


@pytest.mark.parametrize("path", ["notes.md", "./notes.md", "a/b/notes.md", "a/../notes.md", "...", "~", "a b", "ü"])
def test_a_path_inside_is_found_inside(folder: Folder, path: str) -> None:
    assert folder.resolve(path) == Path(os.path.normpath(folder.root / path))


@pytest.mark.parametrize("path", ["..", "../x", "a/../../x", "/", "/etc/passwd", "//etc/passwd", "./.././x"])
def test_a_path_that_leads_out_is_denied(folder: Folder, path: str) -> None:
    with pytest.raises(ToolDenied):
        folder.resolve(path)


@pytest.mark.parametrize("target", ["real", "./x/../real", "../root/real", "{root}/real", "other"])
def test_a_link_that_stays_inside_is_followed(folder: Folder, target: str) -> None:
    (folder.root / "real").mkdir()
    (folder.root / "other").symlink_to("real")
    (folder.root / "link").symlink_to(target.format(root=folder.root))
    assert folder.resolve("link/x") == folder.root / "real" / "x"
    folder.write("link/x", b"written")
    assert folder.read("other/x", 10).text == "written"


def test_a_file_with_a_second_name_can_be_read_but_not_written(folder: Folder) -> None:
    folder.write("one", b"first")
    os.link(folder.root / "one", folder.root / "two")
    assert folder.read("two", 10).text == "first"
    with pytest.raises(ToolDenied, match="hard links"):
        folder.write("two", b"second")
    (folder.root / "one").unlink()
    folder.write("two", b"second")


@pytest.mark.parametrize("action", ["read", "write"])
@pytest.mark.parametrize("planted", ["link", "pipe"])
def test_a_file_replaced_while_it_is_opened_is_refused(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, planted: str, action: str
) -> None:
    outside, notes, kernels_open = folder.root.with_name("outside"), folder.root / "notes.md", os.open
    outside.write_text("the secret")
    folder.write("notes.md", b"inside")

    def open_after_swap(path: str | Path, *args: int, **options: int) -> int:
        if path == notes.name:
            notes.unlink()
            notes.symlink_to(outside) if planted == "link" else os.mkfifo(notes)
        return kernels_open(path, *args, **options)

    monkeypatch.setattr(os, "open", open_after_swap)
    with pytest.raises(ToolError, match=r"notes\.md"):
        folder.read("notes.md", 100) if action == "read" else folder.write("notes.md", b"overwritten")
    assert outside.read_text() == "the secret"


@pytest.mark.parametrize("path", [".git", ".GIT/config", "a/.git/x", ".git./x", "GIT~1/x"])
def test_what_git_would_run_cannot_be_written(folder: Folder, path: str) -> None:
    with pytest.raises(ToolDenied, match="git"):
        folder.write(path, b"x")


@pytest.mark.parametrize("path", [".gitignore", ".github/x", "git/x", "a.git/x"])
def test_names_that_only_look_like_gits_can_be_written(folder: Folder, path: str) -> None:
    folder.write(path, b"x")


HOSTILE = {
    "../outside/secret": {}, "{outside}/secret": {}, "{root}-too/secret": {}, "link": {"link": "{outside}/secret"},
    "link/secret": {"link": "{outside}"}, "link/outside/secret": {"link": ".."},
    "first/secret": {"first": "second", "second": "../outside"},
    "loop/../link/secret": {"loop": "loop", "link": "{outside}"},
    "link0/secret": {f"link{n}": f"link{n + 1}" for n in range(60)} | {"link60": "{outside}"},
    "link{outside}/secret": {"link": "/proc/self/root"}, "link/..{outside}/secret": {"link": "/proc/self/cwd"},
    "zero": {"zero": "/dev/zero"}, "a\0/../../outside/secret": {}, "\ud800": {}, "a" * 5_000: {},
    "a/" * 2_500: {}, " ": {},
    "pipe": {}, "socket": {}, "hard": {}, ".g\u200cit/config": {}, "sub/.GIT/config": {},
}  # fmt: skip
"""Paths, with the links that they lead through."""


def _files(place: Path) -> dict[Path, str | None]:
    return {path: path.read_text() if path.is_file() else None for path in place.rglob("*")}


@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_path_is_refused_at_once_and_changes_nothing(folder: Folder, path: str) -> None:
    names = {"root": folder.root, "outside": folder.root.with_name("outside")}
    for place in (names["outside"], folder.root.with_name("root-too"), folder.root / "sub"):
        place.mkdir()
        (place / "secret").write_text("the secret")
    for name, target in HOSTILE[path].items():
        (folder.root / name).symlink_to(target.format(**names))
    os.mkfifo(folder.root / "pipe")
    (folder.root / "hard").hardlink_to(names["outside"] / "secret")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder.root / "socket"))
    before, started, tried = _files(folder.root.parent), time.monotonic(), path.format(**names)
    with pytest.raises(ToolError):
        folder.write(tried, b"overwritten")
    if path not in ("hard", ".g\u200cit/config", "sub/.GIT/config"):  # which may be read
        with pytest.raises(ToolError):
            folder.read(tried, 100)
    assert _files(folder.root.parent) == before
    assert time.monotonic() - started < 2


def test_a_folder_replaced_by_a_link_after_the_check_is_not_followed(folder: Folder) -> None:
    outside = folder.root.with_name("outside")
    outside.mkdir()
    (folder.root / "sub").mkdir()
    real = folder.resolve("sub/secret")
    (folder.root / "sub").rmdir()
    (folder.root / "sub").symlink_to(outside)
    with pytest.raises(ToolError):
        files.write(folder.root, real, b"overwritten")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("path", [".ssh/id", ".ssh", ".netrc", "x/../.ssh/id", "keys/id", ".config/gh/hosts.yml"])
def test_in_a_home_folder_secrets_are_as_hidden_as_from_commands(
    folder: Folder, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder.root))
    for file in (".ssh/id", ".netrc", ".config/gh/hosts.yml", ".sshd", "notes"):
        (folder.root / file).parent.mkdir(parents=True, exist_ok=True)
        (folder.root / file).write_text("canary")
    (folder.root / "keys").symlink_to(".ssh")
    with pytest.raises(ToolDenied, match="credentials"):
        folder.read(path, 100)
    with pytest.raises(ToolDenied):
        folder.write(path, b"")
    with pytest.raises(ToolDenied):
        files.read(folder.root, folder.root / ".ssh/id", 100)
    assert sorted(line.split(":")[0] for line in find_lines(folder.root, "canary", "**")) == [".sshd", "notes"]


def test_a_workspace_among_secrets_can_be_worked_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".claude" / "work").mkdir(parents=True)
    folder = Folder.of_existing(tmp_path / ".claude" / "work")
    folder.write("notes", b"written")
    assert folder.read("notes", 10).text == "written"

"""Where secrets are: also where the same folders are mounted a second time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import delegate
from delegate.sandbox.commands.commands import Commands
from delegate.sandbox.commands.launcher import landlock_is_available
from delegate.sandbox.filesystem import files, search
from delegate.sandbox.filesystem.secret_paths import _secret_files, mounted_at  # pyright: ignore[reportPrivateUsage]
from delegate.sandbox.workspace.folder import Folder
from delegate.types import Workspace
from delegate.types.errors import ToolDenied

TABLE = """\
20 1 8:1 / / rw - ext4 /dev/a rw
21 20 8:2 / /home rw - ext4 /dev/b rw
22 20 8:2 / /mnt/all rw - ext4 /dev/b rw
23 20 8:2 /me /srv/a\\040b rw - ext4 /dev/b rw
24 20 8:2 /me/.ssh/old /srv/old rw - ext4 /dev/b rw
25 20 8:2 /you /srv/you rw - ext4 /dev/b rw
26 20 0:30 / /tmp rw - tmpfs none rw
"""


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/me/.ssh", ["/home/me/.ssh", "/mnt/all/me/.ssh", "/srv/a b/.ssh", "/srv/old"]),
        ("/srv/a b/.netrc", ["/srv/a b/.netrc", "/home/me/.netrc", "/mnt/all/me/.netrc"]),
        ("/home/meadow/.ssh", ["/home/meadow/.ssh", "/mnt/all/meadow/.ssh"]),
        ("/etc/shadow", ["/etc/shadow"]),
        ("/home", ["/home", "/mnt/all", "/srv/old", "/srv/you", "/srv/a b"]),
    ],
)
def test_a_path_is_found_under_every_mount_of_its_folder(path: str, shown: list[str]) -> None:
    assert sorted(map(str, mounted_at([Path(path)], TABLE))) == sorted(shown)


CODE = """
import asyncio, sys
from pathlib import Path
from delegate.sandbox.commands.commands import Commands
async def main(work, *files):
    command, commands = "cat " + " ".join(files), Commands(sandbox="require")
    ran = await commands.run(command, cwd=Path(work), timeout_seconds=20, author="model")
    print(ran.output)
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.skipif(not landlock_is_available(), reason="no sandbox works here")
def test_a_home_that_is_mounted_twice_shows_no_keys(tmp_path: Path) -> None:
    for folder in ("home/.ssh", "copy", "work"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "home/.ssh/id").write_text("canary")
    (tmp_path / "home/notes").write_text("notes")
    argv = ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c"]
    if subprocess.run([*argv, "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces aren't permitted here")
    # Outside of /tmp, which is hidden anyway.
    mount = 'mount --rbind "$0" /media && mount --bind /media/home /media/copy && cd / && exec "$@"'
    files = [f"/media/{name}" for name in ("home/.ssh/id", "copy/.ssh/id", "copy/notes")]
    environment = os.environ | {"HOME": "/media/home", "PYTHONPATH": str(Path(delegate.__file__).parent.parent)}
    done = subprocess.run(
        [*argv, mount, str(tmp_path), sys.executable, "-c", CODE, "/media/work", *files],
        env=environment, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert "notes" in done.stdout, done.stderr
    assert "canary" not in done.stdout


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a hard link to a key of its user, and two to a file of its own."""
    home, root = tmp_path / "user", tmp_path / "work"
    for folder in (home / ".ssh/old", root):
        folder.mkdir(parents=True)
    (home / ".ssh/old/id").write_text("canary")
    (root / "key").hardlink_to(home / ".ssh/old/id")
    (root / "a").write_text("notes")
    (root / "b").hardlink_to(root / "a")
    monkeypatch.setenv("HOME", str(home))
    _secret_files.cache_clear()
    return root


def test_file_tools_refuse_a_hard_link_to_a_key(linked: Path) -> None:
    assert files.read(linked, linked / "b", 100).text == "notes"
    for attempt in (lambda: files.read(linked, linked / "key", 100), lambda: files.write(linked, linked / "key", b"")):
        with pytest.raises(ToolDenied, match="hard link to a file with credentials"):
            attempt()
    assert list(search.find_lines(linked, "canary|notes", "**")) == ["a:1: notes", "b:1: notes"]


def test_what_a_variable_names_is_refused_at_once_in_each_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "login").write_text("canary")
        monkeypatch.setenv("NETRC", str(tmp_path / name / "login"))
        with pytest.raises(ToolDenied, match="where credentials usually are"):
            files.read(tmp_path / name, tmp_path / name / "login", 100)


async def test_a_copy_of_a_folder_has_no_hard_link_to_a_key(linked: Path, tmp_path: Path) -> None:
    folder = await Folder.open(Workspace(path=linked, mode="copy"), home=tmp_path / "home")
    try:
        assert sorted(os.listdir(folder.root)) == ["a", "b"]
    finally:
        await folder.close()


@pytest.mark.skipif(not landlock_is_available(), reason="no sandbox works here")
async def test_a_command_in_a_sandbox_makes_no_hard_link_to_what_it_does_not_see(linked: Path) -> None:
    command = "ln $HOME/.ssh/old/id mine; ln /etc/passwd other; ls"
    ran = await Commands(sandbox="require").run(command, cwd=linked, timeout_seconds=20, author="model")
    assert ran.stdout.split() == ["a", "b", "key"], ran.output

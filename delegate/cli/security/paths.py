"""Attacks on the confinement of paths, tried out for real in a folder that is gone afterwards."""

import os
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from delegate.cli.security.commands import Row
from delegate.errors import ToolError
from delegate.sandbox import files
from delegate.sandbox.workspace import Folder

SECRET = "the secret outside"  # noqa: S105 - a word to look for
SLOW_SECONDS = 2.0
"""A refusal that takes longer has waited for something that an attacker holds."""


@dataclass(frozen=True, slots=True)
class PathScene:
    """A child's folder, and beside it one with a secret in it."""

    folder: Folder
    outside: Path

    @property
    def root(self) -> Path:
        """The child's folder."""
        return self.folder.root

    @property
    def secret(self) -> Path:
        """The file that must stay as it is, and unread."""
        return self.outside / "secret"

    def link(self, name: str, target: Path | str) -> None:
        """Put a symbolic link into the child's folder."""
        (self.root / name).symlink_to(target)

    def hard_link(self, name: str, target: Path) -> None:
        """Put a second name of a file into the child's folder."""
        (self.root / name).hardlink_to(target)

    def make(self, name: str) -> None:
        """Make a folder in the child's folder."""
        (self.root / name).mkdir()


@dataclass(frozen=True, slots=True)
class PathAttack:
    """What is laid out, and the path that is then tried: read, written, and the folder that it is in listed."""

    name: str
    path: str
    """`{outside}` and `{root}` stand for the two folders."""
    stopped: str
    lay: Callable[[PathScene], object] = lambda scene: None
    tries: tuple[str, ...] = ("read", "write", "list")


def _circle(scene: PathScene) -> None:
    scene.link("circle", "circle")
    scene.link("way", scene.outside)


def _chain(scene: PathScene) -> None:
    scene.link("first", "second")
    scene.link("second", "../outside")


def _many(scene: PathScene) -> None:
    for n in range(60):
        scene.link(f"link{n}", f"link{n + 1}")
    scene.link("link60", scene.outside)


def _socket(scene: PathScene) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(scene.root / "socket"))


_INSIDE = "where a path leads is known before it is opened"
_LINKS = "links are followed only inside the workspace"
_NO_PATH = "it can't be a path"
_REGULAR = "only regular files are opened, and never waited for"
_GIT = "nothing in a .git is written: git would run it later, outside"

ATTACKS = (
    PathAttack("..", "../outside/secret", _INSIDE),
    PathAttack(".. in the middle", "a/b/../../../outside/secret", _INSIDE),
    PathAttack("an absolute path", "{outside}/secret", _INSIDE),
    PathAttack("an absolute path with ..", "{root}/../outside/secret", _INSIDE),
    PathAttack("a neighbour whose name begins alike", "{root}-too/secret", _INSIDE),
    PathAttack("a link to a file outside", "link", _LINKS, lambda scene: scene.link("link", scene.secret)),
    PathAttack("a link to a folder outside", "link/secret", _LINKS, lambda scene: scene.link("link", scene.outside)),
    PathAttack("a link to the folder above", "link/outside/secret", _LINKS, lambda scene: scene.link("link", "..")),
    PathAttack("a link to a link to a folder outside", "first/secret", _LINKS, _chain),
    PathAttack("more links than the kernel follows", "link0/secret", _LINKS, _many),
    PathAttack("a link behind a circle of links", "circle/../way/secret", _LINKS, _circle),
    PathAttack("/proc/self/root", "link{outside}/secret", _LINKS, lambda scene: scene.link("link", "/proc/self/root")),
    PathAttack("/proc/self/cwd", "link/..{outside}/secret", _LINKS, lambda scene: scene.link("link", "/proc/self/cwd")),
    PathAttack(
        "a folder swapped for a link after the look", "sub/secret", "opening follows no link at all",
        lambda scene: scene.make("sub"), ("swap",),
    ),
    PathAttack(
        "a hard link to a file outside", "hard", "no file with a second name is written; reading is as of a copy",
        lambda scene: scene.hard_link("hard", scene.secret), ("write",),
    ),
    PathAttack("a NUL byte", "a\0/../../outside/secret", _NO_PATH),
    PathAttack("a lone surrogate", "\ud800", _NO_PATH),
    PathAttack("a name of 5,000 letters", "a" * 5_000, _NO_PATH),
    PathAttack("a path of 5,000 letters", "a/" * 2_500, _NO_PATH),
    PathAttack("an empty path", " ", _NO_PATH),
    PathAttack("a named pipe", "pipe", _REGULAR, lambda scene: os.mkfifo(scene.root / "pipe")),
    PathAttack("a socket", "socket", _REGULAR, _socket),
    PathAttack("a link to a device", "zero", _LINKS, lambda scene: scene.link("zero", "/dev/zero")),
    PathAttack("a hook of git", ".git/hooks/pre-commit", _GIT, tries=("write",)),
    PathAttack("git's settings, in capitals", "sub/.GIT/config", _GIT, tries=("write",)),
    PathAttack("git's settings, with an invisible sign", ".g\u200cit/config", _GIT, tries=("write",)),
)  # fmt: skip


def path_attacks() -> list[Row]:
    """Try all attacks on this machine; takes a tenth of a second."""
    return [_tried(attack) for attack in ATTACKS]


def _tried(attack: PathAttack) -> Row:
    """One attack with all its tries, each in a place of its own."""
    for word in attack.tries:
        with tempfile.TemporaryDirectory(prefix="delegate-") as place:
            fault = _fault(attack, word, _scene(Path(os.path.realpath(place))))
        if fault:
            return Row("path", attack.name, "file tools", "possible", f"{word}: {fault}")
    return Row("path", attack.name, "file tools", "stopped", attack.stopped)


def _fault(attack: PathAttack, word: str, scene: PathScene) -> str | None:
    """What went wrong for us, if anything did."""
    attack.lay(scene)
    path = attack.path.format(outside=scene.outside, root=scene.root)
    before, started = _contents(scene), time.monotonic()
    try:
        got = _TRIES[word](scene, path)
    except ToolError:
        if _contents(scene) != before:
            return "refused, and done all the same"
        return "refused late" if time.monotonic() - started > SLOW_SECONDS else None
    return "the secret came back" if SECRET in got else "not refused"


def _scene(place: Path) -> PathScene:
    for name in ("folder", "outside", "folder-too"):
        (place / name).mkdir()
        (place / name / "secret").write_text(SECRET if name != "folder" else "a file of the child")
    return PathScene(Folder.of_existing(place / "folder"), place / "outside")


def _contents(scene: PathScene) -> list[tuple[str, str]]:
    """All files beside the child's folder, and what git would run in it."""
    places = (scene.outside, scene.outside.with_name("folder-too"), scene.root / ".git", scene.root / "sub" / ".GIT")
    found = [path for place in places if place.is_dir() for path in place.rglob("*") if path.is_file()]
    return sorted((str(path), path.read_text()) for path in found)


def _read(scene: PathScene, path: str) -> str:
    return scene.folder.read(path, 100).text


def _write(scene: PathScene, path: str) -> str:
    scene.folder.write(path, b"overwritten")
    return ""


def _list(scene: PathScene, path: str) -> str:
    """The folder that the file is in."""
    real = scene.folder.resolve(os.path.dirname(path) or path)
    if not os.path.isdir(real):
        raise ToolError("not a folder")
    return " ".join(name for name, _ in files.walk(real))


def _swap(scene: PathScene, path: str) -> str:
    """Between the look at a path and its opening, a command replaces a folder on the way."""
    real = scene.folder.resolve(path)
    (scene.root / "sub").rmdir()
    scene.link("sub", scene.outside)
    files.write(scene.root, real, b"overwritten")
    return files.read(scene.root, real, 100).text


_TRIES: dict[str, Callable[[PathScene, str], str]] = {"read": _read, "write": _write, "list": _list, "swap": _swap}

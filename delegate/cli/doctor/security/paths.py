"""Runs attacks on the confinement of paths, in a temporary folder."""

import os
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from delegate.cli.doctor.security.commands import Row
from delegate.errors import ToolError
from delegate.sandbox.filesystem import files
from delegate.sandbox.workspace.folder import Folder

SECRET = "the secret outside"  # noqa: S105 - a text to search for
SLOW_SECONDS = 2.0
"""A refusal that takes longer has waited for something that the attacker controls."""


@dataclass(frozen=True, slots=True)
class PathScene:
    """A child's folder, and a folder next to it that contains a secret."""

    folder: Folder
    outside: Path

    @property
    def root(self) -> Path:
        """The child's folder."""
        return self.folder.root

    @property
    def secret(self) -> Path:
        """The file that must be neither read nor changed."""
        return self.outside / "secret"

    def link(self, name: str, target: Path | str) -> None:
        """Create a symbolic link in the child's folder."""
        (self.root / name).symlink_to(target)


@dataclass(frozen=True, slots=True)
class PathAttack:
    """A path that is tried in several ways: read it, write it, and list its folder."""

    name: str
    path: str
    """`{outside}` and `{root}` are replaced by the two folders."""
    stopped: str
    prepare: Callable[[PathScene], object] = lambda scene: None
    """Creates the files and links of the attack."""
    operations: tuple[str, ...] = ("read", "write", "list")


def _link_loop(scene: PathScene) -> None:
    scene.link("loop", "loop")
    scene.link("target", scene.outside)


def _link_chain(scene: PathScene) -> None:
    scene.link("first", "second")
    scene.link("second", "../outside")


def _many_links(scene: PathScene) -> None:
    for n in range(60):
        scene.link(f"link{n}", f"link{n + 1}")
    scene.link("link60", scene.outside)


def _socket(scene: PathScene) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(scene.root / "socket"))


_INSIDE = "paths are resolved before they are opened"
_LINKS = "links are followed only inside the workspace"
_NO_PATH = "it is not a valid path"
_REGULAR = "only regular files are opened, without blocking"
_GIT = "files in .git can't be written, because git would run them outside later"

ATTACKS = (
    PathAttack("..", "../outside/secret", _INSIDE),
    PathAttack(".. in the middle", "a/b/../../../outside/secret", _INSIDE),
    PathAttack("an absolute path", "{outside}/secret", _INSIDE),
    PathAttack("an absolute path with ..", "{root}/../outside/secret", _INSIDE),
    PathAttack("a sibling folder with the same prefix", "{root}-too/secret", _INSIDE),
    PathAttack("a link to a file outside", "link", _LINKS, lambda scene: scene.link("link", scene.secret)),
    PathAttack("a link to a folder outside", "link/secret", _LINKS, lambda scene: scene.link("link", scene.outside)),
    PathAttack("a link to the folder above", "link/outside/secret", _LINKS, lambda scene: scene.link("link", "..")),
    PathAttack("a link to a link to a folder outside", "first/secret", _LINKS, _link_chain),
    PathAttack("more links than the kernel follows", "link0/secret", _LINKS, _many_links),
    PathAttack("a link behind a loop of links", "loop/../target/secret", _LINKS, _link_loop),
    PathAttack("/proc/self/root", "link{outside}/secret", _LINKS, lambda scene: scene.link("link", "/proc/self/root")),
    PathAttack("/proc/self/cwd", "link/..{outside}/secret", _LINKS, lambda scene: scene.link("link", "/proc/self/cwd")),
    PathAttack(
        "a folder replaced by a link after the check", "sub/secret", "opening a file follows no links",
        lambda scene: (scene.root / "sub").mkdir(), ("swap",),
    ),
    PathAttack(
        "a hard link to a file outside", "hard", "files with several links can't be written; reading is harmless",
        lambda scene: (scene.root / "hard").hardlink_to(scene.secret), ("write",),
    ),
    PathAttack("a NUL byte", "a\0/../../outside/secret", _NO_PATH),
    PathAttack("a lone surrogate", "\ud800", _NO_PATH),
    PathAttack("a name of 5,000 characters", "a" * 5_000, _NO_PATH),
    PathAttack("a path of 5,000 characters", "a/" * 2_500, _NO_PATH),
    PathAttack("an empty path", " ", _NO_PATH),
    PathAttack("a named pipe", "pipe", _REGULAR, lambda scene: os.mkfifo(scene.root / "pipe")),
    PathAttack("a socket", "socket", _REGULAR, _socket),
    PathAttack("a link to a device", "zero", _LINKS, lambda scene: scene.link("zero", "/dev/zero")),
    PathAttack("a git hook", ".git/hooks/pre-commit", _GIT, operations=("write",)),
    PathAttack("git settings, in capitals", "sub/.GIT/config", _GIT, operations=("write",)),
    PathAttack("git settings, with an invisible character", ".g\u200cit/config", _GIT, operations=("write",)),
)  # fmt: skip


def path_attacks() -> list[Row]:
    """Run all attacks on this machine. Takes a tenth of a second."""
    return [_run(attack) for attack in ATTACKS]


def _run(attack: PathAttack) -> Row:
    """Run one attack with each of its operations, in separate folders."""
    for operation in attack.operations:
        with tempfile.TemporaryDirectory(prefix="delegate-") as folder:
            fault = _fault(attack, operation, _scene(Path(os.path.realpath(folder))))
        if fault:
            return Row("path", attack.name, "file tools", "possible", f"{operation}: {fault}")
    return Row("path", attack.name, "file tools", "stopped", attack.stopped)


def _fault(attack: PathAttack, operation: str, scene: PathScene) -> str | None:
    """How the attack succeeded, or None if it was stopped."""
    attack.prepare(scene)
    path = attack.path.format(outside=scene.outside, root=scene.root)
    before, started = _contents(scene), time.monotonic()
    try:
        result = _OPERATIONS[operation](scene, path)
    except ToolError:
        if _contents(scene) != before:
            return "refused, but executed"
        return "refused too late" if time.monotonic() - started > SLOW_SECONDS else None
    return "the secret was returned" if SECRET in result else "not refused"


def _scene(parent: Path) -> PathScene:
    for name in ("folder", "outside", "folder-too"):
        (parent / name).mkdir()
        (parent / name / "secret").write_text(SECRET if name != "folder" else "a file of the child")
    return PathScene(Folder.of_existing(parent / "folder"), parent / "outside")


def _contents(scene: PathScene) -> list[tuple[str, str]]:
    """All files next to the child's folder, and the files in it that git would run."""
    folders = (scene.outside, scene.outside.with_name("folder-too"), scene.root / ".git", scene.root / "sub" / ".GIT")
    files = [path for folder in folders if folder.is_dir() for path in folder.rglob("*") if path.is_file()]
    return sorted((str(path), path.read_text()) for path in files)


def _read(scene: PathScene, path: str) -> str:
    return scene.folder.read(path, 100).text


def _write(scene: PathScene, path: str) -> str:
    scene.folder.write(path, b"overwritten")
    return ""


def _list(scene: PathScene, path: str) -> str:
    """List the folder of the file."""
    real = scene.folder.resolve(os.path.dirname(path) or path)
    if not os.path.isdir(real):
        raise ToolError("not a folder")
    return " ".join(name for name, _ in files.walk(real))


def _swap(scene: PathScene, path: str) -> str:
    """Replace a folder in the path by a link after the path was checked and before it is opened."""
    real = scene.folder.resolve(path)
    (scene.root / "sub").rmdir()
    scene.link("sub", scene.outside)
    files.write(scene.root, real, b"overwritten")
    return files.read(scene.root, real, 100).text


_OPERATIONS: dict[str, Callable[[PathScene, str], str]] = {"read": _read, "write": _write, "list": _list, "swap": _swap}

"""Protects what git runs in a workspace: hooks, and configuration, which names filters, monitors and other folders.

    before a command ──▶ Repository.of: what decides ──▶ the sandbox mounts it read-only
    after it         ──▶ Repository.put_back: what no mount could hold is as it was

Otherwise a later `git status`, outside of any sandbox, would run what a child planted there. Objects, refs, the index
and logs stay writable, so that a child can `git add` and `git commit`.

What this doesn't protect: repositories in folders of the workspace, whose changes are only noticed; hooks and filters
that are themselves files of the work (`core.hooksPath = .husky`); and a repository that the child created.
"""

import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from delegate.errors import ToolError
from delegate.sandbox import files, paths

DECIDING = ("config", "config.worktree", "commondir", "gitdir", "hooks", "info", "worktrees")
"""In a repository's own folder: what decides what git runs, or which other folder does."""
MAX_FILES = 1_000
MAX_FOLDERS = 50_000
"""Most folders of the work in which other repositories are looked for."""
MAX_BYTES = 1 << 20
_MAX_POINTER_BYTES = 4_096
_URL_LOGIN = re.compile(rb"(?<=://)(?!git@)[^/\s\"']+@")
_SECRET_VALUE = re.compile(rb"(?im)^(\s*\w*(?:extraheader|pass|password|token|secret)\s*=\s*).+")

State = Mapping[Path, tuple[int, bytes]]
"""The mode, and the content or the target of a link, of each file."""


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository of the workspace `root`, as it is at one moment."""

    root: Path
    pinned: tuple[Path, ...]
    """Folders that must not be moved or replaced, outermost first: what is in them would no longer be protected."""
    read_only: tuple[Path, ...]
    state: State
    nested: bool = False
    """Whether `state` includes repositories in folders of the work."""

    @classmethod
    def of(cls, root: Path, *, nested: bool = False) -> "Repository | None":
        """What there is in `root`, a real path; None if it is no repository. Blocks; never raises."""
        pointer = root / ".git"
        if not os.path.lexists(pointer):
            return None
        folders = tuple(_git_folders(root))
        pinned = tuple(dict.fromkeys(above for folder in folders for above in _down_to(root, folder)))
        deciding = [folder / name for folder in folders for name in DECIDING]
        deciding += [] if pointer in folders else [pointer]
        read_only = tuple(path for path in deciding if _is_plain(path))
        others = _repositories_below(root) if nested else ()
        deciding += [path for other in others for path in (other, *(other / name for name in DECIDING))]
        return cls(root, pinned, read_only, _state(deciding), nested)

    def changed_since(self) -> dict[Path, str]:
        """What was added, changed or deleted since, by path. Blocks; never raises."""
        now = Repository.of(self.root, nested=self.nested)
        after: State = now.state if now is not None else {}
        found = {path: "added" if path not in self.state else "changed" for path in after
                 if self.state.get(path) != after[path]}  # fmt: skip
        return found | {path: "deleted" for path in self.state if path not in after}

    def put_back(self, *, held: bool) -> list[str]:
        """Undo what a command changed, as far as no mount prevented it (`held`). Returns what was changed."""
        undone: list[str] = []
        for path, change in sorted(self.changed_since().items(), key=lambda found: (found[1] != "added", found[0])):
            if held and any(path == one or path.is_relative_to(one) for one in self.read_only):
                continue  # a person's change
            with suppress(OSError, ToolError):
                if change != "deleted":
                    paths.remove_file(self.root, path)
                if change != "added":
                    self._write(path)
                undone.append(f"{path.relative_to(self.root)} ({change})")
        return undone

    def _write(self, path: Path) -> None:
        mode, content = self.state[path]
        if stat.S_ISLNK(mode):
            if os.path.isdir(path):  # where it isn't used, but nothing is lost
                path.rename(path.with_name(f"{path.name}.undone-{secrets.token_hex(4)}"))
            os.symlink(content, os.fsencode(path))
        elif stat.S_ISREG(mode):
            files.write(self.root, path, content)
            if mode & stat.S_IXUSR:
                os.chmod(path, stat.S_IMODE(mode))


def refuse_repository(root: Path, real: Path) -> None:
    """Raise `ToolDenied` for a path in a repository's own folder: git would later run what is there."""
    paths.refuse_git(root, real)
    if (folder := _pointed_to(root)) is not None and real.is_relative_to(folder):
        paths.refuse_git(root, root / ".git")


def without_credentials(config: bytes) -> bytes | None:
    """The configuration without the passwords and tokens in it; None if there are none."""
    cleaned = _SECRET_VALUE.sub(rb"\1", _URL_LOGIN.sub(b"", config))
    return cleaned if cleaned != config else None


def shown_text(root: Path, real: Path, text: str) -> str:
    """What a child may see of a file at a resolved path: everything, except passwords in git's configuration."""
    is_configuration = real.name in ("config", "config.worktree") and ".git" in real.relative_to(root).parts
    cleaned = without_credentials(text.encode()) if is_configuration else None
    return text if cleaned is None else cleaned.decode()


def configurations(root: Path) -> Iterator[Path]:
    """The repository's files with its configuration, also those outside `root` that a worktree shares."""
    folders = [*_git_folders(root)]
    if not folders and (own := _gitdir(root / ".git")) is not None:
        common = _line(own / "commondir")
        folders = [own, Path(os.path.realpath(own / common))] if common else [own]
    for folder in folders:
        yield from (path for name in ("config", "config.worktree") if _is_plain(path := folder / name))


# --------------------------------------------------------------------------------------------------- where it is


def _git_folders(root: Path) -> Iterator[Path]:
    """The repository's own folder and those of its submodules, as far as they are in `root`."""
    top = root / ".git"
    if not stat.S_ISDIR(_mode(top)):
        pointed = _pointed_to(root)
        if pointed is None:
            return
        top = pointed
    yield top
    waiting = [top / "modules"]
    for _ in range(MAX_FILES):
        if not waiting:
            return
        folder = waiting.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    below = folder / entry.name
                    is_repository = os.path.lexists(below / "HEAD")
                    if is_repository:
                        yield below
                    waiting.append(below / "modules" if is_repository else below)


def _repositories_below(root: Path) -> Iterator[Path]:
    """The folders and files called `.git` in folders of the work."""
    waiting = [root]
    for _ in range(MAX_FOLDERS):
        if not waiting:
            return
        folder = waiting.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == ".git":
                    if folder != root:
                        yield folder / ".git"
                elif entry.name not in files.IGNORED_FOLDERS and entry.is_dir(follow_symlinks=False):
                    waiting.append(folder / entry.name)


def _pointed_to(root: Path) -> Path | None:
    """The folder in `root` that the link or file `.git` names as the repository's own, if it does."""
    pointer = root / ".git"
    if (mode := _mode(pointer)) == 0:
        return None
    found = Path(os.path.realpath(pointer)) if stat.S_ISLNK(mode) else _gitdir(pointer)
    inside = found is not None and found != root and found.is_relative_to(root) and os.path.isdir(found)
    return found if inside else None


def _gitdir(pointer: Path) -> Path | None:
    line = _line(pointer)
    if not line.startswith("gitdir: ") or "\0" in line:
        return None
    return Path(os.path.realpath(pointer.parent / line.removeprefix("gitdir: ")))


def _line(path: Path) -> str:
    if not stat.S_ISREG(_mode(path)):
        return ""
    with suppress(OSError), open(path, "rb") as file:
        return os.fsdecode(file.read(_MAX_POINTER_BYTES)).rstrip("\n")
    return ""


def _down_to(root: Path, folder: Path) -> Iterator[Path]:
    """The folders between `root` and `folder`, and that one."""
    below = folder.relative_to(root).parts
    return (root.joinpath(*below[:n]) for n in range(1, len(below) + 1))


def _mode(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _is_plain(path: Path) -> bool:
    """Whether it is a file or a folder. A link can't be mounted over; what it leads to is work, or out of reach."""
    mode = _mode(path)
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _state(deciding: list[Path]) -> State:
    """What there is of these files, and in these folders."""
    found: dict[Path, tuple[int, bytes]] = {}
    waiting = deciding[::-1]
    while waiting and len(found) < MAX_FILES:
        path = waiting.pop()
        mode = _mode(path)
        if stat.S_ISDIR(mode):
            if path.name not in ("worktrees", ".git"):  # other worktrees write their own index there
                with suppress(OSError):
                    waiting += [path / name for name in sorted(os.listdir(path)) if not name.endswith(".sample")]
        elif mode and path.parts[-2:] != ("info", "refs"):  # `git gc` writes it
            found[path] = mode, _content(path, mode)
    return found


def _content(path: Path, mode: int) -> bytes:
    with suppress(OSError):
        if stat.S_ISLNK(mode):
            return os.fsencode(os.readlink(path))
        if stat.S_ISREG(mode):
            with open(path, "rb") as file:
                return file.read(MAX_BYTES)
    return b""

"""Protects what git runs in a workspace: hooks, and configuration, which names filters, monitors and other folders.

    before a command ──▶ Repository.of: what decides ──▶ the sandbox mounts it read-only
    after it         ──▶ Repository.put_back: what no mount could hold is as it was

Otherwise a later `git status`, outside of any sandbox, would run what a child planted there. Objects, refs, the index
and logs stay writable, so that a child can `git add` and `git commit`. Links in a git folder don't: git would write
through them into any file, such as the name of a branch into `~/.bashrc`. Operations that wait to be continued, such as
a rebase, contain commands too, and are moved aside.

What this doesn't protect: repositories in folders of the workspace, bare ones too, whose changes are only noticed; what
hooks and programs of the work call in turn; and a repository that the child created.
"""

import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from delegate.sandbox.filesystem import files, paths
from delegate.sandbox.tampering.git_config import NOTHING_NAMED, Named, named_in
from delegate.types.errors import ToolDenied, ToolError

DECIDING = ("config", "config.worktree", "commondir", "gitdir", "hooks", "info", "worktrees")
"""In a repository's own folder: what decides what git runs, or which other folder does."""
MAX_FILES = 1_000
"""Most files that are looked at in one round."""
MAX_FOLDERS = 50_000
"""Most folders of the work in which other repositories are looked for."""
_MAX_GIT_FOLDERS = 1_000_000
_ROUNDS = 100
MAX_BYTES = 1 << 20
_MAX_POINTER_BYTES = 4_096
_OPERATION = re.compile(r"rebase-merge|rebase-apply|sequencer|BISECT_[A-Z_]+")
"""In a git folder: what `git rebase --continue` and the like go on with, which can contain commands."""
_BARE = frozenset({"HEAD", "objects", "refs"})
"""What git takes a folder for a repository by."""
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
    named: Named = NOTHING_NAMED
    """What the configuration names in the work."""

    @classmethod
    def of(cls, root: Path, *, nested: bool = False, named: Named | None = None) -> "Repository | None":
        """What there is in `root`, a real path; None if it is no repository. Blocks; never raises.

        `named` is what the configuration named before, where a child may have changed that.
        """
        pointer = root / ".git"
        if not os.path.lexists(pointer):
            return None
        folders = tuple(_git_folders(root))
        if named is None:
            named = named_in(root, configurations(root), folders)
        above = ([folder, *folder.parents] for folder in folders)
        pinned = tuple(dict.fromkeys(path for chain in above for path in reversed(chain) if root in path.parents))
        deciding = [folder / name for folder in folders for name in DECIDING]
        deciding += [] if pointer in folders else [pointer]
        read_only = tuple(path for path in deciding if _is_plain(path))
        others = tuple(_repositories_below(root)) if nested else ()
        deciding += [path for other in others for path in (other, *(other / name for name in DECIDING))]
        deciding += [path for folder in (*folders, *others) for path in _operations(folder)]
        deciding += [*named.folders, *(path for path in named.files if not stat.S_ISDIR(_mode(path)))]
        deciding += _irregular(folders[:1], folders)
        deciding += _irregular(others, others)
        return cls(root, pinned, read_only, _state(deciding, others), nested, named)

    def changed_since(self, *, nested: bool | None = None) -> dict[Path, str]:
        """What was added, changed or deleted since, by path. Blocks; never raises."""
        now = Repository.of(self.root, nested=self.nested if nested is None else nested, named=self.named)
        after: State = now.state if now is not None else {}
        changes = {path: "added" if path not in self.state else "changed" for path in after
                 if self.state.get(path) != after[path]}  # fmt: skip
        return changes | {path: "deleted" for path in self.state if path not in after}

    def put_back(self, *, held: bool) -> list[str]:
        """Undo what a command changed, as far as no mount prevented it (`held`). Returns what was changed."""
        undone = dict[Path, str]()
        for _ in range(_ROUNDS):  # more than can be looked at in one
            before = len(undone)
            for path, change in sorted(self.changed_since().items(), key=lambda item: (item[1] != "added", item[0])):
                if held and any(path == protected or path.is_relative_to(protected) for protected in self.read_only):
                    continue  # a person's change
                with suppress(OSError, ToolError):
                    self._undo(path, change, undone)
            if len(undone) == before:
                break
        return list(undone.values())

    def remove_links(self, *, nested: bool) -> dict[Path, str]:
        """Remove the links and pipes that are new in git folders, with `nested` also in those of folders of the work.

        Returns what was removed. Blocks; never raises.
        """
        removed = dict[Path, str]()
        for path, change in self.changed_since(nested=nested).items():
            mode = _mode(path)
            if change != "deleted" and not stat.S_ISREG(mode) and path.name != ".git" and not self.named.has(path):
                with suppress(OSError, ToolError):
                    paths.remove_file(self.root, path)
                    removed[path] = "a link, removed" if stat.S_ISLNK(mode) else "a special file, removed"
        return removed

    def refuse(self, real: Path) -> None:
        """Raise `ToolDenied` for a path that git's configuration names: git would later run what is there."""
        if self.named.has(real):
            raise ToolDenied(
                f"{real.relative_to(self.root)} decides what git runs here, as a hook does, so a child can't write it; "
                "report what should be in it instead"
            )

    def _undo(self, path: Path, change: str, undone: dict[Path, str]) -> None:
        if (operation := self._operation(path)) is not None:
            if change != "deleted" and operation not in undone:  # one that has ended runs nothing
                aside = _aside(operation)
                operation.rename(aside)
                undone[operation] = f"{operation.relative_to(self.root)} (moved to {aside.relative_to(self.root)})"
            return
        what = f"{change}, a link" if stat.S_ISLNK(_mode(path)) else change
        if change != "deleted":
            paths.remove_file(self.root, path)
        mode, content = self.state.get(path, (0, b""))
        if stat.S_ISLNK(mode):
            if os.path.isdir(path):  # where it isn't used, but nothing is lost
                path.rename(_aside(path))
            os.symlink(content, os.fsencode(path))
        elif stat.S_ISREG(mode):
            files.write(self.root, path, content)
            if mode & stat.S_IXUSR:
                os.chmod(path, stat.S_IMODE(mode))
        undone[path] = f"{path.relative_to(self.root)} ({what})"

    def _operation(self, path: Path) -> Path | None:
        """The operation that waits to be continued which a path is of, unless it is a link of that name."""
        for folder in (path, *path.parents):
            if folder.parent in self.pinned and _OPERATION.fullmatch(folder.name):
                return None if stat.S_ISLNK(_mode(folder)) else folder
        return None


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
    top = root / ".git" if stat.S_ISDIR(_mode(root / ".git")) else _pointed_to(root)
    if top is None:
        return
    yield top
    waiting = [top / "modules"]
    for _ in range(MAX_FILES):
        if not waiting:
            return
        folder = waiting.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            for below in [folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]:
                if is_repository := os.path.lexists(below / "HEAD"):
                    yield below
                waiting.append(below / "modules" if is_repository else below)


def _repositories_below(root: Path) -> Iterator[Path]:
    """The folders and files called `.git` in folders of the work, and bare repositories, which git obeys in them."""
    waiting, own = [root], set(_git_folders(root))
    for _ in range(MAX_FOLDERS):
        if not waiting:
            return
        folder = waiting.pop()
        names, below = set[str](), list[Path]()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                names.add(entry.name)
                if entry.name not in files.IGNORED_FOLDERS and entry.is_dir(follow_symlinks=False):
                    below.append(folder / entry.name)
        if folder != root and ".git" in names:
            yield folder / ".git"
        if folder != root and names >= _BARE:
            yield folder
        else:
            waiting += (path for path in below if path not in own)


def _operations(folder: Path) -> list[Path]:
    with suppress(OSError):
        return [folder / name for name in os.listdir(folder) if _OPERATION.fullmatch(name)]
    return []


def _irregular(waiting: Iterable[Path], git_folders: Iterable[Path]) -> Iterator[Path]:
    """Links, pipes and sockets in these folders: git writes through a link, and waits at a pipe.

    Single objects of `git_folders` are left out: git never writes to one that is there.
    """
    ahead, objects = [str(folder) for folder in waiting], {f"{folder}/objects" for folder in git_folders}
    for _ in range(_MAX_GIT_FOLDERS):
        if not ahead:
            return
        folder = ahead.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    ahead += [] if folder in objects and len(entry.name) == 2 else [entry.path]
                elif not entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)


def _pointed_to(root: Path) -> Path | None:
    """The folder in `root` that the link or file `.git` names as the repository's own, if it does."""
    pointer = root / ".git"
    if (mode := _mode(pointer)) == 0:
        return None
    folder = Path(os.path.realpath(pointer)) if stat.S_ISLNK(mode) else _gitdir(pointer)
    inside = folder is not None and folder != root and folder.is_relative_to(root) and os.path.isdir(folder)
    return folder if inside else None


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


def _mode(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _is_plain(path: Path) -> bool:
    """Whether it is a file or a folder. A link can't be mounted over; what it leads to is work, or out of reach."""
    mode = _mode(path)
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _aside(path: Path) -> Path:
    """Where what must not stay at `path` is kept, under a name that git doesn't know."""
    return path.with_name(f"{path.name}.undone-{secrets.token_hex(4)}")


def _state(deciding: list[Path], repositories: Iterable[Path] = ()) -> State:
    """What there is of these files, and in these folders; nothing of `repositories`, which are listed file by file."""
    skipped = set(repositories)
    contents: dict[Path, tuple[int, bytes]] = {}
    waiting = deciding[::-1]
    while waiting and len(contents) < MAX_FILES:
        path = waiting.pop()
        mode = _mode(path)
        if stat.S_ISDIR(mode):
            if path.name not in ("worktrees", ".git") and path not in skipped:  # other worktrees write an index there
                with suppress(OSError):
                    waiting += [path / name for name in sorted(os.listdir(path)) if not name.endswith(".sample")]
        elif mode and path.parts[-2:] != ("info", "refs"):  # `git gc` writes it
            content = b""
            with suppress(OSError):
                if stat.S_ISLNK(mode):
                    content = os.fsencode(os.readlink(path))
                elif stat.S_ISREG(mode):
                    with open(path, "rb") as file:
                        content = file.read(MAX_BYTES)
            contents[path] = mode, content
    return contents

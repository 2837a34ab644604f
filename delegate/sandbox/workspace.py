"""A child's folder: where it lies, what may be reached from it, and what the child changed in it."""

import asyncio
import hashlib
import itertools
import logging
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from delegate.errors import CallError, ToolDenied, ToolError
from delegate.sandbox import files
from delegate.sandbox.files import Excerpt
from delegate.types import Artifact, Workspace

MAX_COPY_BYTES = 1 << 30
MAX_FILES = 200_000
"""Files that a given folder may have, the ignored ones apart; a look at that many takes about a second."""
MAX_ARTIFACTS = 5_000
MAX_HASHED_FILES = 1_000
MAX_HASHED_BYTES = 64 << 20
"""Together; artifacts beyond are listed without a digest."""

_log = logging.getLogger(__name__)


class _Mark(NamedTuple):
    """By what a change is seen. The change time is there because `touch` can set the modification time back."""

    modified_ns: int
    changed_ns: int
    size: int
    inode: int


@dataclass(slots=True)
class Folder:
    """The folder that one child works in. Open it with `open`, and `close` it when child and checks are done.

    `owned` says that it was made for this child (fresh or copy) and may be removed again.
    """

    root: Path
    owned: bool
    _before: dict[str, _Mark] = field(default_factory=dict[str, _Mark])

    @classmethod
    async def open(cls, workspace: Workspace | None, *, home: Path) -> "Folder":
        """The folder for `workspace`; new folders are made in `home` under a random name.

        Raises `CallError` where the folder that was named can't be used: it isn't there, or is too large.
        """
        if workspace is None or workspace.path is None:
            return cls(_new_folder(home), owned=True)
        given = _existing(workspace.path)
        if workspace.mode == "shared":
            return cls(given, owned=False, _before=await asyncio.to_thread(_marks, given))
        root = _new_folder(home)
        await _copy(given, root)
        return cls(root, owned=True, _before=await asyncio.to_thread(_marks, root))

    @classmethod
    def of_existing(cls, path: Path) -> "Folder":
        """A folder that work was left in: everything in it counts as created. Raises `CallError` where it isn't one."""
        return cls(_existing(path), owned=False)

    def resolve(self, path: str) -> Path:
        """The real place of `path`, links and `..` followed. Raises `ToolDenied` where that is outside the folder."""
        if not path.strip():
            raise ToolDenied("the path is empty")
        try:
            real = Path(os.path.realpath(os.path.join(self.root, path)))
        except ValueError as problem:  # NUL bytes, lone surrogates
            raise ToolDenied(f"the path {path[:200]!r} can't be a path: {problem}") from problem
        if not real.is_relative_to(self.root):
            raise ToolDenied(f"{path[:200]!r} leads out of the workspace; use paths inside it, such as 'notes.md'")
        return real

    def read(self, path: str, limit: int) -> Excerpt:
        """At most `limit` bytes of a regular file in the folder. Raises `ToolError` (`ToolDenied` outside)."""
        return files.read(self.resolve(path), limit)

    def changes(self) -> tuple[Artifact, ...]:
        """What was created, changed or deleted since `open`, sorted by path.

        Cheap for the few files of a fresh folder; for others, `artifacts` does it in a thread.
        """
        now = _marks(self.root, bounded=True)
        created_or_changed = sorted(path for path, mark in now.items() if self._before.get(path) != mark)
        # Past the bound a file that wasn't seen may still be there.
        deleted = sorted(self._before.keys() - now.keys()) if len(now) < MAX_FILES else []
        found = sorted(
            [*self._written(created_or_changed, now), *_deleted(deleted)], key=lambda artifact: artifact.path
        )
        if len(found) > MAX_ARTIFACTS:
            _log.warning("%s: %d files changed; the first %d are listed", self.root, len(found), MAX_ARTIFACTS)
        return tuple(found[:MAX_ARTIFACTS])

    async def artifacts(self) -> tuple[Artifact, ...]:
        """The same as `changes`, without holding up the event loop where the folder may be large."""
        if self.owned and not self._before and _is_small(self.root):
            return self.changes()
        return await asyncio.to_thread(self.changes)

    async def close(self, *, keep: bool = False) -> None:
        """Remove a folder of the child's own, unless the child left something in it that the parent could want.

        `keep` says that it did, which is then not looked for.
        """
        if keep or not self.owned:
            return
        try:
            self.root.rmdir()
        except FileNotFoundError:
            return
        except OSError:  # not empty
            # In a fresh folder the first file already answers; a copy has to be compared.
            kept = await asyncio.to_thread(self._has_changes) if self._before else self._has_changes()
            if not kept:
                await asyncio.to_thread(shutil.rmtree, self.root, ignore_errors=True)

    def _has_changes(self) -> bool:
        return any(self._before.get(path) != mark for path, mark in _scan(self.root))

    def _written(self, paths: list[str], now: dict[str, _Mark]) -> Iterator[Artifact]:
        budget = MAX_HASHED_BYTES
        for count, path in enumerate(paths[:MAX_ARTIFACTS]):
            size = now[path].size
            hashed = count < MAX_HASHED_FILES and size <= budget
            budget -= size if hashed else 0
            yield Artifact(
                path=files.shown(path),
                change="changed" if path in self._before else "created",
                bytes=size,
                sha256=_sha256(self.root / path, size) if hashed else None,
            )


def _deleted(paths: list[str]) -> Iterator[Artifact]:
    for path in paths:
        yield Artifact(path=files.shown(path), change="deleted", bytes=0, sha256=None)


def _existing(path: Path) -> Path:
    real = Path(os.path.realpath(path.expanduser()))
    if not real.is_dir():
        hint = "name a folder that exists"
        raise CallError("workspace_not_found", f"workspace {path} is not a folder", field="workspace", hint=hint)
    return real


def _new_folder(home: Path) -> Path:
    """A new folder under a name that nobody can guess, readable by this user only."""
    root = home / secrets.token_hex(8)
    try:
        root.mkdir(0o700)
    except FileNotFoundError:
        home.mkdir(parents=True, exist_ok=True)
        root.mkdir(0o700)
    return Path(os.path.realpath(root))


def _scan(root: Path) -> Iterator[tuple[str, _Mark]]:
    for path, entry in files.walk(root):
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:  # gone meanwhile
            continue
        yield path, _Mark(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def _marks(root: Path, *, bounded: bool = False) -> dict[str, _Mark]:
    """The marks of all files. Over the bound: cut where `bounded`, else refused, since changes couldn't be told."""
    marks = dict(itertools.islice(_scan(root), MAX_FILES))
    if len(marks) == MAX_FILES and not bounded:
        message = f"workspace {root} has {MAX_FILES:,} files or more; name a smaller folder"
        raise CallError("workspace_too_large", message, field="workspace")
    return marks


def _is_small(root: Path) -> bool:
    """A handful of small files at the top: looking is quicker than starting a thread."""
    with os.scandir(root) as entries:
        few = list(itertools.islice(entries, 33))
    return len(few) <= 32 and all(
        entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_size <= 65_536 for entry in few
    )


def _sha256(path: Path, size: int) -> str | None:
    """The digest of a regular file's first `size` bytes; None for links and for what can't be read."""
    try:
        return hashlib.sha256(files.read(path, size).data).hexdigest()
    except ToolError:
        return None


# ------------------------------------------------------------------------------------------------------ copying


async def _copy(source: Path, target: Path) -> None:
    """Copy in a thread, which stops when the waiting task is cancelled, and leaves nothing half-done."""
    stop = threading.Event()
    try:
        await asyncio.to_thread(_Copy(source, target, stop).run)
    finally:
        stop.set()


class _Copy:
    """One copy of a tree: links stay links, pipes and devices are left out, and size has a bound."""

    def __init__(self, source: Path, target: Path, stop: threading.Event) -> None:
        self._source, self._target, self._stop = source, target, stop
        self._bytes = 0
        self._files = 0

    def run(self) -> None:
        try:
            shutil.copytree(
                self._source,
                self._target,
                symlinks=True,
                dirs_exist_ok=True,
                ignore=self._own_home,
                copy_function=self._one,
            )
        except shutil.Error as problem:
            self._discard()
            first = problem.args[0][0]
            raise CallError(
                "workspace_not_copied", f"can't copy {first[0]}: {first[2]}", field="workspace"
            ) from problem
        except BaseException:
            self._discard()
            raise

    def _discard(self) -> None:
        shutil.rmtree(self._target, ignore_errors=True)

    def _own_home(self, folder: str, names: list[str]) -> set[str]:
        """Workspaces may be kept inside the folder that is copied; without this, a copy would copy itself."""
        home = str(self._target.parent)
        return {name for name in names if os.path.join(folder, name) == home}

    def _one(self, source: str, target: str) -> None:
        found = os.lstat(source)
        if not stat.S_ISREG(found.st_mode):
            return
        self._bytes += found.st_size
        self._files += 1
        if self._stop.is_set() or self._bytes > MAX_COPY_BYTES or self._files > MAX_FILES:
            bound = f"{MAX_COPY_BYTES:,} bytes or {MAX_FILES:,} files"
            message = f"workspace {self._source} is too large to copy (over {bound})"
            raise CallError("workspace_too_large", message, field="workspace")
        shutil.copy2(source, target)

"""Opens, confines and closes the folder that a child works in, and lists what the child changed there."""

import itertools
import logging
import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from delegate.errors import CallError
from delegate.sandbox import changes, files, paths, worktree
from delegate.sandbox.changes import FileState
from delegate.sandbox.files import Excerpt
from delegate.sandbox.git_files import Repository, refuse_repository
from delegate.sandbox.threads import run_in_thread
from delegate.sandbox.trees import copy_tree, remove_tree
from delegate.sandbox.worktree import Worktree
from delegate.sandbox.write_locks import WriteLocks, Writer
from delegate.types import Artifact, Workspace

if TYPE_CHECKING:
    from delegate.sandbox.baseline import Baseline, MachineryChange, MachineryChanges
    from delegate.sandbox.clean_room import CleanRoom
    from delegate.sandbox.machinery import Machinery

_log = logging.getLogger(__name__)
_SMALL_FOLDER = 32
_SMALL_FILE_BYTES = 65_536


@dataclass(slots=True)
class Folder:
    """The folder that one child works in. Open it with `open`, and `close` it when the child and its checks are done.

    `owned` is true for a folder that was made for this child (fresh, copy, worktree) and may be removed.
    """

    root: Path
    owned: bool
    unlisted: int = 0
    """How many more files changed than `artifacts` listed."""
    baseline: "Baseline | None" = None
    """What decided the task's checks before the child started, if `record_baseline` was called."""
    repository: Repository | None = None
    """What git runs here, as it was before the child started."""
    _home: Path | None = None
    """Where folders of this workspace, such as a clean room, are created."""
    _before: Mapping[str, FileState] = field(default_factory=dict[str, FileState])
    _writer: Writer | None = None
    _worktree: Worktree | None = None

    @classmethod
    async def open(
        cls,
        workspace: Workspace | None,
        *,
        home: Path,
        write_locks: WriteLocks | None = None,
        who: str = "another task of this run",
    ) -> "Folder":
        """Open the folder for `workspace`; new folders are created in `home` under a random name.

        For a shared folder, `write_locks` are those of the run, and `who` names this child in messages to its siblings.
        Raises `CallError` if the given folder can't be used (it doesn't exist, is too large, is not a git repository);
        nothing is left behind then.
        """
        if workspace is None or workspace.path is None:
            return cls(_new_folder(home), owned=True, _home=home)
        given = _existing(workspace.path)
        if workspace.mode == "shared":
            # Join before the snapshot, so that what a sibling writes during it counts as the sibling's.
            writer = write_locks.join(who) if write_locks is not None else None
            folder = cls(given, owned=False, _home=home, _writer=writer)
        else:
            folder = cls(_new_folder(home), owned=True, _home=home)
        try:
            await folder._fill(given, workspace)
        except BaseException:
            await folder._abandon()
            raise
        return folder

    @classmethod
    def of_existing(cls, path: Path) -> "Folder":
        """An existing folder with finished work: every file in it counts as created. Raises `CallError`."""
        return cls(_existing(path), owned=False)

    def resolve(self, path: str) -> Path:
        """The real path of `path`, with links and `..` followed. Raises `ToolDenied` if it is outside the folder."""
        return paths.resolve(self.root, path)

    def read(self, path: str, limit: int) -> Excerpt:
        """The first `limit` bytes of a regular file in the folder, or of the diff that `artifacts` wrote.

        Raises `ToolError`, and its subclass `ToolDenied` for a path outside the folder.
        """
        if self._worktree is not None and path == _diff_name(self._worktree):
            return files.read(self.root.parent, self._worktree.diff_path, limit)
        return files.read(self.root, self.resolve(path), limit)

    def write(self, path: str, data: bytes) -> None:
        """Replace the content of a regular file in the folder, creating missing folders.

        Raises `ToolError`, and its subclass `ToolDenied` for a path outside the folder or in `.git`, for the
        operator's settings, for a file with hard links, and for one that another child of the run writes.
        """
        real = self.resolve(path)
        refuse_repository(self.root, real)
        paths.refuse_settings(real)
        if self._writer is not None:
            self._writer.acquire(real)
        files.write(self.root, real, data)

    def changes(self) -> tuple[Artifact, ...]:
        """What was created, changed or deleted since `open`, sorted by path, without files that siblings wrote.

        Blocks: cheap for the few files of a fresh folder, while `artifacts` uses a thread for others.
        """
        foreign = self._writer.foreign if self._writer is not None else ()
        found = changes.changes_since(self._before, self.root, without=foreign)
        self.unlisted = found.unlisted
        return found.artifacts

    async def artifacts(self) -> tuple[Artifact, ...]:
        """The same as `changes`, without blocking the event loop if the folder may be large.

        For a worktree with changes, the first artifact is the diff, which is stored next to the folder.
        """
        if self.owned and not self._before and _is_small(self.root):
            return self.changes()
        found = await run_in_thread(self.changes)
        if self._worktree is None or not found:
            return found
        await self._worktree.write_diff()
        return (*_diff_artifact(self._worktree), *found)

    async def record_baseline(self, machinery: "Machinery") -> None:
        """Remember the files that decide the task's checks. To be called before the child starts."""
        from delegate.sandbox.baseline import Baseline

        record = partial(Baseline.record, self.root, machinery)
        self.baseline = record() if self.owned and _is_small(self.root) else await run_in_thread(record)

    async def machinery_changes(self) -> "MachineryChanges | None":
        """What the child, and no sibling, changed since `record_baseline`; None if that wasn't called."""
        if self.baseline is None:
            return None
        foreign = self._writer.foreign if self._writer is not None else ()
        compare = partial(self.baseline.compare, without=foreign)
        return compare() if self.owned and _is_small(self.root) else await run_in_thread(compare)

    async def open_clean_room(self, undone: "Sequence[MachineryChange]") -> "CleanRoom":
        """A copy of the folder without these changes, to be closed by the caller. Raises `CallError` and OSError."""
        from delegate.sandbox.clean_room import CleanRoom

        assert self._home is not None
        return await CleanRoom.open(self.root, self._home, undone)

    async def close(self, *, keep: bool = False) -> None:
        """Remove an owned folder, unless the child left changes in it that the parent may want.

        With `keep`, the folder stays without a search for changes.
        """
        if self._writer is not None:
            self._writer.leave()
        if keep or not self.owned or self._remove_empty():
            return
        # In a fresh folder the search ends at the first file; in others all files have to be compared.
        has_changes = partial(changes.has_changes, self._before, self.root)
        if not (await run_in_thread(has_changes) if self._before else has_changes()):
            await run_in_thread(self._remove)

    async def _fill(self, given: Path, workspace: Workspace) -> None:
        if workspace.mode == "worktree":
            self._worktree = await Worktree.add(given, workspace.base or "HEAD", self.root)
        elif workspace.mode == "copy":
            stop = threading.Event()
            await run_in_thread(partial(copy_tree, given, self.root, stop), stop=stop)
        self.repository = await run_in_thread(partial(Repository.of, self.root, nested=True))
        self._before = await run_in_thread(partial(changes.snapshot, self.root))

    async def _abandon(self) -> None:
        if self._writer is not None:
            self._writer.leave()
        if self.owned:
            await run_in_thread(self._remove)

    def _remove_empty(self) -> bool:
        """Remove the folder if it is empty, the common case for a fresh one. Whether it no longer exists."""
        if self._worktree is not None:
            return False
        try:
            self.root.rmdir()
        except FileNotFoundError:
            return True
        except OSError:  # not empty
            return False
        return True

    def _remove(self) -> None:
        try:
            if self._worktree is not None:
                self._worktree.unregister()
                self._worktree.diff_path.unlink(missing_ok=True)
            remove_tree(self.root)
        except OSError as problem:
            _log.warning("the workspace %s can't be removed: %s", self.root, problem)


def discard(root: Path) -> None:
    """Remove a folder that `close` kept, in any mode, together with its worktree entry and diff. Raises `OSError`."""
    worktree.unregister(root)
    root.with_name(f"{root.name}.diff").unlink(missing_ok=True)
    remove_tree(root)


def _existing(path: Path) -> Path:
    real = Path(os.path.realpath(path.expanduser()))
    if not os.path.isdir(real):
        hint = "name a folder that exists"
        raise CallError("workspace_not_found", f"workspace {path} is not a folder", field="workspace", hint=hint)
    return real


def _new_folder(home: Path) -> Path:
    """A new folder with an unguessable name, readable only by this user."""
    root = home / secrets.token_hex(8)
    try:
        root.mkdir(0o700)
    except FileNotFoundError:
        home.mkdir(parents=True, exist_ok=True)
        root.mkdir(0o700)
    return Path(os.path.realpath(root))


def _is_small(root: Path) -> bool:
    """Whether the folder has only a few small files and no folders: reading those is faster than starting a thread."""
    with suppress(OSError), os.scandir(root) as entries:
        few = list(itertools.islice(entries, _SMALL_FOLDER + 1))
        return len(few) <= _SMALL_FOLDER and all(
            entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_size <= _SMALL_FILE_BYTES
            for entry in few
        )
    return False


def _diff_name(of: Worktree) -> str:
    """The diff's path relative to the worktree."""
    return f"../{of.diff_path.name}"


def _diff_artifact(of: Worktree) -> tuple[Artifact, ...]:
    try:
        size = of.diff_path.stat().st_size
    except OSError:  # `write_diff` logged why
        return ()
    sha256 = files.digest(of.diff_path.parent, of.diff_path, size)
    return (Artifact(path=_diff_name(of), change="created", bytes=size, sha256=sha256),)

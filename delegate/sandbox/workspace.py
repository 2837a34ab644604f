"""A child's folder: where it lies, what may be reached from it, and what the child changed in it."""

import itertools
import logging
import os
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from delegate.errors import CallError
from delegate.sandbox import changes, files, paths, worktree
from delegate.sandbox.changes import Mark
from delegate.sandbox.files import Excerpt
from delegate.sandbox.threads import to_its_end
from delegate.sandbox.trees import copy_tree, remove_tree
from delegate.sandbox.worktree import Worktree
from delegate.sandbox.write_locks import WriteLocks, Writer
from delegate.types import Artifact, Workspace

_log = logging.getLogger(__name__)
_SMALL_FOLDER = 32
_SMALL_FILE_BYTES = 65_536


@dataclass(slots=True)
class Folder:
    """The folder that one child works in. Open it with `open`, and `close` it when child and checks are done.

    `owned` says that it was made for this child (fresh, copy, worktree) and may be removed again.
    """

    root: Path
    owned: bool
    unlisted: int = 0
    """How many more files changed than `artifacts` listed."""
    _before: Mapping[str, Mark] = field(default_factory=dict[str, Mark])
    _claimant: Writer | None = None
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
        """The folder for `workspace`; new folders are made in `home` under a random name.

        In a shared folder, `write_locks` are those of the run, and `who` is this child in its siblings' words. Raises
        `CallError` where the folder that was named can't be used, and then leaves nothing behind: it isn't there, is
        too large, is no git repository.
        """
        if workspace is None or workspace.path is None:
            return cls(_new_folder(home), owned=True)
        given = _existing(workspace.path)
        if workspace.mode == "shared":
            # Before the look at the files: what a sibling writes meanwhile has to be known as its own.
            folder = cls(given, owned=False, _claimant=write_locks.join(who) if write_locks is not None else None)
        else:
            folder = cls(_new_folder(home), owned=True)
        try:
            await folder._fill(given, workspace)
        except BaseException:
            await folder._give_up()
            raise
        return folder

    @classmethod
    def of_existing(cls, path: Path) -> "Folder":
        """A folder that work was left in: everything in it counts as created. Raises `CallError` where it isn't one."""
        return cls(_existing(path), owned=False)

    def resolve(self, path: str) -> Path:
        """The real place of `path`, links and `..` followed. Raises `ToolDenied` where that is outside the folder."""
        return paths.resolve(self.root, path)

    def read(self, path: str, limit: int) -> Excerpt:
        """At most `limit` bytes of a regular file in the folder, or of the diff that `artifacts` made of a worktree.

        Raises `ToolError` (`ToolDenied` outside).
        """
        if self._worktree is not None and path == _diff_name(self._worktree):
            return files.read(self.root.parent, self._worktree.diff_path, limit)
        return files.read(self.root, self.resolve(path), limit)

    def write(self, path: str, data: bytes) -> None:
        """Write a regular file in the folder as a whole, making its folders.

        Raises `ToolError` (`ToolDenied` outside, in a `.git`, for a file with hard links, and for one that another
        child of the run writes).
        """
        real = self.resolve(path)
        paths.refuse_git(self.root, real)
        if self._claimant is not None:
            self._claimant.take(real)
        files.write(self.root, real, data)

    def changes(self) -> tuple[Artifact, ...]:
        """What was created, changed or deleted since `open`, sorted by path, without what siblings are known to write.

        Cheap for the few files of a fresh folder; for others, `artifacts` does it in a thread.
        """
        foreign = self._claimant.foreign if self._claimant is not None else ()
        found = changes.since(self._before, self.root, without=foreign)
        self.unlisted = found.unlisted
        return found.artifacts

    async def artifacts(self) -> tuple[Artifact, ...]:
        """The same as `changes`, without holding up the event loop where the folder may be large.

        For a worktree with changes, the first is the diff, which lies beside the folder.
        """
        if self.owned and not self._before and _is_small(self.root):
            return self.changes()
        found = await to_its_end(self.changes)
        if self._worktree is None or not found:
            return found
        await self._worktree.write_diff()
        return (*_diff_artifact(self._worktree), *found)

    async def close(self, *, keep: bool = False) -> None:
        """Remove a folder of the child's own, unless the child left something in it that the parent could want.

        `keep` says that it did, which is then not looked for.
        """
        if self._claimant is not None:
            self._claimant.leave()
        if keep or not self.owned or self._is_gone():
            return
        # In a fresh folder the first file already answers; others have to be compared.
        left = partial(changes.is_left, self._before, self.root)
        if not (await to_its_end(left) if self._before else left()):
            await to_its_end(self._discard)

    async def _fill(self, given: Path, workspace: Workspace) -> None:
        if workspace.mode == "worktree":
            self._worktree = await Worktree.add(given, workspace.base or "HEAD", self.root)
        elif workspace.mode == "copy":
            stop = threading.Event()
            await to_its_end(partial(copy_tree, given, self.root, stop), stop=stop)
        self._before = await to_its_end(partial(changes.look, self.root))

    async def _give_up(self) -> None:
        if self._claimant is not None:
            self._claimant.leave()
        if self.owned:
            await to_its_end(self._discard)

    def _is_gone(self) -> bool:
        """Whether it is removed, now or before. The usual end of a fresh folder that wasn't needed."""
        if self._worktree is not None:
            return False
        try:
            self.root.rmdir()
        except FileNotFoundError:
            return True
        except OSError:  # not empty
            return False
        return True

    def _discard(self) -> None:
        try:
            if self._worktree is not None:
                self._worktree.unregister()
                self._worktree.diff_path.unlink(missing_ok=True)
            remove_tree(self.root)
        except OSError as problem:
            _log.warning("the workspace %s can't be removed: %s", self.root, problem)


def discard(root: Path) -> None:
    """Remove a folder that `close` kept, whatever its mode was, and what belongs to it. Raises `OSError`."""
    worktree.forget(root)
    root.with_name(f"{root.name}.diff").unlink(missing_ok=True)
    remove_tree(root)


def _existing(path: Path) -> Path:
    real = Path(os.path.realpath(path.expanduser()))
    if not os.path.isdir(real):
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


def _is_small(root: Path) -> bool:
    """A handful of small files at the top: looking is quicker than starting a thread."""
    with suppress(OSError), os.scandir(root) as entries:
        few = list(itertools.islice(entries, _SMALL_FOLDER + 1))
        return len(few) <= _SMALL_FOLDER and all(
            entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_size <= _SMALL_FILE_BYTES
            for entry in few
        )
    return False


def _diff_name(of: Worktree) -> str:
    """The diff's path from the worktree."""
    return f"../{of.diff_path.name}"


def _diff_artifact(of: Worktree) -> tuple[Artifact, ...]:
    try:
        size = of.diff_path.stat().st_size
    except OSError:  # the log says why
        return ()
    sha256 = files.digest(of.diff_path.parent, of.diff_path, size)
    return (Artifact(path=_diff_name(of), change="created", bytes=size, sha256=sha256),)

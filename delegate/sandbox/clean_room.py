"""A copy of a workspace in which the files that decide its checks are what they were before the child started.

<home>/<token>.room/tree/     the copy
<home>/<token>.room/aside/    the child's version of each file that was restored
"""

import os
import secrets
import shutil
import stat
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from delegate.sandbox.baseline import MachineryChange, restored_content
from delegate.sandbox.threads import run_in_thread
from delegate.sandbox.trees import copy_tree, remove_tree


@dataclass(slots=True)
class CleanRoom:
    """The copy. Create it with `open`, and `close` it."""

    workspace: Path
    _folder: Path
    _changes: Sequence[MachineryChange]
    _restored: set[str] = field(default_factory=set[str])
    """The changes that are undone, by path."""

    @classmethod
    async def open(cls, workspace: Path, home: Path, changes: Sequence[MachineryChange]) -> "CleanRoom":
        """Copy `workspace` into a new folder in `home` and undo all `changes` that can be undone.

        Raises `CallError` if it can't be copied, and OSError. Nothing is left behind then.
        """
        room = cls(workspace, home / f"{secrets.token_hex(8)}.room", [one for one in changes if one.restorable])
        stop = threading.Event()
        try:
            await run_in_thread(partial(room._fill, stop), stop=stop)
        except BaseException:
            await room.close()
            raise
        return room

    @property
    def tree(self) -> Path:
        """The copy of the workspace."""
        return self._folder / "tree"

    async def restore_all_but(self, kept: Collection[str]) -> None:
        """Undo all changes except those of the paths in `kept`, which are as the child left them. Raises OSError."""
        await run_in_thread(partial(self._restore_all_but, kept))

    async def close(self) -> None:
        """Remove the copy."""
        with suppress(FileNotFoundError):
            await run_in_thread(partial(remove_tree, self._folder))

    def _fill(self, stop: threading.Event) -> None:
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        self._folder.mkdir(0o700)
        self.tree.mkdir(0o700)
        (self._folder / "aside").mkdir()
        copy_tree(self.workspace, self.tree, stop, without=("__pycache__",))
        shutil.copystat(self.workspace, self.tree)
        os.chmod(self.tree, os.stat(self.tree).st_mode | stat.S_IRWXU)
        self._restore_all_but(())

    def _restore_all_but(self, kept: Collection[str]) -> None:
        """A link may have replaced a folder, or the reverse, so what was added goes first and comes back last."""
        undo = [one for one in self._changes if one.path not in kept and one.path not in self._restored]
        redo = [one for one in self._changes if one.path in kept and one.path in self._restored]
        for change in sorted(redo, key=lambda one: one.change == "added"):
            self._remove(change.path)
            self._in_order(change, self._put_back)
            self._restored.discard(change.path)
        for change in sorted(undo, key=lambda one: one.change != "added"):
            self._set_aside(change)
            self._in_order(change, self._restore)
            self._restored.add(change.path)

    def _in_order(self, change: MachineryChange, place: Callable[[MachineryChange], None]) -> None:
        place(change)
        if change.change != "changed":
            self._prune(self.tree / change.path)

    def _aside(self, change: MachineryChange) -> Path:
        return self._folder / "aside" / str(next(n for n, one in enumerate(self._changes) if one is change))

    def _set_aside(self, change: MachineryChange) -> None:
        if change.change != "deleted" and self._is_inside(change.path):
            with suppress(FileNotFoundError):
                os.rename(self.tree / change.path, self._aside(change))

    def _put_back(self, change: MachineryChange) -> None:
        if os.path.lexists(self._aside(change)):
            self._make_parents(change.path)
            os.rename(self._aside(change), self.tree / change.path)

    def _restore(self, change: MachineryChange) -> None:
        if change.before is None or change.before.content is None:
            return
        path, content = self._make_parents(change.path), change.before.content
        if change.before.is_link:
            os.symlink(self._moved(content.decode("utf-8", "surrogateescape")), path)
            return
        aside = self._aside(change)
        now = aside.read_bytes() if change.change == "changed" and aside.is_file() and not aside.is_symlink() else None
        path.write_bytes(restored_content(change, now))
        os.chmod(path, stat.S_IMODE(change.before.state.mode) | stat.S_IRUSR)
        # Tools such as make compare times: it is as old as it was.
        os.utime(path, ns=(change.before.state.modified_ns, change.before.state.modified_ns))

    def _moved(self, target: str) -> str:
        """The target of a link into the workspace, in the copy."""
        inside = os.path.relpath(target, self.workspace) if target.startswith(f"{self.workspace}/") else None
        return target if inside is None else str(self.tree / inside)

    def _remove(self, path: str) -> None:
        if self._is_inside(path):
            with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                os.unlink(self.tree / path)

    def _is_inside(self, path: str) -> bool:
        """Whether no folder of `path` is a link, which could lead out of the copy."""
        parts = path.split("/")[:-1]
        return not any(os.path.islink(self.tree.joinpath(*parts[: n + 1])) for n in range(len(parts)))

    def _make_parents(self, path: str) -> Path:
        """Make the folders of `path` in the copy, in place of links or files that the child put there."""
        at = self.tree
        for name in path.split("/")[:-1]:
            at = at / name
            if at.is_symlink() or (at.exists() and not at.is_dir()):
                at.unlink()
            at.mkdir(exist_ok=True)
        return at / path.rpartition("/")[2]

    def _prune(self, path: Path) -> None:
        """Remove folders that have become empty: an empty package is still one to Python."""
        for parent in path.parents:
            if parent == self.tree or not parent.is_dir() or parent.is_symlink():
                return
            try:
                parent.rmdir()
            except OSError:
                return

"""Copies of a workspace as it was at one moment, and what differs between two of them.

<home>/<token>.start/    before the child began
<home>/<token>.end/      when it had ended: what is judged
<home>/<token>.copy/     for one command, and gone with it

No command sees the first two. What programs keep for themselves, such as compiled Python files, isn't copied.
"""

import filecmp
import itertools
import json
import os
import secrets
import shutil
import stat
import threading
import time
import tomllib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from delegate._util.threads import run_in_thread
from delegate.sandbox.filesystem import changes
from delegate.sandbox.filesystem.changes import FileState
from delegate.sandbox.filesystem.trees import copy_tree, remove_soon, remove_tree

CACHES = ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
"""Folders in which programs keep what they would find out again."""
_states = partial(changes.snapshot, without=CACHES, complete=True)
_RACY_NS = 1_000_000_000
"""A file that is younger may be changed again without a change of its times; some file systems count in seconds."""
_KIND_AND_EXECUTABLE = 0o170111
_PACKAGE_KEYS = (
    "scripts", "config", "jest", "mocha", "ava", "nyc", "c8", "vitest", "tap", "karma", "babel", "eslintConfig",
    "eslintIgnore", "prettier", "packageManager", "type", "imports", "exports", "main",
)  # fmt: skip
"""What decides a command in a package.json. The rest, such as dependencies, is the child's work."""


class Difference(NamedTuple):
    """A file that isn't as it was. `decides` is false if only parts changed that decide no command."""

    path: str
    change: Literal["added", "changed", "deleted"]
    decides: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a workspace at one moment, in a folder of their own. Make it with `take`, and `remove` it."""

    tree: Path
    origin: Mapping[str, FileState]
    """The state of each file in the workspace when it was copied."""
    copies: Mapping[str, FileState]
    """The state of each copy, by which a change of it is noticed."""
    taken_ns: int

    @classmethod
    async def take(cls, root: Path, home: Path, *, name: str) -> "Snapshot":
        """Copy the workspace `root` into the folder `name` in `home`. Raises `CallError` and OSError; nothing is left
        behind then.
        """
        tree, stop = home / name, threading.Event()
        try:
            return await run_in_thread(partial(cls._take, root, tree, stop), stop=stop)
        except BaseException:
            await remove_soon(tree)
            raise

    @classmethod
    def _take(cls, root: Path, tree: Path, stop: threading.Event) -> "Snapshot":
        taken_ns, origin = time.time_ns(), _states(root)
        _make_folder(tree)
        copy_tree(root, tree, stop, without=CACHES)
        copies = _states(tree)
        return cls(tree, {path: origin[path] for path in origin.keys() & copies.keys()}, copies, taken_ns)

    def changed_since(self) -> str | None:
        """The first copy that is no longer what was copied; None if all are. Blocks."""
        now = _states(self.tree) if self.tree.is_dir() else {}
        return next((path for path in self.copies.keys() | now.keys() if self.copies.get(path) != now.get(path)), None)

    async def remove(self) -> None:
        """Remove the copies."""
        await remove_soon(self.tree)


def differences(start: Snapshot | None, end: Snapshot) -> list[Difference]:
    """What changed between two snapshots of a workspace, sorted. Without `start`, there was nothing. Blocks."""
    before: Mapping[str, FileState] = start.origin if start is not None else {}
    found: list[Difference] = []
    for path in before.keys() | end.origin.keys():
        if path not in before:
            found.append(Difference(path, "added"))
        elif path not in end.origin:
            found.append(Difference(path, "deleted"))
        elif start is not None and not _is_same(start, end, path):
            found.append(Difference(path, "changed", _decides(start.tree / path, end.tree / path)))
    return sorted(found)


def _is_same(start: Snapshot, end: Snapshot, path: str) -> bool:
    before, now = start.origin[path], end.origin[path]
    if before == now and before.changed_ns < start.taken_ns - _RACY_NS:
        return True
    if (before.mode ^ now.mode) & _KIND_AND_EXECUTABLE:
        return False
    old, new = start.tree / path, end.tree / path
    try:
        if stat.S_ISLNK(now.mode):
            return os.readlink(old) == os.readlink(new)
        return before.size == now.size and filecmp.cmp(old, new, shallow=False)
    except OSError:
        return False


def _decides(old: Path, new: Path) -> bool:
    """Whether what changed in a file may decide a command: not if it is only a package's dependencies or the like."""
    if old.name not in ("package.json", "pyproject.toml") or old.is_symlink() or new.is_symlink():
        return True
    try:
        return _deciding(old) != _deciding(new)
    except (OSError, ValueError, RecursionError):
        return True


def _deciding(path: Path) -> object:
    """The parts of such a file that decide a command. Raises OSError, ValueError and RecursionError."""
    if path.name == "pyproject.toml":
        fields = tomllib.loads(path.read_bytes().decode())
        project: Any = fields.get("project")
        # Plugins of pytest are entry points.
        points = cast("dict[str, object]", project).get("entry-points") if isinstance(project, dict) else None
        return [fields.get("tool"), fields.get("build-system"), points]
    package: object = json.loads(path.read_bytes())
    if not isinstance(package, dict):
        raise ValueError("no object")
    known = cast("dict[str, object]", package)
    return {key: known[key] for key in _PACKAGE_KEYS if key in known}


@dataclass(frozen=True, slots=True)
class Frozen:
    """The work of a child as it was when it ended, what it began with, and what differs."""

    start: Snapshot | None
    """None if the workspace was empty, or if nobody knows what it was."""
    end: Snapshot
    home: Path
    changes: Sequence[Difference]
    foreign: Collection[str] = frozenset()
    """Those of the changes that somebody else made meanwhile."""
    replaced: Collection[str] = frozenset()
    """Deleted files in whose place there is something else, such as a pipe, which isn't copied."""
    knows_start: bool = True

    @asynccontextmanager
    async def copy(self, kept: Collection[str] | None = None) -> AsyncGenerator[Path]:
        """A folder of its own with the work as it was left, or with the files of before and only the changes in `kept`.

        The times of files, which programs such as make compare, are not those that the child set: what is as it was has
        the time that it had, and what changed is newer than that. Raises `CallError` and OSError.
        """
        async with copy_of(self.end if kept is None else self.start, self.home) as tree:
            if kept is not None or self.knows_start:
                await run_in_thread(partial(self._finish, tree, kept))
            yield tree

    def _finish(self, tree: Path, kept: Collection[str] | None) -> None:
        """Apply the changes that are kept, if not all are there already, and set the times."""
        before: Mapping[str, FileState] = self.start.origin if self.start is not None else {}
        applied, now, times = self.changes, time.time_ns(), dict[str, int]()
        if kept is None:  # a copy of the files as they were left, with the times that they had then
            end = self.end.origin
            times = {path: one.modified_ns for path, one in before.items() if path in end and end[path] != one}
        else:
            applied = [one for one in applied if one.path in kept]
            for one in sorted(applied, key=lambda one: one.change != "deleted"):  # a folder may take a file's place
                _apply(one, self.end.tree, tree)
        times |= {one.path: now for one in applied if one.change != "deleted"}
        for path, at in times.items():
            if not (tree / path).is_symlink():
                os.utime(tree / path, ns=(at, at))


@asynccontextmanager
async def copy_of(snapshot: Snapshot | None, home: Path) -> AsyncGenerator[Path]:
    """A folder of its own with these files, or an empty one, which is removed afterwards.

    Raises `CallError` and OSError.
    """
    tree, stop = home / f"{secrets.token_hex(8)}.copy", threading.Event()
    try:
        _make_folder(tree)
        if snapshot is not None:
            await run_in_thread(partial(copy_tree, snapshot.tree, tree, stop), stop=stop)
        yield tree
    finally:
        await remove_soon(tree)


def _apply(one: Difference, source: Path, tree: Path) -> None:
    at = tree
    for name in one.path.split("/")[:-1]:
        at = at / name
        if at.is_symlink() or (at.exists() and not at.is_dir()):
            if one.change == "deleted":
                return
            at.unlink()
        if one.change != "deleted":
            at.mkdir(exist_ok=True)
    target = tree / one.path
    if target.is_dir() and not target.is_symlink():
        if one.change != "deleted":
            remove_tree(target)
    else:
        target.unlink(missing_ok=True)
    if one.change == "deleted":
        with suppress(OSError):  # not empty; an empty package is still one to Python
            for folder in itertools.takewhile(lambda folder: folder != tree, target.parents):
                folder.rmdir()
        return
    shutil.copy2(source / one.path, target, follow_symlinks=False)


def _make_folder(tree: Path) -> None:
    tree.parent.mkdir(parents=True, exist_ok=True)
    tree.mkdir(0o700)

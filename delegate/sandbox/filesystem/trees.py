"""Copies and removes whole folders, whatever is in them."""

import asyncio
import itertools
import logging
import math
import os
import secrets
import shutil
import stat
import sys
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from delegate._util.threads import run_in_daemon_thread
from delegate.sandbox.filesystem.paths import Descriptor
from delegate.sandbox.filesystem.secret_paths import is_secret_by_another_name
from delegate.types.errors import CallError

MAX_COPY_BYTES = 1 << 30
MAX_COPY_FILES = 200_000
REMOVAL_SECONDS = 0.25
"""How long an answer, and the end of a process, wait for the removal of a folder."""
_REMOVED = ".removed"
"""The end of the name of a folder that is being removed."""
_LONG_PATH = 3_000
_FICLONE = 0x4004_9409
_removing = set["asyncio.Future[None]"]()
_log = logging.getLogger(__name__)


def copy_tree(source: Path, target: Path, stop: threading.Event, *, without: Collection[str] = ()) -> None:
    """Copy the content of `source` into the empty folder `target`, until `stop` is set.

    Files share their blocks with the originals where the file system can do that (reflinks), and are never hard links,
    through which a program could change the originals. Links stay links; pipes, sockets and devices are skipped, and so
    are hard links to files with credentials, the folder that contains `target`, everything with a name in `without` and
    what is deleted in the meantime.

    Raises `CallError` if something can't be copied or the limits are exceeded; `target` is then incomplete.
    """
    copy, home = _Copy(source, stop), str(target.parent)  # the folder of all workspaces may be in `source`

    def ignored(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if name in without or os.path.join(folder, name) == home}

    try:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=ignored, copy_function=copy.copy_file)
    except shutil.Error as problem:
        for name, _, why in problem.args[0]:
            if os.path.lexists(name):
                message = f"{name} can't be copied: {why}"
                raise CallError("workspace_not_copied", message, field="workspace") from problem
    except RecursionError as problem:
        message = f"workspace {source} is nested too deeply to copy"
        raise CallError("workspace_not_copied", message, field="workspace") from problem


class _Copy:
    def __init__(self, source: Path, stop: threading.Event) -> None:
        self._source, self._stop = source, stop
        self._reflinks = sys.platform == "linux"
        self._bytes = self._files = 0

    def copy_file(self, source: str, target: str) -> None:
        """Copy `source` if it is a regular file, and still there."""
        with suppress(FileNotFoundError):
            found = os.lstat(source)
            if not stat.S_ISREG(found.st_mode) or is_secret_by_another_name(str(self._source), found):
                return
            if self._stop.is_set():
                raise CallError("workspace_not_copied", f"the copy of {self._source} was stopped", field="workspace")
            self._bytes += found.st_size
            self._files += 1
            if self._bytes > MAX_COPY_BYTES or self._files > MAX_COPY_FILES:
                bound = f"{MAX_COPY_BYTES:,} bytes or {MAX_COPY_FILES:,} files"
                message = f"workspace {self._source} is too large to copy (over {bound})"
                raise CallError("workspace_too_large", message, field="workspace")
            self._reflinks = self._reflinks and _reflink(source, target)
            if not self._reflinks:
                shutil.copyfile(source, target)
            shutil.copystat(source, target)


def _reflink(source: str, target: str) -> bool:
    """Make `target` a copy that shares the blocks of `source`. False if the file system can't."""
    import fcntl

    try:
        with open(source, "rb") as original, open(target, "wb") as copy:
            fcntl.ioctl(copy.fileno(), _FICLONE, original.fileno())
    except OSError:
        return False
    return True


def tree_bytes(root: Path, enough: float = math.inf) -> int:
    """How much room the files and folders in `root` take up, at any depth. Stops counting above `enough`.

    What has several names counts once, and what can't be read counts as nothing.
    """
    return _added_bytes(str(root), enough, 0, set())


def _added_bytes(root: str, enough: float, total: int, linked: set[tuple[int, int]]) -> int:
    """The sum with what is in `root`. `linked` are the files with several names that are counted already."""
    waiting = [root]
    while waiting and total <= enough:
        folder = waiting.pop()
        if len(folder) > _LONG_PATH:  # too long for the system soon: go on from a descriptor
            with suppress(OSError), Descriptor(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)) as at:
                total = _added_bytes(f"/dev/fd/{at}", enough, total, linked)
            continue
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if total > enough:
                    break
                with suppress(OSError):  # deleted in the meantime
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(entry.path)
                    elif found.st_nlink > 1:
                        if (file := (found.st_dev, found.st_ino)) in linked:
                            continue
                        linked.add(file)
                    total += found.st_blocks * 512  # a sparse file takes up less than its size
    return total


async def remove_soon(root: Path) -> None:
    """Remove a folder like `remove_tree`, but wait only a moment: a child may have left a million files.

    Nothing is at `root` afterwards. What isn't removed before the process ends is left to `remove_rest`. Raises
    `OSError` if the folder can't be moved.
    """
    aside = root.with_name(f"{secrets.token_hex(8)}{_REMOVED}")
    try:
        root.rename(aside)  # noqa: ASYNC240 - one system call
    except FileNotFoundError:
        return
    removing = asyncio.ensure_future(run_in_daemon_thread(_remove, aside))
    _removing.add(removing)
    removing.add_done_callback(_removing.discard)
    await asyncio.wait([removing], timeout=REMOVAL_SECONDS)


def remove_rest(home: Path) -> None:
    """Remove what earlier processes began to remove in the folder `home`, in a thread that nothing waits for."""
    rest = list(home.glob(f"*{_REMOVED}"))
    if rest:
        threading.Thread(target=lambda: [_remove(one) for one in rest], name="delegate-remove", daemon=True).start()


def _remove(root: Path) -> None:
    try:
        with suppress(FileNotFoundError):  # another process removes it too
            remove_tree(root)
    except OSError as problem:
        _log.warning("%s can't be removed: %s", root, problem)


def remove_tree(root: Path) -> None:
    """Remove a folder with everything in it, even unreadable or very deeply nested folders. Raises `OSError`.

    Folders are moved to the first level before they are emptied, so that recursion, open descriptors and the length of
    paths don't grow with the depth: `shutil.rmtree` fails at a depth of about a thousand.
    """
    token, numbers = secrets.token_hex(8), itertools.count()
    os.chmod(root, stat.S_IRWXU)
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        with os.scandir(folder) as found:
            entries = list(found)
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            moved = root / f"{token}-{next(numbers)}"
            os.chmod(entry.path, stat.S_IRWXU)  # only writable folders can be moved
            os.rename(entry.path, moved)
            waiting.append(moved)
        if folder != root:
            folder.rmdir()
    root.rmdir()

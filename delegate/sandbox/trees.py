"""Copying a whole folder, and removing one, whatever is in it."""

import itertools
import os
import secrets
import shutil
import stat
import threading
from pathlib import Path

from delegate.errors import CallError

MAX_COPY_BYTES = 1 << 30
MAX_COPY_FILES = 200_000


def copy_tree(source: Path, target: Path, stop: threading.Event) -> None:
    """Copy what is in `source` into the empty folder `target`, until `stop` is set.

    Links stay links; pipes, sockets and devices are left out, and so is the folder that `target` lies in. Raises
    `CallError` where something can't be copied, or is more than the bounds allow; then `target` is half full.
    """
    copy = _Copy(source, target, stop)
    try:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=copy.ignored, copy_function=copy.one)
    except shutil.Error as problem:
        name, _, why = problem.args[0][0]
        raise CallError("workspace_not_copied", f"can't copy {name}: {why}", field="workspace") from problem
    except RecursionError as problem:
        message = f"workspace {source} is nested too deep to copy"
        raise CallError("workspace_not_copied", message, field="workspace") from problem


class _Copy:
    """What one copy has come to."""

    def __init__(self, source: Path, target: Path, stop: threading.Event) -> None:
        self._source, self._target, self._stop = source, target, stop
        self._bytes = 0
        self._files = 0

    def ignored(self, folder: str, names: list[str]) -> set[str]:
        """Workspaces may be kept inside the folder that is copied; without this, a copy would copy itself."""
        home = str(self._target.parent)
        return {name for name in names if os.path.join(folder, name) == home}

    def one(self, source: str, target: str) -> None:
        """Copy one file, if it is one."""
        found = os.lstat(source)
        if not stat.S_ISREG(found.st_mode):
            return
        if self._stop.is_set():
            raise CallError("workspace_not_copied", f"the copy of {self._source} was stopped", field="workspace")
        self._bytes += found.st_size
        self._files += 1
        if self._bytes > MAX_COPY_BYTES or self._files > MAX_COPY_FILES:
            bound = f"{MAX_COPY_BYTES:,} bytes or {MAX_COPY_FILES:,} files"
            message = f"workspace {self._source} is too large to copy (over {bound})"
            raise CallError("workspace_too_large", message, field="workspace")
        shutil.copy2(source, target)


def remove_tree(root: Path) -> None:
    """Remove a folder and all in it, also folders without permissions and a nest of thousands. Raises `OSError`.

    Folders are moved up to the first level before they are emptied, so that neither recursion, nor open descriptors,
    nor the length of a path grow with the depth: `shutil.rmtree` fails at about a thousand.
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
            os.chmod(entry.path, stat.S_IRWXU)  # only what can be written to can be moved
            os.rename(entry.path, moved)
            waiting.append(moved)
        if folder != root:
            folder.rmdir()
    root.rmdir()

"""Locks the files of a shared folder, so that each is written by only one running child of a run.

Only writes through the file tools are locked. What a command writes isn't known before it runs.
"""

import os
import threading
import unicodedata
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from delegate.types.errors import ToolDenied


class WriteLocks:
    """The locks of one run. Thread-safe."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.writers: list[Writer] = []

    def join(self, name: str) -> "Writer":
        """Add a child; its siblings read `name` in messages. Call `leave` when it is done."""
        writer = Writer(self, name)
        with self.lock:
            self.writers.append(writer)
        return writer


class Writer:
    """One running child of the run, with the files that it and its siblings wrote."""

    def __init__(self, locks: WriteLocks, name: str) -> None:
        self.name = name
        self.foreign: set[Path] = set()
        """Files that siblings wrote while this child ran, and this child didn't."""
        self._locks = locks
        self._own: defaultdict[str, set[Path]] = defaultdict(set)

    def acquire(self, path: Path) -> None:
        """Lock `path`, a real path, before it is written. Raises `ToolDenied` if another child of the run holds it."""
        with self._locks.lock:
            others = [other for other in self._locks.writers if other is not self]
            for other in others:
                if other.holds(path):
                    raise ToolDenied(
                        f"{path.name} is written by {other.name}, which is still running; two tasks can't write the "
                        f"same file. Write to another file. (Full path: {path})"
                    )
            self._own[_fold(path)].add(path)
            self.foreign.discard(path)
            for other in others:
                other.foreign.add(path)

    def leave(self) -> None:
        """Release all locks of this child when it is done."""
        with self._locks.lock:
            if self in self._locks.writers:
                self._locks.writers.remove(self)

    def holds(self, path: Path) -> bool:
        """Whether it holds `path`, also under another name that the file system treats as the same file."""
        for own in self._own.get(_fold(path), ()):
            with suppress(OSError):
                if own == path or os.path.samefile(own, path):
                    return True
        return False


def _fold(path: Path) -> str:
    """Equal for names that some file systems treat as the same: they differ only in case or Unicode normalization."""
    return unicodedata.normalize("NFKC", str(path)).casefold()

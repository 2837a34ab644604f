"""Who writes which file of a shared folder: among the children of one run, the first writer keeps it.

Only what goes through the file tools is seen. What a command writes can't be known before it has run.
"""

import os
import threading
import unicodedata
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from delegate.errors import ToolDenied


class WriteLocks:
    """The table of one run. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_work: list[Writer] = []

    def join(self, who: str) -> "Writer":
        """A child begins; `who` is its name as its siblings read it. It has to `leave` in the end."""
        writer = Writer(self, who)
        with self._lock:
            self._at_work.append(writer)
        return writer

    def take(self, path: Path, writer: "Writer") -> None:
        """Give `path`, a real path, to `writer`. Raises `ToolDenied` where another one has it."""
        with self._lock:
            others = [other for other in self._at_work if other is not writer]
            for other in others:
                if other.has(path):
                    raise ToolDenied(
                        f"{path.name} is written by {other.who}, which is still at work; two tasks can't write one "
                        f"file. Write to another file. (The whole path: {path})"
                    )
            writer.note_own(path)
            for other in others:
                other.note_foreign(path)

    def leave(self, writer: "Writer") -> None:
        """What `writer` had is free again."""
        with self._lock:
            if writer in self._at_work:
                self._at_work.remove(writer)


class Writer:
    """One child of the run, as long as it is at work."""

    def __init__(self, locks: WriteLocks, who: str) -> None:
        self.who = who
        self._locks = locks
        self._own: defaultdict[str, set[Path]] = defaultdict(set)
        self._foreign: set[Path] = set()

    def take(self, path: Path) -> None:
        """Claim `path` before it is written. Raises `ToolDenied` where another child of the run has it."""
        self._locks.take(path, self)

    def leave(self) -> None:
        """The child is done; what it wrote may be written by others."""
        self._locks.leave(self)

    @property
    def foreign(self) -> Collection[Path]:
        """What others wrote meanwhile, and this child didn't."""
        return self._foreign

    def has(self, path: Path) -> bool:
        """Whether it has `path`, under this name or, where the file system takes them for the same, another one."""
        return any(own == path or _same(own, path) for own in self._own.get(_folded(path), ()))

    def note_own(self, path: Path) -> None:
        """It writes `path`. For `WriteLocks`, under its lock."""
        self._own[_folded(path)].add(path)
        self._foreign.discard(path)

    def note_foreign(self, path: Path) -> None:
        """Another child writes `path`. For `WriteLocks`, under its lock."""
        self._foreign.add(path)


def _folded(path: Path) -> str:
    """Equal for names that differ only in what some file systems don't tell apart: case, and ways to write an ü."""
    return unicodedata.normalize("NFKC", str(path)).casefold()


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False

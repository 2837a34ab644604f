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


class Claims:
    """The table of one run. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_work: list[Claimant] = []

    def join(self, who: str) -> "Claimant":
        """A child begins; `who` is its name as its siblings read it. It has to `leave` in the end."""
        claimant = Claimant(self, who)
        with self._lock:
            self._at_work.append(claimant)
        return claimant

    def take(self, path: Path, claimant: "Claimant") -> None:
        """Give `path`, a real path, to `claimant`. Raises `ToolDenied` where another one has it."""
        with self._lock:
            others = [other for other in self._at_work if other is not claimant]
            for other in others:
                if other.has(path):
                    raise ToolDenied(
                        f"{path.name} is written by {other.who}, which is still at work; two tasks can't write one "
                        f"file. Write to another file. (The whole path: {path})"
                    )
            claimant.note_own(path)
            for other in others:
                other.note_foreign(path)

    def leave(self, claimant: "Claimant") -> None:
        """What `claimant` had is free again."""
        with self._lock:
            if claimant in self._at_work:
                self._at_work.remove(claimant)


class Claimant:
    """One child of the run, as long as it is at work."""

    def __init__(self, claims: Claims, who: str) -> None:
        self.who = who
        self._claims = claims
        self._own: defaultdict[str, set[Path]] = defaultdict(set)
        self._foreign: set[Path] = set()

    def take(self, path: Path) -> None:
        """Claim `path` before it is written. Raises `ToolDenied` where another child of the run has it."""
        self._claims.take(path, self)

    def leave(self) -> None:
        """The child is done; what it wrote may be written by others."""
        self._claims.leave(self)

    @property
    def foreign(self) -> Collection[Path]:
        """What others wrote meanwhile, and this child didn't."""
        return self._foreign

    def has(self, path: Path) -> bool:
        """Whether it has `path`, under this name or, where the file system takes them for the same, another one."""
        return any(own == path or _same(own, path) for own in self._own.get(_folded(path), ()))

    def note_own(self, path: Path) -> None:
        """It writes `path`. For `Claims`, under its lock."""
        self._own[_folded(path)].add(path)
        self._foreign.discard(path)

    def note_foreign(self, path: Path) -> None:
        """Another child writes `path`. For `Claims`, under its lock."""
        self._foreign.add(path)


def _folded(path: Path) -> str:
    """Equal for names that differ only in what some file systems don't tell apart: case, and ways to write an ü."""
    return unicodedata.normalize("NFKC", str(path)).casefold()


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False

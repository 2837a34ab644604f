"""Plain reading, writing and walking of files that a child may have laid as traps: pipes, devices, links, odd names.

Paths given here are already confined (`workspace.Folder.resolve`).
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from delegate.errors import ToolError

IGNORED_FOLDERS = frozenset({".git", "__pycache__", ".venv", "node_modules"})
"""Made by tools and not by authors: neither listed, nor searched, nor artifacts."""

# Without O_NONBLOCK, opening a named pipe waits for its other end; without O_NOFOLLOW, a link put there since the
# path was checked would be followed.
_SAFELY = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a file. `size` is that of the whole, in bytes."""

    data: bytes
    size: int

    @property
    def cut(self) -> bool:
        return len(self.data) < self.size

    @property
    def is_text(self) -> bool:
        """True for UTF-8 without NUL bytes; a character that the cut went through counts as whole."""
        if b"\0" in self.data:
            return False
        try:
            self.data.decode()
        except UnicodeDecodeError as problem:
            return self.cut and problem.end == len(self.data) and problem.reason == "unexpected end of data"
        return True

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


def read(path: Path, limit: int) -> Excerpt:
    """At most `limit` bytes of a regular file. Raises `ToolError` for anything else."""
    try:
        descriptor = _open(path, os.O_RDONLY)
        with open(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            data = file.read(limit)
    except OSError as problem:
        raise ToolError(f"can't read {path.name}: {problem.strerror}") from problem
    return Excerpt(data, max(size, len(data)))


def write(path: Path, data: bytes) -> None:
    """Write the whole of a regular file, making its folders. Raises `ToolError` where that can't be."""
    try:
        descriptor = _open_or_make(path)
        with open(descriptor, "wb", buffering=0) as file:
            os.ftruncate(descriptor, 0)
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
    except OSError as problem:
        raise ToolError(f"can't write {path.name}: {problem.strerror}") from problem


def _open_or_make(path: Path) -> int:
    how = os.O_WRONLY | os.O_CREAT
    try:
        return _open(path, how)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _open(path, how)


def _open(path: Path, how: int) -> int:
    descriptor = os.open(path, how | _SAFELY, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ToolError(f"{path.name} is not a regular file")
    return descriptor


def walk(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Regular files and links under `root`, with their paths from there; links to folders aren't followed."""
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            entries = os.scandir(root / folder)
        except OSError:  # gone, or not ours to read
            continue
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in IGNORED_FOLDERS:
                        folders.append(f"{folder}{entry.name}/")
                elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                    yield folder + entry.name, entry


def shown(path: str) -> str:
    """A path as it may stand in JSON: bytes that aren't UTF-8, which file names can have, are spelled out."""
    return os.fsencode(path).decode(errors="backslashreplace")

"""Reads, writes and walks files in a folder where a child may have put pipes, devices, links and odd names.

Paths given here are already resolved (`paths.resolve`), and opening them follows no links.
"""

import hashlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from delegate.sandbox.filesystem import paths
from delegate.types.errors import ToolDenied, ToolError

IGNORED_FOLDERS = frozenset({".git", "__pycache__", ".venv", "node_modules"})
"""Written by tools rather than by authors: not listed, not searched, and not artifacts."""
MAX_DEPTH = 200
"""Folders nested deeper than this are not read."""
CHUNK_BYTES = 1 << 20
UNSIZED_BYTES = 1 << 16
"""How much is read of a file that says it has no bytes, as those in /proc do."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a file. `size` is the size of the whole file in bytes."""

    data: bytes
    size: int

    @property
    def cut(self) -> bool:
        return len(self.data) < self.size

    @property
    def is_text(self) -> bool:
        """True for UTF-8 without NUL bytes; a character cut off at the end doesn't count against it."""
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


def read(root: Path, real: Path, limit: int) -> Excerpt:
    """The first `limit` bytes of a regular file at most. Raises `ToolError` for anything else."""
    try:
        descriptor, status = paths.open_file(root, real, os.O_RDONLY)
        with descriptor:
            size = status.st_size
            data = b"".join(chunks(descriptor, min(limit, size or UNSIZED_BYTES)))
    except OSError as problem:
        raise ToolError(f"{real.name} can't be read: {problem.strerror}") from problem
    return Excerpt(data, max(size, len(data)))


def digest(root: Path, real: Path, size: int) -> str | None:
    """The SHA-256 of a regular file's first `size` bytes; None for links and unreadable files."""
    digest = hashlib.sha256()
    try:
        descriptor, _ = paths.open_file(root, real, os.O_RDONLY)
        with descriptor:
            for chunk in chunks(descriptor, size):
                digest.update(chunk)
    except (OSError, ToolError):
        return None
    return digest.hexdigest()


def write(root: Path, real: Path, data: bytes) -> int:
    """Replace the content of a regular file, creating missing folders. Returns the size that it had.

    Raises `ToolError` if it can't be written.
    """
    try:
        descriptor, status = paths.open_file(root, real, os.O_WRONLY | os.O_CREAT)
        with descriptor:
            if status.st_nlink > 1:
                raise ToolDenied(
                    f"{real.name} has hard links, perhaps outside the workspace, and writing would change those files "
                    "too; delete it first, then write it again"
                )
            if status.st_size:  # ext4 writes a truncated file to the disk at once when it is closed, even a new one
                os.ftruncate(descriptor, 0)
            write_all(descriptor, data)
    except OSError as problem:
        raise ToolError(f"{real.name} can't be written: {problem.strerror}") from problem
    return status.st_size


def chunks(descriptor: int, size: int) -> Iterator[bytes]:
    while size > 0 and (chunk := os.read(descriptor, min(size, CHUNK_BYTES))):
        yield chunk
        size -= len(chunk)


def write_all(descriptor: int, data: bytes) -> None:
    """Write the data, in as many steps as the system needs."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def walk(
    root: Path, unseen: set[str] | None = None, *, without: Collection[str] = IGNORED_FOLDERS
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Regular files and links under `root`, with their relative paths; links to folders aren't followed, nor those
    called as in `without`.

    An entry is valid only until the next one is yielded. Folders that can't be read are added to `unseen`, as `path/`.
    """
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            if folder.count("/") > MAX_DEPTH:
                raise OSError(f"over {MAX_DEPTH} folders deep")
            with paths.entries(root, folder) as entries:
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if entry.name in without and (is_folder or entry.name == ".git"):
                        continue  # in a worktree, `.git` is a file
                    if is_folder:
                        folders.append(f"{folder}{entry.name}/")
                    elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                        yield folder + entry.name, entry
        except FileNotFoundError:  # deleted in the meantime
            continue
        except OSError:
            if unseen is not None:
                unseen.add(folder)


def shown(path: str) -> str:
    """A path that can be written to JSON: bytes that aren't UTF-8 become backslash escapes."""
    return os.fsencode(path).decode(errors="backslashreplace")

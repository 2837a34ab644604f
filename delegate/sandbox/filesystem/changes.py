"""Finds what a child created, changed or deleted in its folder, by comparing two snapshots of it."""

import hashlib
import heapq
import itertools
import logging
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from delegate.sandbox.filesystem import files, paths
from delegate.types import MAX_ARTIFACTS, Artifact
from delegate.types.errors import CallError, ToolError

MAX_FILES = 200_000
"""Most files in a given folder, ignored ones aside; a snapshot of that many takes about a second."""
MAX_HASHED_FILES = 1_000
MAX_HASHED_BYTES = 64 << 20
"""Total size; artifacts beyond it are listed without a digest and aren't read."""
KEPT_FILES, KEPT_BYTES = 16, 4_096
"""How many files of which size are kept as they were read for their digest, for the evidence."""

_log = logging.getLogger(__name__)
Change = Literal["created", "changed", "deleted"]


class FileState(NamedTuple):
    """What is compared to detect a change. `touch` can set back the modification time, but not the change time."""

    modified_ns: int
    changed_ns: int
    size: int
    inode: int
    mode: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileState":
        return cls(status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode)


class Changes(NamedTuple):
    """The first artifacts, sorted by path, how many more there are, and the state of each file before it was read."""

    artifacts: tuple[Artifact, ...]
    unlisted: int
    states: Mapping[str, FileState]
    contents: Mapping[str, bytes]
    """What some small files contained."""
    left: Mapping[str, FileState] | None
    """The state of every file; None if nobody has looked."""


UNSEEN = Changes((), 0, {}, {}, None)


def snapshot(
    root: Path, *, without: Collection[str] = files.IGNORED_FOLDERS, complete: bool = False
) -> dict[str, FileState]:
    """The state of all files and links, without folders of these names. Raises `CallError` if there are too many, and
    if it has to be `complete`, OSError where one can't be looked at.
    """
    unseen = set[str]()
    states = dict(itertools.islice(scan(root, unseen, without=without), MAX_FILES))
    if len(states) == MAX_FILES:
        message = f"workspace {root} has {MAX_FILES:,} files or more"
        raise CallError("workspace_too_large", message, field="workspace", hint="name a smaller folder")
    if unseen and complete:
        raise OSError(f"{files.shown(min(unseen))} can't be read")
    return states


def changes_since(before: Mapping[str, FileState], root: Path, *, without: Collection[Path] = ()) -> Changes:
    """What changed since `before`, except the paths in `without`. Never raises, whatever a child left there."""
    unseen: set[str] = set()
    now = dict(itertools.islice(scan(root, unseen), MAX_FILES))
    changes: dict[str, Change] = {
        path: "changed" if path in before else "created" for path, state in now.items() if before.get(path) != state
    }
    # Beyond the limit, and in folders that have become unreadable, a file that wasn't seen may still exist.
    if len(now) < MAX_FILES:
        changes |= {path: "deleted" for path in before.keys() - now.keys() if not _is_in(path, unseen)}
    own = [path for path in changes if root / path not in without] if without else list(changes)
    # Sorting them all would hold the interpreter, and with it every other thread.
    listed = sorted(own) if len(own) <= MAX_ARTIFACTS else heapq.nsmallest(MAX_ARTIFACTS, own)
    unlisted = len(own) - len(listed)
    if unlisted:
        _log.warning("%s: %d files changed; the first %d are listed", root, len(own), MAX_ARTIFACTS)
    contents: dict[str, bytes] = {}
    artifacts = tuple(_artifacts(root, [(path, changes[path]) for path in listed], now, contents))
    # Names that aren't UTF-8 are shown with escapes, which isn't the path of a file.
    pairs = zip(listed, artifacts, strict=True)
    states = {path: now[path] for path, artifact in pairs if path in now and path == artifact.path}
    return Changes(artifacts, unlisted, states, contents, now)


def has_changes(before: Mapping[str, FileState], root: Path) -> bool:
    """Whether anything was created or changed, or can't be read. Stops at the first such file."""
    unseen: set[str] = set()
    return any(before.get(path) != state for path, state in scan(root, unseen)) or bool(unseen)


def changed_paths(before: Mapping[str, FileState], root: Path, most: int) -> list[str]:
    """Files that were created, changed or deleted since they were in these states, at most so many."""
    now = dict(itertools.islice(scan(root), MAX_FILES))
    changed = (path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
    return sorted(itertools.islice(changed, most)) if len(now) < MAX_FILES else []


def _is_in(path: str, folders: Collection[str]) -> bool:
    """Whether the file or folder `path` is in one of these folders, which are given with a slash at the end."""
    if "" in folders or path in folders:
        return True
    return any(path[: n + 1] in folders for n, char in enumerate(path) if char == "/") if folders else False


def scan(
    root: Path, unseen: set[str] | None = None, *, without: Collection[str] = files.IGNORED_FOLDERS
) -> Iterator[tuple[str, FileState]]:
    """The state of every file and link. What can't be looked at is added to `unseen`. See `files.walk`."""
    for path, entry in files.walk(root, unseen, without=without):
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:  # deleted in the meantime
            continue
        except OSError:
            if unseen is not None:
                unseen.add(path)
            continue
        yield path, FileState.of(status)


def _artifacts(
    root: Path, changes: list[tuple[str, Change]], now: Mapping[str, FileState], contents: dict[str, bytes]
) -> Iterator[Artifact]:
    """The artifacts. Adds small files that are read to `contents`."""
    bytes_left, hashed = MAX_HASHED_BYTES, 0
    for path, change in changes:
        if change == "deleted":
            yield Artifact(path=files.shown(path), change=change)
            continue
        state, sha256, link_to = now[path], None, None
        if stat.S_ISLNK(state.mode):
            link_to = paths.link_target(root, root / path)
        elif hashed < MAX_HASHED_FILES and state.size <= bytes_left:
            hashed, bytes_left = hashed + 1, bytes_left - state.size
            if state.size <= KEPT_BYTES and len(contents) < KEPT_FILES:
                with suppress(ToolError):
                    data = files.read(root, root / path, state.size).data
                    sha256 = hashlib.sha256(data).hexdigest()
                    contents |= {path: data} if len(data) == state.size else {}
            else:
                sha256 = files.digest(root, root / path, state.size)
        yield Artifact(
            path=files.shown(path),
            change=change,
            bytes=state.size,
            sha256=sha256,
            link_to=None if link_to is None else files.shown(link_to),
        )


class ArtifactWatch:
    """Finds artifacts that change after the child has ended: by a check, or by a process that the child left."""

    def __init__(
        self, root: Path, artifacts: Sequence[Artifact], states: Mapping[str, FileState] = MappingProxyType({})
    ) -> None:
        """`states` are those in which the artifacts were listed, as far as they are known; the others are looked up."""
        self._root = root
        self._known = {
            artifact.path: (states.get(artifact.path) or state_of(root, artifact.path), artifact.sha256)
            for artifact in artifacts
            if not artifact.path.startswith("../")  # the diff of a worktree, which nothing but delegate writes
        }

    def changed(self) -> list[str]:
        """The artifacts that changed since the last call, or since the start, by content."""
        changed: list[str] = []
        for path, (before, sha256) in self._known.items():
            now, digest = state_of(self._root, path), None
            if now == before:
                continue
            if now is not None and stat.S_ISREG(now.mode) and now.size <= MAX_HASHED_BYTES:
                digest = files.digest(self._root, self._root / path, now.size)
            self._known[path] = (now, digest)
            if digest is None or digest != sha256:
                changed.append(path)
        return changed


def state_of(root: Path, path: str) -> FileState | None:
    """The state of a file; None if there is none, or it can't be looked at."""
    try:
        status = os.lstat(os.path.join(root, path))
    except (OSError, ValueError):
        return None
    return FileState.of(status)

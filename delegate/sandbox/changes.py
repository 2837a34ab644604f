"""What a child created, changed or deleted in its folder, seen by comparing two looks at it."""

import itertools
import logging
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from delegate.errors import CallError
from delegate.sandbox import files, paths
from delegate.types import Artifact

MAX_FILES = 200_000
"""Files that a given folder may have, the ignored ones apart; a look at that many takes about a second."""
MAX_ARTIFACTS = 5_000
MAX_HASHED_FILES = 1_000
MAX_HASHED_BYTES = 64 << 20
"""Together; artifacts beyond are listed without a digest, and aren't read."""

_log = logging.getLogger(__name__)
Change = Literal["created", "changed", "deleted"]


class Mark(NamedTuple):
    """By what a change is seen. The change time is there because `touch` can set the modification time back."""

    modified_ns: int
    changed_ns: int
    size: int
    inode: int
    mode: int


class Changes(NamedTuple):
    """The first artifacts in order of their paths, and how many more there are."""

    artifacts: tuple[Artifact, ...]
    unlisted: int


def look(root: Path) -> dict[str, Mark]:
    """The marks of all files before the child begins. Raises `CallError` where they are too many to compare."""
    marks = dict(itertools.islice(_scan(root), MAX_FILES))
    if len(marks) == MAX_FILES:
        message = f"workspace {root} has {MAX_FILES:,} files or more; name a smaller folder"
        raise CallError("workspace_too_large", message, field="workspace")
    return marks


def since(before: Mapping[str, Mark], root: Path, *, without: Collection[Path] = ()) -> Changes:
    """What changed since `before`, but for the paths in `without`. Never raises for what a child may have done."""
    unseen: set[str] = set()
    now = dict(itertools.islice(_scan(root, unseen), MAX_FILES))
    found: dict[str, Change] = {
        path: "changed" if path in before else "created" for path, mark in now.items() if before.get(path) != mark
    }
    # Past the bound, and in a folder that can't be looked into any more, a file that wasn't seen may still be there.
    if len(now) < MAX_FILES:
        found |= {path: "deleted" for path in before.keys() - now.keys() if not path.startswith(tuple(unseen))}
    listed = sorted(path for path in found if root / path not in without) if without else sorted(found)
    if len(listed) > MAX_ARTIFACTS:
        _log.warning("%s: %d files changed; the first %d are listed", root, len(listed), MAX_ARTIFACTS)
    artifacts = _artifacts(root, [(path, found[path]) for path in listed[:MAX_ARTIFACTS]], now)
    return Changes(tuple(artifacts), max(len(listed) - MAX_ARTIFACTS, 0))


def is_left(before: Mapping[str, Mark], root: Path) -> bool:
    """Whether anything was created or changed, or can't be looked at. Ends at the first that was."""
    unseen: set[str] = set()
    return any(before.get(path) != mark for path, mark in _scan(root, unseen)) or bool(unseen)


def _scan(root: Path, unseen: set[str] | None = None) -> Iterator[tuple[str, Mark]]:
    for path, entry in files.walk(root, unseen):
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:  # gone meanwhile
            continue
        except OSError:
            if unseen is not None:
                unseen.add(path)
            continue
        yield path, Mark(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode)


def _artifacts(root: Path, found: list[tuple[str, Change]], now: Mapping[str, Mark]) -> Iterator[Artifact]:
    room, hashed = MAX_HASHED_BYTES, 0
    for path, change in found:
        if change == "deleted":
            yield Artifact(path=files.shown(path), change=change)
            continue
        mark, sha256, link_to = now[path], None, None
        if stat.S_ISLNK(mark.mode):
            link_to = paths.link_target(root, root / path)
        elif hashed < MAX_HASHED_FILES and mark.size <= room:
            hashed, room = hashed + 1, room - mark.size
            sha256 = files.digest(root, root / path, mark.size)
        yield Artifact(
            path=files.shown(path),
            change=change,
            bytes=mark.size,
            sha256=sha256,
            link_to=None if link_to is None else files.shown(link_to),
        )

"""Remembers, before a child starts, the files that decide its checks, and finds afterwards which of them changed.

Their content is kept in memory, where no command of a child can reach it. What is too large to keep, such as most
`node_modules`, is compared by its state alone: that it changed is then known, but not what it was.
"""

import hashlib
import json
import stat
import time
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from delegate.errors import ToolError
from delegate.sandbox import files, paths
from delegate.sandbox.changes import FileState
from delegate.sandbox.machinery import MODULE, Machinery, Role, shadows
from delegate.types import JsonObject

MAX_FILES = 200_000
"""Most files of the machinery whose state is compared."""
MAX_KEPT_FILE_BYTES = 1 << 20
MAX_KEPT_BYTES = 16 << 20
MAX_KEPT_ENVIRONMENT_BYTES = 4 << 20
"""Installed packages are kept as a whole or not at all."""
_RACY_NS = 1_000_000_000
"""A file that is younger may be changed again without a change of its times; some file systems count in seconds."""
_COMPILED = (".pyc", ".pyo")
_IMPORT_FOLDERS = frozenset({"", "src/", "lib/"})
_PACKAGE_KEYS = (
    "scripts", "config", "jest", "mocha", "ava", "nyc", "c8", "vitest", "tap", "karma", "babel", "eslintConfig",
    "eslintIgnore", "prettier", "packageManager",
)  # fmt: skip
"""What decides a check in a package.json. The rest, such as dependencies, is the child's work."""

Change = Literal["added", "changed", "deleted"]


class Piece(NamedTuple):
    """One file of the machinery. `content` is None if it isn't kept; that of a link is its target."""

    role: Role
    state: FileState
    racy: bool
    content: bytes | None = None

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.state.mode)


@dataclass(frozen=True, slots=True)
class MachineryChange:
    """A file of the machinery that the child added, changed or deleted. `before` is None for added files."""

    path: str
    role: Role
    change: Change
    before: Piece | None = None

    @property
    def restorable(self) -> bool:
        """Whether it is known what the file was before."""
        return self.before is None or self.before.content is not None


@dataclass(slots=True)
class _Seen:
    """What one walk found."""

    machinery: dict[str, tuple[Role, FileState]] = field(default_factory=dict[str, tuple[Role, FileState]])
    modules: set[str] = field(default_factory=set[str])
    """Everything that Python could import, outside of environments."""
    caches: dict[str, FileState] = field(default_factory=dict[str, FileState])
    """Compiled files, and git's own files that change with every commit or `git add`."""
    unseen: set[str] = field(default_factory=set[str])
    """Folders that can't be read."""
    complete: bool = True
    """False if there are too many files."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The machinery of the workspace `root` before the child started."""

    root: Path
    machinery: Machinery
    pieces: Mapping[str, Piece]
    modules: Collection[str]
    caches: Mapping[str, FileState]
    unseen: Collection[str]
    complete: bool

    @classmethod
    def record(cls, root: Path, machinery: Machinery) -> "Baseline":
        """Read the machinery of `root`. Blocks; never raises, whatever is there."""
        seen = _look(root, machinery)
        now = time.time_ns()
        installed = sum(state.size for role, state in seen.machinery.values() if role == "environment")
        left = {"environment": 0 if installed > MAX_KEPT_ENVIRONMENT_BYTES else installed, "other": MAX_KEPT_BYTES}
        pieces: dict[str, Piece] = {}
        for path, (role, state) in seen.machinery.items():
            budget = "environment" if role == "environment" else "other"
            content = None
            if state.size <= min(left[budget], MAX_KEPT_FILE_BYTES):
                content = _content(root, path, state)
                left[budget] -= state.size
            pieces[path] = Piece(role, state, state.changed_ns > now - _RACY_NS, content)
        return cls(root, machinery, pieces, frozenset(seen.modules), seen.caches, seen.unseen, seen.complete)

    def digests(self) -> JsonObject:
        """The machinery as JSON, for `resumed`: states and digests, without the contents."""
        return {
            "protect": self.machinery.protect,
            "may_change": self.machinery.may_change,
            "scripts": self.machinery.scripts,
            "on_path": sorted(self.machinery.on_path),
            "pieces": {
                path: [piece.role, piece.state, piece.racy, None if piece.content is None else _sha256(piece.content)]
                for path, piece in self.pieces.items()
            },
            "modules": sorted(self.modules),
            "unseen": sorted(self.unseen),
            "complete": self.complete,
        }

    @classmethod
    def resumed(cls, root: Path, stored: Mapping[str, Any]) -> "Baseline":
        """The machinery of `root` as it was when `digests` were made, perhaps by another process. Blocks; never raises.

        Of a file that has changed since, it is only known that it did.
        """
        protect, may_change = tuple(stored["protect"]), tuple(stored["may_change"])
        machinery = Machinery(protect, may_change, dict(stored["scripts"]), frozenset(stored["on_path"]))
        now = cls.record(root, machinery)
        pieces: dict[str, Piece] = {}
        for path, (role, state, racy, sha256) in stored["pieces"].items():
            piece, before = now.pieces.get(path), FileState(*state)
            is_same = piece is not None and (
                piece.state == before and not racy
                if sha256 is None
                else piece.content is not None
                and _sha256(piece.content) == sha256
                and piece.state.mode & _KIND_AND_EXECUTABLE == before.mode & _KIND_AND_EXECUTABLE
            )
            pieces[path] = piece if piece is not None and is_same else Piece(role, _LOST, racy=False)
        complete = stored["complete"] and now.complete and set(now.unseen) <= set(stored["unseen"])
        # Which compiled files are the child's isn't stored, so all of them may be.
        return cls(root, machinery, pieces, frozenset(stored["modules"]), {}, frozenset(stored["unseen"]), complete)

    @property
    def has_checks(self) -> bool:
        """Whether there was anything to check the work with: tests, or scripts that the commands run."""
        return any(
            piece.role in ("test", "script", "protected") or self.machinery.scripts.get(path) == "script"
            for path, piece in self.pieces.items()
        )

    def kept(self) -> Iterator[bytes]:
        """The contents that are kept."""
        return (piece.content for piece in self.pieces.values() if piece.content is not None)

    def compare(self, *, without: Collection[Path] = ()) -> "MachineryChanges":
        """What changed since `record`, except the paths in `without`. Blocks; never raises."""
        seen = _look(self.root, self.machinery)
        found: dict[str, MachineryChange] = {}
        for path, (role, state) in seen.machinery.items():
            before = self.pieces.get(path)
            if before is None:
                found[path] = MachineryChange(path, role, "added")
            elif (before.state != state or before.racy) and not _is_same(self.root, path, before, state):
                found[path] = MachineryChange(path, before.role, "changed", before)
        for path, before in self.pieces.items():
            if path not in seen.machinery:
                found[path] = MachineryChange(path, before.role, "deleted", before)
        for path in self._shadowing(seen.modules - set(self.modules)):
            found.setdefault(path, MachineryChange(path, "hook", "added"))
        changes = tuple(found[path] for path in sorted(found) if self.root / path not in without)
        ignored = {_top_ignored(path) for path in seen.caches.keys() | self.caches.keys()
                   if seen.caches.get(path) != self.caches.get(path)}  # fmt: skip
        ignored |= {_top_ignored(change.path) for change in changes}
        complete = self.complete and seen.complete and seen.unseen <= set(self.unseen)
        compiled = any(path.endswith(_COMPILED) and self.caches.get(path) != seen.caches[path] for path in seen.caches)
        return MachineryChanges(changes, tuple(sorted(ignored - {""})), complete, compiled or not complete)

    def _shadowing(self, new_modules: Collection[str]) -> Iterator[str]:
        """New modules that Python would import instead of others, from a folder that may be on its path."""
        if not new_modules:
            return
        packages = {path.rpartition("/")[0] + "/" for path in self.modules if path.endswith("/__init__.py")}
        own = {
            path.rpartition("/")[0]
            for path, piece in self.pieces.items()
            if piece.role in ("test", "script", "program")
        }
        folders = _IMPORT_FOLDERS | {f"{folder}/" for folder in own if folder and f"{folder}/" not in packages}
        for path in new_modules:
            match = MODULE.fullmatch(path)
            if match and (match[1] or "") in folders and shadows(match[2], str(self.root)):
                yield path


_LOST = FileState(-1, -1, -1, -1, 0)
"""The state of a file of which nothing else is known: no file is in it."""


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class MachineryChanges(NamedTuple):
    """The files of the machinery that changed, sorted, and the folders that artifacts don't list and that changed."""

    files: tuple[MachineryChange, ...]
    ignored_folders: tuple[str, ...]
    complete: bool
    """False if something may have changed that wasn't seen."""
    compiled: bool = True
    """Whether there are compiled Python files that weren't there before."""


def restored_content(change: MachineryChange, now: bytes | None) -> bytes:
    """What a restored file contains. Of a package.json, only what decides a check is as it was before."""
    assert change.before is not None
    assert change.before.content is not None
    merged = _merged_package(change.before.content, now) if change.path.rpartition("/")[2] == "package.json" else None
    return change.before.content if merged is None else merged


# ------------------------------------------------------------------------------------------------------ looking


def _look(root: Path, machinery: Machinery) -> _Seen:
    seen = _Seen()
    folders: list[tuple[str, Role | None]] = [("", None)]
    while folders:
        folder, role = folders.pop()
        try:
            if len(seen.machinery) > MAX_FILES:
                seen.complete = False
                break
            if folder.count("/") > files.MAX_DEPTH:
                raise OSError(f"over {files.MAX_DEPTH} folders deep")
            with paths.entries(root, folder) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        _add(seen, machinery, folder, role, entry)
                    elif entry.name == ".git":
                        _look_at_git(root, folder, machinery, seen)
                    elif entry.name == "__pycache__":
                        _add_caches(root, f"{folder}__pycache__/", seen)
                    else:
                        inherited = role or machinery.folder_role(folder, entry.name)
                        folders.append((f"{folder}{entry.name}/", inherited))
        except FileNotFoundError:  # deleted in the meantime
            continue
        except OSError:
            seen.unseen.add(folder)
    return seen


def _add(seen: _Seen, machinery: Machinery, folder: str, role: Role | None, entry: Any) -> None:
    name, path = entry.name, folder + entry.name
    if entry.is_symlink():  # perhaps to a folder
        role = role or machinery.folder_role(folder, name)
    if found := machinery.file_role(folder, name, role):
        state = _state(entry)
        if state is not None and (stat.S_ISREG(state.mode) or stat.S_ISLNK(state.mode)):
            seen.machinery[path] = (found, state)
    if role != "environment" and name.endswith((".py", ".pyc", ".so", ".pyd")):
        seen.modules.add(path)


def _look_at_git(root: Path, folder: str, machinery: Machinery, seen: _Seen) -> None:
    for part in ("", "info/", "hooks/"):
        with suppress(FileNotFoundError, NotADirectoryError), paths.entries(root, f"{folder}.git/{part}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) or (state := _state(entry)) is None:
                    continue
                if role := machinery.git_role(part + entry.name):
                    seen.machinery[f"{folder}.git/{part}{entry.name}"] = (role, state)
                elif not part:
                    seen.caches[f"{folder}.git/{entry.name}"] = state


def _add_caches(root: Path, folder: str, seen: _Seen) -> None:
    with suppress(FileNotFoundError), paths.entries(root, folder) as entries:
        for entry in entries:
            if (state := _state(entry)) is not None:
                seen.caches[folder + entry.name] = state


def _state(entry: Any) -> FileState | None:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return FileState(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode)


def _top_ignored(path: str) -> str:
    """The outermost folder of `path` that artifacts don't list; empty if there is none."""
    parts = path.split("/")
    place = next((n for n, part in enumerate(parts[:-1]) if part in files.IGNORED_FOLDERS), None)
    return "" if place is None else "/".join(parts[: place + 1])


# ---------------------------------------------------------------------------------------------------- comparing


def _content(root: Path, path: str, state: FileState) -> bytes | None:
    if stat.S_ISLNK(state.mode):
        target = paths.link_target(root, root / path)
        return None if target is None else target.encode("utf-8", "surrogateescape")
    with suppress(ToolError, OSError):
        found = files.read(root, root / path, MAX_KEPT_FILE_BYTES)
        return None if found.cut else found.data
    return None


def _is_same(root: Path, path: str, before: Piece, state: FileState) -> bool:
    """Whether the file still does what it did, although its state changed or is too new to tell."""
    if before.content is None:
        return before.state == state
    if _KIND_AND_EXECUTABLE & before.state.mode != _KIND_AND_EXECUTABLE & state.mode:
        return False
    if state.size > MAX_KEPT_FILE_BYTES or (now := _content(root, path, state)) is None:
        return False
    deciding = _DECIDING.get(path.rpartition("/")[2])
    return now == before.content or (
        deciding is not None and (old := deciding(before.content)) is not None and old == deciding(now)
    )


_KIND_AND_EXECUTABLE = 0o170111


def _deciding_package(content: bytes) -> object:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    known = cast("dict[str, object]", fields)
    return {key: known[key] for key in _PACKAGE_KEYS if key in known}


def _deciding_pyproject(content: bytes) -> object:
    try:
        fields = tomllib.loads(content.decode())
    except (ValueError, RecursionError):
        return None
    project: Any = fields.get("project")
    # Plugins of pytest are entry points.
    points = cast("dict[str, object]", project).get("entry-points") if isinstance(project, dict) else None
    return [fields.get("tool"), fields.get("build-system"), points]


_DECIDING: Mapping[str, Callable[[bytes], object]] = {
    "package.json": _deciding_package,
    "pyproject.toml": _deciding_pyproject,
}
"""The parts of a file that decide a check, where others don't; None if the file can't be read."""


def _merged_package(before: bytes, now: bytes | None) -> bytes | None:
    """The package.json `now`, with what decides a check from `before`; None if either isn't one."""
    old = _deciding_package(before)
    if now is None or old is None or _deciding_package(now) is None:
        return None
    kept = {key: value for key, value in json.loads(now).items() if key not in _PACKAGE_KEYS}
    return json.dumps(kept | cast("dict[str, object]", old), indent=2).encode()

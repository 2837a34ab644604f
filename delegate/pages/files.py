"""Reads the files that a child left, for pages: the diff of a worktree, and texts with what changed in them.

A workspace is the child's: it may hold links, pipes and files without end, and a file may have changed since its task
ended. Nothing outside the workspace is read, and secrets are removed.
"""

import difflib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from delegate._util.fencing import visible
from delegate._util.redaction import redactor
from delegate.pages.room import Room
from delegate.pages.values import FileView
from delegate.sandbox.filesystem import files, paths
from delegate.types import Artifact, JsonObject
from delegate.types.errors import DelegateError

READ_BYTES = 200_000
_COMPARED_BYTES = 2_000_000
"""Whether a larger file has changed isn't looked at."""
_FILES = 60
_FILE_CHARS = 20_000
_DIFF_CHARS = 60_000
_DIFF_LINES = 1_500
"""Longer texts are shown as they are: comparing them takes time that grows faster than their length."""
_SHOWN_LINES = 2_000
_ROW_CHARS = 150


class LeftFiles:
    """The files of one task, read from its workspace as it is now."""

    def __init__(self, workspace: str | None, start: JsonObject | None) -> None:
        """`start` is the workspace as the task asked for it. A copy is compared with the folder that it was made of."""
        self._root = Path(workspace) if workspace else None
        before = start.get("path") if start and start.get("mode") == "copy" else None
        self._before = Path(str(before)) if before else None
        self._texts: dict[str, str | None] = {}

    def text(self, path: str) -> str | None:
        """The text of a file, redacted; None if it isn't there, or isn't text. Only its beginning if it is long."""
        if path not in self._texts:
            self._texts[path] = self._read(self._root, path)
        return self._texts[path]

    def views(self, artifacts: Sequence[Artifact], room: Room) -> Iterator[FileView]:
        """What there is to show of each file, as far as there is room."""
        for artifact in artifacts[:_FILES]:
            if not room.has(_ROW_CHARS + len(artifact.path)):
                return
            if room.is_full:  # reading and redacting many files would take long
                room.is_short = True
                yield FileView(visible(artifact.path), _change(artifact))
            else:
                yield self._view(artifact, room)
        if len(artifacts) > _FILES:
            room.is_short = True

    def _view(self, artifact: Artifact, room: Room) -> FileView:
        path, change = visible(artifact.path), _change(artifact)
        if artifact.link_to is not None:
            return FileView(path, change, note=f"a link to {visible(artifact.link_to)}")
        if self._root is not None and artifact.path == f"../{self._root.name}.diff":
            # Of a worktree: it lies next to it, where the child can't write.
            text = room.take(self._read(self._root.parent, f"{self._root.name}.diff") or "", _DIFF_CHARS)
            return FileView("all changes", f"diff, {artifact.bytes:,} bytes", lines=_diff_lines(text.splitlines()))
        before = self._read(self._before, artifact.path) if artifact.change != "created" else None
        text = self.text(artifact.path) if artifact.change != "deleted" else ""
        if text is None:
            return FileView(path, change, note="its text isn't there any longer, or it isn't text")
        note = "" if self._is_unchanged(artifact) else "the file has changed since its task ended"
        lines = [] if before is None else _difference(before, text)
        if lines:
            diff = room.take("\n".join(lines), _DIFF_CHARS).splitlines()
            note = note or "compared with the folder that it was copied from, as that is now"
            return FileView(path, change, note=note, lines=_diff_lines(diff))
        return FileView(path, change, text=room.take(text, _FILE_CHARS), note=note)

    def _is_unchanged(self, artifact: Artifact) -> bool:
        if artifact.sha256 is None or self._root is None or artifact.bytes > _COMPARED_BYTES:
            return True
        try:
            root = self._root.resolve()
            # One byte more than it had: text that was appended changes the digest.
            return files.digest(root, paths.resolve(root, artifact.path), artifact.bytes + 1) == artifact.sha256
        except (OSError, DelegateError, ValueError):
            return True

    def _read(self, root: Path | None, path: str) -> str | None:
        if root is None:
            return None
        try:
            root = root.resolve()
            excerpt = files.read(root, paths.resolve(root, path), READ_BYTES)
        except (OSError, DelegateError, ValueError):
            return None
        return redactor.text(excerpt.text) if excerpt.is_text else None


def _change(artifact: Artifact) -> str:
    return f"{artifact.change}, {artifact.bytes:,} bytes" if artifact.change != "deleted" else "deleted"


def _difference(before: str, after: str) -> list[str]:
    """The unified difference of two texts; empty if they are equal or too long to compare."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _DIFF_LINES:
        return []
    return list(itertools.islice(difflib.unified_diff(old, new, lineterm=""), 2, None))


def _diff_lines(lines: Sequence[str]) -> list[tuple[str, str]]:
    kinds = {"+": "add", "-": "del", "@": "at"}
    left_out = len(lines) - _SHOWN_LINES
    rows = [(kinds.get(line[:1], ""), line) for line in lines[:_SHOWN_LINES]]
    return [*rows, ("at", f"[… {left_out:,} more lines …]")] if left_out > 0 else rows

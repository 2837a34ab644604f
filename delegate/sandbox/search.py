"""Finds files by name and lines by pattern, in bounded time, since both patterns come from models."""

import contextlib
import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path

from delegate.contract.patterns import pattern_fault
from delegate.errors import ToolError
from delegate.sandbox import files

SECONDS = 3.0
"""Time limit of one search over all files."""
MAX_FILES = 200_000
MAX_FILE_BYTES = 2_000_000
"""Larger files aren't searched."""
MAX_LINE_CHARS = 300
MAX_PATTERN_CHARS = 1_000

_GLOB_PARTS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def find_files(root: Path, glob: str) -> Iterator[tuple[str, int]]:
    """Paths under `root` that match `glob`, and their sizes in bytes.

    `*` stays within a folder, `**` doesn't; a glob without a slash matches a file's name at any depth.
    """
    matches = _Matcher(rf"(?s)\A(?:{glob_pattern(glob)})\Z", time.monotonic() + SECONDS)
    for path, entry in itertools.islice(files.walk(root), MAX_FILES):
        if matches(path):
            with contextlib.suppress(OSError):  # deleted in the meantime, or not readable
                yield path, entry.stat(follow_symlinks=False).st_size


def find_lines(root: Path, pattern: str, glob: str) -> Iterator[str]:
    """`path:line: text` for every line in which `pattern` (Python syntax) is found, sorted by path."""
    matches = _Matcher(pattern, time.monotonic() + SECONDS)
    for path, size in sorted(find_files(root, glob)):
        if size > MAX_FILE_BYTES:
            continue
        blank = matches("")  # once, since a file may have millions of blank lines
        for number, line in enumerate(_lines(root, path), start=1):
            if matches(line) if line else blank:
                short = line if len(line) <= MAX_LINE_CHARS else line[:MAX_LINE_CHARS] + " …"
                yield f"{files.shown(path)}:{number}: {short}"


class _Matcher:
    """A compiled pattern that can be used until `deadline`. Raises `ToolError` afterwards, or if it is invalid."""

    def __init__(self, pattern: str, deadline: float) -> None:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise ToolError(f"the pattern has {len(pattern)} characters; at most {MAX_PATTERN_CHARS} are allowed")
        if (problem := pattern_fault(pattern)) is not None:
            raise ToolError(f"{pattern[:200]!r} is not a valid regular expression: {problem}")
        import regex  # loaded only where something is searched

        self._search = regex.compile(pattern).search
        self._deadline = deadline

    def __call__(self, text: str) -> bool:
        left = max(self._deadline - time.monotonic(), 1e-6)  # 0 would mean no limit at all
        try:
            return self._search(text, timeout=left, concurrent=True) is not None
        except TimeoutError as problem:
            raise ToolError(
                f"the search took over {SECONDS:g} s; use a simpler pattern or a narrower glob"
            ) from problem


def _lines(root: Path, path: str) -> list[str]:
    try:
        found = files.read(root, root / path, MAX_FILE_BYTES)
    except ToolError:  # a link, or not readable
        return []
    return found.text.split("\n") if found.is_text else []


def glob_pattern(glob: str) -> str:
    """The regular expression for a glob: `*` stays within a folder, `**` doesn't; without a slash, at any depth."""
    anywhere = "" if "/" in glob else "(?:.*/)?"
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", glob.removeprefix("./"))
    return anywhere + "".join(_GLOB_PARTS.get(part) or re.escape(part) for part in parts)

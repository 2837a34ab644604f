"""Finds files by name and lines by pattern, in bounded time, since both patterns come from models."""

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from delegate._util.patterns import pattern_fault
from delegate._util.redaction import redactor
from delegate.sandbox.filesystem import files, paths
from delegate.types.errors import ToolError

if TYPE_CHECKING:
    import regex

SECONDS = 3.0
"""Time limit of one search over all files."""
MAX_FILES = 200_000
MAX_FILE_BYTES = 2_000_000
"""Larger files aren't searched."""
MAX_LINE_CHARS = 300
MAX_PATTERN_CHARS = 1_000

_ESCAPED = re.compile(r"\\.", re.DOTALL)
_RECURSION = re.compile(r"\(\?(?:R|[+-]?\d|&|P>)")
_GLOB_PARTS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def find_files(root: Path, glob: str) -> Iterator[tuple[str, int]]:
    """Paths under `root` that match `glob`, and their sizes in bytes.

    `*` stays within a folder, `**` doesn't; a glob without a slash matches a file's name at any depth.
    """
    matches = _matcher(rf"(?s)\A(?:{glob_pattern(glob)})\Z")
    for path, entry in itertools.islice(files.walk(root), MAX_FILES):
        if matches(path) and not paths.holds_secrets(root, f"{root}/{path}"):
            with contextlib.suppress(OSError):  # deleted in the meantime, or not readable
                yield path, entry.stat(follow_symlinks=False).st_size


def find_lines(root: Path, pattern: str, glob: str) -> Iterator[str]:
    """`path:line: text` for every line in which `pattern` (Python syntax) is found, sorted by path."""
    matches = _matcher(pattern)
    for path, size in sorted(find_files(root, glob)):
        if size > MAX_FILE_BYTES:
            continue
        lines = list[str]()
        with contextlib.suppress(ToolError):  # a link, or not readable
            excerpt = files.read(root, root / path, MAX_FILE_BYTES)
            lines = excerpt.text.split("\n") if excerpt.is_text else []
        blank = matches("")  # once, since a file may have millions of blank lines
        for number, line in enumerate(lines, start=1):
            if matches(line) if line else blank:
                short = line if len(line) <= MAX_LINE_CHARS else line[:MAX_LINE_CHARS] + " …"
                yield f"{files.shown(path)}:{number}: {short}"


def compiled(pattern: str, *, multiline: bool = False) -> "regex.Pattern[str]":
    """A model's pattern (Python syntax), of which a search can be limited in time. Raises `ToolError` if it can't be
    used: patterns that call themselves take memory that nothing limits.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(f"the pattern has {len(pattern)} characters; at most {MAX_PATTERN_CHARS} are allowed")
    if (problem := pattern_fault(pattern)) is not None:
        raise ToolError(f"{redactor.beginning(pattern, 200)!r} is not a valid regular expression: {problem}")
    if _RECURSION.search(_ESCAPED.sub("", pattern)):
        shown = redactor.beginning(pattern, 200)
        raise ToolError(f"{shown!r} calls a part of itself, as with (?R) or (?1), which can't be searched for")
    import regex  # loaded only where something is searched

    return regex.compile(pattern, regex.MULTILINE if multiline else 0)


def _matcher(pattern: str) -> Callable[[str], bool]:
    """A pattern that can be searched for `SECONDS`. Raises `ToolError` if it is invalid, and when it is used later."""
    search, deadline = compiled(pattern).search, time.monotonic() + SECONDS

    def matches(text: str) -> bool:
        remaining = max(deadline - time.monotonic(), 1e-6)  # 0 would mean no limit at all
        try:
            return search(text, timeout=remaining, concurrent=True) is not None
        except TimeoutError as problem:
            reason = f"the search took over {SECONDS:g} s; use a simpler pattern or a narrower glob"
            raise ToolError(reason) from problem

    return matches


def glob_pattern(glob: str) -> str:
    """The regular expression for a glob: `*` stays within a folder, `**` doesn't; without a slash, at any depth."""
    anywhere = "" if "/" in glob else "(?:.*/)?"
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", glob.removeprefix("./"))
    return anywhere + "".join(_GLOB_PARTS.get(part) or re.escape(part) for part in parts)

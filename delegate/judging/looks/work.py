"""Lets a judge read, search and list the finished work: the sources, whole, and the files of the workspace."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from delegate._util.fencing import visible
from delegate.contract.patterns import pattern_fault
from delegate.errors import ToolError
from delegate.judging.judge.sources import (
    EARLIER_RECEIPTS,
    WHOLE_FILE_BYTES,
    Sources,
    SourceText,
    artifact_name,
    manifest_line,
)
from delegate.judging.looks.look import Found, Look, Piece, Span
from delegate.ports import Attachment, ToolSpec
from delegate.sandbox import files, media, search

READ_CHARS = 12_000
"""How much one look shows."""
MAX_HITS = 40
AROUND_CHARS = 300
"""How much is shown on both sides of what a search finds."""
MAX_PATTERN_CHARS = 1_000
SECONDS = 5.0
"""Time limit of one search."""
MAX_LISTED = 400

READ = ToolSpec(
    "read",
    "Read a source whole, or from an offset on: `output`, `receipt:7`, `artifact:a.md`, `look:2`, or any file of the "
    "workspace by its path. Images and PDFs are shown if you can see them.",
    {
        "type": "object",
        "properties": {
            "source": {"type": "string", "description": "Name of the source, or path of a file."},
            "offset": {"type": "integer", "minimum": 0, "description": "First character to show. Default: 0."},
        },
        "required": ["source"],
        "additionalProperties": False,
    },
)
SEARCH = ToolSpec(
    "search",
    "Search one source, or all of them and all files of the workspace, for a regular expression. Shows what stands "
    "around each place.",
    {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1, "description": "In Python's syntax; ^ and $ match at lines."},
            "source": {"type": "string", "description": "Name of a source, or path of a file. Default: all."},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    },
)
LIST = ToolSpec(
    "list",
    "List all changed files, the other files of the workspace, and all tool calls of the worker.",
    {"type": "object", "properties": {}, "additionalProperties": False},
)


class Work:
    """The finished work of one submission, as judges look at it."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._named = sources.named()
        self._whole: dict[str, SourceText] = {}

    def read(self, args: Mapping[str, Any], looks: Mapping[str, Look], readable: frozenset[str]) -> Found:
        """What stands in a source. `readable` are the types of files that the judge can see besides text."""
        name, offset = self._name(args["source"], looks), args.get("offset") or 0
        found = self._text(name, looks)
        if not found.is_text:
            return self._attached(name, readable)
        if offset and offset >= len(found.text):
            raise ToolError(f"{name} has {len(found.text):,} characters")
        stop = min(offset + READ_CHARS, len(found.text))
        shown = found.text[offset:stop]
        left = len(found.text) - stop
        note = f"\n[… {left} more characters, from offset {stop} on …]" if left else ""
        # Where the text is less than the whole file, its end isn't the file's end.
        span = Span(name, offset, stop if left or not found.is_partial else stop - 1)
        return Found(shown + note, (Piece(name, shown),), (span,), is_cut=bool(left) or found.is_partial)

    def search(self, args: Mapping[str, Any], looks: Mapping[str, Look]) -> Found:
        """The places in which a pattern is found."""
        find = _Pattern(args["pattern"])
        given = args.get("source")
        names = [self._name(given, looks)] if given else self._all()
        shown: list[str] = []
        pieces: list[Piece] = []
        spans: list[Span] = []
        room, hits = READ_CHARS, 0
        for name in names:
            found = self._text(name, looks)
            for start, stop in find.places(found.text):
                hits += 1
                text = found.text[start:stop]
                if hits > MAX_HITS or len(text) > room:
                    shown.append("[… more places are found; use a narrower pattern, or name a source …]")
                    return Found("\n".join(shown), tuple(pieces), is_cut=True)
                line = found.text.count("\n", 0, start) + 1
                shown += [f"[… {name}, from line {line}, offset {start} …]", text]
                pieces.append(Piece(name, text))
                room -= len(text)
            if not found.is_partial:
                spans.append(Span(name, 0, len(found.text)))
        if not given:
            spans.append(Span(EARLIER_RECEIPTS, 0, 0))
        where = names[0] if given else f"{len(names)} sources"
        return Found("\n".join(shown) or f"not found in {where}", tuple(pieces), tuple(spans))

    def listed(self) -> Found:
        """The changed files, the others, and the calls."""
        run, pieces = self._sources.submission.run, list[Piece]()
        blocks: list[str] = []
        if run.artifacts:
            changes = "\n".join(map(manifest_line, run.artifacts[:MAX_LISTED]))
            pieces.append(Piece("artifacts", changes))
            blocks.append(f"[… changed files …]\n{changes}")
        if others := "\n".join(self._unchanged(MAX_LISTED)):
            pieces.append(Piece("files", others))
            blocks.append(f"[… other files of the workspace …]\n{others}")
        calls = "\n".join(
            f"receipt:{one.n} {one.tool} {_short(one.args)} ({one.output_bytes or len(one.output)} bytes, {one.status})"
            for one in run.receipts
        )
        blocks += [f"[… tool calls …]\n{calls}"] if calls else []
        text = "\n\n".join(blocks) or "nothing was changed, and no tool was called"
        spans = (Span("artifacts", 0, len(pieces[0].text)),) if 0 < len(run.artifacts) <= MAX_LISTED else ()
        return Found(text[: 2 * READ_CHARS], tuple(pieces), spans, is_cut=len(text) > 2 * READ_CHARS)

    def lengths(self, looks: Mapping[str, Look]) -> dict[str, int]:
        """The length of every source of which a look showed anything."""
        seen = {span.source for look in looks.values() for span in look.found.spans}
        return {name: len(self._whole_of(name).text) for name in self._named if name in seen}

    def wrote(self, quote: str) -> str | None:
        """A file that the child created or changed and that contains the text; None if there is none."""
        for artifact in self._sources.submission.run.artifacts:
            name = artifact_name(self._sources.submission, artifact.path)
            if name in self._named and quote in " ".join(self._whole_of(name).text.split()):
                return artifact.path
        return None

    def _text(self, name: str, looks: Mapping[str, Look]) -> SourceText:
        if look := looks.get(name):
            return SourceText(look.receipt.whole_output)
        return self._whole_of(name)

    def _whole_of(self, name: str) -> SourceText:
        if name not in self._whole:
            self._whole[name] = self._sources.text_of(self._named[name], WHOLE_FILE_BYTES)
        return self._whole[name]

    def _name(self, given: str, looks: Mapping[str, Look]) -> str:
        """The name of the source that the judge means: a source, a look, or the file at a path."""
        name = given.strip().strip("`")
        path = name.partition(":")[2] if name.startswith(("artifact:", "file:")) else name
        path = path.removeprefix("./")
        for known in (name, artifact_name(self._sources.submission, path), f"file:{visible(path)}"):
            if known in looks or known in self._named:
                return known
        if (source := self._sources.file(path)) is None:
            raise ToolError(f"there is no source {name[:100]!r}; `list` shows the files and calls")
        self._named[source.name] = source
        return source.name

    def _all(self) -> list[str]:
        """All sources, and the files of the workspace that the child didn't change."""
        others = (self._sources.file(path) for path in self._unchanged(search.MAX_FILES, with_sizes=False))
        self._named |= {source.name: source for source in others if source is not None}
        return list(self._named)

    def _unchanged(self, limit: int, *, with_sizes: bool = True) -> Iterator[str]:
        submission = self._sources.submission
        if submission.folder is None:
            return
        changed = {artifact.path for artifact in submission.run.artifacts}
        listed = 0
        for path, size in search.find_files(submission.folder.root, "**"):
            if path in changed or (not with_sizes and size > search.MAX_FILE_BYTES):
                continue
            if listed == limit:
                return
            listed += 1
            yield f"{visible(path)} ({size} bytes)" if with_sizes else path

    def _attached(self, name: str, readable: frozenset[str]) -> Found:
        """An image or a PDF, for a judge that can see it."""
        folder, path = self._sources.submission.folder, name.partition(":")[2]
        if folder is None:
            raise ToolError(f"{name} has no text")
        real = folder.resolve(path)
        found = files.read(folder.root, real, media.MAX_PDF_BYTES)
        kind = media.media_type(found.data)
        if kind is None:
            raise ToolError(f"{path} is not a text; it has {found.size:,} bytes")
        if kind not in readable:
            raise ToolError(f"{path} is {media.noun(kind)}, which you can't see")
        if found.size > media.max_bytes(kind):
            raise ToolError(f"{path} is {media.noun(kind)} with {found.size:,} bytes, too large to be shown")
        text = media.describe(kind, found.data, path)
        return Found(text, (Piece(name, text),), attachments=(Attachment(kind, found.data, path),))


def _short(args: Mapping[str, Any]) -> str:
    text = json.dumps(args, ensure_ascii=False, default=str)
    return text if len(text) <= 160 else f"{text[:160]} \u2026"


class _Place(NamedTuple):
    start: int
    stop: int


class _Pattern:
    """A pattern of a judge, which is searched for in bounded time."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise ToolError(f"the pattern has {len(pattern)} characters; at most {MAX_PATTERN_CHARS} are allowed")
        if (problem := pattern_fault(pattern)) is not None:
            raise ToolError(f"{pattern[:200]!r} is not a valid regular expression: {problem}")
        import regex  # loaded only where something is searched

        self._pattern = regex.compile(pattern, regex.MULTILINE)
        self._deadline = time.monotonic() + SECONDS

    def places(self, text: str) -> Iterator[_Place]:
        """What stands around each match, as whole lines where they are short. Places that overlap are one."""
        left = max(self._deadline - time.monotonic(), 1e-6)
        place: _Place | None = None
        try:
            for match in self._pattern.finditer(text, timeout=left, concurrent=True):
                start, stop = _around(text, match.start(), match.end())
                if place is not None and start <= place.stop and stop - place.start <= READ_CHARS // 4:
                    place = _Place(place.start, max(stop, place.stop))
                    continue
                if place is not None:
                    yield place
                place = _Place(start, stop)
        except TimeoutError as problem:
            raise ToolError(f"the search took over {SECONDS:g} s; use a simpler pattern, or name a source") from problem
        if place is not None:
            yield place


def _around(text: str, start: int, stop: int) -> tuple[int, int]:
    """Start and end of what is shown for a match: its line and the lines beside it, AROUND_CHARS a side at most."""
    stop = min(stop, start + AROUND_CHARS)
    first, last = max(0, start - AROUND_CHARS), min(len(text), stop + AROUND_CHARS)
    line_start, line_end = text.rfind("\n", first, start), text.find("\n", stop, last)
    before = text.rfind("\n", first, max(line_start, 0)) if line_start >= 0 else -1
    after = text.find("\n", line_end + 1, last) if line_end >= 0 else -1
    begin = before + 1 if before >= 0 else line_start + 1 if line_start >= 0 else first
    end = after if after >= 0 else line_end if line_end >= 0 else last
    return begin, end

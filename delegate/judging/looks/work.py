"""Lets a judge read, search and list the finished work: the sources, whole, and the files of the workspace."""

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delegate._util.fencing import visible
from delegate._util.redaction import redactor
from delegate.judging.judge.sources import (
    WHOLE_FILE_BYTES,
    Source,
    Sources,
    SourceText,
    artifact_name,
    files_left,
    folded,
    manifest_line,
)
from delegate.judging.looks.look import NO_LOOKS, Found, Look, Piece, Span
from delegate.sandbox.filesystem import files, media, search
from delegate.types import Receipt
from delegate.types.errors import ToolError
from delegate.types.ports import ToolSpec

if TYPE_CHECKING:
    import regex

READ_CHARS = 12_000
"""How much one look shows."""
TELLING_CHARS = 12
"""A shorter text may stand in a file by chance."""
_NOTE_CHARS = 150
"""Room for what is said of the rest."""
_FIRST_BYTES = 16
"""By which images and PDFs are known."""
MAX_HITS = 40
AROUND_CHARS = 300
"""How much is shown on both sides of what a search finds."""
SECONDS = 5.0
"""Time limit of one search."""
MAX_LISTED = 400

READ = ToolSpec(
    "read",
    "Read a source whole, or from an offset on: `report`, `receipt:7`, `artifact:a.md`, `look:2`, or any file of the "
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
    """The finished work of one submission, as judges look at it. Several may do so at once, in threads."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._named: Mapping[str, Source] = sources.named
        """Replaced and never changed, since another thread may be going through it."""
        self._naming = threading.Lock()
        self._whole: dict[str, SourceText] = {}

    def read(self, args: Mapping[str, Any], looks: Mapping[str, Look], readable: frozenset[str], room: int) -> Found:
        """What stands in a source, in at most `room` characters.

        `readable` are the types of files that the judge can see besides text.
        """
        name, offset = self._name(args["source"], looks), args.get("offset") or 0
        if name not in looks and (kind := self._media_type(name)) is not None:
            return self._attached(name, kind, readable)
        source_text = self._text(name, looks)
        if not source_text.is_text:
            raise ToolError(f"{name.partition(':')[2]} is not a text")
        if offset and offset >= len(source_text.text):
            raise ToolError(f"{name} has {len(source_text.text):,} characters")
        stop = min(offset + READ_CHARS, offset + room - _NOTE_CHARS, len(source_text.text))
        excerpt = source_text.text[offset:stop]
        rest = len(source_text.text) - stop
        note = f"\n[… {rest} more characters, from offset {stop} on …]" if rest else ""
        spans = (_span(name, offset, stop, source_text),)
        return Found(
            excerpt + note, pieces=(Piece(name, excerpt),), spans=spans, is_cut=bool(rest) or source_text.is_partial
        )

    def search(self, args: Mapping[str, Any], looks: Mapping[str, Look], room: int) -> Found:
        """The places in which a pattern is found, in at most `room` characters."""
        pattern, source = search.compiled(args["pattern"], multiline=True), args.get("source")
        deadline = time.monotonic() + SECONDS
        if not source:  # also files of the workspace that the child didn't change
            unchanged = (self.sources.file(path) for path in self._unchanged(search.MAX_FILES, with_sizes=False))
            self._add([found for found in unchanged if found is not None])
        names = [self._name(source, looks)] if source else tuple(self._named)
        blocks: list[str] = []
        pieces: list[Piece] = []
        spans: list[Span] = []
        chars_left = min(READ_CHARS, room - _NOTE_CHARS)
        for name in names:
            content = self._text(name, looks)
            for start, stop in _places(pattern, content.text, deadline):
                line = content.text.count("\n", 0, start) + 1
                place, text = f"[… {name}, from line {line}, offset {start} …]", content.text[start:stop]
                if len(pieces) == MAX_HITS or len(place) + len(text) > chars_left:
                    blocks.append("[… more places are found; use a narrower pattern, or name a source …]")
                    return Found("\n".join(blocks), pieces=tuple(pieces), spans=tuple(spans), is_cut=True)
                blocks += [place, text]
                pieces.append(Piece(name, text))
                spans.append(_span(name, start, stop, content))
                chars_left -= len(place) + len(text) + 2
        where = names[0] if source else f"{len(names)} sources"
        return Found("\n".join(blocks) or f"not found in {where}", pieces=tuple(pieces), spans=tuple(spans))

    def listed(self) -> Found:
        """The changed files, the others, and the calls: whole, so that what has no room can be read as this look."""
        run, pieces = self.sources.submission.run, list[Piece]()
        blocks: list[str] = []
        if changed := files_left(self.sources.submission):
            changes = "\n".join(map(manifest_line, changed[:MAX_LISTED]))
            pieces.append(Piece("artifacts", changes))
            blocks.append(f"[… changed files …]\n{changes}")
        if unchanged := "\n".join(self._unchanged(MAX_LISTED)):
            pieces.append(Piece("files", unchanged))
            blocks.append(f"[… other files of the workspace …]\n{unchanged}")
        calls = "\n".join(map(_call_line, run.receipts))
        blocks += [f"[… tool calls …]\n{calls}"] if calls else []
        text = "\n\n".join(blocks) or "nothing was changed, and no tool was called"
        spans = (Span("artifacts", 0, len(pieces[0].text)),) if 0 < len(changed) <= MAX_LISTED else ()
        return Found(text, pieces=tuple(pieces), spans=spans)

    def lengths(self, looks: Iterable[Look]) -> dict[str, int]:
        """The length of every source of which a look showed anything."""
        shown_names, sources = {span.source for look in looks for span in look.found.spans}, self._named
        return {name: len(self._text(name).text) for name in sources if name in shown_names}

    def wrote(self, texts: Sequence[str]) -> Iterator[str]:
        """The paths of the files that the child created or changed and that contain these texts. Blocks."""
        for artifact in self.sources.submission.run.artifacts:
            if self.has(artifact_name(artifact.path), texts):
                yield artifact.path

    def has(self, name: str, texts: Sequence[str]) -> bool:
        """Whether a source contains these texts as they are, and those that are short as whole lines. Blocks."""
        if name not in self._named:
            return False
        content = self._text(name).text
        folded_texts, one_line = set(map(folded, texts)), folded(content)
        short = {text for text in folded_texts if len(text) < TELLING_CHARS}
        if not all(text in one_line for text in folded_texts):
            return False
        return not short or short <= set(map(folded, content.split("\n")))

    def _text(self, name: str, looks: Mapping[str, Look] = NO_LOOKS) -> SourceText:
        """A source, or what an earlier look showed, whole."""
        if look := looks.get(name):
            return SourceText(look.receipt.whole_output)
        if name not in self._whole:
            self._whole[name] = self.sources.text_of(self._named[name], WHOLE_FILE_BYTES)
        return self._whole[name]

    def _name(self, reference: str, looks: Mapping[str, Look]) -> str:
        """The name of the source that the judge means: a source, a look, or the file at a path."""
        name = reference.strip().strip("`")
        path = name.partition(":")[2] if name.startswith(("artifact:", "file:")) else name
        path = path.removeprefix("./")
        for candidate in (name, artifact_name(path), f"file:{visible(path)}"):
            if candidate in looks or candidate in self._named:
                return candidate
        if (source := self.sources.file(path)) is None:
            raise ToolError(f"there is no source {redactor.beginning(name, 100)!r}; `list` shows the files and calls")
        self._add([source])
        return source.name

    def _add(self, sources: Sequence[Source]) -> None:
        with self._naming:
            self._named = {**self._named, **{source.name: source for source in sources}}

    def _unchanged(self, limit: int, *, with_sizes: bool = True) -> Iterator[str]:
        submission = self.sources.submission
        if submission.folder is None:
            return
        changed_paths = {artifact.path for artifact in submission.run.artifacts}
        count = 0
        for path, size in search.find_files(submission.folder.root, "**"):
            if path in changed_paths or (not with_sizes and size > search.MAX_FILE_BYTES):
                continue
            if count == limit:
                return
            count += 1
            yield f"{visible(path)} ({size} bytes)" if with_sizes else path

    def _media_type(self, name: str) -> media.MediaType | None:
        """The type of an image or a PDF, which may also look like a text; None for all other sources."""
        folder, (kind, _, path) = self.sources.submission.folder, name.partition(":")
        if folder is None or kind not in ("artifact", "file"):
            return None
        try:
            return media.media_type(files.read(folder.root, folder.resolve(path), _FIRST_BYTES).data)
        except (ToolError, OSError):
            return None

    def _attached(self, name: str, kind: media.MediaType, readable: frozenset[str]) -> Found:
        """An image or a PDF, for a judge that can see it."""
        folder, path = self.sources.submission.folder, name.partition(":")[2]
        assert folder is not None
        attachment, text = media.attachment(path, folder.read(path, media.max_bytes(kind)), kind, readable)
        return Found(text, pieces=(Piece(name, text),), attachments=(attachment,))


def _span(name: str, start: int, stop: int, text: SourceText) -> Span:
    """What was shown of a source. Where its text is less than the whole file, its end isn't the file's end."""
    is_end = stop == len(text.text) and text.is_partial
    return Span(name, start, stop - 1 if is_end else stop)


def _call_line(receipt: Receipt) -> str:
    args, size = json.dumps(receipt.args, ensure_ascii=False, default=str), receipt.output_bytes or len(receipt.output)
    excerpt = args if len(args) <= 160 else f"{args[:160]} \u2026"
    return f"receipt:{receipt.n} {receipt.tool} {excerpt} ({size} bytes, {receipt.status})"


def _places(pattern: "regex.Pattern[str]", text: str, deadline: float) -> Iterator[tuple[int, int]]:
    """What stands around each match, as whole lines where they are short. Places that overlap are one."""
    place: tuple[int, int] | None = None
    try:
        for match in pattern.finditer(text, timeout=max(deadline - time.monotonic(), 1e-6), concurrent=True):
            start, stop = _around(text, match.start(), match.end())
            if place is not None and start <= place[1] and stop - place[0] <= READ_CHARS // 4:
                place = place[0], max(stop, place[1])
                continue
            if place is not None:
                yield place
            place = start, stop
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

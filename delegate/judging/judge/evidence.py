"""Collects the evidence for a judge as named sources of cleaned, bounded text, and searches it for the judge's quotes.

Sources are `output`, `said` (the worker's conversation, where it is known), `artifacts` (a list of files),
`artifact:<path>`, `file:<path>` (a file that a criterion names and the child didn't change), `receipt:<n>` and
`check:<id>`. They are shown whole as long as all of them fit. Where they don't, those that the criteria are about come
first, and of the others the judge sees the beginning and the end. Quotes are searched for in exactly the text that the
judge saw, so neither cleaning nor cutting can make a real quote fail or an invented one succeed.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

from delegate._util.fencing import clean, visible
from delegate.errors import ToolError
from delegate.judging.proof.files import same_file
from delegate.judging.submission import Submission
from delegate.sandbox.files import Excerpt
from delegate.types import Artifact, CriterionResult, Finding, StatementPart

OUTPUT_CHARS = 32_000
FILES_CHARS = 40_000
"""Length of all files together, and of all tool calls together."""
FILE_BYTES = 4 * FILES_CHARS
CALLS_CHARS = 40_000
LEAST_CHARS = 160
"""Length of what is shown of each source, however many there are."""
CHECK_CHARS = 1_200
FILES = 200
RECEIPTS = 200
EARLIER_RECEIPTS = "receipts"
"""In `cut`: the calls before the last `RECEIPTS`, which the judge doesn't see."""
MIN_QUOTE_CHARS = 12
MIN_QUOTE_WORDS = 3
"""A quote has at least this length, unless it is a whole line or most of a short source."""

_ESCAPE = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|[nrtbf])?")
_TYPOGRAPHY = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f"), '"'),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-"),
}
_OUR_TEXT = re.compile(r"\[\u2026 [^\]\n]* \u2026\]|\u2192 (?:ok|error|denied|timeout)|\u2026 and \d+ more")
"""Text of the runtime within the sources, which a judge can't quote: notes about cuts, the status of a call."""
_JSON_PUNCTUATION = str.maketrans("", "", '"{}')
LISTED_ARTIFACTS = 100


@dataclass(frozen=True)
class Evidence:
    """The sources by name, and the findings made while collecting them."""

    sources: dict[str, str]
    findings: tuple[Finding, ...]
    cut: frozenset[str] = frozenset()
    """Names of the sources that the judge saw only in part, or not at all."""
    checks: Mapping[str, str] = field(default_factory=dict[str, str])
    """The kind of criterion behind each `check:<id>`."""
    redacted: Callable[[str], str] = field(default=str, repr=False)
    """Removes secrets; for the other parts of a prompt too, since a goal may contain a parent's key."""

    def find(self, quote: str, preferred: str = "") -> str | None:
        """The name of a source that contains `quote`: the `preferred` one, else the first. None if no source does."""
        return next(self.find_all(quote, preferred), None)

    def find_all(self, quote: str, preferred: str = "") -> Iterator[str]:
        """The names of all sources that contain `quote`, the `preferred` one first.

        White space and typographic variants of quotes and dashes are ignored. The runtime's own notes don't count.
        """
        folded = _fold(quote)
        if not any(map(str.isalnum, folded)):
            return
        names = dict.fromkeys((preferred, *self.sources)) if preferred in self.sources else self.sources
        for name in names:
            # As it stands, most quotes are found: folding a long text takes longer than the search.
            found = (quote in self.sources[name] and self._is_without_notes(name)) or folded in self._folded(name)
            if found and self._is_long_enough(folded, name):
                yield name

    def _folded(self, name: str) -> str:
        if name not in self._folded_texts:
            self._folded_texts[name] = _fold(self.sources[name])
        return self._folded_texts[name]

    def _is_without_notes(self, name: str) -> bool:
        """Whether a source has no text of the runtime."""
        if name not in self._without_notes:
            text = self.sources[name]
            self._without_notes[name] = text.isascii() or not _OUR_TEXT.search(text)  # every note has a … or a →
        return self._without_notes[name]

    @cached_property
    def _folded_texts(self) -> dict[str, str]:
        return {}

    @cached_property
    def _without_notes(self) -> dict[str, bool]:
        return {}

    def _is_long_enough(self, quote: str, name: str) -> bool:
        if len(quote) >= MIN_QUOTE_CHARS or len(quote.split()) >= MIN_QUOTE_WORDS:
            return True
        text = self.sources[name].strip()
        return 2 * len(quote) >= len(text) or any(_fold(line) == quote for line in text.splitlines())

    def prewritten_answers(self) -> list[str]:
        """The sources that may contain answers written for the judge, for `is_prewritten`; usually none."""
        return [
            _normalized_json(text)
            for text in self.sources.values()
            if '"' in text and ("reason" in text or "\\u" in text)
        ]


def is_prewritten(evidence: str, reason: str, prewritten: Sequence[str]) -> bool:
    """Whether one source contains both the quote and the reason as JSON fields, so that the worker wrote the answer."""
    if not prewritten:
        return False
    fields = [_normalized_json(json.dumps({"evidence": evidence})), _normalized_json(json.dumps({"reason": reason}))]
    return any(all(field in text for field in fields) for text in prewritten)


def _normalized_json(text: str) -> str:
    """Without what can differ between two encodings of the same JSON: escapes, white space, quotes, braces."""
    text = _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else "", text)
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return "".join(whole.split()).translate(_JSON_PUNCTUATION)


def _fold(text: str) -> str:
    """The text for comparisons: without the runtime's notes, with plain quotes, dashes and single spaces."""
    text = _OUR_TEXT.sub(" ", text)
    return " ".join((text if text.isascii() else text.translate(_TYPOGRAPHY)).split())


def gather(submission: Submission, checks: Sequence[CriterionResult], parts: Sequence[StatementPart] = ()) -> Evidence:
    """Collect the evidence that a judge may see of a submission. `parts` are what it will be asked about."""
    redacted = submission.redactor.text
    sources: dict[str, str] = {}
    hidden: list[str] = []
    cut: list[str] = []
    for group, chars in _raw_sources(submission, checks, parts):
        cleaned = [clean(source.text) for source in group]
        # Hidden characters inside a secret kept it from being recognized before.
        texts = [
            found.text if found.text == source.text else redacted(found.text)
            for source, found in zip(group, cleaned, strict=True)
        ]
        limits = _share([(len(text), source.is_meant) for source, text in zip(group, texts, strict=True)], chars)
        for source, found, text, limit in zip(group, cleaned, texts, limits, strict=True):
            hidden += [source.name] if found.hidden else []
            cut += [source.name] if len(text) > limit or source.is_partial else []
            if source.is_text:
                sources[source.name] = _bounded(text, limit)
    if len(submission.run.receipts) > RECEIPTS:
        cut.append(EARLIER_RECEIPTS)
    kinds = {redacted(f"check:{check.id}"): check.kind for check in checks if check.decided_by == "check"}
    findings = tuple(_findings(submission, list(dict.fromkeys(hidden)), list(dict.fromkeys(cut))))
    return Evidence(sources, findings, frozenset(cut), kinds, redacted)


class _Source(NamedTuple):
    """A source before it is cleaned and cut."""

    name: str
    text: str
    is_partial: bool = False
    """Whether the text is already less than the whole."""
    is_meant: bool = False
    """Whether a criterion is about it."""
    is_text: bool = True
    """False for a binary file, of which nothing can be shown."""


def _raw_sources(
    submission: Submission, checks: Sequence[CriterionResult], parts: Sequence[StatementPart]
) -> Iterator[tuple[list[_Source], int]]:
    """Groups of sources, redacted, each with the length that it may have together.

    The run already is redacted, except file names, whole outputs and numbers in tool arguments.
    """
    redacted, run = submission.redactor.text, submission.run
    if submission.has_report:
        yield [_Source("output", run.output)], OUTPUT_CHARS
    if submission.said:
        yield [_Source("said", submission.said)], OUTPUT_CHARS
    if run.artifacts:
        listed = redacted(_manifest(run.artifacts))
        yield [_Source("artifacts", listed, len(run.artifacts) > LISTED_ARTIFACTS)], OUTPUT_CHARS
    yield list(_files(submission, parts)), FILES_CHARS
    yield list(_calls(submission, parts)), CALLS_CHARS
    for check in checks:
        if check.decided_by == "check":
            text = redacted(f"{check.text}: {check.outcome}. {check.reason}")
            yield [_Source(redacted(f"check:{check.id}"), text)], CHECK_CHARS


def _calls(submission: Submission, parts: Sequence[StatementPart]) -> Iterator[_Source]:
    redacted = submission.redactor.text
    names = [name for part in parts for name in part.names]
    tools = {tool for part in parts for tool in part.tools}
    for receipt in submission.run.receipts[-RECEIPTS:]:
        args = redacted(json.dumps(receipt.args, ensure_ascii=False, default=str))
        whole = receipt.whole_output
        output = redacted(whole) if len(whole) > len(receipt.output) else receipt.output
        text = f"{receipt.tool} {args} → {receipt.status}\n{output}"
        is_partial = receipt.output_bytes > len(whole.encode(errors="replace"))
        is_meant = receipt.tool in tools or any(name in text for name in names)
        yield _Source(f"receipt:{receipt.n}", text, is_partial, is_meant)


def _files(submission: Submission, parts: Sequence[StatementPart]) -> Iterator[_Source]:
    """The files that the child left, and those that it didn't change and a criterion names."""
    folder = submission.folder
    if folder is None:
        return
    named = [path.removeprefix("./") for part in parts for path in part.files if part.about != "absence"]
    left = [one for one in submission.run.artifacts if one.change != "deleted"]
    shown = {one.path for one in sorted(left, key=lambda one: not _is_named(one.path, named))[:FILES]}
    for artifact in left:
        name = submission.redactor.text(f"artifact:{visible(artifact.path)}")
        excerpt = _excerpt(partial(folder.excerpt, artifact)) if artifact.path in shown else None
        yield _file_source(submission, name, excerpt, is_meant=_is_named(artifact.path, named))
    changed = {artifact.path for artifact in submission.run.artifacts}
    for path in dict.fromkeys(named):
        if path not in changed and (excerpt := _excerpt(partial(folder.read, path))) is not None:
            name = submission.redactor.text(f"file:{visible(path)}")
            yield _file_source(submission, name, excerpt, is_meant=True)


def _file_source(submission: Submission, name: str, excerpt: Excerpt | None, *, is_meant: bool) -> _Source:
    if excerpt is None or not excerpt.is_text:
        return _Source(name, "", is_partial=True, is_meant=is_meant, is_text=False)
    text = submission.redactor.text(excerpt.text)
    text += f"\n[… the file continues: {excerpt.size} bytes in total …]" if excerpt.cut else ""
    return _Source(name, text, excerpt.cut, is_meant)


def _is_named(path: str, named: Sequence[str]) -> bool:
    return any(same_file(path, one) for one in named)


def _excerpt(read: Callable[[int], Excerpt]) -> Excerpt | None:
    try:
        return read(FILE_BYTES)
    except (ToolError, OSError):
        return None


def _manifest(artifacts: Sequence[Artifact]) -> str:
    listed = artifacts[:LISTED_ARTIFACTS]
    lines = [f"{item.change} {visible(item.path)} ({item.bytes} bytes)" for item in listed]
    more = [f"… and {len(artifacts) - len(listed)} more"] if len(artifacts) > len(listed) else []
    return "\n".join(lines + more)


def _share(sources: Sequence[tuple[int, bool]], chars: int) -> list[int]:
    """How much of each source is shown. A source is given as its length and whether a criterion is about it.

    Short ones are shown whole, and long ones share what is left. Those that are meant come first.
    """
    if sum(length for length, _ in sources) <= chars:
        return [length for length, _ in sources]
    limits = [min(length, LEAST_CHARS) for length, _ in sources]
    left = max(0, chars - sum(limits))
    for is_meant in (True, False):
        group = sorted((n for n, one in enumerate(sources) if one[1] is is_meant), key=lambda n: sources[n][0])
        for position, n in enumerate(group):
            more = min(sources[n][0] - limits[n], left // (len(group) - position))
            limits[n] += more
            left -= more
    return limits


def _bounded(text: str, limit: int) -> str:
    """The beginning and end of the text, with a note where it is cut."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out here …]\n{text[-half:]}"


def _findings(submission: Submission, hidden: list[str], cut: list[str]) -> Iterator[Finding]:
    if hidden:
        message = f"characters that a reader cannot see were removed from {', '.join(hidden[:5])}"
        yield Finding(severity="major", code="hidden_text", message=message)
    if cut := [name for name in cut if name != EARLIER_RECEIPTS]:
        message = f"the judge did not see all of {', '.join(cut[:5])}"
        yield Finding(severity="minor", code="truncated_for_judge", message=message)
    if len(submission.run.receipts) > RECEIPTS:
        message = f"the judge saw the last {RECEIPTS} of {len(submission.run.receipts)} tool calls"
        yield Finding(severity="info", code="truncated_for_judge", message=message)

"""Collects the evidence for a judge as named sources of cleaned, bounded text, and searches it for the judge's quotes.

Sources are `output`, `said` (the worker's conversation, where it is known), `artifacts` (a list of files),
`artifact:<path>`, `receipt:<n>` and `check:<id>`. Of long texts, the judge sees the beginning and the end. Quotes are
searched for in exactly the text that the judge saw, so neither cleaning nor cutting can make a real quote fail or an
invented one succeed.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from delegate._util.fencing import clean, visible
from delegate.errors import ToolError
from delegate.judging.submission import Submission
from delegate.sandbox.files import Excerpt
from delegate.sandbox.workspace import Folder
from delegate.types import Artifact, CriterionResult, Finding

OUTPUT_CHARS = 24_000
ARTIFACT_CHARS = 6_000
ARTIFACTS_CHARS = 24_000
RECEIPT_OUTPUT_CHARS = 1_000
RECEIPT_ARGS_CHARS = 400
CHECK_CHARS = 1_200
RECEIPTS = 40
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


def gather(submission: Submission, checks: Sequence[CriterionResult]) -> Evidence:
    """Collect the evidence that a judge may see of a submission."""
    redacted = submission.redactor.text
    sources: dict[str, str] = {}
    hidden: list[str] = []
    cut: list[str] = []
    for source in _raw_sources(submission, checks):
        shown = ""
        for text, limit in source.parts:
            cleaned = clean(text)
            # Hidden characters inside a secret kept it from being recognized before.
            whole = cleaned.text if cleaned.text == text else redacted(cleaned.text)
            shown += _bounded(whole, limit)
            hidden += [source.name] if cleaned.hidden else []
            cut += [source.name] if len(whole) > limit else []
        if source.parts:
            sources[source.name] = shown
        cut += [source.name] if source.is_partial else []
    if len(submission.run.receipts) > RECEIPTS:
        cut.append(EARLIER_RECEIPTS)
    kinds = {redacted(f"check:{check.id}"): check.kind for check in checks if check.decided_by == "check"}
    findings = tuple(_findings(submission, list(dict.fromkeys(hidden)), list(dict.fromkeys(cut))))
    return Evidence(sources, findings, frozenset(cut), kinds, redacted)


class _Source(NamedTuple):
    """A source before it is cleaned and cut."""

    name: str
    parts: Sequence[tuple[str, int]]
    """Texts, each with the number of characters that are shown of it. Empty if nothing can be shown (a binary file)."""
    is_partial: bool = False
    """Whether the texts are already less than the whole."""


def _raw_sources(submission: Submission, checks: Sequence[CriterionResult]) -> Iterator[_Source]:
    """The sources, redacted. The run already is, except file names and numbers in tool arguments."""
    redacted, run = submission.redactor.text, submission.run
    if submission.has_report:
        yield _Source("output", [(run.output, OUTPUT_CHARS)])
    if submission.said:
        yield _Source("said", [(submission.said, OUTPUT_CHARS)])
    if run.artifacts:
        listed = redacted(_manifest(run.artifacts))
        yield _Source("artifacts", [(listed, OUTPUT_CHARS)], len(run.artifacts) > LISTED_ARTIFACTS)
    yield from _artifact_texts(submission)
    for receipt in run.receipts[-RECEIPTS:]:
        args = redacted(json.dumps(receipt.args, ensure_ascii=False, default=str))
        parts = [
            (f"{receipt.tool} ", RECEIPT_ARGS_CHARS),
            (args, RECEIPT_ARGS_CHARS),
            (f" → {receipt.status}\n", RECEIPT_ARGS_CHARS),
            (receipt.output, RECEIPT_OUTPUT_CHARS),
        ]
        yield _Source(
            f"receipt:{receipt.n}", parts, receipt.output_bytes > len(receipt.output.encode(errors="replace"))
        )
    for check in checks:
        if check.decided_by == "check":
            text = redacted(f"{check.text}: {check.outcome}. {check.reason}")
            yield _Source(redacted(f"check:{check.id}"), [(text, CHECK_CHARS)])


def _artifact_texts(submission: Submission) -> Iterator[_Source]:
    chars_left = ARTIFACTS_CHARS
    for artifact in submission.run.artifacts:
        if artifact.change == "deleted" or not submission.folder:
            continue
        name = submission.redactor.text(f"artifact:{visible(artifact.path)}")
        excerpt = _excerpt(submission.folder, artifact) if chars_left > 0 else None
        if excerpt is None or not excerpt.is_text:
            yield _Source(name, [], is_partial=True)
            continue
        text = submission.redactor.text(excerpt.text)
        text += f"\n[… the file continues: {excerpt.size} bytes in total …]" if excerpt.cut else ""
        limit = min(ARTIFACT_CHARS, chars_left)
        yield _Source(name, [(text, limit)], is_partial=excerpt.cut)
        chars_left -= min(limit, len(text))


def _excerpt(folder: Folder, artifact: Artifact) -> Excerpt | None:
    try:
        return folder.excerpt(artifact, 4 * ARTIFACT_CHARS)
    except ToolError:
        return None


def _manifest(artifacts: Sequence[Artifact]) -> str:
    listed = artifacts[:LISTED_ARTIFACTS]
    lines = [f"{item.change} {visible(item.path)} ({item.bytes} bytes)" for item in listed]
    more = [f"… and {len(artifacts) - len(listed)} more"] if len(artifacts) > len(listed) else []
    return "\n".join(lines + more)


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

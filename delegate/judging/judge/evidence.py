"""Collects the evidence for a judge as named sources of cleaned, bounded text, and searches it for the judge's quotes.

Sources are `output`, `artifacts` (a list of files), `artifact:<path>`, `receipt:<n>` and `check:<id>`. Quotes are
searched for in exactly the text that the judge saw, so neither cleaning nor cutting can make a real quote fail or an
invented one succeed.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from delegate._util.fencing import clean
from delegate.errors import ToolError
from delegate.judging.submission import Submission
from delegate.sandbox.workspace import Folder
from delegate.types import Artifact, CriterionResult, Finding, Receipt

OUTPUT_CHARS = 24_000
ARTIFACT_CHARS = 6_000
ARTIFACTS_CHARS = 24_000
RECEIPT_CHARS = 1_200
RECEIPTS = 40
MIN_QUOTE = 3
"""Least number of letters and digits in a quote."""

_ESCAPE = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|[nrtbf])?")
_JSON_PUNCTUATION = str.maketrans("", "", '"{}')
LISTED_ARTIFACTS = 100


@dataclass(frozen=True, slots=True)
class Evidence:
    """The sources by name, and the findings made while collecting them."""

    sources: dict[str, str]
    findings: tuple[Finding, ...]
    cut: frozenset[str] = frozenset()
    """Names of the sources that the judge saw only in part."""
    redacted: Callable[[str], str] = field(default=str, repr=False)
    """Removes secrets; for the other parts of a prompt too, since a goal may contain a parent's key."""

    def find(self, quote: str, preferred: str = "") -> str | None:
        """The name of a source that contains `quote`, ignoring white space: the `preferred` one, else the first.

        None if no source does.
        """
        normalized = " ".join(quote.split())
        if not normalized:
            return None
        names = (preferred, *self.sources) if preferred in self.sources else self.sources
        return next((name for name in names if _contains(self.sources[name], quote, normalized)), None)

    def prewritten_answers(self) -> list[str]:
        """The sources that may contain answers written for the judge, for `is_prewritten`; usually none."""
        return [
            _normalized_json(text)
            for text in self.sources.values()
            if '"' in text and ("reason" in text or "\\u" in text)
        ]

    def traces(self, receipts: Sequence[Receipt], *, not_by: Collection[str] = ()) -> dict[str, str]:
        """Sources that show actions: artifacts, checks, and successful tool calls except those of tools in `not_by`."""
        excluded = {f"receipt:{one.n}" for one in receipts if one.status != "ok" or one.tool in not_by}
        return {name: text for name, text in self.sources.items() if name != "output" and name not in excluded}


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


def _contains(text: str, quote: str, normalized: str) -> bool:
    return _is_long_enough(normalized, text) and (quote in text or normalized in " ".join(text.split()))


def _is_long_enough(quote: str, text: str) -> bool:
    """Any text contains a period or a letter, so a quote needs a few characters, unless the text is as short."""
    count = sum(1 for _ in islice(filter(str.isalnum, quote), MIN_QUOTE))
    return count >= MIN_QUOTE or (count > 0 and 2 * len(quote) >= len(text.strip()))


def gather(submission: Submission, checks: Sequence[CriterionResult]) -> Evidence:
    """Collect the evidence that a judge may see of a submission."""
    sources: dict[str, str] = {}
    hidden: list[str] = []
    cut: list[str] = []
    redacted = submission.redactor.text
    for name, text, limit in _raw_sources(submission, checks):
        cleaned = clean(text)
        # Hidden characters inside a secret kept it from being recognized before.
        shown = cleaned.text if cleaned.text == text else redacted(cleaned.text)
        sources[name] = _bounded(shown, limit)
        hidden += [name] if cleaned.hidden else []
        cut += [name] if len(shown) > limit else []
    return Evidence(sources, tuple(_findings(submission, hidden, cut)), frozenset(cut), redacted)


def _raw_sources(submission: Submission, checks: Sequence[CriterionResult]) -> Iterator[tuple[str, str, int]]:
    """The sources, redacted. The run already is, except file names and numbers in tool arguments."""
    redacted = submission.redactor.text
    yield "output", submission.run.output, OUTPUT_CHARS
    if submission.run.artifacts:
        yield "artifacts", redacted(_manifest(submission.run.artifacts)), OUTPUT_CHARS
    for name, text, limit in _artifact_texts(submission):
        yield redacted(name), redacted(text), limit
    for receipt in submission.run.receipts[-RECEIPTS:]:
        output = receipt.output[: RECEIPT_CHARS - 200]
        yield f"receipt:{receipt.n}", f"{redacted(_call_line(receipt))}\n{output}", RECEIPT_CHARS
    for check in checks:
        if check.decided_by == "check":
            text = redacted(f"{check.text}: {check.outcome}. {check.reason}")
            yield redacted(f"check:{check.id}"), text, RECEIPT_CHARS


def _artifact_texts(submission: Submission) -> Iterator[tuple[str, str, int]]:
    chars_left = ARTIFACTS_CHARS
    for artifact in submission.run.artifacts:
        if artifact.change == "deleted" or not submission.folder or chars_left <= 0:
            continue
        if (text := _text_of(submission.folder, artifact)) is not None:
            yield f"artifact:{artifact.path}", text, min(ARTIFACT_CHARS, chars_left)
            chars_left -= min(ARTIFACT_CHARS, len(text))


def _text_of(folder: Folder, artifact: Artifact) -> str | None:
    try:
        excerpt = folder.read(artifact.path, 4 * ARTIFACT_CHARS)
    except ToolError:
        return None
    if not excerpt.is_text:
        return None
    return excerpt.text + (f"\n[… the file continues: {excerpt.size} bytes in total …]" if excerpt.cut else "")


def _manifest(artifacts: Iterable[Artifact]) -> str:
    lines = [f"{item.change} {item.path} ({item.bytes} bytes)" for item in artifacts]
    more = [f"… and {len(lines) - LISTED_ARTIFACTS} more"] if len(lines) > LISTED_ARTIFACTS else []
    return "\n".join(lines[:LISTED_ARTIFACTS] + more)


def _call_line(receipt: Receipt) -> str:
    args = json.dumps(receipt.args, ensure_ascii=False, default=str)
    short = args if len(args) <= 400 else args[:399] + "…"
    return f"{receipt.tool} {short} → {receipt.status}"


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
    if cut:
        message = f"too long for the judge to see whole: {', '.join(cut[:5])}"
        yield Finding(severity="minor", code="truncated_for_judge", message=message)
    if len(submission.run.receipts) > RECEIPTS:
        message = f"the judge saw the last {RECEIPTS} of {len(submission.run.receipts)} tool calls"
        yield Finding(severity="info", code="truncated_for_judge", message=message)

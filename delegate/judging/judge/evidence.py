"""What a judge gets to see, as named sources of cleaned and bounded text; and the search for a judge's quotes in it.

Sources are `output`, `artifact:<path>`, `receipt:<n>` and `check:<id>`. A quote is looked for in exactly the text that
the judge saw, so neither cleaning nor cutting can make an honest quote fail or a made-up one succeed.
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
"""Letters and digits."""

_ESCAPE = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|[nrtbf])?")
_JSON_SIGNS = str.maketrans("", "", '"{}')
LISTED_ARTIFACTS = 100


@dataclass(frozen=True, slots=True)
class Evidence:
    """The sources by name, and what was noticed while gathering them."""

    sources: dict[str, str]
    findings: tuple[Finding, ...]
    cut: frozenset[str] = frozenset()
    """Names of the sources that the judge saw only in part."""
    redacted: Callable[[str], str] = field(default=str, repr=False)
    """Takes secrets out of the other parts of a prompt too: a parent's key may stand in its goal."""

    def find(self, quote: str, said: str = "") -> str | None:
        """The name of a source that holds `quote`, white space aside: the one that was `said`, else the first.

        None when no source does.
        """
        wanted = " ".join(quote.split())
        if not wanted:
            return None
        names = (said, *self.sources) if said in self.sources else self.sources
        return next((name for name in names if _holds(self.sources[name], quote, wanted)), None)

    def ready_answers(self) -> list[str]:
        """The sources that may hold answers written for the judge, for `echoes`: most evidence has none."""
        return [_bare(text) for text in self.sources.values() if '"' in text and ("reason" in text or "\\u" in text)]

    def traces(self, receipts: Sequence[Receipt], *, not_by: Collection[str] = ()) -> dict[str, str]:
        """What was done rather than reported: artifacts, checks, and tool calls that succeeded, some tools apart."""
        undone = {f"receipt:{one.n}" for one in receipts if one.status != "ok" or one.tool in not_by}
        return {name: text for name, text in self.sources.items() if name != "output" and name not in undone}


def echoes(evidence: str, reason: str, ready: Sequence[str]) -> bool:
    """Whether quote and reason both stand in one `ready` source as fields of JSON: then the worker wrote the answer."""
    if not ready:
        return False
    fields = [_bare(json.dumps({"evidence": evidence})), _bare(json.dumps({"reason": reason}))]
    return any(all(field in text for field in fields) for text in ready)


def _bare(text: str) -> str:
    """Without what can differ between two spellings of one JSON text: escapes, white space, quotes, braces."""
    text = _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else "", text)
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return "".join(whole.split()).translate(_JSON_SIGNS)


def _holds(text: str, quote: str, wanted: str) -> bool:
    return _says_something(wanted, text) and (quote in text or wanted in " ".join(text.split()))


def _says_something(quote: str, text: str) -> bool:
    """A full stop or a letter is found in any text: a quote needs a few signs, unless the text has no more."""
    signs = sum(1 for _ in islice(filter(str.isalnum, quote), MIN_QUOTE))
    return signs >= MIN_QUOTE or (signs > 0 and 2 * len(quote) >= len(text.strip()))


def gather(submission: Submission, checks: Sequence[CriterionResult]) -> Evidence:
    """Collect what a judge may see of one case."""
    sources: dict[str, str] = {}
    hidden: list[str] = []
    cut: list[str] = []
    redacted = submission.redactor.text
    for name, text, limit in _raw_sources(submission, checks):
        cleaned = clean(text)
        # What was hidden in a key kept it from being recognized.
        shown = cleaned.text if cleaned.text == text else redacted(cleaned.text)
        sources[name] = _bounded(shown, limit)
        hidden += [name] if cleaned.hidden else []
        cut += [name] if len(shown) > limit else []
    return Evidence(sources, tuple(_findings(submission, hidden, cut)), frozenset(cut), redacted)


def _raw_sources(submission: Submission, checks: Sequence[CriterionResult]) -> Iterator[tuple[str, str, int]]:
    """The sources without secrets. The run has none, but for names of files and numbers in the arguments of tools."""
    redacted = submission.redactor.text
    yield "output", submission.run.output, OUTPUT_CHARS
    if submission.run.artifacts:
        yield "artifacts", redacted(_manifest(submission.run.artifacts)), OUTPUT_CHARS
    for name, text, limit in _artifact_texts(submission):
        yield redacted(name), redacted(text), limit
    for receipt in _latest(submission.run.receipts):
        yield f"receipt:{receipt.n}", f"{redacted(_called(receipt))}\n{_answered(receipt)}", RECEIPT_CHARS
    for check in checks:
        if check.decided_by == "check":
            text = redacted(f"{check.text}: {check.outcome}. {check.reason}")
            yield redacted(f"check:{check.id}"), text, RECEIPT_CHARS


def _artifact_texts(submission: Submission) -> Iterator[tuple[str, str, int]]:
    left = ARTIFACTS_CHARS
    for artifact in submission.run.artifacts:
        if artifact.change == "deleted" or not submission.folder or left <= 0:
            continue
        if (text := _text_of(submission.folder, artifact)) is not None:
            yield f"artifact:{artifact.path}", text, min(ARTIFACT_CHARS, left)
            left -= min(ARTIFACT_CHARS, len(text))


def _text_of(folder: Folder, artifact: Artifact) -> str | None:
    try:
        excerpt = folder.read(artifact.path, 4 * ARTIFACT_CHARS)
    except ToolError:
        return None
    if not excerpt.is_text:
        return None
    return excerpt.text + (f"\n[… the file goes on: {excerpt.size} bytes in all …]" if excerpt.cut else "")


def _manifest(artifacts: Iterable[Artifact]) -> str:
    lines = [f"{item.change} {item.path} ({item.bytes} bytes)" for item in artifacts]
    more = [f"… and {len(lines) - LISTED_ARTIFACTS} more"] if len(lines) > LISTED_ARTIFACTS else []
    return "\n".join(lines[:LISTED_ARTIFACTS] + more)


def _latest(receipts: Sequence[Receipt]) -> Sequence[Receipt]:
    return receipts[-RECEIPTS:]


def _called(receipt: Receipt) -> str:
    args = json.dumps(receipt.args, ensure_ascii=False, default=str)
    short = args if len(args) <= 400 else args[:399] + "…"
    return f"{receipt.tool} {short} → {receipt.status}"


def _answered(receipt: Receipt) -> str:
    return receipt.output[: RECEIPT_CHARS - 200]


def _bounded(text: str, limit: int) -> str:
    """Head and tail, with the cut said aloud."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out here …]\n{text[-half:]}"


def _findings(submission: Submission, hidden: list[str], cut: list[str]) -> Iterator[Finding]:
    if hidden:
        message = f"characters that a reader cannot see were removed from {', '.join(hidden[:5])}"
        yield Finding(severity="major", code="hidden_text", message=message)
    if cut:
        message = f"too long to be judged whole: {', '.join(cut[:5])}"
        yield Finding(severity="minor", code="truncated_for_judge", message=message)
    if len(submission.run.receipts) > RECEIPTS:
        message = f"the judge saw the last {RECEIPTS} of {len(submission.run.receipts)} tool calls"
        yield Finding(severity="info", code="truncated_for_judge", message=message)

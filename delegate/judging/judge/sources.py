"""Names the texts that a judge may see of a submission, and loads each of them: whole, cleaned, without secrets.

Sources are `report`, `said` (the worker's conversation, where it is known), `artifacts` (a list of files),
`artifact:<path>`, `file:<path>` (a file that the child didn't change), `receipt:<n>` and `check:<id>`. The page shows
as much of them as fits (`evidence.py`), and a judge that looks reads the same texts whole (`looks/`).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

from delegate._util.fencing import TYPOGRAPHY, clean, visible
from delegate._util.redaction import redactor
from delegate.judging.proof.files import same_file
from delegate.judging.submission import Submission
from delegate.sandbox.filesystem.files import Excerpt
from delegate.types import Artifact, CriterionResult, Receipt, StatementPart
from delegate.types.errors import ToolError

PAGE_TOKENS = 60_000
"""Length of all sources on the page together, by default."""
PAGE_FILE_BYTES = 500_000
"""How much is read of a file for the page."""
WHOLE_FILE_BYTES = 5_000_000
"""How much is read of a file for a look."""
FILES = 200
RECEIPTS = 200
"""Most files and calls that the page shows something of."""
EARLIER_RECEIPTS = "receipts"
"""Stands for the calls before the last `RECEIPTS`, which the page doesn't show."""
LISTED_ARTIFACTS = 100
_DIFF_NOTE = "[… all changes of text files, as the runtime compared them with the start …]\n"
OUR_TEXT = re.compile(r"\[\u2026 [^\]\n]* \u2026\]|\u2192 (?:ok|error|denied|timeout)|\u2026 and \d+ more")
"""Text of the runtime within the sources, which a judge can't quote: notes about cuts, the status of a call."""


class SourceText(NamedTuple):
    """The text of a source, cleaned and without secrets."""

    text: str
    is_partial: bool = False
    """Whether it is less than the whole."""
    is_text: bool = True
    """False for a binary file, of which there is no text."""
    hidden: bool = False
    """Whether it contained characters that a reader can't see."""


class Source(NamedTuple):
    """One text. `load` reads it, of a file at most so many bytes."""

    name: str
    load: Callable[[int], SourceText]
    is_meant: bool = False
    """Whether a criterion is about it."""
    on_page: bool = True


@dataclass(frozen=True)
class Sources:
    """The texts of one submission. `parts` are what a judge will be asked about."""

    submission: Submission
    checks: Sequence[CriterionResult] = ()
    parts: Sequence[StatementPart] = ()

    @cached_property
    def named(self) -> Mapping[str, Source]:
        """All sources by name, in the order in which a judge sees them, except files that aren't named and that the
        child didn't change.

        The run already is redacted, except file names, whole outputs and numbers in tool arguments.
        """
        submission, run = self.submission, self.submission.run
        about_report = any(part.about == "report" for part in self.parts)
        sources: list[Source] = []
        if submission.has_report:
            sources.append(Source("report", partial(_plain, run.report), about_report))
        if submission.said:
            sources.append(Source("said", partial(_plain, submission.said), about_report))
        if run.artifacts:
            sources.append(Source("artifacts", partial(_manifest, submission)))
        sources += [*_files(submission, self.parts), *_calls(submission, self.parts)]
        for check in self.checks:
            if check.decided_by == "check":
                text = redactor.text(f"{check.text}: {check.outcome}. {check.reason}")
                sources.append(Source(redactor.text(f"check:{check.id}"), partial(_plain, text)))
        return {source.name: source for source in sources}

    def text_of(self, source: Source, file_bytes: int) -> SourceText:
        """The text of a source, of a file at most so many bytes of it."""
        raw = source.load(file_bytes)
        cleaned = clean(raw.text)
        # Hidden characters inside a secret kept it from being recognized before.
        text = cleaned.text if cleaned.text == raw.text else redactor.text(cleaned.text)
        return raw._replace(text=text, hidden=cleaned.hidden)

    def file(self, path: str) -> Source | None:
        """A file of the workspace that the child didn't change, by its path; None if it can't be read."""
        return _file(self.submission, path) if self.submission.folder is not None else None


_NOTHING_BEFORE = "[… all files of the folder: which of them were there before the work isn't known …]"


def manifest_line(artifact: Artifact) -> str:
    """The line of a file in the list of changes."""
    return f"{artifact.change} {visible(artifact.path)} ({artifact.bytes} bytes)"


def artifact_name(path: str) -> str:
    """The name of the source of a file that the child left, or of the diff of its worktree."""
    return "artifact:../diff" if _is_diff(path) else redactor.text(f"artifact:{visible(path)}")


def files_left(submission: Submission) -> list[Artifact]:
    """What the child created, changed or deleted: without the diff of a worktree, which the runtime writes."""
    return [artifact for artifact in submission.run.artifacts if not _is_diff(artifact.path)]


def _is_diff(path: str) -> bool:
    """Whether an artifact is the diff of a worktree, which nothing but the runtime writes, next to the worktree."""
    return path.startswith("../")


def _plain(text: str, file_bytes: int) -> SourceText:
    return SourceText(text)


def _manifest(submission: Submission, file_bytes: int) -> SourceText:
    """The list of changes: its beginning for the page, all of it for a look."""
    artifacts = files_left(submission)
    entries = artifacts if file_bytes == WHOLE_FILE_BYTES else artifacts[:LISTED_ARTIFACTS]
    more = [f"… and {len(artifacts) - len(entries)} more"] if len(artifacts) > len(entries) else []
    known = [] if submission.by_child or not entries else [_NOTHING_BEFORE]
    text = redactor.text("\n".join([*known, *map(manifest_line, entries), *more]))
    return SourceText(text, is_partial=bool(more))


def _calls(submission: Submission, parts: Sequence[StatementPart]) -> Iterator[Source]:
    names = [name for part in parts for name in part.names]
    tools = {tool for part in parts for tool in part.tools}
    receipts = submission.run.receipts
    for position, receipt in enumerate(receipts):
        on_page = position >= len(receipts) - RECEIPTS
        text = f"{receipt.args} {receipt.whole_output}" if names and on_page else ""
        is_meant = on_page and (receipt.tool in tools or any(name in text for name in names))
        yield Source(f"receipt:{receipt.n}", partial(_call_text, receipt), is_meant, on_page)


def _call_text(receipt: Receipt, file_bytes: int) -> SourceText:
    whole = receipt.whole_output
    args = redactor.text(json.dumps(receipt.args, ensure_ascii=False, default=str))
    output = redactor.text(whole) if len(whole) > len(receipt.output) else receipt.output
    is_partial = receipt.output_bytes > len(whole.encode(errors="replace"))
    return SourceText(f"{receipt.tool} {args} → {receipt.status}\n{output}", is_partial)


def _files(submission: Submission, parts: Sequence[StatementPart]) -> Iterator[Source]:
    """The files that the child left, and those that it didn't change and a criterion names."""
    folder = submission.folder
    if folder is None:
        return
    paths = [path.removeprefix("./") for part in parts for path in part.files if part.about != "absence"]
    artifacts = [artifact for artifact in submission.run.artifacts if artifact.change != "deleted"]
    first = sorted(artifacts, key=lambda artifact: not _is_named(artifact.path, paths))[:FILES]
    on_page = {artifact.path for artifact in first}
    for artifact in artifacts:
        load = partial(_file_text, submission, artifact.path, artifact)
        yield Source(artifact_name(artifact.path), load, _is_named(artifact.path, paths), artifact.path in on_page)
    changed_paths = {artifact.path for artifact in submission.run.artifacts}
    for path in dict.fromkeys(paths):
        if path not in changed_paths and (source := _file(submission, path)) is not None:
            yield source._replace(is_meant=True)


def _file(submission: Submission, path: str) -> Source | None:
    """A file that isn't among those that the child left; None if it can't be read."""
    if _excerpt(submission, path, None, 0) is None:
        return None
    return Source(redactor.text(f"file:{visible(path)}"), partial(_file_text, submission, path, None))


def _file_text(submission: Submission, path: str, artifact: Artifact | None, file_bytes: int) -> SourceText:
    excerpt = _excerpt(submission, path, artifact, file_bytes)
    if excerpt is None or not excerpt.is_text:
        return SourceText("", is_partial=True, is_text=False)
    text = redactor.text(excerpt.text)
    text += f"\n[… the file continues: {excerpt.size} bytes in total …]" if excerpt.cut else ""
    return SourceText(_DIFF_NOTE + text if artifact is not None and _is_diff(path) else text, excerpt.cut)


def _excerpt(submission: Submission, path: str, artifact: Artifact | None, limit: int) -> Excerpt | None:
    """The beginning of a file as it was left, or as an `artifact`; None if it can't be read, or has changed since."""
    folder = submission.folder
    assert folder is not None
    is_ours = artifact is not None and _is_diff(path)
    try:
        excerpt = folder.excerpt(artifact, limit) if artifact is not None else folder.read(path, limit)
        return excerpt if is_ours or not submission.by_child or folder.is_as_left(path) else None
    except (ToolError, OSError):
        return None


def _is_named(path: str, names: Sequence[str]) -> bool:
    return any(same_file(path, name) for name in names)


def folded(text: str) -> str:
    """The text for comparisons: without the runtime's notes, with plain quotes, dashes and single spaces."""
    text = OUR_TEXT.sub(" ", text)
    return " ".join((text if text.isascii() else text.translate(TYPOGRAPHY)).split())

"""Decides criteria about citations: by code as far as that goes, and then by what a judge says of each citation.

A citation that code refutes is never put to a judge. Where the record has only a part of a source, what isn't in that
part is unknown, not missing.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from itertools import chain

from delegate.contract.amounts import counted
from delegate.judging.citations.arithmetic import Calculations
from delegate.judging.citations.compare import (
    MIN_WIDTH,
    Text,
    missing,
    passages,
    plain,
    quote_spans,
    width,
)
from delegate.judging.citations.opened import Opened, Source, is_of
from delegate.judging.citations.report import MARK, Statement, statements
from delegate.judging.report_json import json_text
from delegate.judging.submission import Submission, result
from delegate.types import (
    HOLDING,
    Citation,
    CitationsCriterion,
    CitationState,
    CriterionOutcome,
    CriterionResult,
    DecidedBy,
    JsonSchemaCriterion,
)
from delegate.types.codes import VerdictCode
from delegate.types.errors import ToolError

MAX_CITATIONS = 500
MAX_CHARS = 200_000
"""Length of what cites."""
SHOWN_CHARS = 500
EVIDENCE_CHARS = 300
NAME_CHARS = 200
_ABOUT_SOURCE = re.compile(rf"{MARK}[,;，；、][^()（）\[\]{MARK}]{{1,200}}(?=[)）\]])")
"""What is said of a source behind it in its brackets, such as when it was looked up."""
_NAME_WORDS, _NAME_WIDTH = 4, 40
"""A quoted passage of no more words and columns may be a name or a title; without spaces, of half as many columns."""
_BESIDE = 20
"""So many characters at most, and a bracket, are between a translation and its original."""
YEAR = re.compile("(?:19|20)[0-9]{2}")
_BETWEEN_MARKS = re.compile(rf"((?:{MARK}[\s,;()\[\]（）【】.]*)+)")


@dataclass(frozen=True, slots=True)
class Cited:
    """One source that one statement cites, and what is known of it so far."""

    statement: Statement
    target: str
    source: Source | None
    state: CitationState
    says: str = ""
    """What it stands for: the statement, or cells of it."""
    column: str = ""
    lacks: tuple[str, ...] = ()
    """What it stands for and no source of its statement has: a judge is asked how one gives it."""
    elsewhere: tuple[str, ...] = ()
    """The numbers and dates of what it stands for that only other sources of its statement have, or the task: this
    one may say others of the same thing."""
    reason: str = ""
    evidence: str | None = None
    is_quoted: bool = False
    """Whether a quoted passage of the statement stands in the source."""
    counts: bool = True
    """False for what is only listed, and for a host that doesn't count."""
    code: VerdictCode = "cannot_tell"
    """Why it is only opened, if it is."""

    @property
    def is_open(self) -> bool:
        """Whether a judge is asked about it."""
        return self.state == "opened" and self.source is not None and not self.reason

    @property
    def shown(self) -> Citation:
        """The citation as it is recorded."""
        return Citation(
            source=self.target,
            statement=_start(self.statement.shown, SHOWN_CHARS),
            state=self.state,
            field=self.column,
            reason=self.reason,
            evidence=self.evidence,
            receipt=self.source.receipt if self.source else None,
            answered_by=self.source.answered_by if self.source else None,
        )


@dataclass(frozen=True, slots=True)
class _Report:
    """What all statements of a report are compared with."""

    criterion: CitationsCriterion
    opened: Opened
    calculations: Calculations
    task: Text
    """What was asked, whose numbers a report may repeat and calculate with, and today's date, which the child knew."""
    beside: Mapping[int, Sequence[Text]]
    """The sources of each paragraph, any of which may be quoted for a comparison."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What code found: all statements and citations, and the result where nothing is left to a judge."""

    criterion: CitationsCriterion
    statements: Sequence[Statement]
    cited: Sequence[Cited]
    settled: CriterionResult | None = None
    bare: Sequence[Statement] = ()
    """Statements without a source that may claim nothing, such as what wasn't found: a judge is asked about them."""
    no_claims: Sequence[Statement] = ()
    """Those that claim nothing, and need no source."""
    calculations: Calculations = field(default_factory=lambda: Calculations((), ()))
    """What results the report may have, and what a judge may calculate with."""

    @property
    def open(self) -> list[Cited]:
        """The citations that a judge is asked about."""
        return [cited for cited in self.cited if cited.is_open]


def examine(criterion: CitationsCriterion, submission: Submission) -> Examination:
    """What code can say of the citations. Blocks."""
    if not submission.has_receipts:
        problem = result(criterion, "error", "nobody", "no_receipts", submission.why_no_receipts)
        return Examination(criterion, (), (), problem)
    text = _text(criterion, submission)
    if isinstance(text, CriterionResult):
        return Examination(criterion, (), (), text)
    opened = Opened(submission)
    is_csv = (criterion.file or "").lower().endswith((".csv", ".tsv"))
    said = statements(text, is_csv=is_csv, files=opened.files, every=criterion.every)
    if sum(len(statement.targets) for statement in said) > MAX_CITATIONS:
        reason = f"more than {MAX_CITATIONS} citations"
        return Examination(criterion, (), (), result(criterion, "error", "check", "too_large", reason))
    beside: dict[int, list[Text]] = {}
    for one in said:
        sources = (source.text for target in one.targets if not isinstance(source := opened.find(target), str))
        beside.setdefault(one.unit, []).extend(sources)
    began = datetime.now() - timedelta(seconds=submission.run.seconds)
    days = frozenset((day.year, day.month, day.day) for day in (began.date(), date.today()))
    task = Text(f"{submission.asked}\n{submission.task.context or ''}", days=days)
    all_sources = dict.fromkeys([*chain.from_iterable(beside.values()), task])
    calculations = Calculations([statement.text for statement in said], list(all_sources))
    report = _Report(criterion, opened, calculations, task, beside)
    read_as = [_read_as(statement, report) for statement in said]
    cited = [each for _, found in read_as for each in found]
    found = [one for sentences, _ in read_as for one in sentences]
    examination = Examination(criterion, found, cited, calculations=calculations)
    # Before a judge is asked, each open citation may still hold.
    hoped = replace(examination, cited=[replace(each, state="supported") if each.is_open else each for each in cited])
    bare = [each for each in _uncovered(hoped, hoped.cited) if _may_claim_nothing(each, cited, task)]
    best = decided(replace(hoped, no_claims=bare), "check")
    if best.outcome == "met" and (examination.open or bare):
        return replace(examination, bare=bare)
    return replace(examination, settled=best.model_copy(update={"citations": tuple(each.shown for each in cited)}))


def _text(criterion: CitationsCriterion, submission: Submission) -> str | CriterionResult:
    if criterion.file is None:
        report = submission.run.report
        if any(isinstance(other, JsonSchemaCriterion) for other in submission.task.criteria):
            report = json_text(report)  # around it, the child may say what it likes of its work
        return report if len(report) <= MAX_CHARS else _too_long(criterion, "the report")
    folder = submission.folder
    if folder is None:
        return result(criterion, "error", "nobody", "no_workspace", "there is no workspace to check")
    try:
        excerpt = folder.read(criterion.file, 4 * MAX_CHARS)
        as_left = not submission.by_child or folder.is_as_left(criterion.file)
    except ToolError as error:
        return result(criterion, "not_met", "check", "not_met", str(error), source=f"check:{criterion.id}")
    except OSError as error:
        return result(criterion, "error", "check", "unreadable", f"{criterion.file}: {error.strerror}")
    if not as_left:
        reason = f"{criterion.file} changed after the child had ended"
        return result(criterion, "error", "check", "changed_after_check", reason)
    if not excerpt.is_text:
        return result(criterion, "error", "check", "unreadable", f"{criterion.file} is not text")
    if excerpt.cut or len(excerpt.text) > MAX_CHARS:
        return _too_long(criterion, criterion.file)
    return excerpt.text


def _too_long(criterion: CitationsCriterion, what: str) -> CriterionResult:
    return result(criterion, "error", "check", "too_large", f"{what} has more than {MAX_CHARS:,} characters")


def _read_as(statement: Statement, report: _Report) -> tuple[list[Statement], list[Cited]]:
    """A statement with its citations, or the sentences that it may be instead: if each needs no source of its own, or
    if its sources don't have all of it.
    """
    cited = _examined(statement, report)
    if report.criterion.every == "claim" and not any(each.state == "not_found_there" for each in cited):
        return [statement], cited
    apart = [each for sentence in statement.apart for each in _examined(sentence, report)]
    if not apart or any(each.lacks or each.state == "not_found_there" for each in apart):
        return [statement], cited
    return statement.apart, apart


def _examined(statement: Statement, report: _Report) -> list[Cited]:
    """The citations of one statement, as far as code decides them."""
    found = [_found(statement, target, report) for target in statement.targets]
    absent, lacks = _absent(statement, found, report)
    cited: list[Cited] = []
    for n, each in enumerate(found):
        if each.source is None or each.state != "opened" or each.reason:
            pass
        elif statement.only_cites:
            each = replace(each, reason="it is listed, and no statement cites it", counts=False)
        elif n in absent:
            each = not_there(each, [absent[n]])
        elif n in lacks and (each.source.is_cut or _stood_there(each)):
            each = not_there(each, lacks[n])
        else:
            lacking = tuple(lacks.get(n, ()))
            elsewhere = _only_elsewhere(each.source, statement.said_by(n), lacking, report)
            each = replace(_with_quote(each), lacks=lacking, elsewhere=elsewhere)
        column = _start(statement.column(n), NAME_CHARS)
        cited.append(replace(each, column=column, says=statement.said_by(n)))
    return [each for each in cited if not report.opened.is_own(each.target)]


def _found(statement: Statement, target: str, report: _Report) -> Cited:
    source, hosts = report.opened.find(target), report.criterion.hosts
    if isinstance(source, str):
        return Cited(statement, target, None, "not_opened", reason=source)
    if not hosts:
        return Cited(statement, target, source, "opened")
    outside = next((host for host in source.hosts or ("a file",) if not is_of(host, hosts)), None)
    if outside is None:
        return Cited(statement, target, source, "opened")
    if outside == source.answered_by:
        reason = f"{outside} answered, which is none of `hosts`"
        return Cited(statement, target, source, "not_opened", reason=reason)
    reason = f"{outside} is none of `hosts`, so it doesn't count"
    return Cited(statement, target, source, "opened", reason=reason, counts=False)


def _absent(
    statement: Statement, found: Sequence[Cited], report: _Report
) -> tuple[dict[int, str], dict[int, list[str]]]:
    """What is quoted and stands nowhere, and what a judge has to show: numbers and dates that a source may give in
    another way, and quoted passages of other sources. Both by the index of the source that stands for them.
    """
    absent: dict[int, str] = {}
    lacks: dict[int, list[str]] = {}
    for text, indexes, known in _segments(statement):
        texts = [source.text for n in known if (source := found[n].source) is not None]
        if not texts:
            continue
        lost: list[str] = []
        for quote in _absent_quotes(text, texts):
            if any(source.place_of(quote) is not None for source in report.beside[statement.unit]):
                lost.append(plain(quote))
            else:
                absent |= dict.fromkeys(indexes, f'"{_start(quote, 100)}"')
        lost += missing(report.calculations.without(text), texts, (report.calculations.results, report.task))
        for n in indexes if lost else ():
            lacks[n] = [*lacks.get(n, ()), *lost]
    return absent, lacks


def _only_elsewhere(source: Source, text: str, lacking: Collection[str], report: _Report) -> tuple[str, ...]:
    """What the source lacks of a text, and another one or the task has."""
    if source.is_cut:
        return ()
    known = (report.calculations.results, Text("", days=report.task.days))
    own = missing(report.calculations.without(text), [source.text], known)
    return tuple(one for one in own if one not in lacking)


def _segments(statement: Statement) -> list[tuple[str, list[int], list[int]]]:
    """The parts of a statement, each with the indexes of the sources that stand for it, which are those that follow
    next, and of those that may say it.
    """
    every = list(range(len(statement.targets)))
    segments: list[tuple[str, list[int], list[int]]] = []
    for at, cell in enumerate(statement.cells):
        # One that cites may be said by its own sources and those of the whole row, the others by any of the row's.
        indexes = statement.marks_of(at)
        own = MARK in cell and statement.says(at)
        known = [*indexes, *statement.marks_of_row] if own else every
        segments.append((cell.replace(MARK, " "), indexes, known))
    if segments:
        return segments
    pieces = _BETWEEN_MARKS.split(_ABOUT_SOURCE.sub(MARK, statement.text))
    quotes = sum(len(quote_spans(piece)) for piece in pieces[::2])
    if len(pieces) > 4 and quotes < len(quote_spans("".join(pieces[::2]))):
        # A quoted passage with a mark in it is one passage.
        return [("".join(pieces).replace(MARK, ""), every, every)]
    count = 0
    for text, marks in zip(pieces[::2], [*pieces[1::2], ""], strict=False):
        indexes = list(range(count, count + marks.count(MARK)))
        count += len(indexes)
        segments.append((text, indexes or (segments[-1][1] if segments else []), every))
    return segments


def _absent_quotes(text: str, sources: Sequence[Text]) -> Iterator[str]:
    """The passages quoted in a text that none of these sources has, except what may be a name, which many languages
    inflect, and translations beside their original: of these, a judge says whether they are right.
    """
    spans, compared = sorted(quote_spans(text)), _long_quotes(text)
    quotes = [(span, text[span[0] + 1 : span[1] - 1]) for span in spans]
    present = [span for span, quote in quotes if any(source.place_of(quote) is not None for source in sources)]
    for (start, end), quote in quotes:
        if quote not in compared or (start, end) in present:
            continue
        words = len(quote.split())
        is_name = words <= _NAME_WORDS and width(quote) <= (_NAME_WIDTH if words > 1 else _NAME_WIDTH // 2)
        beside = [text[end:other] if other >= end else text[last:start] for other, last in present]
        is_translated = any(len(between) <= _BESIDE and re.search(r"[(\[（【]", between) for between in beside)
        if not is_name and not is_translated:
            yield quote


def _long_quotes(text: str) -> list[str]:
    quotes = [text[start + 1 : end - 1] for start, end in quote_spans(text)]
    return [quote for quote in quotes if width(quote.strip()) >= MIN_WIDTH and passages(quote)]


def not_there(cited: Cited, missed: Sequence[str]) -> Cited:
    """The citation without what its source doesn't have, as far as that is known."""
    source, what = cited.source, ", ".join(missed[:5])
    assert source is not None
    if source.is_cut:
        reason = f"{what}: not in the part of the source that is on record"
        return replace(cited, reason=reason, code="result_cut")
    if _stood_there(cited):
        reason = f"{what}: it stood there when it was opened first, but not any more in call {source.receipt}"
    else:
        reason = f"{what}: not in what came back (call {source.receipt})"
    return replace(cited, state="not_found_there", reason=reason)


def _stood_there(cited: Cited) -> bool:
    """Whether what came back at first has all of the statement."""
    source, text = cited.source and cited.source.earlier, cited.statement.text.replace(MARK, "")
    if source is None:
        return False
    quotes_stand = all(source.place_of(quote) is not None for quote in _long_quotes(text))
    return quotes_stand and not missing(text, [source])


def _with_quote(cited: Cited) -> Cited:
    """With the first passage that stands in the source."""
    assert cited.source is not None
    text = cited.source.text
    for quote in _long_quotes(cited.statement.text.replace(MARK, "")):
        if (at := text.place_of(quote)) is not None:
            return replace(cited, is_quoted=True, evidence=text.plain[at : at + EVIDENCE_CHARS][: len(quote)])
    return cited


# ----------------------------------------------------------------------------------------------------- the result


def decided(examination: Examination, by: DecidedBy) -> CriterionResult:
    """The result that follows from the states of all citations."""
    criterion, cited = examination.criterion, examination.cited
    holding = [each for each in cited if each.state in HOLDING]
    unsure = [each for each in cited if each.state == "opened" and each.counts]
    total = counted(len(cited), "citation")
    hold = "holds" if 1 in (len(holding), len(cited)) else "hold"
    own = f"check:{criterion.id}"

    def made(
        outcome: CriterionOutcome, code: VerdictCode, reason: str, source: str | None = own, evidence: str | None = None
    ) -> CriterionResult:
        shown = [each.shown for each in cited]
        return result(criterion, outcome, by, code, reason, evidence=evidence, source=source, citations=shown)

    if failing := [each for each in cited if each.state in ("not_opened", "not_found_there")]:
        verb = "doesn't" if len(failing) == 1 else "don't"
        reason = f"{len(failing)} of {total} {verb} hold: {_said(failing)}"
        return made("not_met", "not_met", reason, evidence=failing[0].evidence)
    if criterion.every and not any(criterion.every in each.counts_as for each in examination.statements):
        return made("not_met", "not_met", f"there is no {criterion.every} to cite for")
    if bare := _uncovered(examination, [*holding, *unsure]):
        noun = criterion.every if len(bare) == 1 else f"{criterion.every}s"
        return made("not_met", "not_met", f"{len(bare)} {noun} without a source, such as: {_start(bare[0].shown, 200)}")
    if len(holding) + len(unsure) < criterion.min:
        return made("not_met", "not_met", f"{len(holding)} of {total} {hold}, wanted {criterion.min}")
    if len(holding) < criterion.min or _uncovered(examination, holding):
        codes: list[VerdictCode] = [each.code for each in unsure if each.code != "cannot_tell"]
        code = codes[0] if codes else "cannot_tell"
        return made("cannot_tell", code, f"not decided for {len(unsure)} of {len(cited)}: {_said(unsure)}", None)
    first = holding[0].source
    source = f"receipt:{first.receipt}" if first is not None else own
    reason = f"{len(holding)} of {total} {hold}{_elsewhere(holding)}"
    return made("met", "met", reason, source, holding[0].evidence)


def _uncovered(examination: Examination, cited: Iterable[Cited]) -> list[Statement]:
    """The claims, paragraphs or rows, as they are asked for, for which none of these stands."""
    every = examination.criterion.every
    if every is None:
        return []

    def unit(statement: Statement) -> int:
        return statement.unit if every == "paragraph" else id(statement)

    covered = {unit(each.statement) for each in cited} | set(map(unit, examination.no_claims))
    asked = {unit(each): each for each in reversed(examination.statements) if every in each.counts_as}
    return [statement for key, statement in reversed(asked.items()) if key not in covered]


def _may_claim_nothing(statement: Statement, cited: Iterable[Cited], task: Text) -> bool:
    """Whether a statement is no row, and has no quoted passage, and no figure that neither a source nor the task has
    besides years, since it may be of later ones that nothing was found.
    """
    texts = [each.source.text for each in cited if each.source is not None]
    is_of_figures = any(not YEAR.fullmatch(number) for number in missing(statement.text, texts, [task]))
    return not (statement.cells or is_of_figures or _long_quotes(statement.text))


def _said(cited: Sequence[Cited]) -> str:
    """The first of these with what is wrong, and how many more there are."""
    first, *others = cited
    more = f"; and {len(others)} more" if others else ""
    return f"{_start(first.target, 200)} ({first.state.replace('_', ' ')}): {first.reason}{more}"


def _elsewhere(cited: Iterable[Cited]) -> str:
    hosts = [
        f"{_start(each.target, 200)} was answered by {each.source.answered_by}"
        for each in cited
        if each.source is not None and each.source.answered_by
    ]
    return f"; {hosts[0]}" + (f", and {len(hosts) - 1} more so" if len(hosts) > 1 else "") if hosts else ""


def _start(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"

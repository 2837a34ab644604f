"""Asks a judge about citations that code didn't refute: statement and source side by side, one answer for each.

The judge's quote must stand in the source of the citation that it is about. Where code found a number of a statement in
none of its sources, the judge also has to show how one of them gives it: in words that stand there, or by a calculation
that is right and whose operands are known.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction

from delegate._util.fencing import clean, new_nonce
from delegate._util.redaction import redactor
from delegate._util.resources import reply_schema, text
from delegate.judging.citations.arithmetic import Calculations
from delegate.judging.citations.compare import Number, Text, missing, numbers, plain
from delegate.judging.citations.decide import YEAR, Cited, Examination, decided, not_there
from delegate.judging.citations.report import MARK
from delegate.judging.judge import prompt
from delegate.judging.judge.evidence import Evidence
from delegate.judging.judge.reply import CriterionAnswer, MissingAnswer, UnparseableReply, parse_reply
from delegate.judging.judge.session import JudgeQuestion, JudgeReply
from delegate.judging.proof.literals import clear_dates
from delegate.judging.submission import result
from delegate.types import HOLDING, CriterionResult

MOST_AT_ONCE = 20
"""So many citations are put to a judge in one request, if their sources fit there. Each is shown once."""
PASSAGE_CHARS = 4_000
"""What is shown of one source."""
_LEFT_OUT = "[… left out …]"
_STATEMENT_CHARS = 2_000
_MISSING_TOKENS = 100
_MAX_STEPS = 10
"""So many numbers are worked out one from the other."""
_COMMON_YEARS = range(1000, 2200)
_OF_DATE, _LAST_DAY = 3, 31
"""What a date has: year, month and day. The number of a year is above that of a day."""
_YEAR = re.compile(r"[^\d.,]*\d{1,4}[^\d.,]*")
"""What may be a year of an era or of another calendar."""
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Answered:
    """One citation with a judge's answer, and what the judge said of the numbers that code didn't find."""

    cited: Cited
    missing: tuple[MissingAnswer, ...] = ()


def questions(
    goal: str, examination: Examination, page_tokens: int
) -> list[tuple[JudgeQuestion, dict[str, Cited], Evidence]]:
    """The questions about the open citations, each with these by their ids, and with their sources."""
    size = max(1, page_tokens // PASSAGE_CHARS)
    by_id = _asked(examination)
    passages = {id: nearest(cited) if cited.source else "" for id, cited in by_id.items()}
    chunks: list[dict[str, Cited]] = [{}]
    shown = set[str]()
    for id_, cited in by_id.items():
        shown.add(passages[id_])
        if len(shown) > size or len(chunks[-1]) == MOST_AT_ONCE:
            chunks.append({})
            shown = {passages[id_]}
        chunks[-1][id_] = cited
    lacks = defaultdict[int, dict[str, None]](dict)
    for each in examination.open:
        lacks[id(each.statement)] |= dict.fromkeys(each.lacks)
    return [_question(goal, chunk, passages, lacks) for chunk in chunks if chunk]


def _asked(examination: Examination) -> dict[str, Cited]:
    """What a judge is asked about, by id. What a statement has from one source several times is asked once."""
    bare = [Cited(statement, "", None, "opened", says=statement.shown) for statement in examination.bare]
    first: dict[tuple[int, str, str], str] = {}
    by_id = {f"{examination.criterion.id}.{n}": cited for n, cited in enumerate([*examination.open, *bare], start=1)}
    return {id_: cited for id_, cited in by_id.items() if first.setdefault(_place(cited), id_) == id_}


def _place(cited: Cited) -> tuple[int, str, str]:
    """The same for all citations of a statement that have the same from one source."""
    return id(cited.statement), cited.says, cited.target


def _question(
    goal: str, cited: Mapping[str, Cited], passages: Mapping[str, str], lacks: Mapping[int, Iterable[str]]
) -> tuple[JudgeQuestion, dict[str, Cited], Evidence]:
    """`lacks` has the numbers that no source of a statement has, by the identity of the statement."""
    page: dict[str, str] = {}
    sources: dict[str, str] = {}
    names: dict[str, str] = {}
    for id_, each in cited.items():
        page[f"statement {id_}"] = _cleaned(each.says[:_STATEMENT_CHARS])
        if each.source is None:
            page[f"address {id_}"] = "none: the report names no source for it"
            continue
        host = f" (answered by {each.source.answered_by})" if each.source.answered_by else ""
        extent = "parts of it are shown" if _LEFT_OUT in passages[id_] else "all of it is shown"
        page[f"address {id_}"] = _cleaned(f"{each.target}{host}: {extent}")
        name, source = f"source {id_}", _cleaned(passages[id_])
        first = names.setdefault(source, name)
        sources[name] = source
        if lacking := tuple(lacks.get(id(each.statement), ())):
            page[f"missing {id_}"] = _cleaned("\n".join(lacking))
        if each.elsewhere:
            page[f"elsewhere {id_}"] = _cleaned("\n".join(each.elsewhere))
        page[name] = source if first == name else f"the same as `{first}`"
    nonce, last = new_nonce(), f"Answer for each of these ids exactly once: {', '.join(cited)}"
    asked = (
        "Does the source support the statement? Each id has a `statement`, its `address` and its `source`. "
        f"Today is {date.today()}."
    )
    question = JudgeQuestion(
        system=text("judges", "citations.md"),
        text=prompt.with_evidence(goal, asked, Evidence(page, ()), last, nonce),
        reply_schema=reply_schema("citations"),
        reply_tokens=100 + 200 * len(cited) + _MISSING_TOKENS * sum(name.startswith("missing") for name in page),
        nonce=nonce,
    )
    return question, dict(cited), Evidence(sources, ())


def _cleaned(text: str) -> str:
    return redactor.text(clean(text).text)


def read_reply(
    examination: Examination, cited: Mapping[str, Cited], evidence: Evidence, reply: JudgeReply
) -> list[Answered] | CriterionResult:
    """The citations with what the judge found. If the reply can't be used, the criterion's error."""
    criterion, shown = examination.criterion, [each.shown for each in examination.cited]
    if reply.reply is None:
        return result(criterion, "error", "nobody", reply.code, reply.reason, citations=shown)
    try:
        answers = parse_reply(reply.reply.text, list(cited))
        if evidence.has_prewritten(answers.values()):
            raise UnparseableReply("the judge's answer is a copy of one that stands in a source")
    except UnparseableReply as error:
        return result(criterion, "error", "nobody", "judge_unparseable", str(error), citations=shown)
    return [
        Answered(_answered(each, answers[id], f"source {id}", evidence), answers[id].missing)
        for id, each in cited.items()
    ]


def _answered(cited: Cited, answer: CriterionAnswer, name: str, evidence: Evidence) -> Cited:
    """One citation with the judge's answer, as far as its quote confirms it."""
    is_there = name in evidence.find_all(answer.evidence, name)
    quote = answer.evidence if is_there else None
    if cited.source is None:
        return replace(cited, state="supported" if answer.verdict == "met" else "opened")
    if answer.verdict == "not_met":
        return replace(
            cited, state="not_found_there", reason=answer.reason or "the source doesn't say it", evidence=quote
        )
    if answer.verdict == "cannot_tell":
        return replace(cited, reason=answer.reason or "the judge couldn't tell")
    if not is_there:
        reason = f"the judge's quote is not in the source: {redactor.beginning(answer.evidence, 200)!r}"
        return replace(cited, reason=reason, code="evidence_not_found")
    state = "quoted" if cited.is_quoted else "supported"
    return replace(cited, state=state, reason=answer.reason, evidence=quote)


def combined(examination: Examination, answers: Sequence[Answered]) -> CriterionResult:
    """The result of the criterion from the answers to all questions, in their order."""
    found = {_place(answer.cited): answer.cited for answer in answers}
    cited: list[Cited] = []
    for each in examination.cited:
        same = found[_place(each)] if each.is_open else each
        cited.append(replace(each, state=same.state, reason=same.reason, evidence=same.evidence, code=same.code))
    bare = {
        id(answer.cited.statement)
        for answer in answers
        if answer.cited.state == "supported" and not answer.cited.target
    }
    no_claims = [each for each in examination.bare if id(each) in bare]
    given, worked_out, calculations = _given(answers, examination.calculations)
    for n, each in enumerate(cited):
        missed = [one for one in each.lacks if one not in given[id(each.statement)]]
        if missed and each.state in HOLDING:
            # What one calculates with and no source says, such as the year before the first of an era.
            rest = calculations.without(each.statement.text.replace(MARK, " "), solved=True)
            rest = missing(rest, (), (worked_out,))
            missed = [one for one in missed if one in rest or any(map(str.isalpha, one))]  # a passage isn't solved
            cited[n] = not_there(each, missed) if missed else each
    return decided(replace(examination, cited=cited, no_claims=no_claims), "judge")


def _given(answers: Sequence[Answered], calculations: Calculations) -> tuple[dict[int, set[str]], Text, Calculations]:
    """What sources give in another way, by the identity of the statement; the results of calculations, which the whole
    report may use, as if a source had them; and calculations that know all of these numbers.

    One that is worked out may be an operand of the next, and operands may be from the sources of any statements.
    """
    given, results = defaultdict[int, set[str]](set), set[Fraction]()
    waiting = [(answer.cited, item) for answer in answers if answer.cited.state in HOLDING for item in answer.missing]
    for _ in range(_MAX_STEPS):
        shown = [_shown(item, cited, calculations) for cited, item in waiting]
        if not any(shown):
            break
        for (cited, item), number in zip(waiting, shown, strict=True):
            if number is not None:
                # What one calculates with needs no source of its own, as 100 in a percentage.
                operands = {other.text for other in numbers(plain(item.calculation))}
                of_date = {str(part) for day in number.exact for part in day}
                given[id(cited.statement)] |= {item.what.strip(), *operands, *of_date}
                results |= number.values if item.calculation else set()
        waiting = [one for one, number in zip(waiting, shown, strict=True) if number is None]
        calculations = calculations.knowing(filter(None, shown))
    return given, Text("", frozenset(results)), calculations


def _shown(item: MissingAnswer, cited: Cited, calculations: Calculations) -> Number | None:
    """What code missed, if what the judge says of it stands in a source, or can be worked out by what is known."""
    words, what = plain(item.words), plain(item.what)
    number = next(numbers(what), None)
    has_words = cited.source is not None and any(map(str.isalpha, words)) and words in cited.source.text.plain
    if number is not None and item.calculation:
        is_usable = has_words or not words
        return number if is_usable and calculations.give(item.calculation, number, one_in_words=has_words) else None
    if number is not None and not words:
        return number if YEAR.fullmatch(what) else None  # nothing is known of that year
    if number is not None and has_words and _is_in_words(number, words):
        return number
    # What a statement compares its source with may stand in another one.
    names = what in words if any(map(str.isalpha, what)) else number is not None and Text(words).has(number)
    return (number or Number(what)) if names and calculations.stand_in_a_source(words) else None


def _is_in_words(number: Number, words: str) -> bool:
    """Whether words of a source may say a number, a year or a date of another calendar: in digits, they say others."""
    if any(len(day) == _OF_DATE for day in number.exact):
        found = list(numbers(words))
        is_common = any(days[0].year in _COMMON_YEARS for days in clear_dates(words)) or any(
            each.exact for each in found
        )
        values = [value for each in found for value in each.values]
        return Text(words).has(number) if is_common else not values or max(values) > _LAST_DAY
    is_year = _YEAR.fullmatch(words) is not None and not number.values.isdisjoint(_COMMON_YEARS)
    return is_year or not any(map(str.isdecimal, words))


# ----------------------------------------------------------------------------------------------------- passages


def nearest(cited: Cited) -> str:
    """The source, or of a long one the paragraphs that share most with the statement, in their order."""
    assert cited.source is not None
    text = cited.source.text.text
    note = f"\n{_LEFT_OUT}" if cited.source.is_cut else ""
    if len(text) <= PASSAGE_CHARS:
        return text + note
    pieces = _pieces(text)
    wanted = _features(cited.says)
    counts: dict[str, int] = {}
    features = [_features(piece) & wanted for piece in pieces]
    for own in features:
        for feature in own:
            counts[feature] = counts.get(feature, 0) + 1
    scores = [sum(1 / counts[feature] for feature in own) for own in features]
    quote = plain(cited.evidence)[:60] if cited.evidence else None
    order = sorted(range(len(pieces)), key=lambda n: (quote is None or quote not in plain(pieces[n]), -scores[n], n))
    room, chosen = PASSAGE_CHARS, set[int]()
    for n in order:
        # What stands around a passage says what it is about.
        for near in (n, n - 1, n + 1):
            if 0 <= near < len(pieces) and near not in chosen and len(pieces[near]) <= room:
                chosen.add(near)
                room -= len(pieces[near])
    lines = [f"{_LEFT_OUT}\n{pieces[n]}" if n and n - 1 not in chosen else pieces[n] for n in sorted(chosen)]
    return "\n".join(lines) + (note or f"\n{_LEFT_OUT}")


def _pieces(text: str) -> list[str]:
    """The lines of a text, long ones in parts."""
    size = PASSAGE_CHARS // 8
    return [line[n : n + size] for line in text.splitlines() for n in range(0, max(len(line), 1), size)]


def _features(text: str) -> set[str]:
    """What two texts can share: words, pairs of characters where words aren't apart, and the values of numbers."""
    text = plain(text)
    words = {word.casefold() for word in _WORD.findall(text)}
    pairs = {word[n : n + 2] for word in words if not word.isascii() for n in range(len(word) - 1)}
    return words | pairs | {f"={value}" for number in numbers(text) for value in number.values}

"""Asks a judge about citations that code didn't refute: statement and source side by side, one answer for each.

The judge's quote must stand in the source of the citation that it is about.

Where a report has numbers that no source has in digits, a model is asked before which numbers the cited sources say in
words. It sees the sources alone: neither the report nor the number that is looked for. Code then compares.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

from delegate._util.fencing import clean, fence, new_nonce
from delegate._util.redaction import redactor
from delegate._util.resources import reply_schema, text
from delegate.judging.citations.compare import numbers, plain
from delegate.judging.citations.decide import Cited, Examination, decided
from delegate.judging.judge import prompt
from delegate.judging.judge.evidence import Evidence
from delegate.judging.judge.reply import CriterionAnswer, UnparseableReply, one_object, parse_reply
from delegate.judging.judge.session import JudgeQuestion, JudgeReply
from delegate.judging.submission import result
from delegate.types import CriterionResult

MOST_AT_ONCE = 20
"""So many citations are put to a judge in one request."""
NUMBERS_AT_ONCE = 20
"""So many sources are read in one request; what others say in words stays unknown."""
PASSAGE_CHARS = 4_000
"""What is shown of one source."""
_LEFT_OUT = "[… left out …]"
_STATEMENT_CHARS = 2_000
_MAX_VALUE = 10**15
_NUMBERS_TOKENS = 600
_COMMON_YEARS = range(1000, 2200)
_YEAR = re.compile(r"[^\d.,]*\d{1,4}[^\d.,]*")
"""What may be a year of an era or of another calendar."""
_WORD = re.compile(r"[^\W_]+")


def questions(
    goal: str, examination: Examination, page_tokens: int
) -> list[tuple[JudgeQuestion, dict[str, Cited], Evidence]]:
    """The questions about the open citations, each with these by their ids, and with their sources."""
    size = max(1, min(MOST_AT_ONCE, page_tokens // PASSAGE_CHARS))
    bare = [Cited(statement, "", None, "opened", says=statement.shown) for statement in examination.bare]
    by_id = {f"{examination.criterion.id}.{n}": cited for n, cited in enumerate([*examination.open, *bare], start=1)}
    ids = list(by_id)
    chunks = [{id: by_id[id] for id in ids[n : n + size]} for n in range(0, len(ids), size)]
    return [_question(goal, chunk) for chunk in chunks]


def _question(goal: str, cited: Mapping[str, Cited]) -> tuple[JudgeQuestion, dict[str, Cited], Evidence]:
    page: dict[str, str] = {}
    sources: dict[str, str] = {}
    names: dict[str, str] = {}
    for id, each in cited.items():
        page[f"statement {id}"] = _cleaned(each.says[:_STATEMENT_CHARS])
        if each.source is None:
            page[f"address {id}"] = "none: the report names no source for it"
            continue
        host = f" (answered by {each.source.answered_by})" if each.source.answered_by else ""
        shown = nearest(each)
        extent = "parts of it are shown" if _LEFT_OUT in shown else "all of it is shown"
        page[f"address {id}"] = _cleaned(f"{each.target}{host}: {extent}")
        name, source = f"source {id}", _cleaned(shown)
        first = names.setdefault(source, name)
        sources[name] = source
        page[name] = source if first == name else f"the same as `{first}`"
    nonce, last = new_nonce(), f"Answer for each of these ids exactly once: {', '.join(cited)}"
    asked = "Does the source support the statement? Each id has a `statement`, its `address` and its `source`."
    question = JudgeQuestion(
        system=text("judges", "citations.md"),
        text=prompt.with_evidence(goal, asked, Evidence(page, ()), last, nonce),
        reply_schema=reply_schema("judge"),
        reply_tokens=100 + 200 * len(cited),
        nonce=nonce,
    )
    return question, dict(cited), Evidence(sources, ())


def _cleaned(text: str) -> str:
    return redactor.text(clean(text).text)


def read_reply(
    examination: Examination, cited: Mapping[str, Cited], evidence: Evidence, reply: JudgeReply
) -> list[Cited] | CriterionResult:
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
    return [_answered(each, answers[id], f"source {id}", evidence) for id, each in cited.items()]


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


def combined(examination: Examination, answers: Iterable[Cited]) -> CriterionResult:
    """The result of the criterion from the answers to all questions, in their order."""
    left = iter(answers)
    cited = [next(left) if each.is_open else each for each in examination.cited]
    no_claims = [each for each, answer in zip(examination.bare, left, strict=True) if answer.state == "supported"]
    return decided(replace(examination, cited=cited, no_claims=no_claims), "judge")


# ------------------------------------------------------------------------------------------------- numbers in words


def question_about_numbers(
    examination: Examination, page_tokens: int
) -> tuple[JudgeQuestion, Mapping[str, tuple[str, str]]] | None:
    """The question about all sources that may have a number in words, and by their ids what is shown of each, with the
    whole text; None if there are none.
    """
    shown = {
        nearest(cited): cited.source.text.text
        for cited in examination.cited
        if cited.may_be_in_words and cited.source is not None
    }
    if not shown:
        return None
    most = max(1, min(NUMBERS_AT_ONCE, page_tokens // PASSAGE_CHARS))
    texts = {f"t{n}": item for n, item in enumerate(list(shown.items())[:most], start=1)}
    nonce = new_nonce()
    fenced = "\n\n".join(fence(id, _cleaned(part), nonce) for id, (part, _) in texts.items())
    asked = JudgeQuestion(
        system=text("judges", "numbers.md"),
        text=f"{fenced}\n\nList the numbers in words of: {', '.join(texts)}",
        reply_schema=reply_schema("numbers"),
        reply_tokens=_NUMBERS_TOKENS * len(texts),
        nonce=nonce,
    )
    return asked, texts


def read_numbers(reply: str, texts: Mapping[str, tuple[str, str]]) -> dict[str, frozenset[Fraction]]:
    """The numbers by the texts of their sources, as far as their words stand there. Raises UnparseableReply."""
    items: Any = one_object(reply).get("numbers")
    if not isinstance(items, list):
        raise UnparseableReply("the reply has no list `numbers`")
    shown = {id: plain(part) for id, (part, _) in texts.items()}
    found: dict[str, set[Fraction]] = {}
    for item in cast("list[Any]", items):
        fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        words, value, id = fields.get("words"), fields.get("value"), str(fields.get("id"))
        if not isinstance(words, str) or not isinstance(value, (int, float)) or id not in texts:
            continue
        is_year = value in _COMMON_YEARS and _YEAR.fullmatch(words) is not None
        is_in_words = any(map(str.isalpha, words)) and (is_year or not any(map(str.isdecimal, words)))
        if is_in_words and plain(words) in shown[id] and 0 < value < _MAX_VALUE:
            found.setdefault(texts[id][1], set()).add(Fraction(str(value)))
    return {source: frozenset(values) for source, values in found.items()}


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

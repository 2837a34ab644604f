"""Recorded answers with a known result per criterion, judged once by a perfect judge and once by code alone."""

import json
import re
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from delegate.types.ports import ChatReply, ChatRequest
from tests.support.misbehaving import real_quote
from tests.support.scripted_judge import ScriptedJudge
from tests.support.words import asked_ids, verdicts

DATA = Path(__file__).parents[1] / "data"
ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "ifeval_criteria.jsonl").read_text(encoding="utf-8").splitlines()
]
CRITERIA = [criterion for row in ROWS for criterion in row["criteria"]]
Typed = dict[str, Any]


def test_the_recorded_data_is_complete() -> None:
    assert (len(ROWS), len(CRITERIA), len({one["id"] for one in CRITERIA})) == (74, 111, 19)
    assert 20 <= sum(row["all_met"] for row in ROWS) <= 60
    assert all(row["all_met"] == all(one["met"] for one in row["criteria"]) for row in ROWS)


# ------------------------------------------------------------------------------------------------ a perfect judge


def oracle(row: dict[str, Any]) -> Callable[[ChatRequest], str]:
    """A judge that always answers correctly, and quotes a real passage for `met`."""

    def judge(request: ChatRequest) -> str:
        truth = {f"c{n}": one["met"] for n, one in enumerate(row["criteria"], start=1)}
        quote = real_quote(request)
        return verdicts(**{id: ("met", quote) if truth[id] else ("not_met", "") for id in asked_ids(request)})

    return judge


@pytest.fixture
def judge(home: Path) -> Generator[ScriptedJudge]:
    with closing(ScriptedJudge()) as judge:
        yield judge


def test_with_a_perfect_judge_every_verdict_is_correct(judge: ScriptedJudge) -> None:
    wrong: dict[int, str] = {}
    for row in ROWS:
        asked = [one["criterion"] for one in row["criteria"]]
        verdict = judge.verdict(oracle(row), row["task"], row["report"], asked)
        met = [one.outcome == "met" for one in verdict.criteria]
        if (verdict.verdict == "PASS", met) != (row["all_met"], [one["met"] for one in row["criteria"]]):
            wrong[row["key"]] = verdict.reasoning
    assert wrong == {}


# ------------------------------------------------------------------------------------------------ code alone


def refuse(request: ChatRequest) -> ChatReply:
    raise AssertionError("a model was asked")


def found(pattern: str, flags: str = "s") -> Typed:
    return {"kind": "regex", "pattern": f"(?{flags}){pattern}"}


def times(words: str, piece: str, flags: str = "s") -> Typed:
    """A check that `piece` occurs in the report as often as the criterion's text says."""
    (number,) = re.findall(r"(?:at least|less than|exactly) (\d+)", words)
    some = rf"(?:(?:(?!{piece}).)*+{piece})"
    least = rf"\A(?={some}{{{number}}})"
    if "less than" in words:
        return found(rf"\A(?!{some}{{{number}}})", flags)
    return found(least + (rf"(?!{some}{{{int(number) + 1}}})" if "exactly" in words else ""), flags)


def word_count(words: str) -> Typed:
    (number,) = re.findall(r"\d+", words)
    many = rf"(?:\W*+\w++){{{number}}}"
    return found(rf"\A{many}" if "at least" in words else rf"\A(?!{many})")


def letters(words: str) -> Typed:
    return times(words, re.findall(r"'(\w)'", words)[0], "is")


def word_frequency(words: str) -> Typed:
    return times(words, re.findall(r"'(\w+)'", words)[0], "is")


def listed(words: str) -> list[str]:
    return [re.escape(word) for word in words.partition(": ")[2].removesuffix(".").split(", ")]


def includes(words: str) -> Typed:
    return found(r"\A" + "".join(f"(?=.*{word})" for word in listed(words)), "is")


def excludes(words: str) -> Typed:
    return found(rf"\A(?!.*\b(?:{'|'.join(listed(words))})\b)", "is")


def ends_with(words: str) -> Typed:
    return found(re.escape(words.partition(": ")[2]) + r"[\s\"]*\Z", "is")


def postscript(words: str) -> Typed:
    return found(r"^\s*P\.\s?P\.\s?S" if "P.P.S" in words else r"^\s*P\.\s?S\.", "im")


def divided(words: str) -> Typed:
    part = r"(?:(?!\*\*\*).)*?[^\s*](?:(?!\*\*\*).)*+"
    (number,) = re.findall(r"\d+", words)
    return found(rf"\A\s*(?:\*\*\*)?{part}(?:\*\*\*{part}){{{int(number) - 1}}}(?:\*\*\*\s*)?\Z")


TYPED: dict[str, Callable[[str], Typed]] = {
    "change_case:english_capital": lambda words: found(r"\A\P{Ll}*\Z"),
    "change_case:english_lowercase": lambda words: found(r"\A\P{Lu}*\Z"),
    "combination:two_responses": lambda words: found(
        r"\A\s*((?:(?!\*{6}).)*\S)\s*\*{6}(?!\s*\1\s*\Z)\s*[^\s*](?:(?!\*{6}).)*\Z"
    ),
    "detectable_content:number_placeholders": lambda words: times(words, r"\[[^\]\n]*\]"),
    "detectable_content:postscript": postscript,
    "detectable_format:json_format": lambda words: {"kind": "json_schema", "schema": {}},
    "detectable_format:multiple_sections": lambda words: times(words, r"SECTION\s?\d+"),
    "detectable_format:number_bullet_lists": lambda words: times(words, r"^[ \t]*(?:\*[^*]|-)", "ms"),
    "detectable_format:number_highlighted_sections": lambda words: times(words, r"\*[^\n*]*[^\n*\s][^\n*]*\*"),
    "detectable_format:title": lambda words: found(r"<<[^\n<>]*\w[^\n]*>>"),
    "keywords:existence": includes,
    "keywords:forbidden_words": excludes,
    "keywords:frequency": word_frequency,
    "keywords:letter_frequency": letters,
    "length_constraints:number_paragraphs": divided,
    "length_constraints:number_words": word_count,
    "punctuation:no_comma": lambda words: found(r"\A[^,]*\Z"),
    "startend:end_checker": ends_with,
    "startend:quotation": lambda words: found(r"\A\s*\".*\"\s*\Z"),
}
"""A typed check for each kind of criterion, which code decides."""


def typed(row: dict[str, Any]) -> list[Typed]:
    return [TYPED[one["id"]](one["criterion"]) for one in row["criteria"] if one["id"] in TYPED]


def test_typed_checks_alone_decide_every_criterion_correctly(judge: ScriptedJudge) -> None:
    decided = 0
    wrong: list[tuple[int, str, str]] = []
    for row in ROWS:
        verdict = judge.verdict(refuse, row["task"], row["report"], typed(row))
        known = [one for one in row["criteria"] if one["id"] in TYPED]
        for one, got in zip(known, verdict.criteria, strict=True):
            decided += got.decided_by == "check"
            if got.outcome != ("met" if one["met"] else "not_met"):
                wrong.append((row["key"], one["criterion"], f"{got.outcome}: {got.reason}"))
        if len(known) == len(row["criteria"]) and (verdict.verdict == "PASS") != row["all_met"]:
            wrong.append((row["key"], "verdict", verdict.reasoning))
    assert wrong == []
    assert (decided, len(CRITERIA)) == (111, 111)

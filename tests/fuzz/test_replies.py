"""Fuzz the parsers of replies: of judges, of rubric judges, and of the JSON in a child's report.

Any reply of a judge leads to a serializable verdict within the time limit, and to a PASS only if its quotes are real.
"""

import json
from collections.abc import Generator
from contextlib import closing
from random import Random
from typing import Any, cast

import pytest
from hypothesis import strategies as st

from delegate.contract import render
from delegate.judging.judge.reply import UnparseableReply, one_object
from delegate.judging.report_json import parse_json
from delegate.types import RunResult, TaskResult, Usage
from delegate.types.ports import ChatReply
from tests.fuzz.fuzzing import ends_soon, fuzz
from tests.fuzz.targets import check_output, check_reply
from tests.fuzz.values import ANY_CHARACTER, JUNK, Mutator
from tests.support.scripted_judge import ScriptedJudge

REPORT = "The report is in notes.md and has four findings."
ANSWERS: list[Any] = [
    {
        "answers": [
            {"id": "c1", "source": "report", "evidence": "four findings", "reason": "It says so.", "verdict": "met"},
            {"id": "c2", "source": "", "evidence": "", "reason": "Nothing about it.", "verdict": "cannot_tell"},
        ]
    }
]
SCORES: list[Any] = [
    {
        "scores": [
            {"id": id, "evidence": "four findings", "reason": "It says so.", "score": 3}
            for id in ("clarity", "accuracy")
        ],
        "failure_modes": ["vague"],
        "wins": ["short"],
    }
]
RUBRIC = {
    "name": "small",
    "threshold": 0.5,
    "dimensions": [{"id": id, "description": id, "weight": 1, "min": 0, "max": 4} for id in ("clarity", "accuracy")],
    "failure_modes": [{"id": "vague", "description": "Vague."}],
    "wins": [{"id": "short", "description": "Short."}],
}
TEXTS = st.text(ANY_CHARACTER, max_size=200) | JUNK.map(json.dumps)


def damaged(base: list[Any]) -> st.SearchStrategy[str]:
    """Replies with damaged values or damaged text."""

    def write(seed: int, junk: list[Any]) -> str:
        mutator = Mutator(seed, junk)
        value = mutator.random.choice(base)
        for _ in range(mutator.random.choice([0, 1, 1, 1, 2, 3])):
            value = mutator.changed(value)
        return _damaged_text(json.dumps(value), mutator.random)

    return st.builds(write, st.integers(0, 2**32), st.lists(JUNK, min_size=1, max_size=3))


def _damaged_text(text: str, random: Random) -> str:
    at = random.randrange(len(text) + 1)
    match random.randint(0, 14):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + random.choice(['"', "{", "\x00", "\ud800", "NaN", "1e999"]) + text[at:]
        case 2:
            return f"```json\n{text}\n```"
        case 3:
            return f"{text}\n{text}"
        case 4:
            return text.replace('"verdict"', '"verdict": "not_met", "verdict"', 1)
        case _:
            return text


@fuzz(33, text=damaged(ANSWERS) | TEXTS)
def test_any_reply_is_answers_or_unparseable(text: str) -> None:
    check_reply(text)


@fuzz(33, text=damaged([{"a": [1, 2.5, None, "x"]}, *ANSWERS]) | TEXTS)
def test_any_report_is_json_or_a_value_error(text: str) -> None:
    check_output(f"I am done.\n```json\n{text}\n```\n")
    check_output(text)


BIG = 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"answers":[' + "{}," * 100_000 + "{}]}",
        '{"answers":' + "9" * BIG + "}",
        '{"answers":[{"id":"c1","evidence":"' + "x" * BIG + '","reason":"","verdict":"met"}]}',
        "```json\n" * 100_000,
        "```json\n" + "```\n" * 100_000,
        "```" + " " * BIG + "\n```",
        "\ud800" * BIG,
        "\n" * BIG,
        "{" + ",".join(f'"k{n}":1' for n in range(20_000)) + "}",
    ],
    ids=lambda text: f"{text[:20]!r} ({len(text)})",
)
def test_an_oversized_reply_is_read_soon(text: str) -> None:
    check_reply(text)
    check_output(text)


# --------------------------------------------------------------------------------------------------- whole verdicts


class Bench(ScriptedJudge):
    """A judge with given replies, and the resulting verdicts."""

    def reply(self, said: str, *criteria: Any) -> Any:
        """Return the verdict for a reply. It must be serializable and take no longer than the limit."""
        reply = ChatReply(said, "end", Usage())
        with ends_soon():
            verdict = self.verdict(lambda request: reply, "Write a report.", REPORT, criteria)
        verdict.model_dump_json().encode()
        result = RunResult(results=(TaskResult(task_index=0, status="completed", report=REPORT, verdict=verdict),))
        assert f"\ntask 1: {verdict.verdict} (" in render(result)
        return verdict


@pytest.fixture
def bench() -> Generator[Bench]:
    with closing(Bench()) as bench:
        yield bench


def test_what_a_judge_says_makes_a_verdict(bench: Bench) -> None:
    @fuzz(25, said=damaged(ANSWERS) | TEXTS)
    def hunt(said: str) -> None:
        verdict = bench.reply(said, "The report has findings.", "The report is in a file.")
        for criterion in verdict.criteria:
            assert criterion.outcome != "met" or criterion.evidence.strip() in REPORT
            assert criterion.code in ("met", "not_met", "cannot_tell", "evidence_not_found", "judge_unparseable")

    hunt()


def test_what_a_rubric_judge_says_makes_a_verdict(bench: Bench) -> None:
    @fuzz(25, said=damaged(SCORES) | TEXTS)
    def hunt(said: str) -> None:
        (criterion,) = bench.reply(said, {"kind": "rubric", "rubric": RUBRIC}).criteria
        assert criterion.score is None or 0 <= criterion.score <= 1
        assert criterion.code in ("met", "not_met", "judge_unparseable")

    hunt()


def test_the_good_replies_are_good(bench: Bench) -> None:
    verdict = bench.reply(json.dumps(ANSWERS[0]), "The report has findings.", "The report is in a file.")
    assert [criterion.outcome for criterion in verdict.criteria] == ["met", "cannot_tell"]
    (criterion,) = bench.reply(json.dumps(SCORES[0]), {"kind": "rubric", "rubric": RUBRIC}).criteria
    assert (criterion.outcome, criterion.score) == ("met", 0.75)


@pytest.mark.parametrize("odd", [{"weight": 1e308}, {"min": -1e307}, {"max": 5e-324}, {"weight": 5e-324}])
def test_a_rubric_of_extreme_numbers_has_a_score_or_an_error(bench: Bench, odd: dict[str, float]) -> None:
    dimensions = [one | odd for one in cast("list[dict[str, Any]]", RUBRIC["dimensions"])]
    said = json.dumps(SCORES[0]).replace('"score": 3', f'"score": {odd.get("max", 3)}')
    (criterion,) = bench.reply(said, {"kind": "rubric", "rubric": RUBRIC | {"dimensions": dimensions}}).criteria
    assert criterion.score is None or 0 <= criterion.score <= 1


@pytest.mark.parametrize("score", ['"3"', "null", "[3]", "{}", "true", "NaN", "1e400", "-1", "4.1", "1" + "0" * 400])
def test_a_score_that_is_no_number_in_its_range_decides_nothing(bench: Bench, score: str) -> None:
    said = json.dumps(SCORES[0]).replace('"score": 3', f'"score": {score}', 1)
    (criterion,) = bench.reply(said, {"kind": "rubric", "rubric": RUBRIC}).criteria
    assert (criterion.outcome, criterion.code, criterion.score) == ("error", "judge_unparseable", None)


# ----------------------------------------------------------------------------------------------------- found by fuzzing


def test_many_json_blocks_that_are_left_open_are_read_soon() -> None:
    check_output("```json\n" * 20_000)
    assert parse_json("```json\n" * 20_000 + "1\n```\n```json\n2\n```\n```json\n3") == 2


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_a_number_that_no_report_can_carry_is_no_json(number: str) -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        parse_json(f'{{"a": {number}}}')
    with pytest.raises(UnparseableReply):
        one_object(f'{{"a": {number}}}')

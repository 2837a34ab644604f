"""Criteria that depend on each other, have different weights, or only report findings."""

from typing import Any

import pytest

from delegate import Delegator, Task, Verdict
from delegate.models.providers.scripted import Scripted
from delegate.types.errors import CallError
from delegate.types.ports import ChatRequest
from tests.support.words import Answer, asked_ids, is_judge, verdicts, words

MET: Answer = ("met", "the whole story")
NOT: Answer = ("not_met", "the whole story")
HOLDS = {"kind": "regex", "pattern": "story"}
FAILS = {"kind": "regex", "pattern": "nowhere"}


async def judged(*criteria: dict[str, Any], **answers: Answer) -> tuple[Verdict, Scripted]:
    def judge(request: ChatRequest) -> str:
        return verdicts(**{id: answers[id] for id in asked_ids(request)})

    client = words(["this is the whole story"], judge)
    async with Delegator(client=client) as delegator:
        result = await delegator.run(Task(goal="tell it", acceptance_criteria=criteria))
    verdict = result.results[0].verdict
    assert verdict
    return verdict, client


def outcomes(verdict: Verdict) -> list[str]:
    return [one.outcome for one in verdict.criteria]


def text(statement: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "text", "text": statement, **fields}


async def test_a_dependent_of_an_unmet_criterion_is_skipped_and_fails() -> None:
    verdict, _ = await judged(
        {"id": "base", **FAILS, "findings_only": True}, {"id": "next", **HOLDS, "depends_on": ["base"]}
    )
    assert outcomes(verdict) == ["not_met", "skipped"]
    assert (verdict.verdict, verdict.code) == ("FAIL", "skipped")


@pytest.mark.parametrize("turned", [False, True])
async def test_the_order_of_declaration_does_not_matter(turned: bool) -> None:
    criteria = [text("the text is a story", id="a"), text("the text is whole", id="b", depends_on=["a"])]
    verdict, client = await judged(*(reversed(criteria) if turned else criteria), a=MET, b=MET)
    assert verdict.verdict == "PASS"
    assert sum(map(is_judge, client.requests)) == 1, "dependent criteria are asked in one question"


async def test_a_dependent_asked_with_its_dependency_can_still_be_skipped() -> None:
    verdict, _ = await judged(
        text("the text is whole", id="b", depends_on=["a"]), text("the text is a story", id="a"), a=NOT, b=MET
    )
    assert outcomes(verdict) == ["skipped", "not_met"]


async def test_a_chain_is_skipped_to_its_end() -> None:
    verdict, _ = await judged(
        text("one", id="a"), text("two", id="b", depends_on=["a"]), text("three", id="c", depends_on=["b"]),
        a=("cannot_tell", ""), b=MET, c=MET,
    )  # fmt: skip
    assert outcomes(verdict) == ["cannot_tell", "skipped", "skipped"]
    assert verdict.code == "cannot_tell"


async def test_a_check_that_depends_on_a_judge_waits_for_it() -> None:
    verdict, _ = await judged({"id": "check", **HOLDS, "depends_on": ["word"]}, text("a story", id="word"), word=MET)
    assert outcomes(verdict) == ["met", "met"]
    verdict, _ = await judged({"id": "check", **HOLDS, "depends_on": ["word"]}, text("a story", id="word"), word=NOT)
    assert outcomes(verdict) == ["skipped", "not_met"]


async def test_a_failing_criterion_lowers_the_score_and_is_not_left_out_of_it() -> None:
    verdict, _ = await judged({**HOLDS, "weight": 3}, {**FAILS, "weight": 1})
    assert (verdict.verdict, verdict.score, verdict.coverage) == ("FAIL", 0.75, 1)


async def test_a_score_names_how_much_of_the_weight_it_covers() -> None:
    verdict, _ = await judged({**FAILS, "weight": 1}, text("the text is a story", weight=3))
    assert (verdict.score, verdict.coverage) == (0, 0.25)
    assert outcomes(verdict) == ["not_met", "skipped"]


async def test_findings_only_reports_and_decides_nothing() -> None:
    verdict, _ = await judged(HOLDS, {**FAILS, "findings_only": True, "weight": 0})
    assert verdict.verdict == "PASS"
    assert [(finding.code, finding.message[:2]) for finding in verdict.findings] == [("not_met", "c2")]
    alone, _ = await judged({**HOLDS, "findings_only": True})
    assert (alone.verdict, alone.code) == ("FAIL", "no_deciding_criterion")


async def test_every_declared_criterion_is_in_the_verdict_whatever_happened() -> None:
    verdict, _ = await judged(FAILS, text("a"), HOLDS, {"kind": "manual", "text": "b"}, text("c", depends_on=["c2"]))
    assert [one.id for one in verdict.criteria] == ["c1", "c2", "c3", "c4", "c5"]
    assert verdict.verdict == "FAIL"


@pytest.mark.parametrize(
    ("criteria", "words_in_error"),
    [
        ([{"id": "a", **HOLDS, "depends_on": ["a"]}], "must not depend on each other in a cycle"),
        (
            [{"id": "a", **HOLDS, "depends_on": ["b"]}, {"id": "b", **HOLDS, "depends_on": ["a"]}],
            "must not depend on each other in a cycle",
        ),
        ([{"id": "a", **HOLDS, "depends_on": ["z"]}], "not a criterion of this task"),
        ([{"id": "a", **HOLDS}, {"id": "a", **HOLDS}], "must be unique"),
    ],
)
async def test_cycles_and_unknown_names_are_refused(criteria: list[dict[str, Any]], words_in_error: str) -> None:
    with pytest.raises(CallError, match=words_in_error):
        Task(goal="x", acceptance_criteria=criteria)
    async with Delegator(client=Scripted([])) as delegator:
        result = await delegator.call({"goal": "x", "acceptance_criteria": criteria})
    assert result.error
    assert words_in_error in result.error.message

"""Escalation: a judge of another family is asked once about what the first couldn't decide or prove, if enabled."""

from collections.abc import Mapping
from typing import Any

import pytest

from delegate import Delegator, Verdict
from delegate.models.catalog import Catalog, Model
from delegate.models.providers.scripted import Scripted
from delegate.types import JudgeRecord, Usage
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.words import Answer, asked_ids, verdicts

REPORT = "I ran the suite:\n2 passed\n4 seconds\nThat is all."
USAGE = Usage(model_calls=1, input_tokens=1_000, output_tokens=100)
MET: Answer = ("met", "2 passed")
NOT: Answer = ("not_met", "2 passed")
UNSURE: Answer = ("cannot_tell", "")
UNPROVEN: Answer = ("met", "200 passed")

Answers = Mapping[str, Answer]
Said = Answers | ChatReply | Exception


def judges(*said: Said) -> Scripted:
    """Judges that answer one after the other, with the given answers for the requested ids."""
    left = iter(said)

    def answer(request: ChatRequest) -> ChatReply:
        now = next(left)
        if isinstance(now, Exception):
            raise now
        if isinstance(now, ChatReply):
            return now
        return ChatReply(verdicts(**{id: now[id] for id in asked_ids(request)}), "end", USAGE)

    return Scripted(answer)


async def judged(client: Scripted, *criteria: Any, worker: str | None = None, **settings: Any) -> Verdict:
    async with Delegator(client=client, escalate=True, **settings) as delegator:
        return await delegator.judge(
            goal="run the suite",
            acceptance_criteria=criteria or ("report: the report says that two passed",),
            report=REPORT,
            worker_model=worker,
        )


def record_of(verdict: Verdict) -> JudgeRecord:
    assert verdict.judge
    return verdict.judge


def models(client: Scripted) -> list[Model]:
    found = [Catalog.shipped().find(request.model) for request in client.requests]
    return [model for model in found if model]


def text(statement: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "text", "text": statement, "about": "report", **fields}


async def test_it_is_disabled_by_default() -> None:
    client = judges({"c1": UNSURE}, {"c1": MET})
    async with Delegator(client=client) as delegator:
        verdict = await delegator.judge(
            goal="x", acceptance_criteria=["report: the report says that two passed"], report=REPORT
        )
    assert (verdict.code, len(client.requests), record_of(verdict).escalated) == ("cannot_tell", 1, False)


@pytest.mark.parametrize("first", [UNSURE, UNPROVEN], ids=["cannot tell", "no such quote"])
async def test_another_family_is_asked_about_undecided_or_unproven_criteria(first: Answer) -> None:
    client = judges({"c1": MET, "c2": first, "c3": MET}, {"c2": ("met", "4 seconds")})
    verdict = await judged(
        client,
        "report: the report says that two passed",
        "report: the report says that it took four seconds",
        "report: the report says that the suite ran",
    )
    one, other = models(client)
    assert (verdict.verdict, verdict.verified) == ("PASS", True)
    assert one.family != other.family
    assert [asked_ids(request) for request in client.requests] == [["c1", "c2", "c3"], ["c2"]]
    assert all(REPORT in request.messages[0].text for request in client.requests), "on the same evidence"
    assert [result.id for result in verdict.criteria] == ["c1", "c2", "c3"]
    assert verdict.criteria[1].evidence == "4 seconds"


async def test_the_verdict_has_both_answers_and_the_cost_of_both() -> None:
    client = judges({"c1": MET, "c2": UNPROVEN}, {"c2": MET})
    verdict = await judged(client, "report: the report says that two passed", "report: the report says that all passed")
    record, (one, other) = record_of(verdict), models(client)
    first, second = record.attempts
    assert record.escalated
    assert (record.model, record.family, record.provider) == (other.id, other.family, other.provider)
    assert (first.model, second.model) == (one.id, other.id)
    assert [(said.id, said.outcome, said.code, said.evidence) for said in first.answers] == [
        ("c2", "not_met", "evidence_not_found", "200 passed")
    ]
    assert second.answers == ()
    assert record.usage == USAGE + USAGE
    assert record.cost_usd == pytest.approx((first.cost_usd or 0) + (second.cost_usd or 0))
    reasons = {candidate.model: candidate.reason for candidate in record.candidates}
    assert reasons[other.id] is None
    assert reasons[one.id]


async def test_the_version_is_that_of_both_judges() -> None:
    client = judges({"c1": UNSURE}, {"c1": MET})
    both = await judged(client)
    one, other = models(client)
    alone = [await judged(judges({"c1": MET}), judge_model=model.id) for model in (one, other)]
    again = await judged(judges({"c1": UNPROVEN}, {"c1": UNPROVEN}))
    assert both.judge_version not in {verdict.judge_version for verdict in alone}
    assert both.judge_version == again.judge_version


async def test_the_second_judge_can_fail_to_prove_it_too() -> None:
    client = judges({"c1": UNSURE}, {"c1": UNPROVEN})
    verdict = await judged(client)
    assert (verdict.verdict, verdict.code, len(client.requests)) == ("FAIL", "evidence_not_found", 2)
    assert [said.code for said in record_of(verdict).attempts[0].answers] == ["cannot_tell"]


async def test_what_a_judge_decided_is_not_asked_again() -> None:
    client = judges({"c1": NOT, "c2": UNSURE}, {"c1": MET, "c2": MET})
    verdict = await judged(
        client, "report: the report says that three passed", "report: the report says that it took four seconds"
    )
    assert (verdict.verdict, verdict.code) == ("FAIL", "not_met")
    assert len(client.requests) == 1, "the verdict is FAIL whatever a second judge says"


async def test_doubt_about_a_confident_answer_is_not_asked_again() -> None:
    client = judges({"c1": MET, "c1.sure": UNSURE}, {"c1": MET, "c1.sure": MET})
    verdict = await judged(
        client, {"kind": "question", "question": "does the report say that two passed?", "threshold": "high_confidence"}
    )
    assert (verdict.code, len(client.requests)) == ("not_confident", 1)


async def test_a_high_confidence_question_is_asked_again_in_both_parts() -> None:
    client = judges({"c1": UNSURE, "c1.sure": UNSURE}, {"c1": MET, "c1.sure": MET})
    verdict = await judged(
        client, {"kind": "question", "question": "does the report say that two passed?", "threshold": "high_confidence"}
    )
    assert (verdict.verdict, asked_ids(client.requests[1])) == ("PASS", ["c1", "c1.sure"])


async def test_a_text_that_is_too_long_for_one_judge_is_too_long_for_another() -> None:
    client = judges({"c1": ("met", "the end")}, {"c1": ("met", "the end")})
    async with Delegator(client=client, escalate=True) as delegator:
        verdict = await delegator.judge(
            goal="x", acceptance_criteria=["report: the report never says stop"], report="x" * 400_000 + "\nthe end"
        )
    assert (verdict.code, len(client.requests)) == ("truncated_for_judge", 1)


async def test_a_rubric_whose_score_is_unproven_is_not_asked_again() -> None:
    rubric = {"name": "style", "dimensions": [{"id": "clear", "description": "it is clear", "about": "report"}]}
    scores = '{"scores": [{"id": "clear", "evidence": "nowhere", "reason": "", "score": 1}]'
    reply = ChatReply(scores + ', "failure_modes": [], "wins": []}', "end", USAGE)
    client = judges(reply, reply)
    verdict = await judged(client, {"kind": "rubric", "rubric": rubric})
    assert (verdict.code, len(client.requests)) == ("judge_unparseable", 1)


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (ProviderError("timeout", "too slow", provider="x"), "too slow"),
        (ChatReply("", "refusal", USAGE, stop_detail="policy"), "ended as policy"),
        (ChatReply("PASS", "end", USAGE), "not one JSON object"),
    ],
    ids=["unreachable", "refusal", "prose"],
)
async def test_without_a_usable_second_answer_the_first_ones_are_kept(second: Said, said: str) -> None:
    client = judges({"c1": MET, "c2": UNSURE}, second, {"c2": MET})
    verdict = await judged(
        client, "report: the report says that two passed", "report: the report says that it took four seconds"
    )
    record, (one, other) = record_of(verdict), models(client)
    assert (verdict.verdict, verdict.code) == ("FAIL", "cannot_tell")
    assert [result.outcome for result in verdict.criteria] == ["met", "cannot_tell"]
    assert (record.model, record.escalated) == (one.id, True)
    assert [attempt.model for attempt in record.attempts] == [one.id, other.id]
    assert said in record.attempts[1].message
    assert (record.attempts[0].message, record.attempts[0].answers) == ("", ())
    reasons = {candidate.model: candidate.reason for candidate in record.candidates}
    assert reasons[one.id] is None


async def test_a_second_judge_needs_room_in_the_ledger() -> None:
    client = judges({"c1": UNSURE}, {"c1": MET})
    verdict = await judged(client, max_run_model_calls=1)
    record = record_of(verdict)
    assert (verdict.code, len(client.requests), record.escalated) == ("cannot_tell", 1, False)
    reasons = [str(candidate.reason) for candidate in record.candidates]
    assert any("the next step exceeds the limit model_calls" in reason for reason in reasons)


async def test_without_another_family_the_first_answers_are_kept() -> None:
    client = judges({"c1": UNSURE}, {"c1": MET})
    verdict = await judged(client, judge_model="gpt-6-luna")
    record = record_of(verdict)
    assert (verdict.code, len(client.requests), record.escalated) == ("cannot_tell", 1, False)
    assert (record.model, len(record.attempts)) == ("gpt-6-luna", 1)
    reasons = {candidate.model: candidate.reason for candidate in record.candidates}
    assert reasons["gpt-6-luna"] is None
    assert all(reason for model, reason in reasons.items() if model != "gpt-6-luna")


async def test_no_second_judge_is_above_the_workers_tier() -> None:
    client = judges({"c1": UNSURE}, {"c1": MET})
    verdict = await judged(client, worker="gpt-6-luna")
    assert verdict.verdict == "PASS"
    assert {model.tier for model in models(client)} == {"fast"}


async def test_it_happens_at_most_once_per_verdict() -> None:
    criteria = [
        text("the report says that two passed", id="a"),
        {"kind": "regex", "pattern": "passed", "id": "b", "depends_on": ["a"]},
        text("the report says that it took four seconds", id="c", depends_on=["b"]),
    ]
    client = judges({"a": UNSURE}, {"a": MET}, {"c": UNSURE}, {"c": MET})
    verdict = await judged(client, *criteria)
    assert [result.outcome for result in verdict.criteria] == ["met", "met", "cannot_tell"]
    assert (verdict.code, len(client.requests)) == ("cannot_tell", 3)
    assert len(record_of(verdict).attempts) == 3


async def test_dependents_of_an_undecided_criterion_are_asked_again_with_it() -> None:
    client = judges({"a": UNSURE, "b": UNSURE, "c": MET}, {"a": MET, "b": MET})
    criteria = [
        text("the report has letter b", id="b", depends_on=["a"]),
        text("the report has letter a", id="a"),
        text("the report has letter c", id="c", depends_on=["b"]),
    ]
    verdict = await judged(client, *criteria)
    assert sorted(asked_ids(client.requests[1])) == ["a", "b"]
    assert verdict.verdict == "PASS"


async def test_a_dependent_of_an_unmet_criterion_is_not_asked_again() -> None:
    client = judges({"a": NOT, "b": UNSURE}, {"b": MET})
    verdict = await judged(
        client,
        text("the report has letter a", id="a", findings_only=True),
        text("the report has letter b", id="b", depends_on=["a"]),
    )
    assert [result.outcome for result in verdict.criteria] == ["not_met", "skipped"]
    assert len(client.requests) == 1


async def test_a_finding_is_asked_again_only_if_a_criterion_depends_on_it() -> None:
    finding, plain = text("the report has an a", id="a", findings_only=True), text("the report has a b", id="b")
    client = judges({"a": UNSURE, "b": MET}, {"a": MET})
    assert (await judged(client, finding, plain)).verdict == "PASS"
    assert len(client.requests) == 1
    for resting in ({**plain, "depends_on": ["a"]}, {"kind": "regex", "pattern": "2", "id": "b", "depends_on": ["a"]}):
        client = judges({"a": UNSURE, "b": MET}, {"a": MET})
        assert (await judged(client, finding, resting)).verdict == "PASS"
        assert len(client.requests) == 2

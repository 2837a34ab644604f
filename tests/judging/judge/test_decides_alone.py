"""`max_false_pass`: only judges whose measured error rate is low enough decide alone."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from delegate import Delegator, Verdict
from delegate.judging.calibration.limits import REFRESH_SECONDS
from delegate.judging.versions import judge_version
from delegate.models.catalog import Catalog
from delegate.models.providers.scripted import Scripted
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.words import asked_ids, verdicts

REPORT = "I ran the suite:\n2 passed\n4 seconds\nThat is all."
MET, NOT, UNSURE = ("met", "2 passed"), ("not_met", "2 passed"), ("cannot_tell", "")
LIMIT = 0.05
CHEAPEST, OTHER = "gemini-2.5-flash-lite", "gpt-6-luna"
"""The judges that are asked first and second if nothing is known of them."""
RUBRIC = {
    "kind": "rubric",
    "rubric": {"name": "style", "dimensions": [{"id": "clear", "description": "it is clear", "about": "report"}]},
}


def lines(
    judge: str, bad: int, errors: int = 0, *, worker: str = "", version: str = "", sampling: str = "random"
) -> str:
    rows = [
        {
            "task": f"{judge}-{worker}-{n}",
            "criterion": "c1",
            "ruling": "not_met",
            "judged": "met" if n < errors else "not_met",
            "judge": judge,
            "judge_version": version or judge_version(judge),
            "worker": worker,
            "sampling": sampling,
        }
        for n in range(bad)
    ]
    return "\n".join(map(json.dumps, rows))


def said(answers: Mapping[str, Any]) -> Scripted:
    """Judges that answer the same to everything, by their models; an exception is raised."""

    def reply(request: ChatRequest) -> ChatReply | str:
        given: Any = answers[request.model]
        if isinstance(given, Exception):
            raise given
        if "scores" in json.dumps(request.reply_schema):
            score = {"id": "clear", "evidence": given[1], "reason": "", "score": 1 if given[0] == "met" else 0}
            return json.dumps({"scores": [score], "failure_modes": [], "wins": []})
        answer: tuple[str, str] = given
        return verdicts(**dict.fromkeys(asked_ids(request), answer))

    return Scripted(reply)


async def judged(client: Scripted, *rulings: str, criteria: Any = None, **settings: Any) -> Verdict:
    worker = settings.pop("worker", None)
    options: dict[str, Any] = {"max_false_pass": LIMIT, **settings}
    async with Delegator(client=client, **options) as delegator:
        for text in rulings:
            await delegator.records.import_rulings(text, by="me")
        return await delegator.judge(
            goal="run the suite",
            acceptance_criteria=criteria or ["report: the report says that two passed"],
            report=REPORT,
            worker_model=worker,
        )


def asked(client: Scripted) -> list[str]:
    return [request.model for request in client.requests]


def everybody(answer: Any) -> Scripted:
    return said({model.id: answer for model in Catalog.shipped().models})


async def test_a_judge_without_rulings_does_not_decide_alone() -> None:
    client = everybody(MET)
    verdict = await judged(client)
    (one,) = verdict.criteria
    assert (verdict.verdict, verdict.verified, one.outcome, one.code) == ("FAIL", False, "cannot_tell", "not_confident")
    assert "was never measured" in one.reason
    assert len(client.requests) == 1


async def test_without_the_setting_any_judge_decides_alone() -> None:
    verdict = await judged(everybody(MET), max_false_pass=None)
    assert verdict.verdict == "PASS"
    assert verdict.judge
    assert verdict.judge.false_pass is None


async def test_a_judge_below_the_limit_decides_alone_and_the_verdict_shows_its_rate() -> None:
    client = everybody(MET)
    verdict = await judged(client, lines(OTHER, 200, 2))
    assert (verdict.verdict, asked(client)) == ("PASS", [OTHER]), "it is asked before a cheaper one of unknown worth"
    rate = verdict.judge.false_pass if verdict.judge else None
    assert rate
    assert (rate.judge, rate.n, rate.false_passes, rate.limit) == (OTHER, 200, 2, LIMIT)
    assert rate.upper == pytest.approx(0.0357, abs=1e-4)
    assert rate.measured_on
    reasons = {one.model: one.reason or "" for one in verdict.judge.candidates} if verdict.judge else {}
    assert "never measured" in reasons[CHEAPEST]


@pytest.mark.parametrize(
    ("bad", "errors"), [(71, 0), (200, 6), (1, 1), (1_000, 60)], ids=["too few", "too near", "wrong", "known bad"]
)
async def test_a_judge_over_the_limit_never_decides_alone(bad: int, errors: int) -> None:
    verdict = await judged(everybody(MET), lines(CHEAPEST, bad, errors), judge_model=CHEAPEST)
    assert verdict.criteria[0].code == "not_confident"
    assert f"{errors} of {bad} rulings" in verdict.criteria[0].reason
    assert verdict.judge
    assert verdict.judge.false_pass
    assert verdict.judge.false_pass.upper >= LIMIT


async def test_what_it_does_not_find_met_stays_so() -> None:
    for answer, code in ((NOT, "not_met"), (UNSURE, "cannot_tell")):
        assert (await judged(everybody(answer))).code == code


async def test_a_second_judge_of_another_family_can_confirm() -> None:
    client = everybody(MET)
    verdict = await judged(client, escalate=True)
    assert (verdict.verdict, verdict.verified, asked(client)) == ("PASS", True, [CHEAPEST, OTHER])
    assert verdict.judge
    assert verdict.judge.escalated
    assert [one.outcome for one in verdict.judge.attempts[0].answers] == ["met"]


@pytest.mark.parametrize(
    ("second", "code"),
    [(NOT, "not_met"), (UNSURE, "cannot_tell"), (ProviderError("timeout", "x", provider="x"), "not_confident")],
)
async def test_a_second_judge_that_does_not_confirm_makes_it_a_fail(second: Any, code: str) -> None:
    verdict = await judged(said({CHEAPEST: MET, OTHER: second}), escalate=True)
    assert (verdict.verdict, verdict.code) == ("FAIL", code)


async def test_an_unmeasured_second_judge_does_not_decide_what_the_first_left_open() -> None:
    client = said({CHEAPEST: UNSURE, OTHER: MET})
    assert (await judged(client, escalate=True)).code == "not_confident"


async def test_a_measured_judge_is_not_confirmed_by_others() -> None:
    client = everybody(MET)
    verdict = await judged(client, lines(CHEAPEST, 100), escalate=True)
    assert (verdict.verdict, asked(client)) == ("PASS", [CHEAPEST])


async def test_a_measured_judge_that_is_down_leaves_no_decision_to_the_next_one() -> None:
    down = ProviderError("auth", "no access", provider="x")
    client = said({model.id: MET for model in Catalog.shipped().models} | {OTHER: down})
    verdict = await judged(client, lines(OTHER, 100))
    assert asked(client)[0] == OTHER
    assert verdict.code == "not_confident"


async def test_a_rubric_needs_a_measured_judge_or_two_as_well() -> None:
    assert (await judged(everybody(MET), criteria=[RUBRIC])).criteria[0].code == "not_confident"
    client = everybody(MET)
    assert (await judged(client, criteria=[RUBRIC], escalate=True)).verdict == "PASS"
    assert asked(client) == [CHEAPEST, OTHER]
    assert (await judged(said({CHEAPEST: MET, OTHER: NOT}), criteria=[RUBRIC], escalate=True)).verdict == "FAIL"


async def test_several_questions_are_confirmed_each() -> None:
    client = everybody(MET)
    verdict = await judged(client, criteria=["report: the report says that two passed", RUBRIC], escalate=True)
    assert (verdict.verdict, len(client.requests)) == ("PASS", 4)


@pytest.mark.parametrize("fields", [{"version": "sha256:old"}, {"sampling": "chosen"}], ids=["version", "sampling"])
async def test_rulings_on_another_method_or_on_picked_criteria_do_not_count(fields: dict[str, Any]) -> None:
    verdict = await judged(everybody(MET), lines(CHEAPEST, 500, **fields))
    assert verdict.judge
    assert (verdict.code, verdict.judge.false_pass) == ("not_confident", None)


async def test_people_who_disagree_do_not_clear_a_judge() -> None:
    some = lines(CHEAPEST, 90, 6)
    overruled = some.replace('"not_met", "judged": "met"', '"met", "judged": "met", "ruled_by": "bob"')
    assert (await judged(everybody(MET), some, overruled)).code == "not_confident"
    picked = overruled.replace("random", "chosen")
    assert (await judged(everybody(MET), some, picked)).code == "not_confident"
    same_person = overruled.replace("bob", "me")
    assert (await judged(everybody(MET), some, same_person)).code == "met", "who ruled may change their mind"


@pytest.mark.parametrize("word", ["skipped", "error", "trusted"])
async def test_what_a_judge_did_not_refuse_speaks_not_for_it(word: str) -> None:
    rulings = lines(CHEAPEST, 100).replace('"judged": "not_met"', f'"judged": "{word}"')
    assert (await judged(everybody(MET), rulings)).code == "not_confident"


WORKER = "gpt-6-luna"


async def test_the_own_rate_on_a_workers_work_counts_where_it_is_known() -> None:
    good, bad = lines(CHEAPEST, 2_000, worker="x"), lines(CHEAPEST, 100, 30, worker=WORKER)
    known_bad = await judged(everybody(MET), good, bad, worker=WORKER)
    assert known_bad.judge
    assert known_bad.judge.false_pass
    assert (known_bad.code, known_bad.judge.false_pass.worker) == ("not_confident", WORKER)
    others = await judged(everybody(MET), worker="claude-haiku-5-5")
    assert others.judge
    assert others.judge.false_pass
    assert (others.verdict, others.judge.false_pass.worker) == ("PASS", None)


async def test_few_rulings_on_a_workers_work_leave_the_rate_over_all() -> None:
    few = lines(CHEAPEST, 10, worker=WORKER)
    assert (await judged(everybody(MET), lines(CHEAPEST, 300, worker="x"), few, worker=WORKER)).verdict == "PASS"


async def test_a_new_ruling_counts_at_once_and_moves_no_other_judge() -> None:
    client = everybody(MET)
    async with Delegator(client=client, max_false_pass=LIMIT) as delegator:
        task: dict[str, Any] = {"goal": "g", "acceptance_criteria": ["report: the report says that two passed"]}
        before = await delegator.judge(**task, report=REPORT)
        await delegator.records.import_rulings(lines("gpt-6-sol", 5, 5), by="me")
        same = await delegator.judge(**task, report=REPORT)
        await delegator.records.import_rulings(lines(CHEAPEST, 100), by="me")
        after = await delegator.judge(**task, report=REPORT)
    assert [one.code for one in (before, same, after)] == ["not_confident", "not_confident", "met"]
    assert before.judge
    assert same.judge
    assert [one.model for one in before.judge.candidates] == [one.model for one in same.judge.candidates]
    assert REFRESH_SECONDS >= 1, "so that verdicts seldom read the records"


async def test_an_accuracy_with_its_counts_stands_in_for_rulings() -> None:
    measured = {"accuracy": 0.95, "rulings": 400, "bad": 200, "false_passes": 1, "measured_on": "2026-11-20"}
    for version, code in ((judge_version(CHEAPEST), "met"), ("sha256:old", "not_confident")):
        accuracy = {CHEAPEST: {**measured, "judge_version": version}}
        verdict = await judged(everybody(MET), judge_accuracy=accuracy)
        assert verdict.code == code

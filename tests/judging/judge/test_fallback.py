"""Unreachable judges: which one is asked next, what the verdict records, and what is never asked twice."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from delegate import Delegator, Task, Verdict
from delegate.models.catalog import Catalog
from delegate.models.providers.scripted import Answer, Scripted
from delegate.types import JudgeRecord, Usage
from delegate.types.errors import ProviderError, ProviderFault
from delegate.types.events import Event, as_json
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.deadlines import in_time
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.repeats import repeat_quickly
from tests.support.words import is_judge, met_by, verdicts, words
from tests.types.test_events import misfits

REPORT = "I ran the suite:\n2 passed"
GOOD = met_by("2 passed")
USAGE = Usage(model_calls=1, input_tokens=1_000, output_tokens=100)
RUBRIC = {
    "kind": "rubric",
    "rubric": {"name": "style", "dimensions": [{"id": "clear", "description": "it is clear", "about": "report"}]},
}
SCORE = {"id": "clear", "evidence": "2 passed", "reason": "plain", "score": 1}
SCORED = json.dumps({"scores": [SCORE], "failure_modes": [], "wins": []})
TWO_PASSED = "report: the report says that two passed"
OPENAI_KEY, ANTHROPIC_KEY = "sk-openai-0123456789", "sk-ant-0123456789"


def unreachable(fault: ProviderFault = "server_error", **fields: Any) -> ProviderError:
    """An error that costs nothing and isn't repeated."""
    final = fault in ("server_error", "connection")
    outcome = "not_sent" if final else "rejected"
    return ProviderError(fault, f"{fault} here", provider="x", outcome=outcome, final=final, **fields)


def in_turn(*answers: ChatReply | str | Exception) -> Scripted:
    return Scripted(answers)


def good(**fields: Any) -> ChatReply:
    return ChatReply(verdicts(c1=("met", "2 passed")), "end", USAGE, **fields)


async def judged(client: Scripted | None, *criteria: Any, worker: str | None = None, **settings: Any) -> Verdict:
    async with Delegator(client=client, **settings) as delegator:
        repeat_quickly(delegator)
        return await delegator.judge(
            goal="run the suite", acceptance_criteria=criteria or (TWO_PASSED,), report=REPORT, worker_model=worker
        )


def record_of(verdict: Verdict) -> JudgeRecord:
    assert verdict.judge
    return verdict.judge


def provider_of(model: str) -> str:
    found = Catalog.shipped().find(model)
    assert found
    return found.provider


async def test_the_verdict_lists_every_attempt_in_order_with_its_result() -> None:
    client = in_turn(unreachable("timeout"), unreachable("bad_reply"), good())
    verdict = await judged(client)
    record = record_of(verdict)
    assert verdict.verdict == "PASS"
    assert [one.model for one in record.attempts] == [request.model for request in client.requests]
    assert [one.fault for one in record.attempts] == ["timeout", "bad_reply", None]
    assert [one.message for one in record.attempts] == ["timeout here", "bad_reply here", ""]
    assert [one.cost_usd for one in record.attempts][:2] == [0, 0]
    last = record.attempts[-1]
    assert (record.model, last.model_served, last.usage) == (last.model, last.model, USAGE)
    assert record.usage == USAGE
    assert record.cost_usd == last.cost_usd == record.cost_known_usd
    assert record.cost_provenance == "observed"
    reasons = {one.model: one.reason for one in record.candidates}
    assert [reasons[one.model] for one in record.attempts] == [
        "timeout: timeout here",
        "bad_reply: bad_reply here",
        None,
    ]


async def test_the_record_is_complete_even_if_no_judge_answered() -> None:
    client = Scripted([unreachable()] * 9)
    verdict = await judged(client)
    record = record_of(verdict)
    assert (verdict.verdict, verdict.code, verdict.criteria[0].outcome) == ("FAIL", "judge_unavailable", "error")
    assert (record.model, record.cost_usd, record.usage) == (None, 0, Usage())
    assert len(record.attempts) == len(client.requests) == 3, "at most three models are tried"
    assert {one.fault for one in record.attempts} == {"server_error"}


async def test_the_last_attempt_uses_another_endpoint_after_two_failures() -> None:
    def endpoint(name: str, url: str, price: float, *models: str) -> dict[str, Any]:
        priced = {"tier": "fast", "input_price": price, "output_price": price}
        return {"name": name, "base_url": url, "models": [{"id": model, **priced} for model in models]}

    busy = Fault(429, headers={"retry-after": "3600"})
    with ModelServer([busy] * 9) as cheap, ModelServer(wire_answer) as dear:
        endpoints = (
            endpoint("cheap", cheap.openai_url, 1, "a", "b", "c", "d"),
            endpoint("dear", dear.openai_url, 2, "e"),
        )
        verdict = await judged(None, endpoints=endpoints)
    assert verdict.verdict == "PASS", verdict.reasoning
    assert [one.model for one in record_of(verdict).attempts] == ["a", "b", "e"]


@pytest.mark.parametrize("fault", ["auth", "connection"])
async def test_an_unavailable_provider_is_asked_only_once_per_verdict(fault: ProviderFault) -> None:
    first: list[str] = []

    def answer(request: ChatRequest) -> Answer:
        provider = provider_of(request.model)
        first[:] = first or [provider]
        if provider == first[0]:
            raise unreachable(fault)
        return SCORED if "rubric" in request.system.lower() else verdicts(c1=("met", "2 passed"))

    client = Scripted(answer)
    verdict = await judged(client, TWO_PASSED, RUBRIC)
    tried = [provider_of(request.model) for request in client.requests]
    assert verdict.verdict == "PASS", verdict.reasoning
    assert tried.count(first[0]) == 1
    reasons = [one.reason or "" for one in record_of(verdict).candidates if one.provider == first[0]]
    assert any(reason.startswith("not asked, since its endpoint failed") for reason in reasons)


async def test_if_every_endpoint_is_down_later_questions_make_no_calls() -> None:
    client = Scripted([unreachable("connection")] * 9)
    verdict = await judged(client, TWO_PASSED, RUBRIC)
    assert len(client.requests) == 3, "one call for each of the three providers"
    assert [one.code for one in verdict.criteria] == ["judge_unavailable"] * 2
    assert "connection here" in verdict.criteria[1].reason


@pytest.mark.parametrize("fault", ["rate_limited", "overloaded"])
async def test_a_candidate_with_too_long_a_wait_is_replaced_by_the_next(fault: ProviderFault) -> None:
    client = in_turn(unreachable(fault, retry_after=100), good())
    record = record_of(await judged(client))
    assert [one.fault for one in record.attempts] == [fault, None]
    assert record.model == client.requests[1].model != client.requests[0].model


async def test_the_last_candidate_is_waited_for_as_long_as_the_run_has_time() -> None:
    async def play(seconds: float) -> tuple[str, int]:
        client = in_turn(unreachable("rate_limited", retry_after=100), good())
        verdict = await judged(client, judge_model="gpt-6-luna", run_timeout_seconds=seconds)
        return verdict.code, len(client.requests)

    assert await in_time(play, lambda played: played[1] == 1) == ("budget_exceeded", 1)


@pytest.mark.parametrize("escalate", [False, True])
@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (ChatReply("", "refusal", USAGE, stop_detail="policy"), "judge_refused"),
        (ChatReply('{"answers": [', "length", USAGE), "judge_unparseable"),
        ("PASS, all good", "judge_unparseable"),
        (verdicts(c9=("met", "2 passed")), "judge_unparseable"),
    ],
    ids=["refusal", "cut off", "prose", "unknown id"],
)
async def test_no_other_judge_is_asked_after_an_unusable_answer(reply: Answer, code: str, escalate: bool) -> None:
    client = in_turn(reply, good())
    verdict = await judged(client, escalate=escalate)
    record = record_of(verdict)
    assert (verdict.verdict, verdict.code, len(client.requests)) == ("FAIL", code, 1)
    assert (record.model, record.escalated, len(record.attempts)) == (client.requests[0].model, False, 1)
    assert record.usage.model_calls == 1, "an answered call is charged"


async def test_a_limit_of_the_ledger_ends_the_asking_and_says_which() -> None:
    client = in_turn(good(), SCORED)
    verdict = await judged(client, TWO_PASSED, RUBRIC, max_run_model_calls=1)
    assert (verdict.verdict, verdict.code, len(client.requests)) == ("FAIL", "budget_exceeded", 1)
    assert "model_calls" in verdict.reasoning
    for part in ("1 of 1 spent", "0 reserved", "0 left"):
        assert part in verdict.reasoning
    record = record_of(verdict)
    assert (record.model, record.usage) == (client.requests[0].model, USAGE), "the cost of the first answer is kept"


async def test_what_the_ledger_refuses_is_not_asked_and_goes_to_no_other_model() -> None:
    client = in_turn(unreachable(), good())
    verdict = await judged(client, max_run_tokens=5)
    record = record_of(verdict)
    assert (verdict.code, client.requests, record.attempts, record.model) == ("budget_exceeded", [], (), None)
    assert "not asked: the next step exceeds the limit tokens" in str([one.reason for one in record.candidates])


async def test_several_questions_of_one_verdict_make_one_record_and_cost() -> None:
    client = in_turn(unreachable(), good(), ChatReply(SCORED, "end", USAGE))
    verdict = await judged(client, TWO_PASSED, RUBRIC)
    record = record_of(verdict)
    assert verdict.verdict == "PASS", verdict.reasoning
    assert [one.fault for one in record.attempts] == ["server_error", None, None]
    assert record.model == record.attempts[1].model, "the first that answered is named"
    first = record_of(await judged(in_turn(unreachable(), good())))
    assert record.candidates == first.candidates, "and so are its candidates"
    assert record.usage == USAGE + USAGE
    assert record.cost_usd == pytest.approx(sum(one.cost_usd or 0 for one in record.attempts))
    assert record.seconds == pytest.approx(sum(one.seconds for one in record.attempts), abs=1e-5)


async def test_the_judges_cost_is_part_of_the_tasks() -> None:
    def judge(request: ChatRequest) -> Answer:
        if request.model not in asked:
            asked.append(request.model)
        if len(asked) == 1:
            raise unreachable()
        return good()

    asked: list[str] = []
    async with Delegator(client=words([REPORT], judge)) as delegator:
        result = await delegator.run(Task(goal="run the suite", acceptance_criteria=[TWO_PASSED]))
    verdict = result.results[0].verdict
    assert verdict
    assert result.totals.judge_usage == USAGE
    assert result.totals.judge_cost_usd == pytest.approx(record_of(verdict).cost_usd)
    assert result.totals.cost_usd == pytest.approx((result.totals.child_cost_usd or 0) + (verdict.judge.cost_usd or 0))  # type: ignore[union-attr]


async def test_the_judge_version_depends_on_exactly_the_judges_that_answered() -> None:
    alone = await judged(in_turn(good()))
    after_a_fault = await judged(in_turn(unreachable(), good()))
    the_other_alone = await judged(in_turn(good()), judge_model=record_of(after_a_fault).model)
    two_judges = await judged(in_turn(good(), unreachable("timeout"), SCORED), TWO_PASSED, RUBRIC)
    assert after_a_fault.judge_version == the_other_alone.judge_version != alone.judge_version
    assert two_judges.judge_version not in (alone.judge_version, the_other_alone.judge_version)


# ------------------------------------------------------------------------------------------------- running out of time


async def test_a_verdict_that_runs_out_of_time_keeps_its_attempts_and_cost() -> None:
    async def play(seconds: float) -> tuple[Verdict, Scripted]:
        async def answer(request: ChatRequest) -> Answer:
            if len(client.requests) > 1:
                await asyncio.Event().wait()
            return good()

        client = Scripted(answer)
        criteria = TWO_PASSED, RUBRIC
        return await judged(client, *criteria, run_timeout_seconds=seconds), client

    verdict, client = await in_time(play, lambda played: len(played[1].requests) == 2)
    record = record_of(verdict)
    assert (verdict.verdict, verdict.code, verdict.decided_by) == ("FAIL", "budget_exceeded", "nobody")
    assert [(one.model, one.fault) for one in record.attempts] == [
        (client.requests[0].model, None),
        (client.requests[1].model, "timeout"),
    ]
    assert (record.usage.model_calls, record.model) == (2, client.requests[0].model)
    assert record.cost_usd == sum(one.cost_usd or 0 for one in record.attempts)
    assert record.cost_provenance == "estimated"


async def test_an_error_in_judging_keeps_the_cost(caplog: pytest.LogCaptureFixture) -> None:
    client = in_turn(good(), RuntimeError("not a provider's error"))
    verdict = await judged(client, TWO_PASSED, RUBRIC)
    assert (verdict.verdict, verdict.code) == ("FAIL", "internal_error")
    assert record_of(verdict).usage == USAGE
    assert "judging failed" in caplog.text


# -------------------------------------------------------------------------------------------------------- substitution


def found(verdict: Verdict) -> list[tuple[str, str]]:
    return [(one.severity, one.message) for one in verdict.findings if one.code == "judge_substituted"]


@pytest.mark.parametrize(
    ("served", "worker", "severity", "told", "same_model"),
    [
        ("claude-opus-5-5", "gpt-6-luna", "major", "tier deep, above fast", False),
        ("gpt-5.4-mini", "gpt-5.4-mini", "major", "gpt-5.4-mini", True),
        ("house-model-7", None, "minor", "which isn't in the catalog", False),
    ],
    ids=["stronger", "the worker's", "unknown"],
)
async def test_the_record_names_the_model_that_judged_and_a_finding_that_it_is_another(
    served: str, worker: str | None, severity: str, told: str, same_model: bool
) -> None:
    client = in_turn(good(model_served=served))
    verdict = await judged(client, worker=worker)
    record, model = record_of(verdict), Catalog.shipped().find(served)
    ((found_severity, message),) = found(verdict)
    assert found_severity == severity
    assert all(text in message for text in (client.requests[0].model, served, told))
    assert client.requests[0].model != served
    assert (record.substituted, record.model_served, record.same_model_as_worker) == (True, served, same_model)
    assert model is None or (record.tier, record.family) == (model.tier, model.family)
    assert model is not None or record.cost_provenance == "estimated"


async def test_a_snapshot_of_the_judge_that_was_asked_is_no_substitution() -> None:
    def answer(request: ChatRequest) -> Answer:
        return good(model_served=f"{request.model}-2026-10-01")

    verdict = await judged(Scripted(answer))
    assert found(verdict) == []
    assert not record_of(verdict).substituted


# ------------------------------------------------------------------------------------------------------- over the wire


def wire_answer(call: Call) -> Reply:
    return Reply(verdicts(c1=("met", "2 passed")))


def key_in(call: Call) -> str:
    return call.headers.get("x-api-key") or call.headers["authorization"]


FAULTS: dict[str, tuple[Callable[[Call], Fault], ProviderFault]] = {
    "429": (lambda call: Fault(429, headers={"retry-after": "3600"}), "rate_limited"),
    "hang": (lambda call: Fault(kind="hang"), "timeout"),
    "key quoted": (lambda call: Fault(401, {"error": {"message": f"wrong key: {key_in(call)}"}}), "auth"),
}


@pytest.mark.parametrize("kind", FAULTS)
async def test_another_provider_judges_when_the_first_ones_endpoint_fails(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    down: list[str] = []
    fail, fault = FAULTS[kind]

    def script(call: Call) -> Reply | Fault:
        down[:] = down or [call.api]
        return fail(call) if call.api == down[0] else wire_answer(call)

    with ModelServer(script) as openai, ModelServer(script) as anthropic:
        monkeypatch.setenv("OPENAI_BASE_URL", openai.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", OPENAI_KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", anthropic.anthropic_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", ANTHROPIC_KEY)
        verdict = await judged(None, call_timeout_seconds=0.3 if kind == "hang" else 30)
    record = record_of(verdict)
    failed, last = record.attempts[:-1], record.attempts[-1]
    assert verdict.verdict == "PASS", verdict.reasoning
    assert {(provider_of(one.model), one.fault) for one in failed} == {(provider_of(failed[0].model), fault)}
    assert (last.fault, last.model, provider_of(last.model)) == (None, record.model, record.provider)
    assert record.provider != provider_of(failed[0].model)
    assert {key_in(call).removeprefix("Bearer ") for call in openai.calls} == {OPENAI_KEY}
    assert {key_in(call).removeprefix("Bearer ") for call in anthropic.calls} == {ANTHROPIC_KEY}
    assert not any(key in verdict.model_dump_json() for key in (OPENAI_KEY, ANTHROPIC_KEY))


async def test_a_judge_without_a_price_may_judge_until_cost_is_limited() -> None:
    with ModelServer(wire_answer) as server:
        models = [{"id": "house-judge", "tier": "standard"}]
        endpoint: dict[str, Any] = {"name": "house", "base_url": server.openai_url, "models": models}
        free = await judged(None, endpoints=(endpoint,))
        limited = await judged(None, endpoints=(endpoint,), max_cost_usd=1.0)
    assert (free.verdict, record_of(free).model) == ("PASS", "house-judge")
    assert (record_of(free).cost_usd, record_of(free).cost_provenance) == (None, "unknown")
    assert (limited.verdict, limited.code, len(server.calls)) == ("FAIL", "no_eligible_judge", 1)


async def test_a_wait_before_a_judge_is_asked_again_is_reported() -> None:
    asked: list[ChatRequest] = []
    waits: list[Event] = []

    def answer(request: ChatRequest) -> str:
        if not is_judge(request):
            return "I did the work."
        asked.append(request)
        if len(asked) == 1:
            raise ProviderError("rate_limited", "slow down", provider="openai", retry_after=0.3)
        return met_by("I did the work.")(request)

    def keep(event: Event) -> None:
        if event.kind == "judge.waiting":
            waits.append(event)

    async with Delegator(client=Scripted(answer), judge_model="gpt-6-luna", on_event=keep) as delegator:
        await delegator.run(Task(goal="Do it.", acceptance_criteria=["deed: the work is done"]))
    begun, ended = (as_json(one) for one in waits)
    assert (begun["model"], begun["reason"], begun["seconds"]) == ("gpt-6-luna", "rate_limit", None)
    assert ended["seconds"] >= 0.01
    assert misfits([begun, ended]) == []

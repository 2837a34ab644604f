"""What tasks will cost is estimated before anything is spent: in a plan, and where a person is asked about a call."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from delegate import Delegator, Task
from delegate._util.tokens import tokens_of
from delegate.budget.estimate import FEWEST_RECORDS, PROMPT_TOKENS, Estimate, Estimator, PastTask, goal_tokens
from delegate.models.catalog import Model, Price
from delegate.policy.approvals import ApprovalAnswer, ApprovalRequest
from delegate.policy.settings import DeclaredEndpoint, DeclaredModel, Settings
from delegate.types import JsonObject, Usage
from tests.support.model_server import Call, ModelServer, Reply

DATA = Path(__file__).parents[1] / "data"
CALL: JsonObject = {"goal": "Say hello.", "tier": "standard"}


def model(id: str, price: float | None) -> DeclaredModel:
    return DeclaredModel(id=id, tier="standard", input_price=price, output_price=price)


def settings(home: Path, url: str, *models: DeclaredModel, **more: Any) -> Settings:
    endpoint = DeclaredEndpoint(name="e", base_url=url, protocol="openai", models=models or (model("m", 100),))
    return Settings.model_validate({"home": home, "endpoints": (endpoint,), **more})


def says(call: Call) -> Reply:
    return Reply("Hello.", input_tokens=1_000, output_tokens=100)


class Person:
    """Answers as it is told, and keeps what it was asked."""

    def __init__(self, answer: ApprovalAnswer | bool | None) -> None:
        self.answer = answer
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer | bool | None:
        self.asked.append(request)
        return self.answer


# ------------------------------------------------------------------------------------------------------- the estimate


async def test_what_is_on_record_of_other_models_is_priced_as_if_this_one_had_done_it(home: Path) -> None:
    with ModelServer(says) as server:
        both = model("cheap", 1), model("dear", 10)
        async with Delegator(settings(home, server.openai_url, *both)) as delegator:
            await delegator.run(*(Task(goal="Say hello.") for _ in range(FEWEST_RECORDS)))
            plan = await delegator.batches.plan([Task(goal="Say hello.", model="dear")])
    (group,) = plan.groups
    assert (group.model, group.basis, group.records) == ("dear", "steps", FEWEST_RECORDS)
    assert group.each_usd == pytest.approx(1_100 * 10 / 1e6)


async def test_a_longer_goal_costs_more_in_each_turn(home: Path) -> None:
    with ModelServer(says) as server:
        async with Delegator(settings(home, server.openai_url)) as delegator:
            await delegator.run(*(Task(goal="Say hello.") for _ in range(FEWEST_RECORDS)))
            short = await delegator.batches.plan([Task(goal="Say hello.")])
            long = await delegator.batches.plan([Task(goal="Say hello.", context="word " * 10_000)])
    assert short.estimate.usd == pytest.approx(1_100 * 100 / 1e6)
    assert long.estimate.usd
    assert short.estimate.usd
    assert 0.8 < (long.estimate.usd - short.estimate.usd) / (10_000 * 100 / 1e6) < 1.5


@pytest.mark.parametrize(
    ("of_task", "of_batch", "limit"), [(None, None, None), (0.5, None, 1.0), (0.5, 0.3, 0.3), (None, 0.3, 0.3)]
)
async def test_the_estimate_says_what_the_limits_allow_at_most(
    home: Path, of_task: float | None, of_batch: float | None, limit: float | None
) -> None:
    async with Delegator(settings(home, "http://127.0.0.1:9/v1")) as delegator:
        tasks = [Task(goal="Say hello.", max_cost_usd=of_task) for _ in range(2)]
        plan = await delegator.batches.plan(tasks, max_cost_usd=of_batch)
    assert plan.limit_usd == limit
    assert plan.estimate.usd
    assert plan.estimate.low_usd
    assert plan.estimate.low_usd <= plan.estimate.usd <= (limit or plan.estimate.usd)


async def test_without_a_price_nothing_is_claimed(home: Path) -> None:
    async with Delegator(settings(home, "http://127.0.0.1:9/v1", model("own", None))) as delegator:
        plan = await delegator.batches.plan([Task(goal="Say hello.")])
    assert (plan.estimate.usd, plan.estimate.low_usd, plan.groups[0].basis) == (None, None, "unknown")
    assert str(plan.estimate) == "unknown"


# ------------------------------------------------------------------------------------------- calls that are asked about


async def called(home: Path, person: Person | None, **more: Any) -> tuple[str, int]:
    """The status or the code of a model's call, and the number of model calls. It will cost about two dollars."""
    with ModelServer(says) as server:
        async with Delegator(settings(home, server.openai_url, **more), on_approval=person) as delegator:
            result = await delegator.call(CALL)
    return result.error.code if result.error else result.results[0].status, len(server.calls)


async def test_a_call_that_will_cost_more_is_run_once_a_person_approves_it(home: Path) -> None:
    person = Person(ApprovalAnswer(approved=True, by="ada"))
    assert await called(home, person, ask_above_usd=0.5) == ("completed", 1)
    (request,) = person.asked
    text = request.describe()
    assert text.startswith("A model wants to call delegate_task:\n")
    assert "$2.20 likely, $0.25" in text
    assert "$5.00 at most; calls above $0.5000 need an approval (setting ask_above_usd) (expensive)" in text
    assert "Say hello." in text


@pytest.mark.parametrize(
    "answer",
    [False, None, ApprovalAnswer(approved=False), ApprovalAnswer(approved=True, sha256="another"), "yes"],
    ids=str,
)
async def test_all_but_a_clear_yes_is_a_no_and_costs_nothing(home: Path, answer: Any) -> None:
    assert await called(home, Person(answer), ask_above_usd=0.5) == ("not_approved", 0)


async def test_with_nobody_to_ask_it_is_refused_with_the_estimate(home: Path) -> None:
    with ModelServer(says) as server:
        async with Delegator(settings(home, server.openai_url, ask_above_usd=0.5)) as delegator:
            error = (await delegator.call(CALL)).error
    assert error
    assert error.message.startswith("it will cost $2.20 likely")
    assert "(setting ask_above_usd), and nobody is there to give one" in error.message
    assert server.calls == []


@pytest.mark.parametrize("more", [{"ask_above_usd": 2.5}, {}], ids=["cheaper", "not set"])
async def test_what_costs_less_is_not_asked_about(home: Path, more: dict[str, Any]) -> None:
    person = Person(False)
    assert await called(home, person, **more) == ("completed", 1)
    assert person.asked == []


async def test_a_limit_below_needs_no_question(home: Path) -> None:
    assert await called(home, None, ask_above_usd=0.5, max_cost_usd=0.5) == ("completed", 1)


async def test_what_a_person_runs_is_not_asked_about(home: Path) -> None:
    person = Person(False)
    with ModelServer(says) as server:
        async with Delegator(settings(home, server.openai_url, ask_above_usd=0.5), on_approval=person) as delegator:
            assert (await delegator.run(Task(goal="Say hello."))).results[0].status == "completed"
    assert person.asked == []


async def test_what_cannot_be_estimated_is_asked_about(home: Path) -> None:
    with ModelServer(says) as server:
        own = settings(home, server.openai_url, model("own", None), ask_above_usd=0.5)
        async with Delegator(own, on_approval=(person := Person(False))) as delegator:
            result = await delegator.call(CALL)
    assert result.error
    assert (result.error.code, len(person.asked)) == ("not_approved", 1)
    assert person.asked[0].reason.startswith("what it will cost is unknown; calls above $0.5000 need an approval")


# ------------------------------------------------------------------------------------------- how far it lies off

PRICED = Model(
    id="priced",
    provider="x",
    family="x",
    tier="standard",
    context_tokens=1_000_000,
    structured_output=True,
    tools=True,
    max_output_tokens=32_000,
    prices=(Price(input=2, output=8, cached_input=0.5),),
)


def taken(goal: str, turns: Sequence[tuple[str, str]]) -> PastTask:
    """What a run took, by the texts that its model wrote and read in each turn, at the prices of one model."""
    read, written, cached, conversation = 0, 0, 0, PROMPT_TOKENS + tokens_of(goal)
    before = 0
    for reply, result in turns:
        read, cached, written = read + conversation, cached + before, written + tokens_of(reply)
        before, conversation = conversation, conversation + tokens_of(reply) + tokens_of(result)
    usage = Usage(model_calls=len(turns), input_tokens=read, cached_tokens=cached, output_tokens=written)
    cost = ((read - cached) * 2 + cached * 0.5 + written * 8) / 1e6
    return PastTask("priced", cost, 0, usage, tokens_of(goal))


def recorded() -> dict[str, list[PastTask]]:
    """Real runs of two kinds: of gpt-4o in tau-bench, whose results of tools are cut, and of our own tasks."""
    airline = [json.loads(line) for line in (DATA / "tau_airline_runs.jsonl").read_text().splitlines()]
    own = [json.loads(line) for line in (DATA / "live" / "tasks.jsonl").read_text().splitlines()]
    calls = [[*((json.dumps(one["args"]), one["result"]) for one in run["calls"])] for run in airline]
    closings = [(run["closing"] or "", "") for run in airline]
    return {
        "airline": [taken("", [*turns, closing]) for turns, closing in zip(calls, closings, strict=True)],
        "own": [
            taken(task["goal"], [(json.dumps(reply), "") for reply in run["replies"]])
            for task in own
            for run in task["runs"]
            if run["kind"] == "honest" and run["replies"]
        ],
    }


async def estimated(left_out: int, runs: Sequence[PastTask]) -> Estimate:
    async def past(_: str | None) -> Sequence[PastTask]:
        return [run for n, run in enumerate(runs) if n != left_out]

    estimator = Estimator()
    estimator.add(Task(goal="x"), [PRICED])
    return await estimator.estimate(past, left_usd=None)


@pytest.mark.parametrize("kind", ["airline", "own"])
async def test_how_far_estimates_of_single_tasks_and_of_ten_lie_from_what_they_took(kind: str) -> None:
    """Each run is estimated from all others. docs/measurements.md has the figures."""
    runs = recorded()[kind]
    estimates = [await estimated(n, runs) for n in range(len(runs))]
    took, likely = [run.cost_usd for run in runs], [estimate.usd or 0 for estimate in estimates]
    ratios = [real / guess for real, guess in zip(took, likely, strict=True)]
    within = mean(1 / 2 <= ratio <= 2 for ratio in ratios)
    below = mean(real < (estimate.low_usd or 0) for real, estimate in zip(took, estimates, strict=True))
    tens = [sum(took[n : n + 10]) / sum(likely[n : n + 10]) for n in range(0, len(runs) - 9, 10)]
    print(
        f"{kind}: {len(runs)} runs, took by likely: median {median(ratios):.2f}, {min(ratios):.2f} to "
        f"{max(ratios):.2f}; {within:.0%} within a factor of 2, {below:.0%} below the low one; "
        f"tens: {[round(ten, 2) for ten in tens]}"
    )
    assert 0.8 < median(ratios) < 1.25
    assert within > 0.5
    assert below <= 0.13
    assert all(0.5 < ten < 2 for ten in tens)


def test_the_length_of_a_goal_includes_its_context() -> None:
    assert goal_tokens(Task(goal="a b c", context="d e f")) == tokens_of("a b c") + tokens_of("d e f")

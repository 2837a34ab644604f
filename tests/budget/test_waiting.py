"""Calls wait for room in a budget, what was cut off is charged, and what bills itself starts only with room."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate import Cancellation, ChildRun, Delegator, Job, Task
from delegate.budget import metering
from delegate.budget.costs import Charge, total
from delegate.budget.ledger import LEAST_OUTPUT, ROUNDING, Ledger
from delegate.models.catalog import Catalog, Model, Price
from delegate.models.connections import Connection
from delegate.models.providers.scripted import Scripted
from delegate.models.ratelimit import RateLimiter
from delegate.types import Usage
from delegate.types.errors import BudgetExceeded, ProviderError, ProviderFault
from delegate.types.ports import ChatReply, ChatRequest, Message
from tests.support.words import is_judge, met_by, words

MODEL = Model(
    id="m",
    provider="scripted",
    family="scripted",
    tier="standard",
    context_tokens=100_000,
    max_output_tokens=1_000,
    structured_output=True,
    tools=True,
    prices=(Price(input=10, output=100),),
)
MOST = 1_000
"""Output tokens of a request."""
SURE_USD, POSSIBLE_USD = 0.001, 0.1
"""What a call of 100 input tokens surely and possibly costs, the latter for 1,000 output tokens."""


def connection(client: Any) -> Connection:
    async def no_time(seconds: float) -> None:
        await asyncio.sleep(0)

    return Connection(MODEL, client, RateLimiter(sleep=no_time), Catalog([MODEL]))


def request() -> ChatRequest:
    return ChatRequest(model="m", system="", messages=(Message("user", "x"),), max_output_tokens=MOST)


@dataclass
class Held:
    """A client whose calls are answered by the test, in the order in which they arrive."""

    calls: asyncio.Queue[asyncio.Future[ChatReply]] = field(default_factory=asyncio.Queue[Any])

    async def complete(self, request: ChatRequest) -> ChatReply:
        answer = asyncio.get_running_loop().create_future()
        self.calls.put_nowait(answer)
        return await answer

    async def aclose(self) -> None:
        pass


def reply(output: int, input: int = 100, **more: Any) -> ChatReply:
    return ChatReply("done", "end", Usage(model_calls=1, input_tokens=input, output_tokens=output), **more)


@asynccontextmanager
async def started(client: Any, ledger: Ledger, lost: list[Charge] | None = None) -> AsyncGenerator[asyncio.Task[Any]]:
    """A call of 100 input tokens, as a task that has run as far as it can."""
    call = metering.complete(
        connection(client),
        request(),
        input_tokens=100,
        ledger=ledger,
        on_lost=(lost if lost is not None else []).append,
    )
    task = asyncio.create_task(call)
    for _ in range(10):
        await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, BudgetExceeded, ProviderError):
            await task


async def test_calls_wait_in_order_for_what_others_reserved() -> None:
    ledger, client = Ledger({"cost_usd": 0.2}), Held()
    async with started(client, ledger) as first, started(client, ledger) as second, started(client, ledger) as third:
        assert client.calls.qsize() == 2, "the third would get less than the least output"
        (await client.calls.get()).set_result(reply(output=10))
        assert (await first).charge.cost_usd == pytest.approx(0.002)
        (await client.calls.get()).set_result(reply(output=10))
        (await client.calls.get()).set_result(reply(output=10))
        await asyncio.gather(second, third)
    assert ledger.spent["cost_usd"] == pytest.approx(0.006)
    assert ledger.left("cost_usd") == pytest.approx(0.194)


@pytest.mark.parametrize("limit", [0.0005, 0.0509])
async def test_a_call_that_can_never_fit_is_refused_at_once(limit: float) -> None:
    ledger, client = Ledger({"cost_usd": limit}), Held()
    with pytest.raises(BudgetExceeded, match="cost_usd"):
        await metering.complete(connection(client), request(), input_tokens=100, ledger=ledger)
    assert client.calls.empty()


async def test_who_waits_is_refused_as_soon_as_it_cannot_fit_anymore() -> None:
    ledger, client = Ledger({"cost_usd": 0.1}), Held()
    async with started(client, ledger), started(client, ledger) as waits:
        assert client.calls.qsize() == 1
        (await client.calls.get()).set_result(reply(output=MOST))
        with pytest.raises(BudgetExceeded, match=r"\$0\.1 of \$0\.1 spent"):
            await waits


async def test_a_cancelled_wait_leaves_its_place_to_the_next() -> None:
    ledger, client = Ledger({"model_calls": 2, "tokens": 1_100}), Held()
    async with started(client, ledger), started(client, ledger) as waits, started(client, ledger) as next_one:
        waits.cancel()
        (await client.calls.get()).set_result(reply(output=5))
        (await client.calls.get()).set_result(reply(output=5))
        assert (await next_one).charge.usage.output_tokens == 5
    assert ledger.spent == {"model_calls": 2, "tokens": 210, "cost_usd": pytest.approx(0.003)}


async def test_a_child_at_its_own_limit_holds_back_no_other_child() -> None:
    run, client = Ledger({"cost_usd": 10}), Held()
    poor, rich = Ledger({"cost_usd": 0.1}, parent=run), Ledger({"cost_usd": 5}, parent=run)
    async with started(client, poor), started(client, poor), started(client, rich) as other:
        assert client.calls.qsize() == 2
        await client.calls.get()
        (await client.calls.get()).set_result(reply(output=1))
        await other


def test_calls_on_several_event_loops_wait_for_one_limit() -> None:
    ledger, together, most = Ledger({"tokens": 2_300}), threading.Lock(), Counter[str]()

    class Slow:
        async def complete(self, request: ChatRequest) -> ChatReply:
            with together:
                most["now"] += 1
                most["ever"] = max(most["ever"], most["now"])
            await asyncio.sleep(0.002)
            with together:
                most["now"] -= 1
            return reply(output=10)

    async def ten() -> None:
        calls = (metering.complete(connection(Slow()), request(), input_tokens=100, ledger=ledger) for _ in range(10))
        await asyncio.gather(*calls, return_exceptions=True)

    threads = [threading.Thread(target=asyncio.run, args=(ten(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert 2_300 - 600 < ledger.spent["tokens"] <= 2_300
    assert 1 < most["ever"] <= 3
    assert ledger.left("tokens") == max(0, 2_300 - ledger.spent["tokens"])


# ---------------------------------------------------------------------------------------------- what was cut off

FREE: list[ProviderError] = [
    *(ProviderError(fault, "no", provider="x") for fault in ("auth", "bad_request", "context_overflow", "exhausted")),
    *(ProviderError("server_error", "no", provider="x", status=status) for status in (408, 409, 424, 500, 502, 504)),
    ProviderError("timeout", "the request was too slow", provider="x", status=408),
    ProviderError("bad_reply", "redirected", provider="x", status=302),
    ProviderError("connection", "refused", provider="x", outcome="not_sent"),
    ProviderError("overloaded", "no", provider="x", status=503, final=True),
    ProviderError("overloaded", "later", provider="x", status=503, retry_after=1_000),
    ProviderError("overloaded", "later", provider="x", status=529, retry_after=1_000),
    ProviderError("rate_limited", "later", provider="x", status=429, retry_after=1_000),
]


class Failing:
    """A client that raises the same error for every call."""

    def __init__(self, error: ProviderError) -> None:
        self._error = error
        self.calls = 0

    async def complete(self, request: ChatRequest) -> ChatReply:
        self.calls += 1
        raise self._error

    async def aclose(self) -> None:
        pass


async def lost_by(error: ProviderError) -> tuple[list[Charge], Ledger, int]:
    ledger, client, lost = Ledger({"cost_usd": 100}), Failing(error), list[Charge]()
    with pytest.raises(ProviderError):
        await metering.complete(connection(client), request(), input_tokens=100, ledger=ledger, on_lost=lost.append)
    return lost, ledger, client.calls


@pytest.mark.parametrize("error", FREE, ids=str)
async def test_what_was_rejected_before_processing_costs_nothing(error: ProviderError) -> None:
    lost, ledger, _ = await lost_by(error)
    assert (lost, ledger.spent, ledger.left("cost_usd")) == ([], {}, 100)


@pytest.mark.parametrize("fault", ["connection", "bad_reply"])
async def test_each_attempt_that_may_have_been_processed_is_charged(fault: ProviderFault) -> None:
    lost, ledger, calls = await lost_by(ProviderError(fault, "broken", provider="x"))
    assert len(lost) == calls
    assert ledger.spent["model_calls"] == calls
    assert {one.provenance for one in lost} == {"estimated"}
    assert ledger.spent["cost_usd"] == pytest.approx(total(lost).known_usd)
    assert ledger.spent["cost_usd"] >= calls * SURE_USD * 0.999


async def test_a_call_that_timed_out_is_charged_with_all_it_may_write() -> None:
    lost, ledger, calls = await lost_by(ProviderError("timeout", "too slow", provider="x"))
    assert calls == 1
    assert [one.usage for one in lost] == [Usage(model_calls=1, input_tokens=100, output_tokens=MOST)]
    assert ledger.spent["cost_usd"] == pytest.approx(SURE_USD + POSSIBLE_USD)


async def test_a_cancelled_call_is_charged_in_the_ledger_and_told() -> None:
    ledger, lost = Ledger({"cost_usd": 1}), list[Charge]()
    async with started(Held(), ledger, lost) as call:
        call.cancel()
    assert ledger.spent["cost_usd"] == pytest.approx(SURE_USD + POSSIBLE_USD)
    assert [one.cost_usd for one in lost] == [pytest.approx(SURE_USD + POSSIBLE_USD)]


async def test_the_bill_of_a_cancelled_child_has_the_call_that_was_cut_off() -> None:
    called, cancellation = asyncio.Event(), Cancellation()

    async def hang(request: ChatRequest) -> str:
        called.set()
        await asyncio.Event().wait()
        return ""

    async with Delegator(client=Scripted(hang), model="gpt-5.4-mini") as delegator:
        running = asyncio.create_task(delegator.run(Task(goal="x"), cancellation=cancellation))
        await called.wait()
        cancellation.cancel()
        (result,) = (await running).results
    assert (result.status, result.usage.model_calls, result.cost_provenance) == ("cancelled", 1, "estimated")
    assert result.usage.output_tokens == 32_000
    assert result.cost_usd
    assert result.cost_usd > 32_000 * 0.1 / 1e6


async def test_the_bill_of_a_judge_that_timed_out_has_its_call() -> None:
    def judge(request: ChatRequest) -> str:
        raise ProviderError("timeout", "too slow", provider="scripted")

    client = words(["did my part as asked"], judge)
    async with Delegator(client=client, judge_model="gpt-5.4-mini") as delegator:
        (result,) = (
            await delegator.run(Task.model_validate({"goal": "x", "acceptance_criteria": ["report: it was done"]}))
        ).results
    assert result.verdict
    assert result.verdict.judge
    (attempt,) = result.verdict.judge.attempts
    assert (attempt.fault, attempt.usage.model_calls) == ("timeout", 1)
    assert result.verdict.judge.cost_usd == attempt.cost_usd
    assert attempt.cost_usd
    assert result.verdict.judge.cost_provenance == "estimated"


# ------------------------------------------------------------------------------------------------ impossible numbers


async def charge_of(answer: ChatReply) -> tuple[Charge, Ledger]:
    ledger, client = Ledger({"cost_usd": 100}), Held()
    async with started(client, ledger) as call:
        (await client.calls.get()).set_result(answer)
        return (await call).charge, ledger


@pytest.mark.parametrize(
    "answer",
    [reply(output=-5_000), reply(output=10, input=-9), reply(output=10**9), reply(output=1, input=10**9)],
    ids=repr,
)
async def test_impossible_counts_neither_refill_a_budget_nor_use_it_up(answer: ChatReply) -> None:
    charge, ledger = await charge_of(answer)
    assert 0 < ledger.spent["cost_usd"] <= 200_000 * 10 / 1e6 + POSSIBLE_USD
    assert charge.provenance == "estimated"
    assert charge.usage.input_tokens > 0
    assert 0 < charge.usage.output_tokens <= MOST


async def test_an_unknown_model_is_billed_as_the_one_that_was_asked_for() -> None:
    charge, ledger = await charge_of(reply(output=10, model_served="nobody-knows-it"))
    assert (charge.cost_usd, charge.provenance) == (pytest.approx(0.002), "estimated")
    assert ledger.spent["cost_usd"] == charge.cost_usd


# ----------------------------------------------------------------------------------- children that bill themselves


@dataclass
class Billing:
    """A runner whose children each cost the same, which it reports at their end."""

    cost_usd: float
    needs_model = False
    records_tools = False
    running: Counter[str] = field(default_factory=Counter[str])

    async def run(self, job: Job) -> ChildRun:
        self.running["now"] += 1
        self.running["most"] = max(self.running["most"], self.running["now"])
        for _ in range(50):
            await asyncio.sleep(0)
        self.running["now"] -= 1
        job.record_usage(Usage(model_calls=1, input_tokens=5, output_tokens=5), self.cost_usd)
        return job.recorder.finish("completed", report="did my part as asked")


async def test_children_that_bill_themselves_start_only_with_room() -> None:
    async with Delegator(runner=Billing(0.3), max_cost_usd=0.5) as delegator:
        run = await delegator.run(*(Task(goal=f"part {n}") for n in range(40)))
    assert Counter(result.status for result in run.results) == {"completed": 3, "budget_exceeded": 37}
    assert run.totals.cost_known_usd == pytest.approx(0.9)
    refused = run.results[-1]
    assert refused.error
    assert "limit cost_usd" in refused.error.message
    assert refused.usage == Usage()


async def test_children_that_bill_themselves_use_a_limit_up_before_one_is_refused() -> None:
    runner = Billing(0.03)
    async with Delegator(runner=runner, max_cost_usd=1.0, max_concurrent=8) as delegator:
        result = await delegator.run(*(Task(goal=f"part {n}") for n in range(60)))
    assert runner.running["most"] == 8
    assert 1.0 <= result.totals.cost_known_usd <= 1.0 + 8 * 0.03


async def test_what_children_in_progress_will_cost_counts_before_another_starts() -> None:
    async with Delegator(runner=Billing(0.3), max_cost_usd=2.0, max_concurrent=4) as delegator:
        result = await delegator.run(*(Task(goal=f"part {n}") for n in range(20)))
    assert 2.0 <= result.totals.cost_known_usd <= 2.0 + 0.3 + 1e-9


# ----------------------------------------------------------------------------------------------- in any order whatever


@dataclass
class Chaos:
    """Answers after a random number of steps: with a reply of any length, or with trouble."""

    random: random.Random

    async def complete(self, request: ChatRequest) -> ChatReply:
        for _ in range(self.random.randrange(6)):
            await asyncio.sleep(0)
        troubles: list[ProviderFault | None] = ["server_error", "timeout", "auth", "connection"]
        fault = self.random.choice([None] * 6 + troubles)
        if fault:
            raise ProviderError(fault, "trouble", provider="x")
        return reply(output=self.random.choice([0, 10, MOST, -3, 10**7]))

    async def aclose(self) -> None:
        pass


@dataclass
class Sums:
    """What one run in random order came to."""

    ledger: Ledger
    dice: random.Random
    lost: list[Charge] = field(default_factory=list[Charge])
    paid: list[Charge] = field(default_factory=list[Charge])
    own_bills: float = 0
    refused_early: list[str] = field(default_factory=list[str])

    async def child(self, steps: int) -> None:
        """A child with a limit of its own or none, that makes some calls and may be cancelled."""
        own = Ledger({"tokens": self.dice.choice([None, 5_000])}, parent=self.ledger)
        link = connection(Chaos(self.dice))
        for _ in range(steps):
            try:
                call = await metering.complete(link, request(), input_tokens=100, ledger=own, on_lost=self.lost.append)
                self.paid.append(call.charge)
            except ProviderError:
                pass
            except BudgetExceeded as error:
                needs = SURE_USD + POSSIBLE_USD / 2 if error.limit == "cost_usd" else 100 + LEAST_OUTPUT
                if error.spent + needs <= error.allowed:
                    self.refused_early.append(str(error))
                return

    async def runner(self, cost: float) -> None:
        own = Ledger(parent=self.ledger)

        @asynccontextmanager
        async def nothing() -> AsyncGenerator[None]:
            yield

        try:
            child = await own.start_child(may_wait=True, while_waiting=nothing)
            try:
                for _ in range(self.dice.randrange(4)):
                    await asyncio.sleep(0)
                own.reserve({}).settle({"cost_usd": cost})
                self.own_bills += cost
            finally:
                child.leave()
        except BudgetExceeded as error:
            if error.spent < error.allowed * (1 - 2 * ROUNDING):
                self.refused_early.append(str(error))


async def play(seed: int) -> None:
    dice = random.Random(seed)
    limit, most_runners, runner_usd = dice.choice([0.05, 0.3, 1.0]), dice.randrange(4), 0.07
    sums = Sums(Ledger({"cost_usd": limit}), dice)
    tasks = [asyncio.create_task(sums.child(dice.randrange(1, 8))) for _ in range(dice.randrange(1, 12))]
    tasks += [asyncio.create_task(sums.runner(runner_usd)) for _ in range(most_runners)]
    for task in dice.sample(tasks, k=len(tasks) // 3):
        for _ in range(dice.randrange(8)):
            await asyncio.sleep(0)
        task.cancel()
    async with asyncio.timeout(20):
        await asyncio.gather(*tasks, return_exceptions=True)
    ledger, bill = sums.ledger, total((*sums.paid, *sums.lost)).known_usd + sums.own_bills
    assert sums.refused_early == []
    assert ledger.spent.get("cost_usd", 0) == pytest.approx(bill)
    assert bill <= limit * (1 + ROUNDING) + sums.own_bills + 1e-9
    assert ledger.left("cost_usd") == pytest.approx(max(0, limit - bill)), "nothing stays reserved"


@settings(max_examples=50, derandomize=True, database=None, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_order_of_events_passes_a_limit_by_more_or_refuses_too_early(seed: int) -> None:
    asyncio.run(play(seed))


async def test_many_tasks_thirty_wide_all_run_under_one_dollar() -> None:
    def answer(request: ChatRequest) -> ChatReply | str:
        if is_judge(request):
            return met_by("did my part")(request)
        return ChatReply("did my part", "end", Usage(model_calls=1, input_tokens=500, output_tokens=150))

    statuses = Counter[str]()
    async with Delegator(client=Scripted(answer), model="gpt-6.1-terra", max_cost_usd=1) as delegator:
        async for outcome in delegator.batches.run([Task(goal=f"part {n}") for n in range(80)], concurrency=30):
            assert outcome.result
            statuses[outcome.result.status] += 1
    assert statuses == {"completed": 80}

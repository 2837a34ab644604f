"""The rate limiter in virtual time: the loop's clock jumps to the next timer instead of waiting for it."""

import asyncio
import random
import tracemalloc
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial

import pytest

from delegate.models import ratelimit
from delegate.models.ratelimit import RETRIES, SHORT_RETRIES, RateLimiter
from delegate.types.errors import BudgetExceeded, ProviderError, ProviderFault
from delegate.types.events import WaitReason
from delegate.types.ports import Quota
from tests.models.test_storms import Storm
from tests.support.virtual_time import FOREVER, Answer, World, many, play, refusal, through


async def well() -> Answer:
    return Answer()


async def soon(answer: Callable[[], Awaitable[Answer]]) -> Answer:
    """The same answer after a short network delay."""
    await asyncio.sleep(0.01)
    return await answer()


def first(error: ProviderError, times: int = 1) -> Callable[[], Awaitable[Answer]]:
    """A provider that raises `error` for the first attempts and then accepts."""
    left = [error] * times

    async def answer() -> Answer:
        if left:
            raise left.pop()
        return Answer()

    return answer


class PerSecond:
    """A provider that allows `limit` calls in any second. `limit` may change."""

    def __init__(self, world: World, limit: float, *, seconds: float = 0.02, retry_after: float | None = 1) -> None:
        self.limit = limit
        self._world = world
        self._seconds = seconds
        self._retry_after = retry_after
        self.answered: list[float] = []

    async def __call__(self) -> Answer:
        await asyncio.sleep(random.uniform(0.003, 0.008))  # network delay
        now = self._world.clock()
        if len(self.answered) - bisect_right(self.answered, now - 1) >= self.limit:
            raise refusal(retry_after=self._retry_after)
        self.answered.append(now)
        await asyncio.sleep(self._seconds)
        return Answer()


class Bucket:
    """A provider with a quota that refills steadily and is reported in its headers."""

    def __init__(self, world: World, *, limit: int, per_second: float, cost: int, tokens: bool = False) -> None:
        self._world, self._limit, self._rate, self._cost = world, limit, per_second, cost
        self._tokens = tokens
        self._left, self._at = float(limit), world.clock()

    async def __call__(self) -> Answer:
        now = self._world.clock()
        self._left, self._at = min(self._limit, self._left + self._rate * (now - self._at)), now
        if self._left < self._cost:
            raise refusal(retry_after=1)
        self._left -= self._cost
        said = (self._limit, int(self._left), (self._limit - self._left) / self._rate)
        await asyncio.sleep(0.5)
        return Answer(Quota(None, None, None, *said) if self._tokens else Quota(*said))


# ------------------------------------------------------------------------------------------------------- refusals


def test_nothing_waits_before_the_first_rejection() -> None:
    async def scene(world: World) -> None:
        await many(world, well, callers=500)
        assert world.sent == [0.0] * 500

    play(scene)


def test_a_retry_after_pauses_all_calls() -> None:
    async def scene(world: World) -> None:
        asked = asyncio.create_task(world.call(first(refusal(retry_after=5))))
        await asyncio.sleep(1)
        await asyncio.gather(asked, *(world.call(well) for _ in range(3)))
        assert world.sent[0] == 0
        assert len(world.sent) == 5
        assert 4.999 < world.sent[1] < 5.1

    play(scene)


def test_without_retry_after_the_backoff_grows_until_a_call_is_accepted() -> None:
    async def scene(world: World) -> None:
        await world.call(first(refusal(), times=4))
        waits = [after - before for before, after in zip(world.sent, world.sent[1:], strict=False)]
        assert waits == sorted(waits)
        assert 0.3 < waits[0] < 1.1
        assert 3 <= waits[3] <= 5
        await world.call(first(refusal()))
        assert world.sent[-1] - world.sent[-2] <= waits[0] + 2

    play(scene)


def test_a_rate_limit_is_waited_out_and_an_overload_repeated_for_minutes() -> None:
    async def scene(world: World) -> None:
        await world.call(first(refusal("rate_limited", retry_after=1), times=20))
        assert len(world.sent) == 21
        with pytest.raises(ProviderError, match="scripted overloaded"):
            await world.call(first(refusal("overloaded", retry_after=1), times=20))
        assert len(world.sent) == 21 + 1 + RETRIES

    play(scene)


@pytest.mark.parametrize("fault", ["server_error", "connection"])
def test_trouble_that_passes_within_two_minutes_costs_only_time(fault: ProviderFault) -> None:
    async def scene(world: World) -> None:
        async def down_for_two_minutes() -> Answer:
            if world.clock() < 120:
                raise refusal(fault)
            return Answer()

        await world.call(down_for_two_minutes, patience=300)
        assert 120 <= world.clock() < 165

    play(scene)


def test_trouble_that_does_not_pass_is_the_error_after_minutes() -> None:
    async def scene(world: World) -> None:
        with pytest.raises(ProviderError, match="scripted server_error"):
            await world.call(first(refusal("server_error"), times=100), patience=300)
        assert len(world.sent) == 1 + RETRIES
        assert 110 < world.clock() < 200

    play(scene)


def test_with_little_patience_a_failed_call_is_repeated_for_seconds() -> None:
    async def scene(world: World) -> None:
        with pytest.raises(ProviderError):
            await world.call(first(refusal("connection"), times=100), patience=15)
        assert len(world.sent) == 5
        assert world.clock() < 15
        with pytest.raises(ProviderError):
            await world.call(first(refusal("server_error", retry_after=60), times=100), patience=15)
        assert len(world.sent) == 6, "the server asked for more than the call has"

    play(scene)


def test_a_failed_connection_delays_no_other_call() -> None:
    async def scene(world: World) -> None:
        failing = asyncio.create_task(world.call(first(refusal("connection"), times=3)))
        await asyncio.sleep(0.1)
        for _ in range(20):
            began = world.clock()
            await world.call(well)
            assert world.clock() == began
        await failing

    play(scene)


@pytest.mark.parametrize(("seconds", "sent"), [(0, 1 + RETRIES), (10, 1 + RETRIES), (60, 1 + SHORT_RETRIES)])
def test_a_reply_that_broke_off_is_repeated_less_often_if_it_took_long(seconds: float, sent: int) -> None:
    async def scene(world: World) -> None:
        async def breaks_off() -> Answer:
            await asyncio.sleep(seconds)
            raise ProviderError("connection", "it broke off", provider="x", status=200)

        with pytest.raises(ProviderError, match="it broke off"):
            await world.call(breaks_off)
        assert len(world.sent) == sent

    play(scene)


@pytest.mark.parametrize(("fault", "reason"), [("rate_limited", "rate_limit"), ("overloaded", "retry")])
def test_what_waits_is_told_before_and_after_each_wait(fault: ProviderFault, reason: WaitReason) -> None:
    async def scene(world: World) -> None:
        waits: list[tuple[WaitReason, float, float]] = []

        @contextmanager
        def on_wait(reason: WaitReason) -> Generator[None]:
            began = world.clock()
            yield
            waits.append((reason, began, world.clock()))

        answer = first(refusal(fault, retry_after=5))
        async for attempt in world.limiter.attempts(patience=300, on_wait=on_wait):
            with attempt:
                await asyncio.sleep(1)
                await answer()
                break
        assert waits == [(reason, pytest.approx(1), pytest.approx(6))]

    play(scene)


@pytest.mark.parametrize(
    "error",
    [
        refusal("bad_reply"),
        refusal("auth"),
        refusal("timeout"),
        BudgetExceeded("tokens", allowed=1, spent=1),
    ],
)
def test_other_errors_propagate(error: Exception) -> None:
    async def scene(world: World) -> None:
        async def fail() -> Answer:
            raise error

        with pytest.raises(type(error)) as caught:
            await world.call(fail)
        assert caught.value is error
        assert len(world.sent) == 1

    play(scene)


def test_a_wait_longer_than_patience_is_not_started() -> None:
    async def scene(world: World) -> None:
        error = refusal(retry_after=60)
        with pytest.raises(ProviderError) as caught:
            await world.call(first(error), patience=15)
        assert caught.value is error
        with pytest.raises(ProviderError) as caught:
            await world.call(well, patience=15)
        assert (caught.value.fault, caught.value.status, caught.value.retry_after) == ("rate_limited", 429, 60)
        assert (world.clock(), len(world.sent)) == (0, 1)

        await world.call(well, patience=61)
        assert world.sent[-1] == pytest.approx(60)  # pyright: ignore[reportUnknownMemberType]

    play(scene)


def test_the_longer_of_two_pauses_applies() -> None:
    async def scene(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            for provider in (first(refusal(retry_after=10)), first(refusal(retry_after=1))):
                group.create_task(world.call(partial(soon, provider)))
        assert world.sent[:2] == [0, 0]
        assert world.sent[2] > 9.99

    play(scene)


def test_queued_calls_give_up_when_the_wait_exceeds_their_patience() -> None:
    async def scene(world: World) -> None:
        refused = asyncio.create_task(world.call(first(refusal(retry_after=2))))
        await asyncio.sleep(0)
        late = asyncio.create_task(world.call(first(refusal(retry_after=100))))
        hurried = [asyncio.create_task(world.call(well, patience=20)) for _ in range(3)]
        results = await asyncio.gather(*hurried, return_exceptions=True)
        assert [type(one) for one in results] == [ProviderError] * 3
        assert world.clock() < 6
        await asyncio.gather(refused, late)

    play(scene)


def test_patience_counts_waiting_only_and_all_of_it() -> None:
    async def scene(world: World) -> None:
        async def slowly() -> Answer:
            await asyncio.sleep(50)
            raise refusal(retry_after=4)

        with pytest.raises(ProviderError):
            await world.call(slowly, patience=11)
        assert len(world.sent) == 3

    play(scene)


def test_an_absurd_wait_ends_after_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratelimit, "POLL_SECONDS", 5.0)

    async def scene(world: World) -> None:
        await world.call(first(refusal(retry_after=1e12)))
        assert world.clock() == 3600

    play(scene)


# ----------------------------------------------------------------------------------------------------------- pace


@pytest.mark.parametrize(("per_second", "retry_after"), [(5, None), (20, 1), (50, None)])
def test_many_waiting_calls_resume_at_a_rate_that_the_server_allows(per_second: int, retry_after: float | None) -> None:
    async def scene(world: World) -> None:
        provider = PerSecond(world, per_second, retry_after=retry_after)
        await many(world, provider, callers=60, calls=5)
        assert len(provider.answered) == 300
        assert world.refused_after(1) <= 0.05
        assert world.most_in_a_second(after=1) <= 1.4 * per_second + 2
        assert world.clock() < 2.2 * 300 / per_second

    play(scene)


def test_after_a_storm_a_limit_is_noticed_again() -> None:
    async def scene(world: World) -> None:
        await many(world, Storm(world), callers=20, calls=10)
        began = world.clock()
        await many(world, PerSecond(world, 10, retry_after=None), callers=20, calls=10)
        assert world.refused_after(began + 5) <= 0.1
        assert world.clock() - began < 2.2 * 200 / 10

    play(scene)


def test_after_a_burst_the_rate_is_half_of_what_was_accepted() -> None:
    async def scene(world: World) -> None:
        await many(world, PerSecond(world, 20), callers=60)
        back = [at for at in world.sent if at > 0.5]
        assert back[0] >= 1
        assert 8 <= sum(at < back[0] + 1 for at in back) <= 15

    play(scene)


def test_calls_are_served_first_come_first_served() -> None:
    async def scene(world: World) -> None:
        await world.call(first(refusal(retry_after=1)))
        served: list[int] = []

        async def one(n: int) -> None:
            async def note() -> Answer:
                served.append(n)
                return Answer()

            await world.call(note)

        await asyncio.gather(*map(one, range(12)))
        assert served == list(range(12))

    play(scene)


def test_when_the_limit_is_lifted_the_rate_recovers() -> None:
    async def scene(world: World) -> None:
        provider = PerSecond(world, 10)
        await many(world, provider, callers=60)
        provider.limit = FOREVER
        began, before = world.clock(), len(world.sent)
        await many(world, provider, callers=60, calls=50)
        assert world.sent[-1] - began < (len(world.sent) - before) / 30
        assert world.most_in_a_second(after=began) > 200

    play(scene)


def test_idle_time_does_not_raise_the_rate() -> None:
    async def scene(world: World) -> None:
        provider = PerSecond(world, 20)
        await many(world, provider, callers=60)
        await asyncio.sleep(200)
        now = world.clock()
        await many(world, provider, callers=60)
        assert world.refused_after(now) <= 0.1

    play(scene)


def test_after_five_minutes_without_a_rejection_limits_are_dropped() -> None:
    async def scene(world: World) -> None:
        await world.call(first(refusal(retry_after=1)))
        await asyncio.sleep(301)
        await world.call(well)
        now = world.clock()
        await many(world, well, callers=50)
        assert world.sent[-50:] == [now] * 50

    play(scene)


def test_an_outage_gets_few_calls_and_work_resumes_soon_after_it() -> None:
    async def scene(world: World) -> None:
        async def down_for_a_minute() -> Answer:
            await asyncio.sleep(0.01)
            if world.clock() < 60:
                raise refusal("overloaded")
            return Answer()

        await many(world, down_for_a_minute, callers=6)
        assert len(world.refused) < 6 + 10
        assert world.clock() < 60 + 45

    play(scene)


# --------------------------------------------------------------------------------------------------------- window


def test_a_concurrency_limit_is_learned_fully_used_and_found_to_be_raised() -> None:
    async def scene(world: World) -> None:
        under_way = most = 0
        allowed = 5

        async def so_many_at_a_time() -> Answer:
            nonlocal under_way, most
            if under_way >= allowed:
                raise refusal()
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(10)
            under_way -= 1
            return Answer()

        await many(world, so_many_at_a_time, callers=25, calls=4)
        assert most == 5
        assert world.refused_after(1) <= 0.2
        assert world.clock() < 1.5 * 100 * 10 / 5
        allowed = 100
        await many(world, so_many_at_a_time, callers=25, calls=5)
        assert most == 25

    play(scene)


def test_a_new_call_is_queued_behind_waiting_ones_even_with_room_for_it() -> None:
    async def scene(world: World) -> None:
        free = asyncio.Event()
        served: list[str] = []

        def one_at_a_time(name: str) -> Callable[[], Awaitable[Answer]]:
            async def answer() -> Answer:
                if len(served) == 1 and not free.is_set():
                    raise refusal()
                served.append(name)
                await free.wait()
                return Answer()

            return answer

        holder = asyncio.create_task(world.call(one_at_a_time("holder")))
        await asyncio.sleep(5)
        early = asyncio.create_task(world.call(one_at_a_time("early")))
        await asyncio.sleep(60)
        free.set()
        await holder
        await asyncio.gather(early, world.call(one_at_a_time("late")))
        assert served == ["holder", "early", "late"]

    play(scene)


# --------------------------------------------------------------------------------------------------------- quotas


@pytest.mark.parametrize(("cost", "tokens"), [(1, False), (800, True)])
def test_a_quota_that_runs_low_slows_calls_before_the_first_rejection(cost: int, tokens: bool) -> None:
    async def scene(world: World) -> None:
        quota = Bucket(world, limit=60 * cost, per_second=2 * cost, cost=cost, tokens=tokens)
        await many(world, quota, callers=10, calls=30)
        assert not world.refused
        assert world.clock() < 1.15 * (300 - 60) / 2

    play(scene)


def test_a_quota_with_plenty_left_delays_nothing() -> None:
    async def scene(world: World) -> None:
        quota = Bucket(world, limit=1000, per_second=1, cost=1)
        await many(world, quota, callers=9, calls=100)
        assert world.clock() == pytest.approx(50)  # pyright: ignore[reportUnknownMemberType]

    play(scene)


@pytest.mark.parametrize("quota", [Quota(), Quota(10, 10, 0.0), Quota(10, 0, None), Quota(0, 0, 0.0), Quota(10, 20, 5)])
def test_incomplete_headers_are_ignored(quota: Quota) -> None:
    async def scene(world: World) -> None:
        async def answer() -> Answer:
            return Answer(quota)

        await many(world, answer, callers=5, calls=20)
        assert world.clock() == 0

    play(scene)


def test_a_predicted_shortage_fails_no_call() -> None:
    async def scene(world: World) -> None:
        async def used_up() -> Answer:
            return Answer(Quota(100, 0, 86_400.0))

        await world.call(used_up)
        await world.call(well, patience=15)
        assert world.sent == [0, 0]

    play(scene)


def test_headers_of_older_calls_are_ignored() -> None:
    async def scene(world: World) -> None:
        async def answer(seconds: float, left: int) -> Answer:
            await asyncio.sleep(seconds)
            return Answer(Quota(100, left, 100.0))

        async with asyncio.TaskGroup() as group:
            group.create_task(world.call(lambda: answer(9, left=0)))
            await asyncio.sleep(1)
            group.create_task(world.call(lambda: answer(1, left=90)))
        await many(world, well, callers=50)
        assert world.clock() == 9

    play(scene)


# -------------------------------------------------------------------------------------------- cancelling, sharing


def test_a_call_cancelled_while_waiting_leaves_the_queue() -> None:
    async def scene(world: World) -> None:
        async def never() -> Answer:
            raise AssertionError("it was cancelled before")

        await world.call(first(refusal(retry_after=1)))
        waiting = [asyncio.create_task(world.call(never)) for _ in range(3)]
        last = asyncio.create_task(world.call(well))
        await asyncio.sleep(0.1)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await last
        assert [task.cancelled() for task in waiting] == [True] * 3
        assert world.clock() < 4

    play(scene)


def test_a_call_cancelled_in_flight_makes_room_for_the_next() -> None:
    async def scene(world: World) -> None:
        async def one_at_a_time() -> Answer:
            nonlocal busy
            if busy:
                raise refusal()
            busy = True
            try:
                await asyncio.sleep(1000)
            finally:
                busy = False
            return Answer()

        busy = False
        holder = asyncio.create_task(world.call(one_at_a_time))
        await asyncio.sleep(5)
        waiting = asyncio.create_task(world.call(one_at_a_time))
        await asyncio.sleep(60)
        tried = len(world.sent)
        await asyncio.sleep(60)
        assert len(world.sent) == tried
        holder.cancel()
        await asyncio.sleep(60)
        assert busy
        waiting.cancel()
        await asyncio.gather(holder, waiting, return_exceptions=True)

    play(scene)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_calls() -> None:
    async def scene(world: World) -> None:
        async def work(calls: int) -> None:
            for _ in range(calls):
                await through(world.limiter, well, 1)

        await work(1_100)  # more than it remembers
        tracemalloc.start()
        try:
            await work(5_000)
            assert tracemalloc.get_traced_memory()[0] < 20_000
        finally:
            tracemalloc.stop()

    play(scene)


def test_two_event_loops_share_one_rate() -> None:
    limiter, sent = RateLimiter(), list[float]()
    refuse = first(refusal(retry_after=0.2))

    async def get_going() -> None:
        for _ in range(40):  # so that the rate is high
            await through(limiter, well, 1)

    async def several() -> None:
        async def send() -> Answer:
            sent.append(asyncio.get_running_loop().time())
            return await refuse()

        await asyncio.gather(*(through(limiter, send, 10) for _ in range(2)))

    async def both() -> None:
        await asyncio.gather(several(), asyncio.to_thread(asyncio.run, several()))

    asyncio.run(get_going())
    asyncio.run(both())
    assert len(sent) == 5
    asyncio.run(several())
    assert len(sent) == 7

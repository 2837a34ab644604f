"""How long calls take while many are rejected, compared with a client that knows the cause. In virtual time."""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

import pytest

from delegate.types.errors import ProviderError
from tests.support.samples import sampled
from tests.support.virtual_time import FOREVER, Answer, World, many, play, refusal

SEEDS = range(20, 22)
FIRST_PAUSES = 2.0
"""Seconds that a client needs at first that doesn't know the cause of a rejection: a pause, and a slower pace."""


@dataclass
class Storm:
    """A provider that rejects a share of all calls for some time, at any pace. Others take about a second."""

    world: World
    share: float = 0.3
    begin: float = 0
    end: float = FOREVER
    retry_after: float | None = None

    async def __call__(self) -> Answer:
        await asyncio.sleep(random.uniform(0.003, 0.008))  # network delay
        if self.begin <= self.world.clock() < self.end and random.random() < self.share:
            raise refusal(retry_after=self.retry_after)
        await asyncio.sleep(random.uniform(0.5, 1.5))
        return Answer()


class TokenBucket:
    """A provider that allows so many calls per minute, and `burst` at once, and may say when the next one is due."""

    def __init__(self, world: World, per_minute: float, burst: int, *, says_when: bool = False) -> None:
        self._world, self._rate, self._burst, self._says_when = world, per_minute / 60, burst, says_when
        self._left, self._at = float(burst), world.clock()

    async def __call__(self) -> Answer:
        await asyncio.sleep(random.uniform(0.003, 0.008))
        now = self._world.clock()
        self._left, self._at = min(self._burst, self._left + self._rate * (now - self._at)), now
        if self._left < 1:
            raise refusal(retry_after=math.ceil((1 - self._left) / self._rate) if self._says_when else None)
        self._left -= 1
        await asyncio.sleep(1)
        return Answer()


@dataclass(frozen=True)
class Played:
    seconds: float
    attempts: int


def through_the_limiter(make: Callable[[World], Storm | TokenBucket], callers: int, calls: int, seed: int) -> Played:
    async def scene(world: World) -> Played:
        await many(world, make(world), callers, calls)
        return Played(world.clock(), len(world.sent))

    return play(scene, seed)


def by_who_knows_better(make: Callable[[World], Storm], callers: int, calls: int, seed: int) -> Played:
    """Send rejected calls again at once, or when the server says; after the storm if it rejects all of them."""

    async def scene(world: World) -> Played:
        provider, attempts = make(world), 0

        async def one() -> None:
            nonlocal attempts
            left = calls
            while left:
                attempts += 1
                try:
                    await provider()
                    left -= 1
                except ProviderError as error:
                    is_over_in = provider.end - world.clock() if provider.share == 1 else 0
                    await asyncio.sleep(max(error.retry_after or 0, is_over_in))

        await asyncio.gather(*(one() for _ in range(callers)))
        return Played(world.clock(), attempts)

    return play(scene, seed)


def storm_seconds(callers: int, calls: int) -> float:
    """How long so many callers take for so many calls each, of a second, while 30 % are rejected."""
    return through_the_limiter(Storm, callers, calls, 7).seconds


@pytest.mark.parametrize("retry_after", [None, 1], ids=["", "with Retry-After"])
@pytest.mark.parametrize(
    ("callers", "calls"), sampled([(200, 1), (20, 10), (8, 25), (20, 1), (10, 2), (5, 4), (1, 20)])
)
def test_a_storm_without_end_takes_at_most_twice_the_ideal_time(
    callers: int, calls: int, retry_after: float | None
) -> None:
    compare(lambda world: Storm(world, retry_after=retry_after), callers, calls)


@pytest.mark.parametrize("retry_after", [None, 1], ids=["", "with Retry-After"])
@pytest.mark.parametrize("callers", sampled([5, 20], 1))
@pytest.mark.parametrize("share", sampled([0.3, 0.7, 1.0], 1))
def test_a_storm_of_five_seconds_takes_at_most_twice_the_ideal_time(
    callers: int, share: float, retry_after: float | None
) -> None:
    compare(lambda world: Storm(world, share, 8, 13, retry_after), callers, 20)


def compare(make: Callable[[World], Storm], callers: int, calls: int) -> None:
    own = [through_the_limiter(make, callers, calls, seed) for seed in SEEDS]
    ideal = [by_who_knows_better(make, callers, calls, seed) for seed in SEEDS]
    assert mean(one.seconds for one in own) <= 2 * mean(one.seconds for one in ideal) + FIRST_PAUSES
    assert mean(one.attempts for one in own) <= 1.2 * mean(one.attempts for one in ideal)


@pytest.mark.parametrize("says_when", [False, True], ids=["", "with Retry-After"])
@pytest.mark.parametrize(
    ("per_minute", "burst", "callers", "calls"),
    sampled(
        [(60, 60, 20, 10), (60, 10, 50, 4), (300, 5, 20, 10), (600, 10, 20, 1), (300, 300, 50, 8), (1200, 20, 50, 8)], 1
    ),
)
def test_a_true_limit_is_used_to_at_least_half_and_seldom_exceeded(
    per_minute: float, burst: int, callers: int, calls: int, says_when: bool
) -> None:
    own = [
        through_the_limiter(
            lambda world: TokenBucket(world, per_minute, burst, says_when=says_when), callers, calls, seed
        )
        for seed in SEEDS
    ]
    ideal = max(calls * 1.0, 1 + 60 * (callers * calls - burst) / per_minute)
    assert mean(one.seconds for one in own) <= 2 * ideal
    # Those that are sent at once are rejected once, since nobody knows the limit then.
    assert mean(one.attempts for one in own) <= 1.5 * (callers * calls + max(0, callers - burst))


@pytest.mark.parametrize("says_when", [False, True], ids=["", "with Retry-After"])
def test_a_limit_of_seconds_per_call_is_met_too(says_when: bool) -> None:
    own = [
        through_the_limiter(lambda world: TokenBucket(world, 12, 1, says_when=says_when), 5, 4, seed) for seed in SEEDS
    ]
    assert mean(one.seconds for one in own) <= 1.5 * (1 + 5 * 19)
    assert mean(one.attempts for one in own) <= 4 * 20

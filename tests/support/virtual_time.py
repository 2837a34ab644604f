"""A rate limiter, its callers and a provider in virtual time: the loop's clock jumps to the next timer."""

import asyncio
import random
import selectors
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from delegate.models.ratelimit import RateLimiter
from delegate.types.errors import ProviderError, ProviderFault
from delegate.types.ports import Quota

T = TypeVar("T")
FOREVER = 1e9
Play = Callable[["World"], Coroutine[Any, Any, T]]


class _Jumping(selectors.SelectSelector):
    """A selector that advances the clock instead of waiting when nothing is ready."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "all are waiting, and nothing will ever happen"
            self.now += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


@dataclass(frozen=True)
class Answer:
    quota: Quota | None = None


async def through(limiter: RateLimiter, send: Callable[[], Awaitable[Answer]], patience: float) -> Answer:
    """Make one call through the limiter. `send` makes one attempt."""
    async for attempt in limiter.attempts(patience=patience):
        with attempt:
            answer = await send()
            attempt.accepted(answer.quota)
            return answer
    raise AssertionError


@dataclass
class World:
    """A limiter, a provider with limits unknown to it, and what the provider receives."""

    clock: Callable[[], float]
    limiter: RateLimiter = field(init=False)
    sent: list[float] = field(default_factory=list[float])
    refused: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.limiter = RateLimiter(clock=self.clock)

    async def call(self, answer: Callable[[], Awaitable[Answer]], patience: float = FOREVER) -> Answer:
        """Make one call through the limiter. `answer` is how the provider responds to each attempt."""

        async def send() -> Answer:
            self.sent.append(self.clock())
            try:
                return await answer()
            except ProviderError:
                self.refused.append(self.clock())
                raise

        return await through(self.limiter, send, patience)

    def refused_after(self, at: float) -> float:
        return sum(t > at for t in self.refused) / sum(t > at for t in self.sent)

    def most_in_a_second(self, after: float) -> int:
        late = self.sent[bisect_right(self.sent, after) :]
        return max(bisect_left(late, at + 1) - n for n, at in enumerate(late))


def play(scene: Play[T], seed: int = 7) -> T:
    random.seed(seed)
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(scene(World(runner.get_loop().time)))


def refusal(fault: ProviderFault = "rate_limited", retry_after: float | None = None) -> ProviderError:
    status = 429 if fault == "rate_limited" else None
    return ProviderError(fault, f"scripted {fault}", provider="x", status=status, retry_after=retry_after)


async def many(world: World, answer: Callable[[], Awaitable[Answer]], callers: int, calls: int = 1) -> None:
    async def one() -> None:
        for _ in range(calls):
            await world.call(answer)

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(one())

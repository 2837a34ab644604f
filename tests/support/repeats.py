"""Makes failed calls be repeated with little delay. How often they are repeated doesn't depend on it."""

import asyncio
import time

from delegate import Delegator
from delegate.models.ratelimit import RateLimiter


async def _briefly(seconds: float) -> None:
    await asyncio.sleep(seconds / 1_000)


def repeat_quickly(delegator: Delegator, *, faster: float = 10) -> None:
    """Shorten the pauses before repeated calls to a thousandth, and let the clock of rate limits go `faster`.

    What a busy machine loses counts as often against a call's patience: of minutes, or of seconds for a first judge.
    """

    def clock() -> float:
        return faster * time.monotonic()

    delegator.connections.limiters.make = lambda _: RateLimiter(clock=clock, sleep=_briefly)

"""Makes failed calls be repeated with little delay. How often they are repeated doesn't depend on it."""

import asyncio
import time

from delegate import Delegator
from delegate.models.ratelimit import RateLimiter

FASTER = 2
"""How fast the clock of rate limits goes. What a busy machine loses counts as often against a call's patience."""


async def _briefly(seconds: float) -> None:
    await asyncio.sleep(seconds / 1_000)


def _clock() -> float:
    return FASTER * time.monotonic()


def repeat_quickly(delegator: Delegator) -> None:
    """Shorten the pauses before repeated calls to a thousandth, and those between any calls to half."""
    delegator.connections.limiters.make = lambda _: RateLimiter(clock=_clock, sleep=_briefly)

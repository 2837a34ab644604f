"""Makes failed calls be repeated without delay. How often they are repeated doesn't depend on it."""

import asyncio

from delegate import Delegator
from delegate.models.ratelimit import RateLimiter


async def _briefly(seconds: float) -> None:
    await asyncio.sleep(seconds / 1_000)


def repeat_quickly(delegator: Delegator) -> None:
    """Shorten the pauses before repeated calls to a thousandth."""
    delegator.connections.limiters.default_factory = lambda: RateLimiter(sleep=_briefly)

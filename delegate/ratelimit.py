"""Keeps calls to one model within what its provider allows."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from delegate.ports import Quota


class Answer(Protocol):
    """What a call gives back: with what the provider's headers said of its limits."""

    @property
    def quota(self) -> Quota | None: ...


T = TypeVar("T", bound=Answer)


class RateLimiter:
    """Shared by all who call one model at one endpoint."""

    async def run(self, send: Callable[[], Awaitable[T]], *, patience: float) -> T:
        """Call `send` when its turn has come."""
        return await send()

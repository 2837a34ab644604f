"""Deadlines that come in the middle of something, however busy the machine is."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS = (0.3, 1.5, 6.0)
"""The first suffices on an idle machine; otherwise the next one is tried."""


async def in_time(play: Callable[[float], Awaitable[T]], has_begun: Callable[[T], bool]) -> T:
    """Play with longer deadlines until what should come before one did. What is played with the last counts anyway."""
    for seconds in SECONDS[:-1]:
        if has_begun(played := await play(seconds)):
            return played
    return await play(SECONDS[-1])

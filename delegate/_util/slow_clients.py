"""Finds the clients of a server that hold a connection without sending a whole request on it."""

import time
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)

REQUEST_SECONDS = 20.0
"""How long a client may take to send a request, with its body, or to begin the next one."""
MAX_WAITING = 200
"""How many connections may be without a whole request at a time."""


class SlowClients(Generic[C]):
    """The connections of one server that wait for something, and since when."""

    def __init__(self) -> None:
        self._since: dict[C, tuple[object, float]] = {}

    def to_close(self, waiting: Mapping[C, object]) -> list[C]:
        """Those that have waited too long, and the oldest of too many. To be called about once a second.

        `waiting` has every connection that waits for a request or for the rest of one, and which one that is.
        """
        now = time.monotonic()
        self._since = {
            client: earlier if (earlier := self._since.get(client)) and earlier[0] is request else (request, now)
            for client, request in waiting.items()
        }
        oldest = sorted(self._since, key=lambda client: self._since[client][1])
        surplus = len(oldest) - MAX_WAITING
        return [
            client for n, client in enumerate(oldest) if n < surplus or self._since[client][1] + REQUEST_SECONDS <= now
        ]

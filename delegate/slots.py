"""Places that many callers share, first come first served, on however many event loops they run.

`asyncio.Semaphore` belongs to the first loop that waits on it; a host that calls `asyncio.run` for every turn, or the
synchronous calls' own loop beside the host's, would break it.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Self

_Waiter = asyncio.Future[None]


class Slots:
    """At most `limit` holders at a time. The limit may change while some hold, which takes nothing from them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._waiters: deque[_Waiter] = deque()
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """How many hold a place now."""
        return self._held

    @property
    def limit(self) -> int:
        """How many may."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        with self._lock:
            self._limit = limit
            self._serve()

    async def take(self) -> None:
        """Take a place, after those who came before."""
        with self._lock:
            if self._held < self._limit and not self._waiters:
                self._held += 1
                return
            waiter: _Waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            self._forget(waiter)
            raise

    def give_back(self) -> None:
        """Give a place back."""
        with self._lock:
            self._held -= 1
            self._serve()

    def _serve(self) -> None:
        """Hand free places to those who wait. The place is theirs from here on, also while their loop is busy."""
        while self._waiters and self._held < self._limit:
            waiter = self._waiters.popleft()
            try:
                waiter.get_loop().call_soon_threadsafe(_grant, waiter)
            except RuntimeError:  # its loop is closed, and nobody waits there any more
                continue
            self._held += 1

    def _forget(self, waiter: _Waiter) -> None:
        """A cancelled wait leaves the line; a place that was on its way to it is given back."""
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                return
        self.give_back()


def _grant(waiter: _Waiter) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Seat:
    """One holder's place in `slots`, which it lends out while it only waits for others that need places too."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._borrowers = 0
        self._holds = False

    async def __aenter__(self) -> Self:
        await self._slots.take()
        self._holds = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[None]:
        """While this lasts, the place is free for others. May be entered several times at once: the last one out
        takes a place again. Who is cancelled doesn't wait for one.
        """
        self._borrowers += 1
        self._leave()
        try:
            yield
        except asyncio.CancelledError:
            self._borrowers -= 1
            raise
        except BaseException:
            await self._come_back()
            raise
        await self._come_back()

    async def _come_back(self) -> None:
        self._borrowers -= 1
        if self._borrowers:
            return
        await self._slots.take()
        self._holds = True
        if self._borrowers:  # lent again while it waited
            self._leave()

    def _leave(self) -> None:
        if self._holds:
            self._holds = False
            self._slots.give_back()

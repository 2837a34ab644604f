"""Places that many callers share, first come first served, on however many event loops they run.

`asyncio.Semaphore` belongs to the first loop that waits on it; a host that calls `asyncio.run` for every turn, or the
synchronous calls' own loop beside the host's, would break it.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self


@dataclass(eq=False, slots=True)
class _Waiter:
    """Someone in line."""

    called: asyncio.Future[None]
    has_place: bool = False
    """The place is theirs from here on, also while their loop is still busy with something else."""


class FairSemaphore:
    """At most `limit` holders at a time. The limit may change while some hold, which takes nothing from them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._line: OrderedDict[_Waiter, None] = OrderedDict()
        # Re-entrant, since the garbage collector may end an abandoned wait inside another's.
        self._lock = threading.RLock()

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

    async def acquire(self) -> None:
        """Take a place, after those who came before."""
        with self._lock:
            if self._held < self._limit:  # then nobody is in line
                self._held += 1
                return
            waiter = _Waiter(asyncio.get_running_loop().create_future())
            self._line[waiter] = None
        try:
            await waiter.called
        except BaseException:
            self._forget(waiter)
            raise

    def release(self) -> None:
        """Give a place back."""
        with self._lock:
            self._held -= 1
            self._serve()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def _serve(self) -> None:
        """Hand free places to those who wait."""
        while self._line and self._held < self._limit:
            waiter, _ = self._line.popitem(last=False)
            self._held += 1
            waiter.has_place = True
            try:
                waiter.called.get_loop().call_soon_threadsafe(_call, waiter.called)
            except RuntimeError:  # its loop is closed, and nobody waits there any more
                waiter.has_place = False
                self._held -= 1

    def _forget(self, waiter: _Waiter) -> None:
        """A wait that was cancelled leaves the line, and gives back a place that was on its way to it."""
        with self._lock:
            self._line.pop(waiter, None)
            if waiter.has_place:
                self.release()


def _call(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Permit:
    """One holder's place in `semaphore`, which it lends out while it only waits for others that need places too.

    Held inside its `async with` block, except inside `released`.
    """

    def __init__(self, semaphore: FairSemaphore) -> None:
        self._semaphore = semaphore
        self._away = 1  # how many reasons there are to hold no place: being outside the block, and each loan
        self._holds = False
        self._door = FairSemaphore(1)  # of those who come back at once, one waits for the place for all
        self._lock = threading.RLock()

    async def __aenter__(self) -> Self:
        await self._come_back()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    @asynccontextmanager
    async def released(self) -> AsyncGenerator[None]:
        """While this lasts, the place is free for others. May be entered several times at once: the last one out
        takes a place again. Who is cancelled doesn't wait for one.
        """
        self._leave()
        try:
            yield
        except Exception:
            await self._come_back()
            raise
        except BaseException:
            self._return()
            raise
        await self._come_back()

    async def _come_back(self) -> None:
        self._return()
        async with self._door:
            if self._is_missed():
                await self._semaphore.acquire()
                self._sit_down()

    def _return(self) -> None:
        with self._lock:
            self._away -= 1

    def _is_missed(self) -> bool:
        with self._lock:
            return not (self._away or self._holds)

    def _sit_down(self) -> None:
        """Hold the place that was taken, unless it was lent again or the block was left meanwhile."""
        with self._lock:
            wanted = self._holds = not self._away
        if not wanted:
            self._semaphore.release()

    def _leave(self) -> None:
        with self._lock:
            self._away += 1
            held, self._holds = self._holds, False
        if held:
            self._semaphore.release()

"""A fair semaphore that callers on any number of event loops and threads can share.

`asyncio.Semaphore` belongs to the first loop that waits on it. That breaks a host that calls `asyncio.run` for every
turn, and the synchronous methods, which use an event loop of their own.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class _Waiter:
    future: asyncio.Future[None]
    acquired: bool = False
    """Set when the waiter is counted as a holder, even if its event loop is too busy to resume it yet."""


class FairSemaphore:
    """Allows at most `limit` holders at a time, first come, first served."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        """The current number of holders."""
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()
        self.lock = threading.RLock()
        """Re-entrant, since the garbage collector may finalize an abandoned waiter while the lock is held."""

    @property
    def is_full(self) -> bool:
        """Whether `acquire` would wait now."""
        return self.held >= self.limit

    async def acquire(self) -> None:
        """Wait until fewer than `limit` are held and all earlier waiters have been served."""
        with self.lock:
            if self.held < self.limit:  # then there are no waiters
                self.held += 1
                return
            waiter = _Waiter(asyncio.get_running_loop().create_future())
            self._waiters[waiter] = None
        try:
            await waiter.future
        except BaseException:
            with self.lock:
                self._waiters.pop(waiter, None)
                if waiter.acquired:
                    self.release()
            raise

    def release(self) -> None:
        """Release one holder and wake the next waiter."""
        with self.lock:
            self.held -= 1
            self._wake_waiters()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def _wake_waiters(self) -> None:
        while self._waiters and self.held < self.limit:
            waiter, _ = self._waiters.popitem(last=False)
            self.held += 1
            waiter.acquired = True
            try:
                waiter.future.get_loop().call_soon_threadsafe(resolve, waiter.future)
            except RuntimeError:  # the waiter's loop is closed
                waiter.acquired = False
                self.held -= 1


def resolve(future: asyncio.Future[None]) -> None:
    """End the wait for a future, unless it has ended already."""
    if not future.done():
        future.set_result(None)


class Permit:
    """One acquisition of `semaphore`, which its holder can release while it only waits for other holders.

    Held between `acquire` and `release`, except inside `released`.
    """

    def __init__(self, semaphore: FairSemaphore) -> None:
        self._semaphore = semaphore
        self._suspensions = 1  # the reasons not to hold it: not being acquired, and each active `released`
        self._held = False
        self._reacquiring: FairSemaphore | None = None
        """When several `released` blocks end at once, one task acquires for all."""

    async def acquire(self) -> None:
        """Wait for it. To be called once."""
        self._end_suspension()
        await self._semaphore.acquire()
        self._held = True

    def release(self) -> None:
        """Release it. Does nothing if it isn't held."""
        with self._semaphore.lock:
            self._suspensions += 1
            held, self._held = self._held, False
        if held:
            self._semaphore.release()

    @asynccontextmanager
    async def released(self) -> AsyncGenerator[None]:
        """Release the permit inside this block, so that others can acquire it.

        Several such blocks may be active at once; leaving the last one acquires the permit again. A cancelled task
        leaves without waiting for it.
        """
        self.release()
        try:
            yield
        except Exception:
            await self._resume()
            raise
        except BaseException:
            self._end_suspension()
            raise
        await self._resume()

    async def _resume(self) -> None:
        with self._semaphore.lock:
            self._end_suspension()
            reacquiring = self._reacquiring = self._reacquiring or FairSemaphore(1)
        async with reacquiring:
            with self._semaphore.lock:
                is_needed = not (self._suspensions or self._held)
            if not is_needed:
                return
            await self._semaphore.acquire()
            with self._semaphore.lock:  # keep it, unless the permit was suspended again in the meantime
                is_needed = self._held = not self._suspensions
            if not is_needed:
                self._semaphore.release()

    def _end_suspension(self) -> None:
        with self._semaphore.lock:
            self._suspensions -= 1

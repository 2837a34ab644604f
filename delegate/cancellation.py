"""Stopping a call from outside, from any thread, without losing what its children have done so far.

A host that cancels the awaiting task gets `CancelledError`, as it must; one that cancels through this gets its report,
with a terminal result for every task.
"""

import asyncio
import threading
from contextlib import suppress
from types import TracebackType


class Cancellation:
    """Given to a call, it stops all that the call runs as soon as `cancel` is called. It can't be taken back."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may interrupt its holder
        self._limits: dict[Limit, None] = {}
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop what runs. May be called from any thread, from a signal handler, and more than once."""
        with self._lock:
            self._cancelled = True
            limits = tuple(self._limits)
        for limit in limits:
            limit.expire_soon()

    def limit(self, seconds: float | None = None) -> "Limit":
        """For `async with`: an `asyncio.timeout` of `seconds` that also expires, at once, on `cancel`."""
        return Limit(self, seconds)

    def add(self, limit: "Limit") -> None:
        """A limit begins."""
        with self._lock:
            self._limits[limit] = None
        if self._cancelled:
            limit.expire_soon()

    def remove(self, limit: "Limit") -> None:
        """A limit has ended."""
        with self._lock:
            self._limits.pop(limit, None)


def let_cancel_travel() -> None:
    """Raise CancelledError where the current task was cancelled, and somebody held that up to keep its work."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Limit:
    """Raises TimeoutError at its end where it has expired, whether by time or by cancellation."""

    def __init__(self, cancellation: Cancellation, seconds: float | None) -> None:
        self._cancellation = cancellation
        self._seconds = seconds
        self._timeout: asyncio.Timeout
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(self._seconds)
        await self._timeout.__aenter__()
        self._cancellation.add(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cancellation.remove(self)
        await self._timeout.__aexit__(kind, error, trace)

    def expired(self) -> bool:
        """Whether it was this limit that stopped what it was around."""
        return self._timeout.expired()

    def expire_soon(self) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # the loop is closed: nothing runs on it any more
            self._loop.call_soon_threadsafe(self._expire)

    def _expire(self) -> None:
        with suppress(RuntimeError):  # it has ended meanwhile
            self._timeout.reschedule(self._loop.time())

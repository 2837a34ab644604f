"""Stopping a call from outside, from any thread, without losing what its children have done so far.

A host that cancels the awaiting task gets `CancelledError`, as it must, once all has ended and is on record; one that
cancels through this gets its report, with a terminal result for every task.
"""

import asyncio
import threading
from collections.abc import Coroutine, Generator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class _Stoppable(Protocol):
    def cancel(self) -> None: ...


class Cancellation:
    """Given to a call, it stops all that the call runs as soon as `cancel` is called. It can't be taken back."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may interrupt its holder
        self._under: dict[_Stoppable, None] = {}
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop what runs. May be called from any thread, from a signal handler, and more than once."""
        with self._lock:
            self._cancelled = True
            under = tuple(self._under)
        for one in under:
            one.cancel()

    def deadline(self, seconds: float | None = None) -> "Deadline":
        """For `async with`: an `asyncio.timeout` of `seconds` that also expires, at once, on `cancel`."""
        return Deadline(self, seconds)

    @contextmanager
    def part(self) -> Generator["Cancellation"]:
        """Another that is cancelled with this one, but may also be cancelled alone."""
        part = Cancellation()
        self.add(part)
        try:
            yield part
        finally:
            self.remove(part)

    def add(self, one: _Stoppable) -> None:
        """Cancel `one` too, at once where it's late."""
        with self._lock:
            self._under[one] = None
        if self._cancelled:
            one.cancel()

    def remove(self, one: _Stoppable) -> None:
        """It has ended."""
        with self._lock:
            self._under.pop(one, None)


class Deadline:
    """Raises TimeoutError at its end where it has expired, whether by time or by cancellation.

    What is over before it begins doesn't begin: then TimeoutError is raised at once.
    """

    def __init__(self, cancellation: Cancellation, seconds: float | None) -> None:
        self._cancellation = cancellation
        self._seconds = seconds
        self._expired = False
        self._timeout: asyncio.Timeout
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> None:
        self._expired = self._cancellation.cancelled or (self._seconds is not None and self._seconds <= 0)
        if self._expired:
            raise TimeoutError
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(self._seconds)
        await self._timeout.__aenter__()
        self._cancellation.add(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cancellation.remove(self)
        self._expired = self._timeout.expired()
        await self._timeout.__aexit__(kind, error, trace)

    def expired(self) -> bool:
        """Whether it was this limit that stopped what it was around. Asked when that has ended."""
        return self._expired

    def cancel(self) -> None:
        """Expire soon. From any thread."""
        with suppress(RuntimeError):  # the loop is closed: nothing runs on it any more
            self._loop.call_soon_threadsafe(self._expire)

    def _expire(self) -> None:
        with suppress(RuntimeError):  # it has ended meanwhile
            self._timeout.reschedule(self._loop.time())


async def run_to_completion(work: Coroutine[Any, Any, T], cancellation: Cancellation) -> T:
    """Await `work`, which ends soon once `cancellation` is cancelled.

    A cancel of who waits is passed on through that, and held up until `work` has ended: also a second one.
    """
    running, held_up = asyncio.ensure_future(work), None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            held_up = error
            cancellation.cancel()
    if held_up is not None:
        raise held_up
    return running.result()


def reraise_pending_cancel() -> None:
    """Raise CancelledError where the current task was cancelled, and somebody held that up to keep its work."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError

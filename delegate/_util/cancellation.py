"""Cancels a call from any thread and keeps the results of its children so far.

A host that cancels the awaiting asyncio task gets `CancelledError` once everything has stopped and is on record. A host
that uses `Cancellation` gets the call's result instead, with a terminal one for every task.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class _Stoppable(Protocol):
    def cancel(self) -> None: ...


S = TypeVar("S", bound=_Stoppable)


class Cancellation:
    """Stops everything that a call runs as soon as `cancel` is called. Cancellation can't be undone.

    It needs no lock: each step on `_linked` is atomic, and whatever is added while `cancel` runs is either among those
    that it sees, or sees that it was called.
    """

    def __init__(self) -> None:
        self._linked: dict[_Stoppable, None] = {}
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop what is running. Safe to call from any thread, from a signal handler, and more than once."""
        self._cancelled = True
        for target in list(self._linked):
            target.cancel()

    def deadline(self, seconds: float | None = None) -> "Deadline":
        """An async context manager: an `asyncio.timeout` of `seconds` that also expires immediately on `cancel`."""
        return Deadline(self, seconds)

    def part(self) -> "_Link[Cancellation]":
        """A linked cancellation: cancelled together with this one, and also able to be cancelled alone."""
        return self.linked(Cancellation())

    def linked(self, target: S) -> "_Link[S]":
        """A context manager. Inside its block, `target`, which it returns, is cancelled together with this."""
        return _Link(self, target)

    def add(self, target: _Stoppable) -> None:
        """Cancel `target` too; immediately if `cancel` was already called."""
        self._linked[target] = None
        if self._cancelled:
            target.cancel()

    def remove(self, target: _Stoppable) -> None:
        """Stop cancelling `target`, because it has finished."""
        self._linked.pop(target, None)


class _Link(Generic[S]):
    """See `Cancellation.linked`. It is kept for as long as a child runs, and smaller than a generator."""

    __slots__ = ("_cancellation", "_target")

    def __init__(self, cancellation: Cancellation, target: S) -> None:
        self._cancellation = cancellation
        self._target = target

    def __enter__(self) -> S:
        self._cancellation.add(self._target)
        return self._target

    def __exit__(self, *exc: object) -> None:
        self._cancellation.remove(self._target)


class Deadline:
    """Raises TimeoutError on exit if it has expired, whether by time or by cancellation.

    Waits inside `paused` don't count, but it expires after `at_most` seconds in any case.
    If it has expired before it is entered, entering raises TimeoutError and the block doesn't run.
    """

    def __init__(self, cancellation: Cancellation, seconds: float | None, at_most: float | None = None) -> None:
        self._cancellation = cancellation
        self._seconds = seconds
        self._at_most = at_most
        self._end: float | None = None
        """The loop's time at which it expires in any case."""
        self._pauses = 0
        self._left: float | None = None
        """The seconds that are left when the pause ends; None if there is no limit."""
        self._refused = self._cancelled = False
        self._timeout = asyncio.timeout_at(None)
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> None:
        self._refused = self._cancellation.cancelled or (self._seconds is not None and self._seconds <= 0)
        if self._refused:
            raise TimeoutError
        self._loop = asyncio.get_running_loop()
        self._end = None if self._at_most is None else self._loop.time() + self._at_most
        await self._timeout.__aenter__()
        if self._seconds is not None:
            self._timeout.reschedule(self._loop.time() + self._seconds)
        self._cancellation.add(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cancellation.remove(self)
        await self._timeout.__aexit__(kind, error, trace)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Don't count the time inside this block, except toward `at_most`. For use on the deadline's event loop."""
        if self._pauses == 0 and (when := self._timeout.when()) is not None:
            self._left = when - self._loop.time()
            self._move(self._end)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0 and self._left is not None:
                when = self._loop.time() + self._left
                self._move(when if self._end is None else min(when, self._end))

    def _move(self, when: float | None) -> None:
        if not self._cancelled:  # then it expires at once, and stays so
            with suppress(RuntimeError):  # it has expired, or the block has been left
                self._timeout.reschedule(when)

    @property
    def seconds_left(self) -> float | None:
        """The seconds until it expires. None if there is no limit."""
        return None if (when := self._timeout.when()) is None else max(0.0, when - self._loop.time())

    def expired(self) -> bool:
        """Whether this deadline has stopped its block."""
        return self._refused or self._timeout.expired()

    def cancel(self) -> None:
        """Expire as soon as the loop gets to it. Safe to call from any thread."""
        self._cancelled = True
        with suppress(RuntimeError):  # the loop is closed, so nothing runs on it
            self._loop.call_soon_threadsafe(self._expire)

    def _expire(self) -> None:
        with suppress(RuntimeError):  # the block has been left in the meantime
            self._timeout.reschedule(self._loop.time())


async def run_to_completion(work: Coroutine[Any, Any, T], cancellation: Cancellation) -> T:
    """Await `work`, which must stop soon after `cancellation` is cancelled.

    If the awaiting task is cancelled, once or more, the cancel is passed on through `cancellation`, and CancelledError
    is raised when `work` has finished.
    """
    running, pending = asyncio.ensure_future(work), None
    while not running.done():
        try:
            await _EndOf(running)
        except asyncio.CancelledError as error:
            pending = error
            cancellation.cancel()
    if pending is not None:
        raise pending
    return running.result()


async def contained(work: Awaitable[T]) -> T:
    """Await code of a host. Raise RuntimeError if it exits, as with `sys.exit`: asyncio would end its event loop."""
    try:
        return await work
    except (Exception, asyncio.CancelledError, GeneratorExit):  # the last is raised where a coroutine is closed
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # Ctrl-C, which only this thread gets
        raise RuntimeError(f"it raised {error!r}, which would end the program: raise an Exception instead") from error


async def run_stoppable(running: "asyncio.Future[T]", *, grace_seconds: float, on_left_behind: Callable[[], None]) -> T:
    """Await a task of its own, which is left behind if it hasn't ended `grace_seconds` after a cancel: it still runs
    then, and nobody waits for it anymore. Raises what it raises.
    """
    try:
        await _EndOf(running)
    except asyncio.CancelledError:
        running.cancel()
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_seconds
        while not running.done() and (seconds := until - loop.time()) > 0:
            try:
                await asyncio.wait([running], timeout=seconds)
            except asyncio.CancelledError:  # passed on, like the first one
                running.cancel()
        if not running.done():
            _left_behind.add(running)
            running.add_done_callback(_forget)
            on_left_behind()
            raise
        if running.cancelled():
            raise
    if isinstance(running.exception(), GeneratorExit):
        raise RuntimeError("it raised GeneratorExit")
    return running.result()


class _EndOf(asyncio.Future[None]):
    """Is done when `running` has ended, which goes on if this is cancelled. `asyncio.wait` does the same.

    It is kept for as long as a child runs, and is one object instead of ten.
    """

    def __init__(self, running: "asyncio.Future[Any]") -> None:
        super().__init__(loop=running.get_loop())
        running.add_done_callback(self)

    def __call__(self, running: "asyncio.Future[Any]") -> None:
        if not self.done():
            self.set_result(None)


_left_behind: "set[asyncio.Future[Any]]" = set()
"""The event loop itself doesn't keep its tasks from being collected as garbage."""


def _forget(future: "asyncio.Future[Any]") -> None:
    _left_behind.discard(future)
    retrieve_exception(future)


def retrieve_exception(future: "asyncio.Future[Any]") -> None:
    """Take note of its exception, if it has one: asyncio logs an error for one that is never retrieved."""
    if not future.cancelled():
        future.exception()


def reraise_pending_cancel() -> None:
    """Raise CancelledError if the current task was cancelled and the error was held back to save its results."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError

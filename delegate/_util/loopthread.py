"""Runs an event loop in a background thread, for synchronous callers."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LOOK_SECONDS = 0.05
"""Seconds between two calls of `on_poll`."""


class SupportsWaitFor(Protocol):
    """An object that runs coroutines for synchronous callers, on an event loop of its own."""

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work`, wait for it to finish and return its result."""
        ...


S = TypeVar("S", bound=SupportsWaitFor)


def blocking(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]], doc: str) -> Callable[Concatenate[S, P], T]:
    """The synchronous method `<name>_sync` for an async one: the same arguments, and it waits for the result."""

    @wraps(method)
    def wait(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.wait_for(
            getattr(self, method.__name__)(*args, **kwargs)
        )  # looked up by name, since a subclass may override it

    wait.__name__, wait.__doc__ = f"{method.__name__}_sync", doc
    wait.__qualname__ = f"{method.__qualname__}_sync"
    return wait


class LoopThread:
    """Runs coroutines for callers on any thread. The thread is started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T], *, on_poll: Callable[[], None] | None = None) -> T:
        """Run `work` on the loop and wait for its result.

        An exception in the waiting thread, such as KeyboardInterrupt, cancels the work and is raised when the work has
        finished.

        `on_poll` is called on the waiting thread every `LOOK_SECONDS`.
        """
        ended = threading.Event()
        future = asyncio.run_coroutine_threadsafe(_set_when_done(work, ended), self._ensure_started())
        try:
            return _result(future, on_poll)
        except BaseException:
            future.cancel()
            ended.wait()
            raise

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `last` on the loop, then stop the loop and its thread."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(last(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _ensure_started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="delegate-loop", daemon=True)
                self._thread.start()
            return self._loop


def _result(future: Future[T], on_poll: Callable[[], None] | None) -> T:
    while on_poll is not None:
        try:
            return future.result(LOOK_SECONDS)
        except TimeoutError:
            if future.done():  # raised by the work itself
                break
            on_poll()
    return future.result()


async def _set_when_done(work: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await work
    finally:
        ended.set()

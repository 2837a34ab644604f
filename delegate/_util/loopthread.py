"""An event loop in a thread of its own, for callers that aren't async."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LOOK_SECONDS = 0.05
"""How often a waiting caller looks whether it should stop."""


class Waits(Protocol):
    """Has a loop of its own, on which it runs its work for callers that aren't async."""

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and wait for its end."""
        ...


S = TypeVar("S", bound=Waits)


def blocking(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]], doc: str) -> Callable[Concatenate[S, P], T]:
    """The method `<name>_sync` beside an async one: it takes the same arguments, and waits for its end."""

    @wraps(method)
    def wait(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.wait_for(getattr(self, method.__name__)(*args, **kwargs))  # a subclass may have another

    wait.__name__, wait.__doc__ = f"{method.__name__}_sync", doc
    wait.__qualname__ = f"{method.__qualname__}_sync"
    return wait


class LoopThread:
    """Runs coroutines for callers of any thread. It starts when it is first used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T], *, looking: Callable[[], None] | None = None) -> T:
        """Run `work` on the loop and wait for it. An interrupt of the wait cancels the work, and waits for its end.

        `looking` is called on the waiting thread, every `LOOK_SECONDS`.
        """
        ended = threading.Event()
        future = asyncio.run_coroutine_threadsafe(_telling(work, ended), self._started())
        try:
            return _result(future, looking)
        except BaseException:
            future.cancel()
            ended.wait()
            raise

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `last` on the loop, then end the loop and its thread."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(last(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="delegate-loop", daemon=True)
                self._thread.start()
            return self._loop


def _result(future: Future[T], looking: Callable[[], None] | None) -> T:
    while looking is not None:
        try:
            return future.result(LOOK_SECONDS)
        except TimeoutError:
            if future.done():  # it was the work's own
                break
            looking()
    return future.result()


async def _telling(work: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await work
    finally:
        ended.set()

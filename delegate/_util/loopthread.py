"""Runs an event loop in a background thread, for synchronous callers."""

import asyncio
import atexit
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from delegate._util import forking

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
    """Runs coroutines for callers on any thread. The thread is started on first use.

    It ends with `stop`, when this object is garbage-collected, and at the end of the process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        forking.watch(self)

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

    def stop(self) -> None:
        """Cancel what runs on the loop, then stop the loop and its thread."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            _stop(loop)
            if thread := _threads.get(loop):
                thread.join()

    def after_fork(self) -> None:
        """Start over. The thread doesn't exist in this process."""
        self._lock = threading.Lock()
        forking.abandon(self._loop)
        self._loop = None
        _threads.clear()

    def _ensure_started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_run_and_close, args=(loop,), name="delegate-loop", daemon=True)
                _threads[loop] = thread
                thread.start()
                weakref.finalize(self, _stop, loop).atexit = False
            return self._loop


def _run_and_close(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped, then end everything on it, as `asyncio.run` does."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        _threads.pop(loop, None)


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    with suppress(RuntimeError):  # it is closed already
        loop.call_soon_threadsafe(loop.stop)


def _stop_all() -> None:
    """At the end of the process, let the threads close what they opened."""
    for loop, thread in tuple(_threads.items()):
        _stop(loop)
        thread.join()


_threads: dict[asyncio.AbstractEventLoop, threading.Thread] = {}
atexit.register(_stop_all)


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

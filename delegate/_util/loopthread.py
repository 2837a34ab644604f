"""Runs an event loop in a background thread, for synchronous callers."""

import asyncio
import atexit
import threading
import weakref
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import wait
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from delegate._util import forking

P = ParamSpec("P")
T = TypeVar("T")

LOOK_SECONDS = 0.05
"""Seconds between two calls of `on_poll`."""
GRACE_SECONDS = 1.0
"""How long tasks may go on when their loop ends."""


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
        # Looked up by name, since a subclass may override it.
        return self.wait_for(getattr(self, method.__name__)(*args, **kwargs))

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

        async def end() -> T:
            try:
                return await work
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(end(), self._ensure_started())
        try:
            while on_poll is not None and wait([future], LOOK_SECONDS).not_done:
                on_poll()
            return future.result()
        except BaseException:
            future.cancel()
            ended.wait()
            raise

    def stop(self) -> None:
        """Cancel what runs on the loop, then stop the loop and its thread."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and (running := _threads.get(loop)) is not None:
            running.stop()
            running.thread.join()

    def after_fork(self) -> None:
        """Start over. The thread doesn't exist in this process."""
        self._lock = threading.Lock()
        forking.abandon(self._loop)
        self._loop = None
        _threads.clear()

    def _ensure_started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                running = _RunningLoop(self._loop)
                running.thread.start()
                weakref.finalize(self, running.stop).atexit = False
            return self._loop


class _RunningLoop:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ended = asyncio.Event()
        self.thread = threading.Thread(target=self._run, name="delegate-loop", daemon=True)
        _threads[loop] = self

    def stop(self) -> None:
        """End soon. Safe to call from any thread, and more than once."""
        with suppress(RuntimeError):  # it is closed already
            self._loop.call_soon_threadsafe(self._ended.set)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        run = self._loop.run_until_complete
        ended = self._loop.create_task(self._ended.wait())
        try:
            while not ended.done():
                with suppress(SystemExit, KeyboardInterrupt):  # of code on the loop: its task has ended with it
                    run(ended)
            run(_finish(asyncio.all_tasks(self._loop)))
            run(self._loop.shutdown_asyncgens())
            run(self._loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()
            _threads.pop(self._loop, None)


async def _finish(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Let tasks that close something finish, and cancel all others."""
    if tasks:
        _, running = await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


_threads: dict[asyncio.AbstractEventLoop, _RunningLoop] = {}


@atexit.register
def _stop_all() -> None:
    """At the end of the process, let the threads close what they opened."""
    for running in tuple(_threads.values()):
        running.stop()
        running.thread.join()

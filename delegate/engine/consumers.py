"""Delivers events to their consumers, so that no consumer can harm a run.

A plain function is called on the event loop. One call that takes longer than `SLOW_SECONDS` is held up only once: from
then on, this consumer's events wait in a queue, and a thread of its own passes them on in order. An `async` function
gets its events the same way in an asyncio task. A queue that is full drops the newest events. An exception of a
consumer is logged, once, and the run goes on.
"""

import asyncio
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar, cast

from delegate._util.redaction import logger
from delegate.types.events import Event, EventSink

SLOW_SECONDS = 0.1
"""A plain function that needs longer for one event gets the further ones in a thread."""
MAX_QUEUED = 10_000
"""Events that wait for one consumer. Further ones are dropped."""
SETTLE_SECONDS = 1.0
"""How long the end of a run waits for consumers that are behind."""

T = TypeVar("T")
_FAILURES = (Exception, SystemExit, asyncio.CancelledError)  # the last such as that of a future it asked
_log = logger(__name__)


class Consumer(Generic[T]):
    """One consumer of events. It is called on event loops, returns soon and never raises.

    Args:
        sink: The consumer's function. It gets one event at a time.
        kinds: The classes of events that it wants; None for all.
        direct: Always call it on the event loop. For functions that return at once and belong to this loop.
        name: What log messages call it.
    """

    def __init__(
        self,
        sink: Callable[[T], Any],
        *,
        kinds: Collection[type[Event]] | None = None,
        direct: bool = False,
        name: str = "",
    ) -> None:
        self.kinds = kinds
        self._sink = sink
        self._name = name or name_of(sink)
        # The queue of a loop may be used only on this loop, and never blocks.
        self._direct = direct or isinstance(getattr(sink, "__self__", None), asyncio.Queue)
        self._is_async = any(map(inspect.iscoroutinefunction, (sink, type(sink).__call__)))
        self._queued = self._is_async
        self._queue: deque[Any] = deque()
        """Events, or coroutines that the sink has returned for them."""
        self._lock = threading.Lock()
        self.pending: Future[None] | None = None
        """Done when the queue is empty, so that it has got all events. None while no events are passed on."""
        self._worker: asyncio.Task[None] | None = None
        self._dropped = 0
        self._has_failed = False

    def __call__(self, event: T) -> None:
        """Deliver an event, now or later. Call it only on an event loop."""
        if self._queued:
            self._put(event)
            return
        start = time.perf_counter()
        try:
            answer = self._sink(event)
        except _FAILURES:
            self._log_failure()
        else:
            if answer is not None and inspect.iscoroutine(answer):  # a plain function that returns a coroutine
                self._is_async = self._queued = True
                self._put(answer)
                return
        seconds = time.perf_counter() - start
        if seconds > SLOW_SECONDS and not self._direct:
            self._queued = True
            text = "the event consumer %s took %.1f s for one event, on the event loop: it gets the others in a thread"
            _log.warning(text, self._name, seconds)

    def _put(self, event: T | Coroutine[Any, Any, Any]) -> None:
        with self._lock:
            if is_full := len(self._queue) >= MAX_QUEUED:
                self._dropped += 1
                if self._dropped > 1:
                    return
            else:
                self._queue.append(event)
            worker = self._worker if self._is_async else None
            # It was stopped, or its event loop was, so that it won't continue.
            is_lost = worker is not None and (worker.done() or worker.get_loop().is_closed())
            if self.pending is None or is_lost:
                self._start()
        if is_full:
            text = "the event consumer %s is %d events behind: what doesn't fit into its queue is dropped"
            _log.warning(text, self._name, MAX_QUEUED)

    def _start(self) -> None:
        """Start to pass on what is in the queue. The caller holds the lock."""
        self.pending = idle = Future[None]()
        idle.set_running_or_notify_cancel()  # so that a caller that waits for it can't cancel it
        if self._is_async:
            self._worker = asyncio.get_running_loop().create_task(self._pass_on_async(idle))
            return

        def pass_on() -> None:
            while self._has_more(idle):
                try:
                    self._sink(self._queue.popleft())
                except _FAILURES:
                    self._log_failure()

        work = partial(copy_context().run, pass_on)
        threading.Thread(target=work, name=f"events for {self._name}", daemon=True).start()

    async def _pass_on_async(self, idle: "Future[None]") -> None:
        while self._has_more(idle):
            event = self._queue.popleft()
            try:
                await (event if inspect.iscoroutine(event) else self._sink(event))
            except _FAILURES as error:
                own = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and own is not None and own.cancelling():
                    raise
                self._log_failure()

    def _has_more(self, idle: "Future[None]") -> bool:
        with self._lock:
            if self._queue:
                return True
            self.pending = self._worker = None
            dropped, self._dropped = self._dropped, 0
        if dropped > 1:
            _log.warning("%d events for the event consumer %s were dropped", dropped, self._name)
        idle.set_result(None)
        return False

    def _log_failure(self) -> None:
        if not self._has_failed:
            self._has_failed = True
            _log.exception("the event consumer %s failed; further failures of it aren't logged", self._name)


def as_consumer(sink: EventSink | None) -> Consumer[Event] | None:
    """The consumer of what a caller gave as `on_event`."""
    if isinstance(sink, Consumer):
        return cast("Consumer[Event]", sink)
    return None if sink is None else Consumer[Event](sink)


async def settle(consumers: Iterable[Consumer[Any] | None]) -> None:
    """Wait until these consumers have got all events so far, at most `SETTLE_SECONDS`. Later, they still get them."""
    pending = [consumer.pending for consumer in consumers if consumer is not None]
    waiting = [asyncio.wrap_future(future) for future in pending if future is not None]
    if waiting:
        await asyncio.wait(waiting, timeout=SETTLE_SECONDS)


def name_of(sink: Callable[..., Any]) -> str:
    function = sink.func if isinstance(sink, partial) else sink
    return str(getattr(function, "__qualname__", type(function).__qualname__))

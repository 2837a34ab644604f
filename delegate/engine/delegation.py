"""A call that runs in the background."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from delegate._util.cancellation import Cancellation, retrieve_exception
from delegate._util.redaction import logger
from delegate.contract.progress import CallProgress
from delegate.engine.consumers import Consumer, as_consumer, settle
from delegate.types import ParentQuestion, Report, TaskResult
from delegate.types.events import Event, EventSink

if TYPE_CHECKING:
    from delegate.policy.questions import OnQuestion

KEPT_EVENTS = 1_000
"""How many of the latest events are kept for those who ask for them later."""

_log = logger(__name__)


class Delegation:
    """A call that goes on while its caller does something else. For use on the event loop where it was started.

        delegation = await delegator.background.start(task)
        async for event in delegation.events():
            print(event)
        report = await delegation

    To await it never stops it, even if the awaiting task is canceled.
    """

    def __init__(
        self,
        run: Callable[..., Coroutine[Any, Any, Report]],
        on_event: EventSink | None = None,
        on_question: "OnQuestion | None" = None,
        *,
        asks: bool = False,
    ) -> None:
        """`run` makes the call, given `on_event`, `on_question` and `cancellation`. With `asks`, questions that
        `on_question` doesn't answer wait for a message to their child.
        """
        self.progress = CallProgress()
        consumer = as_consumer(on_event)
        self._consumers = [] if consumer is None else [consumer]
        self._events = deque[Event](maxlen=KEPT_EVENTS)
        self._on_question = on_question
        self._questions: dict[str, tuple[ParentQuestion, asyncio.Future[str | None]]] = {}
        """By handle: what is asked, and what the answer is given to."""
        self._has_changed = asyncio.Event()
        """Set, and replaced, when a task or the call has ended, or a child has asked."""
        self._cancellation = Cancellation()
        self._running = asyncio.create_task(self._run(run, self._ask if asks else on_question))
        self._running.add_done_callback(retrieve_exception)
        self.add_done_callback(self._note_change)

    def __await__(self) -> Generator[Any, None, Report]:
        return asyncio.shield(self._running).__await__()

    @property
    def handles(self) -> tuple[str, ...]:
        """The handle of each task, in the order of the call. Empty if the call was refused."""
        return self.progress.handles

    @property
    def questions(self) -> tuple[ParentQuestion, ...]:
        """The questions of its children that wait for a message to the child as their answer."""
        return tuple(question for question, answer in self._questions.values() if not answer.done())

    def answer(self, handle: str, text: str | None) -> None:
        """Answer what a child asks, or say that there is no answer but the messages that it was sent."""
        if (asked := self._questions.get(handle)) is not None and not asked[1].done():
            asked[1].set_result(text)

    @property
    def is_here(self) -> bool:
        """Whether it runs on the current event loop."""
        return self._running.get_loop() is asyncio.get_running_loop()

    @property
    def done(self) -> bool:
        """Whether all tasks have ended."""
        return self._running.done()

    def result(self, handle: str) -> TaskResult | None:
        """The result of the task with this handle, once the call is done."""
        if not self.done or self._running.cancelled() or handle not in self.handles:
            return None
        results = self._running.result().results
        if len(results) == len(self.handles):  # also where no record, and so no handle, could be written
            return results[self.handles.index(handle)]
        return next((result for result in results if result.handle == handle), None)

    def cancel(self) -> None:
        """Stop all tasks. The report then has what they have done so far. Safe to call from any thread."""
        self._cancellation.cancel()

    async def close(self) -> None:
        """Stop all tasks and wait until they have ended, unless they run on another event loop."""
        self.cancel()
        if self.is_here:
            await self.wait()

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the event loop when all tasks have ended."""
        self._running.add_done_callback(lambda _: callback())

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the events so far, at most the latest 1,000, and then further ones until all tasks have ended."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        with self.reported_to(queue.put_nowait):
            self.add_done_callback(lambda: queue.put_nowait(None))
            while (event := await queue.get()) is not None:
                yield event

    @contextmanager
    def reported_to(self, sink: EventSink | None) -> Generator[None]:
        """Inside the block, `sink` gets the events so far, at most the latest 1,000, and then further ones."""
        consumer = as_consumer(sink)
        if consumer is None:
            yield
            return
        for event in self._events:
            consumer(event)
        self._consumers.append(consumer)
        try:
            yield
        finally:
            self._consumers.remove(consumer)

    async def wait(self, seconds: float | None = None, *, handle: str | None = None, or_question: bool = False) -> bool:
        """Wait until all tasks have ended, or the one with this handle, at most `seconds`. Returns whether they have.

        With `or_question`, also until one of them, or the one with this handle, asks for a message. If the waiting task
        is canceled, the call goes on.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._has_ended(handle):
                    if or_question and any(handle in (None, question.handle) for question in self.questions):
                        break
                    await self._has_changed.wait()
        return self._has_ended(handle)

    async def _ask(self, question: ParentQuestion) -> str | None:
        """Call `on_question`, and wait for a message if it has no answer. Canceled once there is one."""
        try:
            if self._on_question is not None and (answer := await self._on_question(question)) is not None:
                return answer
        except Exception:
            _log.exception("nobody could be asked a question, which waits for a message now")
        answer = asyncio.get_running_loop().create_future()
        self._questions[question.handle] = question, answer
        try:
            self._note_change()
            return await answer
        finally:
            del self._questions[question.handle]

    def _has_ended(self, handle: str | None) -> bool:
        task = None if handle is None else self.progress.task(handle)
        return self.done or (task is not None and task.ended)

    def _note_change(self) -> None:
        self._has_changed.set()
        self._has_changed = asyncio.Event()

    async def _run(self, run: Callable[..., Coroutine[Any, Any, Report]], on_question: "OnQuestion | None") -> Report:
        def observe(event: Event) -> None:
            self.progress.add(event)
            self._events.append(event)
            if event.kind == "task.done":
                self._note_change()
            for consumer in self._consumers:
                consumer(event)

        sink = Consumer(observe, direct=True)
        report = await run(on_event=sink, on_question=on_question, cancellation=self._cancellation)
        await settle(self._consumers)
        return report

"""Calls that go on in the background, known by the handles of their tasks."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from delegate import contract
from delegate._util.cancellation import Cancellation, retrieve_exception
from delegate._util.fencing import quoted
from delegate._util.redaction import logger
from delegate.budget.runs import RunRegistry, current_context
from delegate.contract import Arguments, CallProgress, readback
from delegate.engine.consumers import Consumer, as_consumer, settle
from delegate.engine.error_mapping import refusal
from delegate.records.history import Records, TaskSummary
from delegate.records.mailbox import sendable
from delegate.types import Author, Parent, ParentQuestion, RunResult, SentMessage, Task, TaskResult
from delegate.types.errors import CallError, DelegateError
from delegate.types.events import Event, EventSink
from delegate.types.request import not_tasks

if TYPE_CHECKING:
    from delegate.engine.task_run import TaskRun
    from delegate.policy.approvals import OnApproval, OnQuestion

KEPT_EVENTS = 1_000
"""How many of the latest events of a call are kept for those who ask for them later."""
MAX_LISTED = 12
"""How many tasks are listed for a call without a handle."""
_LISTED_RUNS = 100
"""The number of runs in which a caller's latest tasks are looked for."""
_KEPT_DELEGATIONS = 100
"""The number of tasks in the background that are remembered; the oldest ones are dropped once they have ended."""

_log = logger(__name__)


class Delegation:
    """A call that goes on while its caller does something else. For use on the event loop where it was started.

        delegation = await delegator.background.start(task)
        async for event in delegation.events():
            print(event)
        result = await delegation

    To await it never stops it, even if the awaiting task is cancelled.
    """

    def __init__(
        self,
        run: Callable[..., Coroutine[Any, Any, RunResult]],
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

    def __await__(self) -> Generator[Any, None, RunResult]:
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
        """Stop all tasks. The result then has what they have done so far. Safe to call from any thread."""
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
        is cancelled, the call goes on.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._has_ended(handle):
                    if or_question and any(handle in (None, question.handle) for question in self.questions):
                        break
                    await self._has_changed.wait()
        return self._has_ended(handle)

    async def _ask(self, question: ParentQuestion) -> str | None:
        """Call `on_question`, and wait for a message if it has no answer. Cancelled once there is one."""
        try:
            if self._on_question is not None and (answer := await self._on_question(question)) is not None:
                return answer
        except (Exception, SystemExit):
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

    async def _run(
        self, run: Callable[..., Coroutine[Any, Any, RunResult]], on_question: "OnQuestion | None"
    ) -> RunResult:
        def observe(event: Event) -> None:
            self.progress.add(event)
            self._events.append(event)
            if event.kind == "task.done":
                self._note_change()
            for consumer in self._consumers:
                consumer(event)

        sink = Consumer(observe, direct=True)
        result = await run(on_event=sink, on_question=on_question, cancellation=self._cancellation)
        await settle(self._consumers)
        return result


@dataclass(eq=False, repr=False)
class Background:
    """Starts calls in the background, and waits for their tasks, reads and stops them, and sends messages to their
    children. It is `delegator.background`.

    What still runs is stopped by `Delegator.aclose`.
    """

    _call: Callable[..., Coroutine[Any, Any, RunResult]]
    _run: Callable[..., Coroutine[Any, Any, RunResult]]
    _continue: Callable[..., Coroutine[Any, Any, RunResult]]
    """These are the delegator's methods."""
    _running: "Mapping[str, TaskRun]"
    """The delegator's running tasks, by handle."""
    _runs: RunRegistry
    _records: Records
    _result_chars: int
    _delegations: OrderedDict[str, Delegation] = field(default_factory=OrderedDict[str, Delegation], init=False)
    outlives_session: bool = field(default=False, init=False)
    """Whether calls go on after the session that made them, so that parents can be told."""

    def __post_init__(self) -> None:
        self.messages = self._records.messages
        """Returns the messages that were sent to a child, and what became of each."""

    async def start(
        self,
        *tasks: Task,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        on_question: "OnQuestion | None" = None,
        asks: bool = False,
    ) -> Delegation:
        """Run tasks in the background. Returns when they are recorded, or when they have been refused.

            delegation = await delegator.background.start(task)
            result = await delegation

        `aclose` stops what still runs. With `asks`, what a child asks and `on_question` doesn't answer is in the
        delegation's `questions`, and `message` answers it. Without both, children can't ask.
        Raises CallError for what isn't a `Task`.
        """
        if wrong := [task for task in tasks if not isinstance(cast("object", task), Task)]:
            raise not_tasks(wrong[0])
        run = partial(self._run, *tasks, parent=parent)
        return await self._started(Delegation(run, on_event, on_question or self._runs.on_question, asks=asks))

    async def start_call(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        on_approval: "OnApproval | None" = None,
        on_question: "OnQuestion | None" = None,
        asks: bool = False,
    ) -> Delegation:
        """Execute one tool call as `start` runs tasks. Returns when they are recorded, or when it has been refused."""
        run = partial(self._call, arguments, parent=parent, on_approval=on_approval)
        return await self._started(Delegation(run, on_event, on_question or self._runs.on_question, asks=asks))

    async def join(self) -> None:
        """Wait until all calls in the background have ended."""
        for delegation in set(self._delegations.values()):
            await delegation.wait()

    async def stop(self, handle: str) -> bool:
        """Stop one task that runs in this process, and wait until its result is recorded. False if it doesn't run."""
        if (task := self._running.get(handle)) is None:
            return False
        task.cancellation.cancel()
        if delegation := self._delegations.get(handle):
            await delegation.wait(handle=handle)
        return True

    async def message(
        self,
        handle: str,
        text: str,
        *,
        acceptance_criteria: Sequence[Any] | None = None,
        parent: Parent | None = None,
        author: Author = "person",
        on_approval: "OnApproval | None" = None,
        on_question: "OnQuestion | None" = None,
        asks: bool = False,
    ) -> SentMessage:
        """Send a child an instruction, which it reads before its next turn. Returns once it is stored.

        The child may run in another process. Its work is still judged by the task's criteria, and a message is no
        evidence. What became of it is in `messages`: `delivered`, or `never_read` if the child ended before. If the
        child waits for an answer to a question, the message is the answer.

        A task that has ended continues: a new task in the same run, in the background, with the same workspace and the
        record of what was done, gets a verdict of its own. Its handle is that of the message.

        Args:
            handle: The task.
            text: At most 8,000 characters. Secrets in it are replaced, as in all that is recorded.
            acceptance_criteria: By what the work is judged when a task continues. By default, by its own criteria.
            parent: Who sends it, for the limits of a task that continues.
            author: Who wrote it. The setting `commands` applies to the checks of a `model`, also to those of its task.
            on_approval: As in `Delegator.run`, for a task that continues.
            on_question: As in `Delegator.run`, for a task that continues.
            asks: As in `start`, for a task that continues.

        Raises:
            CallError: It can't be sent; the error says why. A child can be sent 20 messages, while it works, if its
                runner takes messages, as the built-in child does. A task continues once; then its continuation does.
            DelegateError: The records can't be read or written.
        """
        text = sendable(text)
        try:
            if acceptance_criteria is None:
                sent = await self._records.send_message(handle, text)
                if sent.is_answer and (delegation := self._delegations.get(handle)) and delegation.is_here:
                    delegation.answer(handle, None)
                return sent
            message = "the criteria of a task that hasn't ended can't be changed"
            raise CallError("cannot_message", message, field="acceptance_criteria", hint="wait for its result")
        except CallError:
            record = await self._records.read(handle)
            if record is None or record["state"] != "ended":
                raise

        given = (handle, text, acceptance_criteria)
        run = partial(self._continue, *given, parent=parent, author=author, on_approval=on_approval)
        delegation = await self._started(Delegation(run, on_question=on_question or self._runs.on_question, asks=asks))
        if not delegation.handles:
            await delegation  # raises why it was refused
        return (await self._records.messages(delegation.handles[0]))[0]

    def delegation(self, handle: str) -> Delegation | None:
        """The call that this task belongs to, as far as it was made here and is remembered."""
        return self._delegations.get(handle)

    async def result(
        self, handle: str, *, wait_seconds: float | None = None, or_question: bool = False
    ) -> TaskResult | None:
        """Wait for a task, at most `wait_seconds`, and return its result; None if it still runs.

        With `or_question`, also until its child asks for a message.

        Raises:
            CallError: There is no such task.
        """
        if await self._unended(handle, wait_seconds, or_question=or_question):
            return None
        result, report = await self._result_of(handle)
        return result.model_copy(update={"report": report})

    read_tool = staticmethod(contract.read_tool)
    stop_tool = staticmethod(contract.stop_tool)
    message_tool = staticmethod(contract.message_tool)
    """These return the definitions of the tools, in a host's dialect."""

    async def read_answer(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        may_read: Callable[[str], bool] | None = None,
    ) -> str:
        """Execute a call of `read_delegation`. Returns the result as text, or the call's error. See `read_call`."""
        try:
            return await self.read_call(arguments, parent=parent, may_read=may_read)
        except CallError as error:
            return contract.render(refusal(error), limit=self._result_chars)

    async def read_call(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        may_read: Callable[[str], bool] | None = None,
        max_wait_seconds: float | None = None,
        on_event: EventSink | None = None,
    ) -> str:
        """Execute a call of `read_delegation` and return its result as text: what a task is doing, its result, a part
        of its report, or the list of the latest tasks.

        Handles can't be guessed, so any caller with a handle may read its result. However, a call that belongs to a
        known run (named by the host, made inside `root_run`, or made by a child) can only read results of that run.

        Args:
            arguments: The arguments, as the parent's model wrote them.
            parent: The calling parent.
            may_read: For hosts with several callers that don't trust each other: gets the id of a run and decides
                whether this caller may read its results. The answer to a handle of another run is that of an unknown
                handle.
            max_wait_seconds: The maximum of `wait_seconds`, and its default; without it, the default is 0.
            on_event: Receives the events of the task while it is waited for.

        Raises:
            CallError: The call is invalid, or there is no such result. The error says how to fix it.
        """
        request = readback.parse_read(arguments)
        if request.handle is None:
            return render_list(await self._latest_tasks(self._runs.known_run(parent), may_read))
        is_own = self._is_own(request.handle, parent, may_read)
        limits = [limit for limit in (request.wait_seconds, max_wait_seconds) if limit is not None]
        if is_own:
            delegation = self._delegations.get(request.handle)
            with delegation.reported_to(on_event) if delegation else nullcontext():
                delegation = await self._unended(request.handle, min(limits, default=0), or_question=True)
            if delegation is not None:
                return await self._with_messages(self.render_running(delegation), request.handle)
        result, report = await self._result_of(request.handle, is_own=is_own)
        limit = self._result_chars
        if request.offset is None:
            shown = contract.render_result(result.model_copy(update={"report": report}), limit=limit)
            return await self._with_messages(shown, request.handle)
        return readback.render_slice(request.handle, request.offset, result, report, limit=limit)

    def render_running(self, delegation: Delegation) -> str:
        """What the tasks of a call are doing, and what their children ask, as text for their parent."""
        return readback.render_running(delegation.progress, delegation.questions, keeps_running=self.outlives_session)

    async def stop_call(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        may_read: Callable[[str], bool] | None = None,
    ) -> str:
        """Execute a call of `stop_delegation`: stop one task, wait until it has ended, and return its result as text.
        Raises CallError if the call is invalid, or there is no such task.
        """
        handle = readback.parse_stop(arguments)
        if self._is_own(handle, parent, may_read):
            await self.stop(handle)
        return await self.read_call({"handle": handle, "wait_seconds": 0}, parent=parent, may_read=may_read)

    async def message_call(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        may_read: Callable[[str], bool] | None = None,
        on_approval: "OnApproval | None" = None,
        on_question: "OnQuestion | None" = None,
        asks: bool = False,
    ) -> tuple[str, Delegation | None]:
        """Execute a call of `message_delegation`. Who may read a task's result may send it messages: see `read_call`.

        Returns a text, and the call in the background if the task had ended and continues. Raises CallError if the call
        is invalid, or the message can't be sent.
        """
        handle, text = readback.parse_message(arguments)
        if not self._is_own(handle, parent, may_read):
            raise readback.other_run()
        try:
            sent = await self.message(
                handle, text, parent=parent, author="model", on_approval=on_approval, on_question=on_question, asks=asks
            )
        except DelegateError as error:
            raise _refused(error, "message") from None
        if sent.handle != handle:
            text = f"the task had ended, and continues with your message in the background as {sent.handle}"
            return f"{text}; read_delegation waits for its result", self._delegations.get(sent.handle)
        if sent.is_answer:
            return "answered: the child goes on with your answer; read_delegation waits for its result", None
        return "queued: the child reads it before its next turn; read_delegation says whether it did", None

    async def aclose(self) -> None:
        """Stop what runs in the background."""
        for delegation in set(self._delegations.values()):
            await delegation.close()

    async def _started(self, delegation: Delegation) -> Delegation:
        async for event in delegation.events():
            if event.kind == "task.queued":
                break
        for handle in delegation.handles:
            self._delegations[handle] = delegation
        while len(self._delegations) > _KEPT_DELEGATIONS and next(iter(self._delegations.values())).done:
            self._delegations.popitem(last=False)
        return delegation

    def _is_own(self, handle: str, parent: Parent | None, may_read: Callable[[str], bool] | None) -> bool:
        """Whether a handle is one of the caller's run, if that is known. Raises CallError if the caller may not read
        it, before anything is read, so that not even the time of the answer shows whether there is a record.
        """
        if may_read is not None and not may_read(readback.run_of(handle)):
            raise readback.unknown_handle()
        return self._runs.known_run(parent) in (None, readback.run_of(handle))

    async def _unended(self, handle: str, seconds: float | None, *, or_question: bool) -> Delegation | None:
        """The call of a task that hasn't ended after so many seconds or, with `or_question`, whose child asks."""
        delegation = self._delegations.get(handle)
        if delegation is not None and delegation.is_here:
            has_ended = await delegation.wait(seconds, handle=handle, or_question=or_question)
            return None if has_ended else delegation
        return delegation

    async def _result_of(self, handle: str, *, is_own: bool = True) -> tuple[TaskResult, str]:
        """Return a task's result and its whole report from its record, or as they were made if there is no record.

        Raises CallError if there is neither.
        """
        try:
            return readback.report_in(await self._records.read(handle), is_own=is_own)
        except DelegateError as error:
            delegation = self._delegations.get(handle) if is_own else None
            if delegation is not None and (result := delegation.result(handle)) is not None:
                return result, result.whole_report
            raise _refused(error, "report") from None

    async def _with_messages(self, text: str, handle: str) -> str:
        """What is read of a task with what became of the messages to its child, before the last line."""
        states: list[str] = []
        with suppress(DelegateError):
            states = [message.state.replace("_", " ") for message in await self._records.messages(handle)]
        counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
        start, _, last = text.rpartition("\n")
        return f"{start}\nyour messages to it: {', '.join(counts)}\n{last}" if counts else text

    async def _latest_tasks(self, run_id: str | None, may_read: Callable[[str], bool] | None) -> list[TaskSummary]:
        runs = [run_id] if run_id else [run.run_id for run in await self._records.runs(_LISTED_RUNS)]
        runs = [run for run in runs if run_id or may_read is None or may_read(run)]
        depth = context.depth if (context := current_context()) else 0
        latest: list[TaskSummary] = []
        for run in runs:
            latest += [task for task in reversed(await self._records.tasks(run)) if task.depth == depth]
            if len(latest) >= MAX_LISTED:
                break
        return latest


def render_list(tasks: Sequence[TaskSummary]) -> str:
    """Return the latest tasks of a parent, one per line."""
    if not tasks:
        return "no tasks have been delegated yet"
    shown = ["The latest delegated tasks, newest first:"]
    for task in tasks[:MAX_LISTED]:
        state = task.state if task.state != "ended" else task.verdict or f"no verdict ({task.status})"
        shown.append(f"{task.handle}  {state}  {quoted(task.goal, 100)}")
    return "\n".join(shown)


def _refused(error: DelegateError, what: str) -> CallError:
    """The error of a call that needs what the records can't give."""
    if isinstance(error, CallError):
        return error
    return CallError("unreadable", str(error), field="handle", hint=f"continue without this {what}")

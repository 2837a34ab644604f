"""Runs the items of a batch: takes them from a schedule, journals each before it starts, and yields each outcome.

    source ─▶ validate ─▶ schedule ─▶ journal.begin ─▶ backend.run ─▶ journal.end ─▶ results file ─▶ async for

Every row is validated before anything is spent. An outcome is in the journal and in the results file before it is
yielded, and isn't kept after that: memory holds the running items, and the ids that had finished before a resume.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from delegate._util.cancellation import Cancellation, run_to_completion
from delegate._util.redaction import redactor
from delegate._util.threads import run_in_daemon_thread
from delegate.batch.backend import Backend, WorkerLost
from delegate.batch.graph import Graph, InOrder
from delegate.batch.item import BadRow, Item, ItemOutcome, ItemState
from delegate.batch.journal import NEVER_RUN, BatchHeader, BatchSummary, Journal, Rerun
from delegate.batch.results_file import ResultsFile
from delegate.batch.sources import Source
from delegate.batch.validate import ValidatedSource, validate
from delegate.engine.consumers import Consumer, name_of, settle
from delegate.telemetry.operations import BatchTrace
from delegate.types import Task
from delegate.types.errors import CallError, DelegateError
from delegate.types.events import ChildDone, ChildWaiting, Event, EventSink, JudgeWaiting, RunDone, RunStarted
from delegate.types.faults import located

_Message = ItemOutcome | BaseException | Literal["slot_free"] | None
"""Sent to the loop by a running item: its outcome, the exception that ended it, or None if it was refused and can run
later. `slot_free` means that its child has ended, so another item may start."""
_MAX_CONCURRENCY = 10_000
MOST_UNREACHABLE = 5
"""How many tasks in a row may fail because no model can be reached. All others would fail too."""
_UNREACHABLE = ("connection", "auth")
_NO_TIME_LIMIT = 60 * 24 * 365
"""Minutes."""


@dataclass(slots=True)
class Tally:
    """Counts and costs of a batch so far, earlier sessions included."""

    total: int = 0
    passed: int = 0
    below_seen: int = 0
    """Those of `passed` whose level is below `seen`."""
    failed: int = 0
    """Items with the verdict FAIL."""
    unjudged: int = 0
    """Completed items without criteria."""
    bad_work: int = 0
    """Items whose work is bad."""
    states: Counter[ItemState] = field(default_factory=Counter[ItemState])
    """The number of items in each state."""
    cost_known_usd: float = 0
    judge_cost_usd: float = 0
    unpriced: bool = False
    """Whether part of the cost is unknown."""
    estimated: bool = False
    """Whether part of the cost is estimated."""

    @property
    def settled(self) -> int:
        """Items with an outcome."""
        return self.states.total()

    @property
    def all_good(self) -> bool:
        """Whether every item has completed, and none has the verdict FAIL."""
        return self.passed + self.unjudged == self.total

    def add(self, outcome: ItemOutcome) -> None:
        result = outcome.result
        if outcome.passed:
            self.passed += 1
            self.below_seen += result is not None and result.verdict is not None and not result.verdict.verified
        elif outcome.good:
            self.unjudged += 1
        elif result is not None and result.verdict is not None and result.verdict.verdict == "FAIL":
            self.failed += 1
        self.bad_work += outcome.bad_work
        self.states[outcome.state] += 1
        self.cost_known_usd += outcome.cost_known_usd
        self.unpriced = self.unpriced or outcome.unpriced
        self.estimated = self.estimated or outcome.estimated
        if result is not None:
            self.judge_cost_usd += (result.verification_share or 0) * (result.cost_usd or 0)


@dataclass(frozen=True)
class BatchConfig:
    """The source, backend, journal, limits and options of a batch."""

    source: Source
    engine: Backend
    journal: Journal
    run_id: str
    admit: Callable[[Task], object]
    """Raises CallError for a task that can't be run. It is called in a thread without an event loop."""
    concurrency: int = 3
    max_cost_usd: float | None = None
    """Maximum cost of the whole batch in US dollars, earlier sessions included. Only known costs count."""
    max_minutes: float | None = None
    """Maximum wall time of this session. Items that are running when it is over are cancelled."""
    stop_after_failures: int | None = None
    """Start no more items after this many failures in this session: FAIL, or a child that didn't complete. Items that
    are being judged then count toward the concurrency, since they may be failures."""
    resume: bool = False
    rerun: Collection[Rerun] = ()
    resumed: Callable[[BatchSummary], Awaitable[None]] | None = None
    """Called with the state of a resumed batch, before anything runs."""
    skip_bad: bool = False
    once: bool = False
    """Refuse tasks that another batch on record has already run."""
    results: ResultsFile | None = None
    options: str = "{}"
    on_event: Callable[[Item], EventSink] | None = None
    consumer: Consumer[Event] | None = None
    """Receives the beginning and the end of the batch. The items' events reach it through the engine."""
    cancellation: Cancellation | None = None


class Batch:
    """A batch, which runs while it is iterated: `async for outcome in batch`. It can be iterated once.

    Outcomes arrive in any order. Raises CallError if the batch can't be run as it is; then nothing was run. Raises
    DelegateError after the last outcome if outcomes couldn't be recorded, as on a full disk. Breaking out of the loop
    cancels the running items; use `contextlib.aclosing(batch.outcomes())` to do so at a known moment.
    `tally` and `stopped` may be read at any time.
    """

    def __init__(self, config: BatchConfig) -> None:
        self.run_id = config.run_id
        self.tally = Tally()
        self.stopped = ""
        """Why no more items are started; empty as long as they are."""
        self.began = 0.0
        """When the first item could start, on the monotonic clock."""
        self.settled_before = 0
        """Items that finished in earlier sessions."""
        self.running = 0
        """Number of running items."""
        self.waits = Counter[str]()
        """Number of calls that wait now, by their `WaitReason`."""
        self._config = config
        self._cancellation = Cancellation()
        self._children = set[str]()
        """Ids of the items whose child may be running; the others are being judged."""
        self._tasks = set[asyncio.Task[None]]()
        self._failures, self._unreachable = 0, list[str]()
        self._failure: DelegateError | None = None
        self._messages: asyncio.Queue[_Message] = asyncio.Queue()
        # One for all items, so that a slow one is moved off the event loop only once.
        # Each delivery is the sink of an item and an event for it.
        self._consumer = config.on_event and Consumer[tuple[EventSink, Event]](
            lambda delivery: delivery[0](delivery[1]), name=name_of(config.on_event)
        )
        self._schedule: Graph | InOrder
        self._entries: Iterator[Item | BadRow] = iter(())
        self._trace: BatchTrace

    def __aiter__(self) -> AsyncIterator[ItemOutcome]:
        return self.outcomes()

    @property
    def results_path(self) -> Path | None:
        """Path of the results file."""
        return self._config.results.path if self._config.results else None

    @property
    def working(self) -> int:
        """Number of running items whose child may be running; the children of the others have ended."""
        return min(len(self._children), self.running)

    async def outcomes(self) -> AsyncGenerator[ItemOutcome]:
        """Run the batch and yield the outcome of each item when it finishes."""
        with (self._config.cancellation or Cancellation()).part() as self._cancellation:
            try:
                await self._open()
                async with aclosing(self._run()) as outcomes:
                    async for outcome in outcomes:
                        yield outcome
            finally:
                if close := getattr(self._entries, "close", None):  # its file, if the batch ended early
                    close()
                if self._config.results is not None:
                    self._config.results.close()

    async def _open(self) -> None:
        config, source, results = self._config, self._config.source, self._config.results
        validated = await run_in_daemon_thread(lambda: validate(source, config.admit, skip_bad=config.skip_bad))
        self.tally.total = validated.total
        with located(source.name):  # a graph holds all items in memory
            self._entries = iter(source)
            self._schedule = (Graph if validated.has_needs else InOrder)(self._entries, validated.bad_rows)
        if config.resume:
            await self._resume(validated)
            return
        path, title = str(results.path.absolute()) if results else None, redactor.text(validated.title)
        header = BatchHeader(config.run_id, validated.digest, source.name, path, config.options, title, validated.total)
        with results.created(validated.table) if results is not None else nullcontext():
            await config.journal.create(header, once=config.once)

    async def _resume(self, validated: ValidatedSource) -> None:
        config, journal, run_id = self._config, self._config.journal, self._config.run_id
        summary = await journal.summary(run_id)
        if summary.digest != validated.digest:
            message = f"{config.source.name}: these aren't the tasks of batch {run_id}, which were read from"
            hint = "resume the batch with the tasks, templates and options that it was started with"
            raise CallError("tasks_changed", f"{message} {summary.source}", field="resume", hint=hint)
        results = config.results
        summary = await journal.claim(run_id, results=str(results.path.absolute()) if results else None)
        try:
            await journal.reset(run_id, (*config.rerun, *NEVER_RUN))
            restored = self._restored()
            if results is not None:
                await results.rewrite(restored, validated.table)
            else:
                async for _ in restored:
                    pass
            self.settled_before = self.tally.settled
            # These include earlier runs of items that now run again.
            self.tally.cost_known_usd, self.tally.unpriced = summary.cost_known_usd, summary.unpriced
            self.tally.estimated = summary.estimated
            if config.resumed is not None:
                await config.resumed(summary)
        except BaseException:
            await journal.release(run_id)
            raise

    async def _restored(self) -> AsyncIterator[ItemOutcome]:
        async for outcome in self._config.journal.outcomes(self.run_id):
            self.tally.add(outcome)
            self._schedule.finished(outcome)
            yield outcome

    async def _run(self) -> AsyncGenerator[ItemOutcome]:
        """Start items and yield their outcomes. On every exit, all items have ended and are in the journal."""
        self.began = time.monotonic()
        if self._config.consumer is not None:
            self._config.consumer(RunStarted(run_id=self.run_id, at=time.time(), tasks=self.tally.total))
        seconds = (self._config.max_minutes or _NO_TIME_LIMIT) * 60

        def stop_at_time_limit() -> None:
            self._stop(f"max_minutes ({self._config.max_minutes:g}) is reached")
            self._cancellation.cancel()

        timer = asyncio.get_running_loop().call_later(seconds, stop_at_time_limit)
        self._trace = BatchTrace(run_id=self.run_id, tasks=self.tally.total)
        try:
            while self._start_items():
                message = await self._messages.get()
                if message == "slot_free":
                    continue
                self.running -= 1  # only here, so that a slow consumer doesn't make more items start
                if isinstance(message, BaseException):
                    raise message
                if message is not None:
                    yield message
            if self._failure is not None:
                raise self._failure
        finally:
            timer.cancel()
            if self.running:
                self._stop("the iteration ended early")
            await run_to_completion(self._shut_down(), self._cancellation)
            self._trace.end()
            tally = self.tally
            done = RunDone(
                run_id=self.run_id,
                at=time.time(),
                tasks=tally.settled,
                passed=tally.passed,
                failed=tally.failed,
                cost_usd=None if tally.unpriced else round(tally.cost_known_usd, 9),
                seconds=round(time.monotonic() - self.began, 6),
            )
            if self._config.consumer is not None:
                self._config.consumer(done)
            await settle((self._config.consumer, self._consumer))

    async def _shut_down(self) -> None:
        if self._tasks:
            self._cancellation.cancel()
            await asyncio.wait(self._tasks)
        with suppress(DelegateError):  # a batch that can't be released reads as `interrupted`
            await self._config.journal.release(self.run_id)

    def _start_items(self) -> bool:
        """Start as many items as the limits allow. Returns whether any item is running.

        An item that is being judged doesn't count toward the concurrency, so the next child can start; at most twice
        as many items as `concurrency` are running. With `stop_after_failures`, it may be the last failure.
        """
        slots = min(self._config.concurrency, self._config.engine.capacity or _MAX_CONCURRENCY)
        most = 2 * slots if self._config.stop_after_failures is None else slots
        while len(self._children) < slots and self.running < most and self._may_start():
            item = self._schedule.next()
            if item is None:
                break
            self.running += 1
            self._children.add(item.id)
            task = asyncio.create_task(self._process(item), context=self._trace.context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return self.running > 0

    def _may_start(self) -> bool:
        limits = self._config
        if self._cancellation.cancelled:
            self._stop("cancelled")
        if limits.max_cost_usd is not None and self.tally.cost_known_usd >= limits.max_cost_usd:
            self._stop(f"max_cost_usd ({limits.max_cost_usd:g}) is reached")
        if limits.stop_after_failures is not None and self._failures >= limits.stop_after_failures:
            self._stop(f"stop_after_failures ({limits.stop_after_failures}) is reached")
        if (n := len(self._unreachable)) >= MOST_UNREACHABLE:
            self._stop(f"{n} tasks in a row failed as `{self._unreachable[-1]}`; see `--rerun fail`")
        return not self.stopped

    def _fail(self, error: DelegateError) -> None:
        """Start no more items, since nothing can be recorded, and raise the error once the running ones have ended."""
        self._failure = self._failure or error
        self._stop(str(error))

    def _stop(self, reason: str) -> None:
        self.stopped = self.stopped or reason

    async def _process(self, item: Item | ItemOutcome) -> None:
        try:
            item = replace(item, input={name: redactor.text(value) for name, value in item.input.items()})
            message = item if isinstance(item, ItemOutcome) else await self._run_item(item)
            if message is not None:
                await self._record(message)
        except BaseException as error:
            message = error
        self._children.discard(item.id)
        self._messages.put_nowait(message)

    async def _run_item(self, item: Item) -> ItemOutcome | None:
        """Run one item. Returns None if it was refused before anything of it was run."""
        config = self._config
        handle = config.engine.next_handle()
        try:
            await config.journal.begin(self.run_id, item, handle)
        except DelegateError as error:
            self._fail(error)
            return None
        try:
            result = await config.engine.run(
                item, handle=handle, cancellation=self._cancellation, on_event=self._sink(item)
            )
        except WorkerLost as lost:
            return ItemOutcome(item.id, "outcome_unknown", why=str(lost), row=item.row, input=item.input)
        except CallError as error:
            self._stop(f"{error.message} ({error.hint})" if error.hint else error.message)
            await config.journal.undo_begin(self.run_id, item.id)
            return None
        stopped = self._cancellation.cancelled
        return ItemOutcome.of_result(item.id, result, row=item.row, input=item.input, stopped=stopped)

    def _sink(self, item: Item) -> EventSink:
        """Passes events on, and frees the item's slot when its child ends."""
        sink = self._config.on_event and self._config.on_event(item)

        def receive(event: Event) -> None:
            if event.kind == "child.done":
                self._children.discard(item.id)
                self._messages.put_nowait("slot_free")
            elif isinstance(event, (ChildWaiting, JudgeWaiting)):
                self.waits[event.reason] += 1 if event.seconds is None else -1
            if sink is not None and self._consumer is not None:
                self._consumer((sink, event))

        return Consumer(receive, direct=True, kinds=None if sink else {ChildDone, ChildWaiting, JudgeWaiting})

    async def _record(self, outcome: ItemOutcome) -> None:
        try:
            await self._config.journal.end(self.run_id, outcome)
            if self._config.results is not None:
                self._config.results.add(outcome)
        except DelegateError as error:  # its result reaches the caller all the same
            self._fail(error)
        self.tally.add(outcome)
        self._failures += not outcome.good and outcome.state in ("done", "outcome_unknown")
        code = outcome.result.error.code if outcome.result and outcome.result.error else ""
        self._unreachable = [*self._unreachable, code] if code in _UNREACHABLE else []
        self._schedule.finished(outcome)

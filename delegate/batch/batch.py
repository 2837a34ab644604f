"""The loop of a batch: items from a schedule to an engine, so many at a time, each journalled before it starts.

    source ──▶ survey ──▶ schedule ──▶ journal: begun ──▶ engine ──▶ journal: ended ──▶ results ──▶ who iterates

Nothing is spent before every row is known to be good. What has ended is on record, and in the file of results, before
anybody gets it, and isn't kept: memory holds what runs, and the ids that had ended before a resume.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from delegate._util.cancellation import Cancellation, run_to_completion
from delegate._util.redaction import Redactor
from delegate.batch.backend import Backend, WorkerLost
from delegate.batch.graph import Graph
from delegate.batch.item import Item, ItemOutcome
from delegate.batch.journal import LEFT_OUT, BatchHeader, BatchSummary, Journal, Rerun
from delegate.batch.results_file import ResultsFile
from delegate.batch.schedule import InOrder, Schedule
from delegate.batch.sources import Source
from delegate.batch.validate import ValidatedSource, validate
from delegate.errors import CallError, DelegateError
from delegate.ports import Event, EventSink
from delegate.types import Task

_News = ItemOutcome | BaseException | Literal["room"] | None
"""An item has ended, with None where nothing of it was done; or there is room for another."""
_MOST_AT_ONCE = 10_000
_FOR_EVER = 60 * 24 * 365
"""Minutes."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much of a batch runs, and how much at a time."""

    concurrency: int = 3
    """Items at work side by side."""
    max_cost_usd: float | None = None
    """Spend of the whole batch, earlier sessions included; known costs only."""
    max_minutes: float | None = None
    """Wall time of this session. What is at work then is cancelled."""
    stop_after_failures: int | None = None
    """After so many FAILs, and children that didn't complete, in this session nothing more is started."""


@dataclass(slots=True)
class Tally:
    """What a batch came to so far, earlier sessions included."""

    total: int = 0
    passed: int = 0
    failed: int = 0
    """FAIL."""
    unjudged: int = 0
    """Completed, and without criteria."""
    other: int = 0
    """No result, or of a child that didn't complete."""
    unknown: int = 0
    """Of the others, those whose outcome isn't known."""
    cost_known_usd: float = 0
    judge_cost_usd: float = 0
    unpriced: bool = False
    """A part of the cost isn't known."""

    @property
    def settled(self) -> int:
        """Items with an outcome."""
        return self.passed + self.failed + self.unjudged + self.other

    @property
    def all_good(self) -> bool:
        """Every item has completed, and no verdict is FAIL."""
        return self.passed + self.unjudged == self.total

    def add(self, outcome: ItemOutcome) -> None:
        """Count one more."""
        result = outcome.result
        if outcome.passed:
            self.passed += 1
        elif outcome.good:
            self.unjudged += 1
        elif result is not None and result.verdict is not None and result.verdict.verdict == "FAIL":
            self.failed += 1
        else:
            self.other += 1
        self.unknown += outcome.state == "outcome_unknown"
        if result is not None:
            self.cost_known_usd += result.cost_known_usd
            self.judge_cost_usd += (result.verification_share or 0) * (result.cost_usd or 0)
            self.unpriced = self.unpriced or result.cost_usd is None


@dataclass(frozen=True)
class BatchConfig:
    """What a batch is made of."""

    source: Source
    engine: Backend
    journal: Journal
    run_id: str
    admit: Callable[[Task], object]
    """Raises CallError for a task that can't be run."""
    limits: BatchLimits = BatchLimits()
    resume: bool = False
    """Go on with the batch of this run id, in place of beginning one."""
    rerun: Collection[Rerun] = ()
    """What of it to run again."""
    resumed: Callable[[BatchSummary], Awaitable[None]] | None = None
    """Is told what there was, before anything runs."""
    skip_bad: bool = False
    """Leave rows out that can't be used, in place of refusing the batch."""
    once: bool = False
    """Refuse tasks that are on record as a batch already."""
    results: ResultsFile | None = None
    options: str = "{}"
    """Kept with the batch: see `journal.BatchHeader`."""
    on_event: Callable[[Item], EventSink] | None = None
    """Makes what is told of an item while it runs."""
    redactor: Redactor = field(default_factory=Redactor)
    """Keeps secrets out of the batch's title on record."""
    cancellation: Cancellation | None = None


class Batch:
    """Iterate once with `async for`: outcomes as they come, in any order. Nothing happens before.

    Raises CallError where it can't be run as it is: then nothing was. Who leaves the loop early cancels what runs; use
    `contextlib.aclosing(batch.outcomes())` to be sure when. `tally` and `stopped` may be read at any time.
    """

    def __init__(self, setup: BatchConfig) -> None:
        self.run_id = setup.run_id
        self.tally = Tally()
        self.stopped = ""
        """Why nothing more is started; empty while nothing speaks against it."""
        self.began = 0.0
        """When the first item could start, on the monotonic clock."""
        self.settled_before = 0
        """Items that had ended in earlier sessions."""
        self._setup = setup
        self._cancellation = Cancellation()
        self._running = 0
        self._children = set[str]()
        """Ids of the items whose child is at work, or may be."""
        self._tasks = set[asyncio.Task[None]]()
        self._failures = 0
        self._news: asyncio.Queue[_News] = asyncio.Queue()
        self._schedule: Schedule

    def __aiter__(self) -> AsyncIterator[ItemOutcome]:
        return self.outcomes()

    @property
    def results_path(self) -> Path | None:
        """The file of results."""
        return self._setup.results.path if self._setup.results else None

    @property
    def running(self) -> int:
        """Items at work."""
        return self._running

    # ----------------------------------------------------------------------------------------------------- begin, end

    async def outcomes(self) -> AsyncGenerator[ItemOutcome]:
        """What `async for` iterates: the batch from its beginning to its end."""
        with (self._setup.cancellation or Cancellation()).part() as self._cancellation:
            try:
                await self._open()
                async with aclosing(self._run()) as outcomes:
                    async for outcome in outcomes:
                        yield outcome
            finally:
                if self._setup.results is not None:
                    self._setup.results.close()

    async def _open(self) -> None:
        """Look at everything, and put the batch on record, or take it over."""
        setup = self._setup
        found = await asyncio.to_thread(validate, setup.source, setup.admit, skip_bad=setup.skip_bad)
        self.tally.total = found.total
        self._schedule = _schedule(setup.source, found)
        if setup.resume:
            await self._take_over(found)
            return
        results = setup.results
        path, title = str(results.path.absolute()) if results else None, setup.redactor.text(found.first_goal)
        plan = BatchHeader(setup.run_id, found.digest, setup.source.name, path, setup.options, title, found.total)
        with results.created() if results is not None else nullcontext():
            await setup.journal.create(plan, once=setup.once)

    async def _take_over(self, found: ValidatedSource) -> None:
        setup, journal, run_id = self._setup, self._setup.journal, self._setup.run_id
        batch = await journal.summary(run_id)
        if batch.digest != found.digest:
            message = f"{setup.source.name}: these aren't the tasks of batch {run_id}, which were in {batch.source}"
            hint = "give it the tasks, templates and options that it began with"
            raise CallError("tasks_changed", message, field="resume", hint=hint)
        results = setup.results
        batch = await journal.claim(run_id, results=str(results.path.absolute()) if results else None)
        try:
            await journal.again(run_id, (*setup.rerun, *LEFT_OUT))
            await self._recall(journal.outcomes(run_id))
            self.tally.cost_known_usd = batch.cost_known_usd  # with what was spent on what is run again
            if setup.resumed is not None:
                await setup.resumed(batch)
        except BaseException:
            await journal.release(run_id)
            raise

    async def _recall(self, outcomes: AsyncIterator[ItemOutcome]) -> None:
        """Take in what has ended before, and make the file of results anew from it."""

        async def recalled() -> AsyncIterator[ItemOutcome]:
            async for outcome in outcomes:
                self.tally.add(outcome)
                self._schedule.told(outcome)
                yield outcome

        if self._setup.results is not None:
            await self._setup.results.rewrite(recalled())
        else:
            async for _ in recalled():
                pass
        self.settled_before = self.tally.settled

    async def _run(self) -> AsyncGenerator[ItemOutcome]:
        """Feed and collect. Whatever happens, all has ended and is on record in the end."""
        limits, self.began = self._setup.limits, time.monotonic()
        timer = asyncio.get_running_loop().call_later((limits.max_minutes or _FOR_EVER) * 60, self._time_is_up)
        try:
            while self._feed():
                news = await self._news.get()
                if news == "room":
                    continue
                self._running -= 1  # not before, so that who takes outcomes slowly isn't given more than fit
                if isinstance(news, BaseException):
                    raise news
                if news is not None:
                    yield news
        finally:
            timer.cancel()
            if self._running:
                self._stop("it was left before its end")
            await run_to_completion(self._finish(), self._cancellation)

    async def _finish(self) -> None:
        if self._tasks:
            self._cancellation.cancel()
            await asyncio.wait(self._tasks)
        with suppress(DelegateError):  # what can't be written is `interrupted` for who reads it
            await self._setup.journal.release(self.run_id)

    # --------------------------------------------------------------------------------------------------------- feeding

    def _feed(self) -> bool:
        """Start what there is room for. Whether anything is under way.

        A judge holds no child's place: while it works, the next child starts, and at most twice as many are under way.
        """
        room = min(self._setup.limits.concurrency, self._setup.engine.capacity or _MOST_AT_ONCE)
        while len(self._children) < room and self._running < 2 * room and self._goes_on():
            given = self._schedule.next()
            if given is None:
                break
            self._running += 1
            self._children.add(given.id)
            task = asyncio.create_task(self._work(given))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return self._running > 0

    def _goes_on(self) -> bool:
        limits = self._setup.limits
        if self._cancellation.cancelled:
            self._stop("stopped from outside")
        if limits.max_cost_usd is not None and self.tally.cost_known_usd >= limits.max_cost_usd:
            self._stop(f"max_cost_usd ({limits.max_cost_usd:g}) is spent")
        if limits.stop_after_failures is not None and self._failures >= limits.stop_after_failures:
            self._stop(f"stop_after_failures ({limits.stop_after_failures}) is reached")
        return not self.stopped

    def _stop(self, why: str) -> None:
        self.stopped = self.stopped or why

    def _time_is_up(self) -> None:
        self._stop(f"max_minutes ({self._setup.limits.max_minutes:g}) are over")
        self._cancellation.cancel()

    # ------------------------------------------------------------------------------------------------------- one item

    async def _work(self, given: Item | ItemOutcome) -> None:
        """One item from its journal entry to its outcome's line."""
        try:
            outcome = given if isinstance(given, ItemOutcome) else await self._outcome(given)
            if outcome is not None:
                await self._settle(outcome)
        except BaseException as error:
            outcome = error
        self._children.discard(given.id)
        self._news.put_nowait(outcome)

    async def _outcome(self, item: Item) -> ItemOutcome | None:
        """What came of it; None where nothing of it was done."""
        setup = self._setup
        await setup.journal.begin(self.run_id, item)
        try:
            result = await setup.engine.run(item, cancellation=self._cancellation, on_event=self._sink(item))
        except WorkerLost as lost:
            return ItemOutcome(item.id, "outcome_unknown", why=str(lost), row=item.row)
        except CallError as error:
            self._stop(f"{error.message} ({error.hint})" if error.hint else error.message)
            await setup.journal.take_back(self.run_id, item.id)
            return None
        return ItemOutcome(item.id, "done", result, row=item.row)

    def _sink(self, item: Item) -> EventSink:
        """Passes events on, and sees when the child's place is free."""
        sink = self._setup.on_event and self._setup.on_event(item)

        def see(event: Event) -> None:
            if event.kind == "child_ended":
                self._children.discard(item.id)
                self._news.put_nowait("room")
            if sink is not None:
                sink(event)

        return see

    async def _settle(self, outcome: ItemOutcome) -> None:
        await self._setup.journal.end(self.run_id, outcome)
        if self._setup.results is not None:
            self._setup.results.add(outcome)
        self.tally.add(outcome)
        self._failures += not outcome.good and outcome.state in ("done", "outcome_unknown")
        self._schedule.told(outcome)


def _schedule(source: Source, found: ValidatedSource) -> Schedule:
    """Items that need each other are all held in memory; others are read as they go."""
    if not found.needs:
        return InOrder(source, found.bad)
    try:
        return Graph(source, found.bad)
    except CallError as error:
        message = f"{source.name}: {error.message}"
        raise CallError(error.code, message, field=error.field, hint=error.hint) from None

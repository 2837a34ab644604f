"""Batches: any number of tasks, journaled, so that they can be resumed."""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from delegate._util.cancellation import Cancellation
from delegate.batch.backend import Backend
from delegate.batch.batch import Batch, BatchConfig
from delegate.batch.item import Item
from delegate.batch.journal import Journal, Rerun
from delegate.batch.results_file import ResultsFile
from delegate.batch.runner import BatchPlan, BatchRunner
from delegate.batch.sources import Source, source_of
from delegate.budget.runs import RunRegistry
from delegate.engine.admission import Admission
from delegate.policy.settings import Settings
from delegate.records.history import Records
from delegate.types import Task
from delegate.types.errors import CallError
from delegate.types.events import EventSink


@dataclass(eq=False, repr=False)
class Batches:
    """Runs batches, and reads what is on record of them. It is `delegator.batches`."""

    _settings: Settings
    _admission: Admission
    _runs: RunRegistry
    _records: Records
    _close_delegator: Callable[[], Awaitable[None]]

    def __post_init__(self) -> None:
        self._journal = journal = Journal(self._settings.home, self._records, keep_days=self._settings.keep_days)
        self.latest, self.summary, self.handles = journal.latest, journal.summary, journal.handles
        self.aclose = journal.aclose

    def run(
        self,
        tasks: Iterable[Task | Item] | Source,
        *,
        concurrency: int = 3,
        max_cost_usd: float | None = None,
        max_minutes: float | None = None,
        stop_after_failures: int | None = None,
        resume: str | None = None,
        rerun: Collection[Rerun] = (),
        skip_bad: bool = False,
        once: bool = False,
        results: str | Path | None = None,
        options: str = "{}",
        engine: Backend | None = None,
        on_event: Callable[[Item], EventSink] | None = None,
        cancellation: Cancellation | None = None,
    ) -> Batch:
        """Run any number of tasks, up to `concurrency` at the same time.

            async for outcome in delegator.batches.run(tasks):
                ...

        Outcomes are yielded in the order in which they finish, and aren't kept. Each task is journaled before it starts
        and runs at most once. To continue a batch that was stopped or killed, pass its `run_id` as `resume`, together
        with the same tasks. Tasks that were running at that time are then `outcome_unknown`, and run again only if
        `rerun` says so.

        Args:
            tasks: The tasks, their items, or a file of tasks.
            concurrency: Maximum number of tasks running at the same time.
            max_cost_usd: Maximum cost in US dollars.
            max_minutes: Maximum wall time in minutes, after which running tasks are cancelled.
            stop_after_failures: Number of failures after which no further task starts.
            resume: The `run_id` of the batch to continue.
            rerun: Which tasks of that batch to run again: those with an unknown outcome (`unknown`), those that failed
                (`fail`), or both.
            skip_bad: Whether to skip invalid rows instead of refusing the batch.
            once: Whether to refuse a batch of the same tasks that has already been run.
            results: A JSONL or CSV file to which a line is appended for each outcome, in the same order.
            options: The options of the caller, as JSON, to be kept in the journal.
            engine: A backend that runs the tasks elsewhere.
            on_event: Returns the receiver of an item's progress events.
            cancellation: Cancels the batch.

        Raises:
            CallError: The tasks or the options are invalid.
        """
        _refuse_wrong(concurrency=concurrency, max_cost_usd=max_cost_usd, max_minutes=max_minutes)
        _refuse_wrong(stop_after_failures=stop_after_failures)
        context = self._runs.batch(concurrency=concurrency, id=resume, max_cost_usd=max_cost_usd)
        items = BatchRunner(self._admission, self._records, context)
        setup = BatchConfig(
            source=source_of(tasks),
            engine=engine or items,
            journal=self._journal,
            run_id=context.run.id,
            admit=items.admit if engine is None else items.check,
            concurrency=concurrency,
            max_cost_usd=context.run.ledger.limits.get("cost_usd"),
            max_minutes=max_minutes,
            stop_after_failures=stop_after_failures,
            resume=resume is not None,
            rerun=rerun,
            resumed=items.resume,
            skip_bad=skip_bad,
            once=once,
            results=ResultsFile(Path(results), bom=self._settings.csv_bom) if results is not None else None,
            options=options,
            on_event=on_event,
            consumer=self._admission.consumer,
            cancellation=cancellation,
        )
        return Batch(setup)

    async def plan(
        self, tasks: Iterable[Task | Item] | Source, *, max_cost_usd: float | None = None, skip_bad: bool = False
    ) -> BatchPlan:
        """Return what a batch of these tasks would run and its estimated cost. Nothing is spent.

        Raises:
            CallError: The tasks are invalid.
        """
        _refuse_wrong(max_cost_usd=max_cost_usd)
        context = self._runs.batch(concurrency=1, max_cost_usd=max_cost_usd)
        return await BatchRunner(self._admission, self._records, context).plan(source_of(tasks), skip_bad=skip_bad)

    def backend(self, concurrency: int) -> Backend:
        """Return a backend that runs items of a batch journaled elsewhere, in a run of its own.

        Closing the backend closes the delegator.
        """
        context = self._runs.batch(concurrency=concurrency)
        return BatchRunner(self._admission, self._records, context, self._close_delegator)


def _refuse_wrong(**limits: object) -> None:
    """Raise CallError for a limit that isn't a number above 0."""
    for name, value in limits.items():
        if value is not None and (not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0):
            raise CallError("bad_task", f"{name} is {value!r:.60}; pass a number above 0", field=name)

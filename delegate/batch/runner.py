"""Runs each item of a batch as a call with one task; all calls belong to one run."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from delegate._util.cancellation import Cancellation
from delegate._util.threads import run_in_daemon_thread
from delegate.batch.graph import check
from delegate.batch.item import Item
from delegate.batch.journal import BatchSummary
from delegate.batch.sources import Listed, Source
from delegate.batch.validate import validate
from delegate.budget.estimate import Estimate, Estimator, Group
from delegate.budget.runs import RunContext
from delegate.engine.admission import Admission
from delegate.engine.consumers import Consumer
from delegate.engine.scope import CallOptions
from delegate.engine.working_folder import located
from delegate.judging.validate import refuse_undecidable
from delegate.models.catalog import Model
from delegate.records.history import Records
from delegate.types import Task, TaskResult
from delegate.types.errors import CallError
from delegate.types.events import ChildStarted, Event, EventSink

_TRIED_BEFORE = 100
"""Most different checks of which it is tried before a batch starts whether they can fail."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What `delegate batch --plan` shows."""

    name: str
    tasks: int
    bad_rows: int
    groups: tuple[Group, ...]
    limit_usd: float | None = None
    """What the batch can cost at most, by the limits that apply. None: there is no limit."""
    stages: tuple[tuple[str, ...], ...] = ()
    """Ids of the tasks by stage; a stage needs only tasks of earlier stages. Empty if no task needs another."""

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.groups, self.limit_usd)


def _refuse_attempts(task: Task) -> None:
    """Raise CallError for several attempts: the journal knows one record of each task, and resumes from it."""
    if task.attempts > 1:
        message = "a task of a batch has one attempt; several are for calls"
        raise CallError("bad_attempts", message, field="attempts", hint="leave out `attempts`")


@dataclass(frozen=True, slots=True)
class BatchRunner:
    """A `Backend` that runs items on the event loop of this process, in the run of `context`.

    It is suited to about a thousand items at a time.
    """

    admission: Admission
    records: Records
    context: RunContext
    close: Callable[[], Awaitable[None]] | None = None
    """Awaited by `aclose`, if nothing else closes the delegator."""
    _tried: set[int] = field(default_factory=set[int])
    """Hashes of checks that can fail."""

    @property
    def capacity(self) -> int | None:
        return None

    def next_handle(self) -> str:
        return self.context.run.next_handle()

    async def aclose(self) -> None:
        if self.close is not None:
            await self.close()

    async def run(
        self, item: Item, *, handle: str | None, cancellation: Cancellation, on_event: EventSink | None = None
    ) -> TaskResult:
        """Run one item. Raises CallError if nothing of it was run, so that it can run later."""
        started = False

        def receive(event: Event) -> None:
            nonlocal started
            started = started or event.kind == "child.started"
            if on_event is not None:
                on_event(event)

        kinds: Collection[type[Event]] | None = {ChildStarted}
        if on_event is not None:
            own_kinds = on_event.kinds if isinstance(on_event, Consumer) else None
            kinds = None if own_kinds is None else {*own_kinds, *kinds}

        options = CallOptions(
            "person",
            self.context.for_one_task(self.admission.settings),
            first_index=item.row - 1 if item.row else 0,
            is_run=False,
            cancellation=cancellation,
            template=item.template,
            handle=handle,
        )
        returned = await self.admission.execute((item.task,), options, Consumer(receive, direct=True, kinds=kinds))
        (result,) = returned.results
        no_call = result.status == "budget_exceeded" and not result.usage.model_calls
        if (no_call and item.task.max_cost_usd is None) or (result.status == "cancelled" and not started):
            assert result.error is not None
            raise result.error.as_raised()
        return result

    def admit(self, task: Task) -> list[Model | None]:
        """The models that would run the task. Raises CallError for one that can't be run in a batch."""
        _refuse_attempts(task)
        models = self.models(task)
        self._refuse_vacuous(*self.admission.in_roles([located(task)], self.context))
        return models

    def models(self, task: Task) -> list[Model | None]:
        """The models that would run the task, by attempts; None if the runner chooses its own. Raises CallError."""
        (done_in_role,) = self.admission.in_roles([task], self.context)
        first = self.admission.admit(done_in_role, self.context)
        return self.admission.models_of_attempts(done_in_role, first, self.context)

    def check(self, task: Task) -> None:
        """Raise CallError for a task that can't be run anywhere. The process that runs it selects the model."""
        _refuse_attempts(task)
        refuse_undecidable(task)
        self._refuse_vacuous(task)

    def _refuse_vacuous(self, task: Task) -> None:
        """Raise CallError if a criterion can't fail. The same checks are tried once in each folder; of many different
        ones, the rest is tried when their task is run.
        """
        if len(self._tried) >= _TRIED_BEFORE:
            return
        checks = tuple(one.model_dump_json() for one in task.acceptance_criteria if one.kind != "text")
        if checks and (key := hash((checks, task.workspace and task.workspace.path))) not in self._tried:
            asyncio.run(self.admission.refuse_vacuous([task], "person"))
            self._tried.add(key)

    async def resume(self, batch: BatchSummary) -> None:
        """Continue the numbering of tasks and the sum of costs of an earlier session."""
        number = await self.records.next_number(batch.run_id)
        self.context.run.resume(number=number, spent={"cost_usd": batch.cost_known_usd})

    async def plan(self, source: Source, *, skip_bad: bool) -> BatchPlan:
        """The models and the estimated cost of the items if run today. Raises CallError as a batch or call does."""
        estimator, admit = Estimator(), self.admit
        if isinstance(source, Listed) and source.is_call:
            call = [task for task in source.tasks if isinstance(task, Task)]
            await self.admission.admitted(call, CallOptions("person", self.context))
            admit = self.models
        validated = await run_in_daemon_thread(
            lambda: validate(source, lambda task: estimator.add(task, admit(task)), skip_bad=skip_bad)
        )
        left_usd = self.context.ledger.left("cost_usd")
        estimate = await estimator.estimate(self.records.past_tasks, left_usd=left_usd)
        stages: list[list[Item]] = []
        if validated.has_needs:
            bad = validated.bad_rows
            items = [entry for n, entry in enumerate(source) if n not in bad and isinstance(entry, Item)]
            stages = check(items, left_out=frozenset(row.id for row in bad.values()))
        ids = tuple(tuple(item.id for item in stage) for stage in stages)
        skipped = len(validated.bad_rows)
        return BatchPlan(source.name, validated.total - skipped, skipped, estimate.groups, estimate.limit_usd, ids)

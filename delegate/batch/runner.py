"""What makes a batch of calls: each of its items is run as a call of one task, all of them in one run."""

from dataclasses import dataclass
from datetime import date

from delegate._util.cancellation import Cancellation
from delegate.batch.item import Item
from delegate.batch.journal import BatchSummary
from delegate.batch.plan import BatchPlan, plan
from delegate.batch.sources import Source
from delegate.budget.runs import Caller
from delegate.errors import CallError
from delegate.judging import refuse_undecidable
from delegate.models.catalog import Model
from delegate.models.routing import usual_child_usd
from delegate.parts import Parts
from delegate.ports import Event, EventSink
from delegate.types import Task, TaskResult


@dataclass(frozen=True, slots=True)
class Items:
    """The items of one batch, which share the run of `caller`."""

    parts: Parts
    caller: Caller

    async def run(self, item: Item, *, cancellation: Cancellation, on_event: EventSink | None) -> TaskResult:
        """Run one. Raises CallError where nothing of it was done, and it may as well be run later."""
        begun = False

        def watch(event: Event) -> None:
            nonlocal begun
            begun = begun or event.kind == "child_started"
            if on_event is not None:
                on_event(event)

        caller = self.caller.of_one_task(self.parts.settings)
        place = item.row - 1 if item.row else 0
        report = await self.parts.calls.execute(
            (item.task,), "person", caller, first=place, on_event=watch, cancellation=cancellation
        )
        (result,) = report.results
        refused = result.status == "budget_exceeded" and not result.usage.model_calls and item.task.max_cost_usd is None
        if refused or (result.status == "cancelled" and not begun):
            assert result.error is not None
            raise CallError(result.error.code, result.error.message, hint=result.error.hint)
        return result

    def admit(self, task: Task) -> Model | None:
        """The model that will do the task; None where the runner brings its own. Raises CallError."""
        return self.parts.calls.admit(task, self.caller)

    def look_at(self, task: Task) -> None:
        """Raise CallError for what can't be run anywhere; where it is run, its model is found."""
        refuse_undecidable(task, strict_checks=self.parts.settings.strict_checks)

    async def go_on(self, batch: BatchSummary) -> None:
        """Go on counting where the batch was left."""
        numbers = [int(task.handle.rpartition("-")[2]) for task in await self.parts.records.tasks(batch.run_id)]
        self.caller.run.go_on(number=max(numbers, default=-1) + 1, spent_usd=batch.cost_known_usd)

    async def plan(self, source: Source, *, skip_bad: bool) -> BatchPlan:
        """What they would do and about cost, if they were run today. Raises CallError as a batch does."""
        today = date.today()
        return await plan(
            source,
            model_for=self.admit,
            costs=self.parts.records.costs,
            assumed_usd=lambda model: usual_child_usd(model, today),
            skip_bad=skip_bad,
        )

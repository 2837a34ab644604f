"""From a call to its report: every task is looked at, and its model found, before anything is spent on one."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date

from delegate._util.cancellation import Cancellation
from delegate.budget.runs import Caller
from delegate.contract import Limits
from delegate.engine import error_mapping
from delegate.engine.executor import Executor
from delegate.engine.task_run import Assignment
from delegate.errors import BudgetExceeded, CallError
from delegate.judging import refuse_undecidable
from delegate.judging.submission import Author
from delegate.models.catalog import Catalog, Model
from delegate.models.connections import Connections
from delegate.models.routing import ChildRequest, choose_child
from delegate.ports import EventSink
from delegate.settings import Settings
from delegate.types import Report, Task


@dataclass(frozen=True, slots=True)
class Calls:
    """Takes the calls of one delegator."""

    settings: Settings
    catalog: Catalog
    connections: Connections
    executor: Executor
    on_event: EventSink | None = None
    """The operator's own sink, which is told of every call."""

    async def execute(
        self,
        tasks: Sequence[Task],
        author: Author,
        caller: Caller,
        *,
        first: int = 0,
        on_event: EventSink | None = None,
        cancellation: Cancellation | None = None,
    ) -> Report:
        """Run all tasks, which are numbered from `first`. Raises CallError where they can't be: then nothing was."""
        self._refuse_too_deep(caller)
        models = self._models(tasks, caller)
        ways = [await self.connections.open(model) if model else None for model in models]
        assignments = [Assignment(*one) for one in zip(tasks, ways, strict=True)]
        _count(tasks, author, caller)
        async with caller.seat.lent() if caller.seat else nullcontext():
            return await self.executor.execute(
                assignments,
                caller=caller,
                author=author,
                first=first,
                sinks=self._sinks(caller, on_event),
                cancellation=cancellation,
            )

    def admit(self, task: Task, caller: Caller) -> Model | None:
        """The model that will do the task; None where the runner brings its own. Raises CallError."""
        refuse_undecidable(task, strict_checks=self.settings.strict_checks)
        return self._model_for(task, caller) if self.executor.runner.needs_model else None

    def limits_of(self, caller: Caller) -> Limits:
        """What `caller` may ask for now, as the tool's definition says it."""
        settings, tasks_left = self.settings, caller.ledger.left("children")
        return Limits(
            max_steps=settings.max_steps,
            timeout_seconds=settings.timeout_seconds,
            tasks_left=None if tasks_left is None else int(tasks_left),
            usd_left=caller.ledger.left("cost_usd"),
            depth_left=settings.max_depth - caller.depth - 1 if settings.max_depth > 1 else None,
        )

    def _models(self, tasks: Sequence[Task], caller: Caller) -> list[Model | None]:
        """The model of each; what is wrong with one of several is said with its place."""
        models: list[Model | None] = []
        for n, task in enumerate(tasks):
            try:
                models.append(self.admit(task, caller))
            except CallError as error:
                error.field = f"tasks[{n}].{error.field}" if error.field and len(tasks) > 1 else error.field
                raise
        return models

    def _model_for(self, task: Task, caller: Caller) -> Model:
        cost_is_limited = task.max_cost_usd is not None or caller.ledger.left("cost_usd") is not None
        request = ChildRequest(
            tier=task.tier,
            model=task.model or self.settings.model,
            usual_tier=self.settings.tier,
            bounds=caller.bounds(self.settings),
            available=self.connections.available,
            on=date.today(),
            priced_only=cost_is_limited,
        )
        try:
            return choose_child(self.catalog, request)
        except CallError as error:
            if task.model is None and self.settings.model is not None:
                error.hint = "change the setting `model` (DELEGATE_MODEL), max_tier or min_tier"
            raise

    def _refuse_too_deep(self, caller: Caller) -> None:
        if caller.depth >= self.settings.max_depth:
            message = f"no further delegation: this is depth {caller.depth} of {self.settings.max_depth}"
            raise CallError("too_deep", message, hint="do the work yourself")

    def _sinks(self, caller: Caller, on_event: EventSink | None) -> tuple[EventSink, ...]:
        """Who is told: a child's own children are no tasks of the call that the operator watches."""
        operators = self.on_event if caller.depth == 0 else None
        return tuple(sink for sink in (operators, on_event) if sink is not None)


def refusal(error: CallError) -> Report:
    """The report of a call that can't be executed."""
    return Report(error=error_mapping.detail_of(error))


def _count(tasks: Sequence[Task], author: Author, caller: Caller) -> None:
    """Count children that a model asked for: all of a call's or, where the run has no room for all, none."""
    try:
        caller.refuse_if_over()
        if author == "model":
            caller.ledger.reserve({"children": len(tasks)}).settle({"children": len(tasks)})
    except BudgetExceeded as error:
        left = f"ask for at most {error.left:g}" if error.limit == "children" and error.left else "do it yourself"
        raise CallError("budget_exceeded", str(error), hint=f"nothing was run; {left}") from None

"""Plans a batch: the model of each task, the stages and an estimate of the cost. Nothing is spent."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import Literal

from delegate.batch.graph import check
from delegate.batch.item import Item
from delegate.batch.sources import Source
from delegate.batch.validate import validate
from delegate.budget.costs import sum_usd
from delegate.models.catalog import Model
from delegate.models.routing import usual_child_usd
from delegate.types import Task

Basis = Literal[
    "records",  # the median cost of completed tasks on record that requested this model, judging included
    "assumed",  # the cost of a child of typical size, without judging
    "unknown",  # the price of the model is unknown, or the runner chooses its own model
]
FEWEST_RECORDS = 5
"""Minimum number of tasks on record for an estimate from their median."""


@dataclass(frozen=True, slots=True)
class Group:
    """The tasks that one model would run. `model` is None if the runner chooses its own."""

    model: str | None
    tasks: int
    each_usd: float | None
    basis: Basis
    records: int = 0
    """Number of tasks on record behind the estimate."""

    @property
    def usd(self) -> float | None:
        """Estimated cost of the whole group in US dollars."""
        return None if self.each_usd is None else self.tasks * self.each_usd


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What `delegate batch --plan` shows."""

    name: str
    tasks: int
    bad_rows: int
    groups: tuple[Group, ...]
    stages: tuple[tuple[str, ...], ...] = ()
    """Ids of the tasks by stage; a stage needs only tasks of earlier stages. Empty if no task needs another."""

    @property
    def usd(self) -> float | None:
        """Estimated cost of the batch in US dollars; None if a part of it is unknown."""
        return sum_usd(group.usd for group in self.groups)


async def plan(
    source: Source,
    *,
    model_for: Callable[[Task], Model | None],
    costs: Callable[[str], Awaitable[Sequence[float]]],
    skip_bad: bool = False,
) -> BatchPlan:
    """Read all tasks, select their models and estimate the cost. Raises CallError for whatever a batch would refuse.

    `costs` returns the costs in US dollars of the tasks on record that requested a model.
    """
    tasks: Counter[str | None] = Counter()
    models: dict[str, Model] = {}

    def admit(task: Task) -> None:
        if model := model_for(task):
            models[model.id] = model
        tasks[model.id if model else None] += 1

    validated = validate(source, admit, skip_bad=skip_bad)
    groups = [await _group(models.get(id or ""), count, costs) for id, count in tasks.most_common()]
    stages: list[list[Item]] = []
    if validated.has_needs:
        good = [entry for index, entry in enumerate(source) if index not in validated.bad_rows]
        items = [entry for entry in good if isinstance(entry, Item)]
        stages = check(items, left_out=frozenset(bad.id for bad in validated.bad_rows.values()))
    ids = tuple(tuple(item.id for item in stage) for stage in stages)
    bad_rows = len(validated.bad_rows)
    return BatchPlan(source.name, validated.total - bad_rows, bad_rows, tuple(groups), ids)


async def _group(model: Model | None, count: int, costs: Callable[[str], Awaitable[Sequence[float]]]) -> Group:
    if model is None:
        return Group(None, count, None, "unknown")
    if len(past := await costs(model.id)) >= FEWEST_RECORDS:
        return Group(model.id, count, median(past), "records", len(past))
    each = usual_child_usd(model, date.today())
    return Group(model.id, count, each, "unknown" if each is None else "assumed")

"""What a batch would do and about what it would cost, before anything is spent."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from delegate.batch.graph import check
from delegate.batch.item import Item
from delegate.batch.sources import Source
from delegate.batch.validate import validate
from delegate.budget.costs import sum_usd
from delegate.models.catalog import Model
from delegate.types import Task

Basis = Literal[
    "records",  # the median of completed tasks on record that were asked of this model, judging included
    "assumed",  # a child of a size by which models are compared, without its judging
    "unknown",  # the price of the model isn't known, or the runner brings its own
]
FEWEST_RECORDS = 5
"""Tasks on record from which their median is thought to say something."""


@dataclass(frozen=True, slots=True)
class Group:
    """The tasks of a plan that one model would do; `model` is None where the runner brings its own."""

    model: str | None
    tasks: int
    each_usd: float | None
    basis: Basis
    records: int = 0
    """On how many tasks the estimate rests."""

    @property
    def usd(self) -> float | None:
        """What all of them would cost together."""
        return None if self.each_usd is None else self.tasks * self.each_usd


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What `delegate batch --plan` shows."""

    name: str
    tasks: int
    bad_rows: int
    groups: tuple[Group, ...]
    stages: tuple[tuple[str, ...], ...] = ()
    """Ids of a workflow's tasks; those of one stage need only those before it. Empty where no task needs another."""

    @property
    def usd(self) -> float | None:
        """The estimate for all; None as soon as one part isn't known."""
        return sum_usd(group.usd for group in self.groups)


async def plan(
    source: Source,
    *,
    model_for: Callable[[Task], Model | None],
    costs: Callable[[str], Awaitable[Sequence[float]]],
    assumed_usd: Callable[[Model], float | None],
    skip_bad: bool = False,
) -> BatchPlan:
    """Read all tasks, choose their models, and estimate. Raises CallError for what a batch would refuse.

    `costs` gives what tasks on record came to that were asked of a model, in US dollars.
    """
    tasks: Counter[str | None] = Counter()
    models: dict[str, Model] = {}

    def admit(task: Task) -> None:
        if model := model_for(task):
            models[model.id] = model
        tasks[model.id if model else None] += 1

    found = validate(source, admit, skip_bad=skip_bad)
    groups = [await _group(models.get(id or ""), count, costs, assumed_usd) for id, count in tasks.most_common()]
    stages: list[list[Item]] = []
    if found.needs:
        given = [(place, one) for place, one in enumerate(source) if place not in found.bad]
        items = [one for _, one in given if isinstance(one, Item)]
        stages = check(items, left_out=frozenset(bad.id for bad in found.bad.values()))
    ids = tuple(tuple(item.id for item in stage) for stage in stages)
    return BatchPlan(source.name, found.total - len(found.bad), len(found.bad), tuple(groups), ids)


async def _group(
    model: Model | None,
    count: int,
    costs: Callable[[str], Awaitable[Sequence[float]]],
    assumed_usd: Callable[[Model], float | None],
) -> Group:
    if model is None:
        return Group(None, count, None, "unknown")
    if len(known := await costs(model.id)) >= FEWEST_RECORDS:
        return Group(model.id, count, median(known), "records", len(known))
    each = assumed_usd(model)
    return Group(model.id, count, each, "unknown" if each is None else "assumed")

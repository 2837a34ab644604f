"""Plans a batch: the model of each task, the stages and an estimate of the cost. Nothing is spent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from delegate.batch.graph import check
from delegate.batch.item import Item
from delegate.batch.sources import Source
from delegate.batch.validate import validate
from delegate.budget.estimate import Estimate, Estimator, Group, PastTasks
from delegate.models.catalog import Model
from delegate.types import Task


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
        """The estimate of the whole batch."""
        return Estimate(self.groups, self.limit_usd)


async def plan(
    source: Source,
    *,
    models_for: Callable[[Task], Sequence[Model | None]],
    past: PastTasks,
    left_usd: float | None,
    skip_bad: bool = False,
) -> BatchPlan:
    """Read all tasks, select their models and estimate the cost. Raises CallError for whatever a batch would refuse.

    `past` returns tasks on record. `left_usd` is the limit of the whole batch, if there is one.
    """
    estimator = Estimator()
    validated = validate(source, lambda task: estimator.add(task, models_for(task)), skip_bad=skip_bad)
    estimate = await estimator.estimate(past, left_usd=left_usd)
    stages: list[list[Item]] = []
    if validated.has_needs:
        good = [entry for index, entry in enumerate(source) if index not in validated.bad_rows]
        items = [entry for entry in good if isinstance(entry, Item)]
        stages = check(items, left_out=frozenset(bad.id for bad in validated.bad_rows.values()))
    ids = tuple(tuple(item.id for item in stage) for stage in stages)
    bad_rows = len(validated.bad_rows)
    return BatchPlan(source.name, validated.total - bad_rows, bad_rows, estimate.groups, estimate.limit_usd, stages=ids)

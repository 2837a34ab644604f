"""Estimates what tasks will cost before anything is spent: from earlier tasks, the lengths of goals, and prices.

The likely cost is the median of what completed tasks on record took, and the low one that of the cheapest tenth. For a
model that too few of them ran on, the tokens of all of them are priced as if it had. A goal that is longer than theirs
costs more in each turn.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from delegate._util.tokens import tokens_of
from delegate.budget.costs import sum_usd
from delegate.budget.ledger import LEAST_OUTPUT
from delegate.models.catalog import Model, cost_usd
from delegate.models.routing import usual_child_usd
from delegate.types import Task, Usage
from delegate.types.money import usd

Basis = Literal[
    "records",  # completed tasks on record that requested this model, judging included
    "steps",  # completed tasks on record of other models, at the prices of this one
    "assumed",  # a child of typical size, without judging
    "unknown",  # the price of the model is unknown, or the runner chooses its own model
]
FEWEST_RECORDS = 5
"""Minimum number of tasks on record for an estimate from them."""
PROMPT_TOKENS = 2_000
"""The instructions and tools of a child, roughly."""


@dataclass(frozen=True, slots=True)
class PastTask:
    """What a completed task on record took."""

    model: str
    """The requested model."""
    cost_usd: float
    """With judging."""
    judging_share: float
    """The share of the cost that was spent on judges."""
    usage: Usage
    """Of the child."""
    goal_tokens: int
    """The length of goal and context."""


PastTasks = Callable[[str | None], Awaitable[Sequence[PastTask]]]
"""Returns the latest completed tasks on record that requested a model, or any."""


@dataclass(frozen=True, slots=True)
class Group:
    """The tasks that one model would run. `model` is None if the runner chooses its own."""

    model: str | None
    tasks: int
    each_usd: float | None
    """The likely cost of one."""
    basis: Basis
    records: int = 0
    """Number of tasks on record behind the estimate."""
    low_each_usd: float | None = None
    """What the cheapest tenth costs."""

    @property
    def usd(self) -> float | None:
        """The likely cost of the whole group in US dollars."""
        return None if self.each_usd is None else self.tasks * self.each_usd

    @property
    def low_usd(self) -> float | None:
        """The cost of the whole group if each of its tasks is a cheap one."""
        return None if self.low_each_usd is None else self.tasks * self.low_each_usd


@dataclass(frozen=True, slots=True)
class Estimate:
    """What some tasks will cost, in US dollars."""

    groups: tuple[Group, ...]
    limit_usd: float | None
    """What they can cost at most, by the limits that apply. None: there is no limit."""

    @property
    def usd(self) -> float | None:
        """The likely cost; None if a part of it is unknown."""
        return self._within(sum_usd(group.usd for group in self.groups))

    @property
    def low_usd(self) -> float | None:
        """The cost if each task is a cheap one; None if a part of it is unknown."""
        return self._within(sum_usd(group.low_usd for group in self.groups))

    def __str__(self) -> str:
        if self.usd is None:
            return "unknown"
        most = "no limit" if self.limit_usd is None else f"{usd(self.limit_usd)} at most"
        return f"{usd(self.usd)} likely, {usd(self.low_usd)} if all goes well, {most}"

    def _within(self, amount: float | None) -> float | None:
        return amount if amount is None or self.limit_usd is None else min(amount, self.limit_usd)


@dataclass(slots=True)
class Estimator:
    """Collects tasks, of which there may be very many, and estimates what all of them will cost."""

    _goal_tokens: dict[Model | None, list[int]] = field(default_factory=dict[Model | None, list[int]])
    _limits: list[float | None] = field(default_factory=list[float | None])

    def add(self, task: Task, models: Sequence[Model | None]) -> None:
        """Add a task that would run on these models, one for each attempt; None if the runner chooses its own."""
        for model in models:
            self._goal_tokens.setdefault(model, []).append(goal_tokens(task))
        self._limits.append(task.max_cost_usd)

    async def estimate(self, past: PastTasks, *, left_usd: float | None) -> Estimate:
        """The estimate of all tasks. `left_usd` is what limits leave for them in sum; None if there is no limit."""
        ordered = sorted(self._goal_tokens.items(), key=lambda entry: -len(entry[1]))
        groups = [await _group(model, lengths, past) for model, lengths in ordered]
        limits = [limit for limit in (sum_usd(self._limits), left_usd) if limit is not None]
        return Estimate(tuple(groups), min(limits, default=None))


def goal_tokens(task: Task) -> int:
    """The estimated length of what a task says."""
    return tokens_of(task.goal) + tokens_of(task.context or "")


async def _group(model: Model | None, lengths: Sequence[int], past: PastTasks) -> Group:
    if model is None:
        return Group(None, len(lengths), None, "unknown")
    from statistics import mean, median  # takes 3 ms to load, and few processes estimate anything

    today, length = date.today(), mean(lengths)
    basis: Basis = "records"
    costs = [one.cost_usd + (_longer(model, length, one, today) or 0) for one in await past(model.id)]
    if len(costs) < FEWEST_RECORDS:
        priced = [_at_price_of(model, length, one, today) for one in await past(None)]
        basis, costs = "steps", [cost for cost in priced if cost is not None]
    if len(costs) >= FEWEST_RECORDS:
        cheap = sorted(costs)[len(costs) // 10]
        return Group(model.id, len(lengths), median(costs), basis, len(costs), cheap)
    each = usual_child_usd(model, today)
    if each is None:
        return Group(model.id, len(lengths), None, "unknown")
    least = _call_usd(model, PROMPT_TOKENS + length, 0, LEAST_OUTPUT, today) or 0
    more = _call_usd(model, length, 0, 0, today) or 0
    return Group(model.id, len(lengths), max(each, least) + more, "assumed", 0, min(each, least))


def _at_price_of(model: Model, length: float, one: PastTask, today: date) -> float | None:
    """What a task on record would have cost if this model had done it, with this much to read."""
    usage, calls = one.usage, one.usage.model_calls
    if not calls:
        return None
    lengths = usage.input_tokens / calls, usage.cached_tokens / calls, usage.output_tokens / calls
    child, more = _call_usd(model, *lengths, today), _longer(model, length, one, today)
    return None if child is None or more is None else calls * child + one.cost_usd * one.judging_share + more


def _longer(model: Model, length: float, one: PastTask, today: date) -> float | None:
    """What it costs that there is more to read than in a task on record: once anew, then from the cache."""
    if (more := length - one.goal_tokens) <= 0:
        return 0.0
    first, later = _call_usd(model, more, 0, 0, today), _call_usd(model, more, more, 0, today)
    return None if first is None or later is None else first + max(one.usage.model_calls - 1, 0) * later


def _call_usd(model: Model, input_tokens: float, cached: float, output: float, today: date) -> float | None:
    usage = Usage(
        model_calls=1, input_tokens=round(input_tokens), cached_tokens=round(cached), output_tokens=round(output)
    )
    return cost_usd(model, usage, today)

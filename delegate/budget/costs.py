"""Adds up the usage and cost of model calls, for a child, a judge, a task and a whole run."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import add
from typing import get_args

from delegate.types import ChildRun, Claim, JsonObject, Provenance, TaskResult, Totals, Usage, Verdict

_NO_USAGE = Usage()
_MOST_RELIABLE_FIRST: tuple[Provenance, ...] = get_args(Provenance)


@dataclass(frozen=True, slots=True)
class Charge:
    """Token usage and its cost. One unknown cost makes the sum unknown; `known_usd` sums the known costs."""

    usage: Usage = _NO_USAGE
    cost_usd: float | None = 0.0
    known_usd: float = 0.0
    provenance: Provenance = "observed"

    @property
    def fields(self) -> JsonObject:
        """As fields of what has usage and a cost on record."""
        cost = {"cost_usd": self.cost_usd, "cost_known_usd": self.known_usd, "cost_provenance": self.provenance}
        return {"usage": self.usage, **cost}

    def __add__(self, other: "Charge") -> "Charge":
        return Charge(
            self.usage + other.usage,
            sum_usd((self.cost_usd, other.cost_usd)),
            self.known_usd + other.known_usd,
            _least_reliable((self.provenance, other.provenance)),
        )


def _least_reliable(of: Iterable[Provenance]) -> Provenance:
    return _MOST_RELIABLE_FIRST[max(map(_MOST_RELIABLE_FIRST.index, of), default=0)]


UNOBSERVED = Charge(cost_usd=None, provenance="unknown")
"""The charge of unobserved model calls."""


def total(charges: Iterable[Charge]) -> Charge:
    """The sum of charges; an empty charge if there are none."""
    return reduce(add, charges) if (charges := list(charges)) else Charge()


def sum_usd(costs: Iterable[float | None]) -> float | None:
    """The sum of costs; None if one is unknown."""
    amounts: list[float] = []
    for cost in costs:
        if cost is None:
            return None
        amounts.append(cost)
    return math.fsum(amounts)  # the same in every version of Python


def share(part_usd: float | None, whole_usd: float | None) -> float | None:
    """`part_usd` as a fraction of `whole_usd`, 0 to 1; None if one is unknown or nothing was spent."""
    return None if part_usd is None or not whole_usd else round(part_usd / whole_usd, 6)


def of_judge(verdict: Verdict | None) -> Charge:
    """The charge of one verdict; an empty charge if no model was called."""
    record = verdict.judge if verdict else None
    if record is None or not record.attempts:
        return Charge()
    return Charge(record.usage, record.cost_usd, record.cost_known_usd, record.cost_provenance)


def of_judging(verdict: Verdict | None, claims: Sequence[Claim]) -> Charge:
    """The charge of all judges of one task. In goal mode they are those of its claims, and the last has the verdict."""
    if not claims:
        return of_judge(verdict)
    return total(Charge(claim.usage, claim.cost_usd, claim.cost_known_usd, claim.cost_provenance) for claim in claims)


def child_usd(result: TaskResult) -> float | None:
    """The cost of a task's child alone, without its judges and what it delegated. None if a part of it is unknown."""
    judge, delegated = of_judging(result.verdict, result.claims), result.delegated
    other_usd = sum_usd((judge.cost_usd, delegated.cost_usd if delegated else 0))
    return None if result.cost_usd is None or other_usd is None else max(0.0, round(result.cost_usd - other_usd, 9))


def of_task(child: ChildRun, judging: Charge, delegated: Totals | None) -> Charge:
    """The charge of one task: its child, its judges, and everything that the child delegated."""
    own = Charge(child.usage, child.cost_usd, child.cost_known_usd, child.cost_provenance)
    if delegated is None:
        return own + judging
    usage = delegated.child_usage + delegated.judge_usage
    return own + judging + Charge(usage, delegated.cost_usd, delegated.cost_known_usd, delegated.cost_provenance)


def totals(results: Sequence[TaskResult], seconds: float, *, others: Sequence[TaskResult] = ()) -> Totals:
    """The sums over the results of one call. Of `others`, attempts that weren't chosen, only usage and cost count."""
    uncounted: JsonObject = {"tasks": 0, "passed": 0, "failed": 0, "unjudged": 0, "completed": 0, "gate": {}}
    more = [of_result(result).model_copy(update=uncounted) for result in others]
    return combined([*map(of_result, results), *more], seconds)


def combined(parts: Sequence[Totals], seconds: float) -> Totals:
    """The sums over several totals, such as those of the calls that one child made."""
    judge_usd, cost_usd = sum_usd(part.judge_cost_usd for part in parts), sum_usd(part.cost_usd for part in parts)
    return Totals(
        tasks=sum(part.tasks for part in parts),
        passed=sum(part.passed for part in parts),
        failed=sum(part.failed for part in parts),
        unjudged=sum(part.unjudged for part in parts),
        completed=sum(part.completed for part in parts),
        gate=dict(sum((Counter(part.gate) for part in parts if part.gate), Counter[str]())),
        child_usage=sum((part.child_usage for part in parts), _NO_USAGE),
        judge_usage=sum((part.judge_usage for part in parts), _NO_USAGE),
        child_cost_usd=sum_usd(part.child_cost_usd for part in parts),
        judge_cost_usd=judge_usd,
        cost_usd=cost_usd,
        cost_known_usd=math.fsum(part.cost_known_usd for part in parts),
        cost_provenance=_least_reliable(part.cost_provenance for part in parts),
        verification_share=share(judge_usd, cost_usd),
        seconds=round(seconds, 6),
    )


@cache
def _nothing_delegated() -> Totals:
    return Totals(child_cost_usd=0, judge_cost_usd=0, cost_usd=0)


def of_result(result: TaskResult) -> Totals:
    """One task as totals. What its child delegated is included in the usage and costs, not in the counts."""
    verdict, delegated = result.verdict, result.delegated or _nothing_delegated()
    judge = of_judging(verdict, result.claims)
    judge_usd = sum_usd((judge.cost_usd, delegated.judge_cost_usd))
    is_known = judge_usd is not None and result.cost_usd is not None
    return Totals(
        tasks=1,
        passed=int(verdict is not None and verdict.verdict == "PASS"),
        failed=int(verdict is not None and verdict.verdict == "FAIL"),
        unjudged=int(verdict is None),
        completed=int(result.status == "completed"),
        gate={verdict.gate: 1} if verdict and verdict.gate else {},
        child_usage=result.usage + delegated.child_usage,
        judge_usage=judge.usage + delegated.judge_usage,
        child_cost_usd=round((result.cost_usd or 0) - (judge_usd or 0), 12) if is_known else None,
        judge_cost_usd=judge_usd,
        cost_usd=result.cost_usd,
        cost_known_usd=result.cost_known_usd,
        cost_provenance=result.cost_provenance,
    )

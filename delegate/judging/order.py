"""Decides what comes next on the way to a verdict. Pure functions: nothing is run, asked or changed here.

Checks come before judges, whatever order criteria are declared in, and each criterion after those that it depends on.
A criterion whose dependency isn't met is skipped, and skipped is never met. Once a criterion has failed, no model is
asked any more.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from delegate.judging.checks.run import is_check
from delegate.judging.submission import result
from delegate.types import AnyCriterion, CriterionResult

_GOOD = ("met", "trusted")


@dataclass(frozen=True, slots=True)
class Check:
    """Let code decide these criteria."""

    criteria: Sequence[AnyCriterion]


@dataclass(frozen=True, slots=True)
class Judge:
    """Let a model decide these criteria."""

    criteria: Sequence[AnyCriterion]


@dataclass(frozen=True, slots=True)
class Skip:
    """Take these results: the criteria are not decided, or not any more."""

    results: Sequence[CriterionResult]


def next_step(criteria: Sequence[AnyCriterion], results: Mapping[str, CriterionResult]) -> Check | Judge | Skip | None:
    """What to do after `results`, which are by criterion id; None when every criterion has its result."""
    if skipped := _skipped_dependents(criteria, results):
        return Skip(skipped)
    undecided = [criterion for criterion in criteria if _id(criterion) not in results]
    if not undecided:
        return None
    ready = [criterion for criterion in undecided if set(criterion.depends_on) <= results.keys()]
    if checks := [criterion for criterion in ready if is_check(criterion)]:
        return Check(checks)
    if _is_lost(results.values()):
        return Skip([_skipped(criterion, "the verdict was already decided") for criterion in undecided])
    return Judge(_with_followers(ready, undecided))


def could_turn(criteria: Sequence[AnyCriterion], results: Sequence[CriterionResult], open_ids: Collection[str]) -> bool:
    """Whether a verdict that is lost by these results could be won if those in `open_ids` were met.

    What has no result yet may still be met.
    """

    def is_lost(known: Iterable[CriterionResult]) -> bool:
        hoped = {_id(criterion): result(criterion, "met", "nobody", "met") for criterion in criteria}
        hoped |= {one.id: one for one in known}
        while skipped := _skipped_dependents(criteria, hoped):
            hoped |= {one.id: one for one in skipped}
        return _is_lost(hoped.values())

    best = (one.model_copy(update={"outcome": "met"}) if one.id in open_ids else one for one in results)
    return is_lost(results) and not is_lost(best)


def _skipped_dependents(
    criteria: Sequence[AnyCriterion], results: Mapping[str, CriterionResult]
) -> list[CriterionResult]:
    """Criteria with a dependency that isn't met. A judge may have decided one along with its dependency."""
    skipped: list[CriterionResult] = []
    for criterion in criteria:
        known = results.get(_id(criterion))
        if known is not None and known.outcome == "skipped":
            continue
        unmet = [id for id in criterion.depends_on if id in results and results[id].outcome not in _GOOD]
        if unmet:
            skipped.append(_skipped(criterion, f"{unmet[0]}, which it depends on, is not met"))
    return skipped


def _with_followers(ready: Sequence[AnyCriterion], undecided: Sequence[AnyCriterion]) -> list[AnyCriterion]:
    """The ready ones, and those that wait only for them: one question serves all, their order is applied after."""
    asked, names = list(ready), {_id(criterion) for criterion in undecided}
    while True:
        known = {_id(criterion) for criterion in asked}
        more = [
            criterion
            for criterion in undecided
            if _id(criterion) not in known and not is_check(criterion) and set(criterion.depends_on) & names <= known
        ]
        if not more:
            return asked
        asked += more


def _is_lost(results: Iterable[CriterionResult]) -> bool:
    return any(one.outcome not in _GOOD and not one.findings_only for one in results)


def _skipped(criterion: AnyCriterion, why: str) -> CriterionResult:
    return result(criterion, "skipped", "nobody", "skipped", why)


def _id(criterion: AnyCriterion) -> str:
    return criterion.id or ""

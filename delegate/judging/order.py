"""The order in which criteria are decided: checks before judges, and each after those that it depends on.

Whatever order they are declared in. A criterion whose dependency isn't met is skipped, and skipped is never met. Once
a check has said no, no model is asked any more.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from delegate.judging.submission import result
from delegate.types import AnyCriterion, CriterionResult

Decide = Callable[[list[AnyCriterion], list[CriterionResult]], Awaitable[list[CriterionResult]]]
"""Decides criteria, knowing the results so far."""

_GOOD = ("met", "trusted")


async def decide_in_order(
    criteria: Sequence[AnyCriterion], is_check: Callable[[AnyCriterion], bool], check: Decide, judge: Decide
) -> list[CriterionResult]:
    """A result for every criterion, in the order of declaration."""
    results: dict[str, CriterionResult] = {}
    while left := [criterion for criterion in criteria if _id(criterion) not in results]:
        _skip_dependents(left, results)
        ready = [one for one in left if _id(one) not in results and set(one.depends_on) <= results.keys()]
        if checks := [one for one in ready if is_check(one)]:
            _add(results, await check(checks, list(results.values())))
        elif _is_lost(results):
            _add(results, [_skipped(one, "the verdict was already decided") for one in left if _id(one) not in results])
        elif ready:
            _add(results, await judge(_with_followers(ready, left, is_check), list(results.values())))
            _unmeet_dependents(criteria, results)
    return [results[_id(criterion)] for criterion in criteria]


def could_turn(criteria: Sequence[AnyCriterion], results: Sequence[CriterionResult], open_ids: Collection[str]) -> bool:
    """Whether a verdict that is lost by these results could be won if those in `open_ids` were met.

    What has no result yet may still be met.
    """

    def is_lost(known: Iterable[CriterionResult]) -> bool:
        hoped = {_id(one): result(one, "met", "nobody", "met") for one in criteria}
        _add(hoped, known)
        _unmeet_dependents(criteria, hoped)
        return _is_lost(hoped)

    best = (one.model_copy(update={"outcome": "met"}) if one.id in open_ids else one for one in results)
    return is_lost(results) and not is_lost(best)


def _with_followers(
    ready: list[AnyCriterion], left: Sequence[AnyCriterion], is_check: Callable[[AnyCriterion], bool]
) -> list[AnyCriterion]:
    """The ready ones, and those that wait only for them: one question serves all, their order is applied after."""
    asked = list(ready)
    names = {_id(one) for one in left}
    grown = True
    while grown:
        known = {_id(one) for one in asked}
        more = [one for one in left if _id(one) not in known and not is_check(one) and _waits(one, names) <= known]
        asked += more
        grown = bool(more)
    return asked


def _waits(criterion: AnyCriterion, undecided: set[str]) -> set[str]:
    return set(criterion.depends_on) & undecided


def _skip_dependents(left: Sequence[AnyCriterion], results: dict[str, CriterionResult]) -> None:
    for criterion in left:
        if why := _unmet(criterion, results):
            results[_id(criterion)] = _skipped(criterion, why)


def _unmeet_dependents(criteria: Sequence[AnyCriterion], results: dict[str, CriterionResult]) -> None:
    """What was asked together is put in order: a dependent of what wasn't met is skipped after all."""
    changed = True
    while changed:
        changed = False
        for criterion in criteria:
            now = results.get(_id(criterion))
            if now and now.outcome != "skipped" and (why := _unmet(criterion, results)):
                results[_id(criterion)] = _skipped(criterion, why)
                changed = True


def _unmet(criterion: AnyCriterion, results: dict[str, CriterionResult]) -> str | None:
    bad = [id for id in criterion.depends_on if id in results and results[id].outcome not in _GOOD]
    return f"{bad[0]}, which it depends on, is not met" if bad else None


def _is_lost(results: dict[str, CriterionResult]) -> bool:
    return any(one.outcome not in _GOOD and not one.findings_only for one in results.values())


def _skipped(criterion: AnyCriterion, why: str) -> CriterionResult:
    return result(criterion, "skipped", "nobody", "skipped", why)


def _add(results: dict[str, CriterionResult], new: Iterable[CriterionResult]) -> None:
    results.update((one.id, one) for one in new)


def _id(criterion: AnyCriterion) -> str:
    return criterion.id or ""

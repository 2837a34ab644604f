"""Decides the next step of judging, in pure functions that run nothing and ask no model.

Checks come before judges, in whatever order the criteria are declared, and each criterion comes after the ones it
depends on. A criterion with an unmet dependency is skipped, which never counts as met. After a criterion has failed, no
model is asked.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from delegate.judging.checks.run import is_check
from delegate.judging.submission import result
from delegate.types import PASSING, AnyCriterion, CriterionResult


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
    """Record these results without deciding the criteria; they may replace earlier results."""

    results: Sequence[CriterionResult]


def next_step(criteria: Sequence[AnyCriterion], results: Mapping[str, CriterionResult]) -> Check | Judge | Skip | None:
    """The step that follows `results`, which are by criterion id; None if every criterion has a result."""
    if skipped := _skipped_dependents(criteria, results):
        return Skip(skipped)
    undecided = [criterion for criterion in criteria if _id(criterion) not in results]
    if not undecided:
        return None
    ready = [criterion for criterion in undecided if set(criterion.depends_on) <= results.keys()]
    if checks := [criterion for criterion in ready if is_check(criterion)]:
        return Check(checks)
    if _has_failed(results.values()):
        return Skip([_skipped(criterion, "the verdict was already decided") for criterion in undecided])
    return Judge(_with_dependents(ready, undecided))


def could_become_pass(
    criteria: Sequence[AnyCriterion], results: Sequence[CriterionResult], open_ids: Collection[str]
) -> bool:
    """Whether `results` make the verdict a FAIL that could be a PASS if the criteria in `open_ids` were met.

    Criteria without a result count as met.
    """

    def fails(known: Iterable[CriterionResult]) -> bool:
        assumed = {_id(criterion): result(criterion, "met", "nobody", "met") for criterion in criteria}
        assumed |= {one.id: one for one in known}
        while skipped := _skipped_dependents(criteria, assumed):
            assumed |= {one.id: one for one in skipped}
        return _has_failed(assumed.values())

    best = (one.model_copy(update={"outcome": "met"}) if one.id in open_ids else one for one in results)
    return fails(results) and not fails(best)


def _skipped_dependents(
    criteria: Sequence[AnyCriterion], results: Mapping[str, CriterionResult]
) -> list[CriterionResult]:
    """Results for criteria with an unmet dependency. A judge may have decided one together with its dependency."""
    skipped: list[CriterionResult] = []
    for criterion in criteria:
        known = results.get(_id(criterion))
        if known is not None and known.outcome == "skipped":
            continue
        unmet = [id for id in criterion.depends_on if id in results and results[id].outcome not in PASSING]
        if unmet:
            skipped.append(_skipped(criterion, f"{unmet[0]}, which it depends on, is not met"))
    return skipped


def _with_dependents(ready: Sequence[AnyCriterion], undecided: Sequence[AnyCriterion]) -> list[AnyCriterion]:
    """The ready criteria and those that depend only on them: one question asks for all, skipping follows afterwards."""
    asked, undecided_ids = list(ready), {_id(criterion) for criterion in undecided}
    while True:
        known = {_id(criterion) for criterion in asked}
        more = [
            criterion
            for criterion in undecided
            if _id(criterion) not in known
            and not is_check(criterion)
            and set(criterion.depends_on) & undecided_ids <= known
        ]
        if not more:
            return asked
        asked += more


def _has_failed(results: Iterable[CriterionResult]) -> bool:
    return any(one.outcome not in PASSING and not one.findings_only for one in results)


def _skipped(criterion: AnyCriterion, reason: str) -> CriterionResult:
    return result(criterion, "skipped", "nobody", "skipped", reason)


def _id(criterion: AnyCriterion) -> str:
    return criterion.id or ""

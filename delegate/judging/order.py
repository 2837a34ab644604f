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

    def fails(entries: Iterable[CriterionResult]) -> bool:
        by_id = {_id(criterion): result(criterion, "met", "nobody", "met") for criterion in criteria}
        return _has_failed(with_skipped(criteria, by_id | {entry.id: entry for entry in entries}).values())

    best = (entry.model_copy(update={"outcome": "met"}) if entry.id in open_ids else entry for entry in results)
    return fails(results) and not fails(best)


def with_skipped(
    criteria: Sequence[AnyCriterion], results: Mapping[str, CriterionResult]
) -> dict[str, CriterionResult]:
    """The results, which are by criterion id, with those of criteria that depend on an unmet one, however far."""
    found = dict(results)
    while skipped := _skipped_dependents(criteria, found):
        found |= {entry.id: entry for entry in skipped}
    return found


def _skipped_dependents(
    criteria: Sequence[AnyCriterion], results: Mapping[str, CriterionResult]
) -> list[CriterionResult]:
    """Results for criteria with an unmet dependency. A judge may have decided one together with its dependency."""
    skipped: list[CriterionResult] = []
    for criterion in criteria:
        earlier = results.get(_id(criterion))
        if earlier is not None and earlier.outcome == "skipped":
            continue
        unmet = [id for id in criterion.depends_on if id in results and results[id].outcome not in PASSING]
        if unmet:
            skipped.append(_skipped(criterion, f"{unmet[0]}, which it depends on, is not met"))
    return skipped


def _with_dependents(ready: Sequence[AnyCriterion], undecided: Sequence[AnyCriterion]) -> list[AnyCriterion]:
    """The ready criteria and those that depend only on them: one question asks for all, skipping follows afterwards."""
    question, undecided_ids = list(ready), {_id(criterion) for criterion in undecided}
    while True:
        ids = {_id(criterion) for criterion in question}
        more = [
            criterion
            for criterion in undecided
            if _id(criterion) not in ids
            and not is_check(criterion)
            and set(criterion.depends_on) & undecided_ids <= ids
        ]
        if not more:
            return question
        question += more


def _has_failed(results: Iterable[CriterionResult]) -> bool:
    return any(entry.outcome not in PASSING and not entry.findings_only for entry in results)


def _skipped(criterion: AnyCriterion, reason: str) -> CriterionResult:
    return result(criterion, "skipped", "nobody", "skipped", reason)


def _id(criterion: AnyCriterion) -> str:
    return criterion.id or ""

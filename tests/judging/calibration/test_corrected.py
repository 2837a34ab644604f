"""The PASS rate of a batch, corrected for the errors of its judge."""

import pytest

from delegate.judging.calibration.corrected import corrected
from delegate.judging.calibration.measure import measure
from delegate.types import CriterionResult, JudgeRecord, Ruling, Verdict


def verdict(*met: bool, checked: bool = True) -> Verdict:
    """A verdict whose criteria c1, c2, … a judge decided, and the last one a check."""
    criteria = [
        CriterionResult(
            id=f"c{n}", text="x", kind="text", outcome="met" if one else "not_met", decided_by="judge", code="met"
        )
        for n, one in enumerate(met, start=1)
    ]
    outcome = "met" if checked else "not_met"
    criteria.append(CriterionResult(id="k", text="x", kind="file", outcome=outcome, decided_by="check", code=outcome))
    word = "PASS" if all(met) and checked else "FAIL"
    judge = JudgeRecord(model="j")
    return Verdict(
        verdict=word, verified=True, decided_by="judge", code="met", reasoning="", criteria=tuple(criteria),
        judge=judge, judge_version="v",
    )  # fmt: skip


def ruling(task: str, word: str, judged: str, criterion: str = "c1") -> Ruling:
    return Ruling.model_validate(
        {"task": task, "criterion": criterion, "ruling": word, "judged": judged, "ruled_by": "me", "judge": "j",
         "judge_version": "v", "sampling": "random"}
    )  # fmt: skip


def sample() -> tuple[list[tuple[str, Verdict]], list[Ruling]]:
    """100 ruled tasks of one criterion: of 50 good ones the judge passes 45, of 50 bad ones 5."""
    verdicts, rulings = list[tuple[str, Verdict]](), list[Ruling]()
    for n in range(100):
        good = n < 50
        passed = n % 50 < 45 if good else n % 50 < 5
        verdicts.append((f"t{n}", verdict(passed)))
        rulings.append(ruling(f"t{n}", "met" if good else "not_met", "met" if passed else "not_met"))
    return verdicts, rulings


def said(batch: list[Verdict]) -> list[tuple[str, str, bool]]:
    return [("j", "v", one.outcome == "met") for verdict in batch for one in verdict.criteria[:-1]]


def test_a_batch_is_corrected_by_criteria_and_by_tasks() -> None:
    others, rulings = sample()
    batch = [verdict(n < 58) for n in range(100)]
    of_criteria, of_tasks = corrected(batch, said(batch), others, rulings, measure(rulings))
    assert (of_criteria.of, of_criteria.judge, of_criteria.rulings, of_tasks.of) == ("criteria met", "j", 100, "PASS")
    for one in (of_criteria, of_tasks):
        assert one.rate
        assert (one.apparent, one.rate.corrected) == (0.58, pytest.approx(0.6))
        assert one.rate.interval.lower < 0.5 < 0.7 < one.rate.interval.upper


def test_a_task_counts_only_if_all_that_a_judge_decided_was_ruled_on() -> None:
    others, rulings = sample()
    others = [(handle, verdict(True, True)) for handle, _ in others]
    *_, of_tasks = corrected([verdict(True)], [], others, rulings, measure(rulings))
    assert (of_tasks.rulings, of_tasks.rate) == (0, None)


def test_a_task_that_a_check_failed_is_bad() -> None:
    others = [("a", verdict(True, checked=False)), ("b", verdict(True))]
    rulings = [ruling("a", "met", "met"), ruling("b", "met", "met")]
    _, of_tasks = corrected([verdict(True), verdict(False)], [("j", "v", True)], others, rulings, measure(rulings))
    assert of_tasks.rate
    assert of_tasks.rate.corrected == 0.5, "the judge of tasks made no mistake"


def test_without_rulings_nothing_is_corrected() -> None:
    batch = [verdict(True), verdict(False)]
    found = corrected(batch, said(batch), [], [], [])
    assert [(one.apparent, one.rate) for one in found] == [(0.5, None), (0.5, None)]
    assert corrected([], [], [], [], []) == []

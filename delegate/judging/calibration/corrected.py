"""Corrects the results of a batch for the errors of its judges (Rogan-Gladen)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from delegate.judging.calibration.measure import Measured
from delegate.judging.calibration.statistics import Corrected, Table, rogan_gladen
from delegate.types import PASSING, JsonObject, Ruling, RulingWord, Verdict

JudgeWord = tuple[str, str, bool]
"""A judge, its version, and whether it found a criterion met."""


@dataclass(frozen=True, slots=True)
class CorrectedRate:
    """A rate of a batch, as judged and as corrected."""

    of: str
    """`criteria met` as one judge said, or `PASS` of whole tasks."""
    judge: str
    n: int
    rulings: int
    """The number of rulings, or of completely ruled tasks, that the correction rests on."""
    rate: Corrected | None
    """None if there are too few rulings to correct anything, or the judge does no better than chance."""
    apparent: float

    def as_json(self) -> JsonObject:
        rate = self.rate
        return {
            "of": self.of,
            "judge": self.judge,
            "n": self.n,
            "rulings": self.rulings,
            "apparent": round(self.apparent, 6),
            "corrected": round(rate.corrected, 6) if rate else None,
            "interval": [round(limit, 6) for limit in rate.interval] if rate else None,
        }


def corrected(
    batch: Sequence[Verdict],
    answers: Iterable[JudgeWord],
    others: Iterable[tuple[str, Verdict]],
    rulings: Sequence[Ruling],
    measured: Sequence[Measured],
) -> list[CorrectedRate]:
    """The corrected rates of a batch: of criteria, per judge, and of PASS.

    `answers` is what each judge said on each criterion of the batch, named and counted as in rulings. `others` are all
    verdicts on record with their handles. A task is completely ruled if every criterion that a judge decided was drawn
    at random and ruled; it is good if all of these are met, and a check failed none of the others.
    """
    rates: list[CorrectedRate] = []
    found: dict[tuple[str, str], Counter[bool]] = {}
    for judge, version, is_met in answers:
        found.setdefault((judge, version), Counter())[is_met] += 1
    for (judge, version), counts in found.items():
        key, n = (judge, version, None, "random"), counts.total()
        tables = (row.table for row in measured if (row.judge, row.judge_version, row.worker, row.sampling) == key)
        table = next(tables, Table())
        rate = rogan_gladen(counts[True], n, table)
        rates.append(CorrectedRate("criteria met", judge, n, table.n, rate, counts[True] / n))
    verdicts = [verdict for verdict in batch if _judge_decided(verdict)]
    if verdicts:
        words: dict[tuple[str, str], RulingWord] = {
            (ruling.task, ruling.criterion): ruling.ruling for ruling in rulings if ruling.sampling == "random"
        }
        table = Table.of(pair for handle, verdict in others if (pair := _ruled_task(handle, verdict, words)))
        passes = sum(verdict.verdict == "PASS" for verdict in verdicts)
        rate = rogan_gladen(passes, len(verdicts), table)
        rates.append(CorrectedRate("PASS", "", len(verdicts), table.n, rate, passes / len(verdicts)))
    return rates


def _judge_decided(verdict: Verdict) -> list[str]:
    return [
        criterion.id
        for criterion in verdict.criteria
        if criterion.decided_by == "judge" and not criterion.findings_only
    ]


def _ruled_task(handle: str, verdict: Verdict, words: Mapping[tuple[str, str], RulingWord]) -> tuple[bool, bool] | None:
    """Whether a task is good, and whether its verdict is PASS; None if it isn't completely ruled."""
    ids = _judge_decided(verdict)
    rulings = [words.get((handle, id)) for id in ids]
    if not ids or None in rulings:
        return None
    rest = (
        criterion.outcome in PASSING
        for criterion in verdict.criteria
        if criterion.id not in ids and not criterion.findings_only
    )
    return all(word == "met" for word in rulings) and all(rest), verdict.verdict == "PASS"

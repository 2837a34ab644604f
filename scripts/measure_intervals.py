"""Measure how often the intervals of `judging/calibration/statistics.py` hold the truth, and compare them to SciPy's.

    PYTHONPATH=. python scripts/measure_intervals.py

Needs the extra `calibrate`, which brings SciPy. Simulates judges of known error, 1,000 times for each setup.
"""

import random
from importlib import import_module
from typing import Any, NamedTuple

from delegate.judging.calibration.statistics import Table, clopper_pearson, kappa, kappa_interval, rogan_gladen

RUNS = 1_000
TRUE_RATE = 0.7
"""The share of good work in the batch whose rate is corrected."""


class Setup(NamedTuple):
    """Judged tasks, each with some criteria, and the judge's errors."""

    tasks: int
    criteria: int
    good: float
    false_pass: float
    false_fail: float
    batch: int


SETUPS = (
    Setup(100, 4, 0.5, 0.10, 0.10, 300),
    Setup(200, 2, 0.4, 0.15, 0.10, 300),
    Setup(300, 1, 0.5, 0.20, 0.05, 200),
    Setup(50, 4, 0.5, 0.30, 0.20, 500),
)


def main() -> None:
    """Print the difference from SciPy, and the coverage of each interval."""
    exact: Any = import_module("scipy.stats").binomtest
    worst = 0.0
    for k, n in ((0, 1), (3, 17), (28, 203), (45, 488), (0, 10_000), (500, 10_000), (50_000, 100_000)):
        limits = exact(k, n).proportion_ci(0.95, "exact")
        ours = clopper_pearson(k, n)
        worst = max(worst, abs(ours.lower - limits.low), abs(ours.upper - limits.high))
    print(f"largest difference from SciPy: {worst:.1e}")
    for setup in SETUPS:
        covered = [_covered(setup, seed) for seed in range(RUNS)]
        shares = [sum(column) / RUNS for column in zip(*covered, strict=True)]
        print(setup, "false PASS {:.1%}, kappa {:.1%}, corrected rate {:.1%}".format(*shares))


def _covered(setup: Setup, seed: int) -> tuple[bool, bool, bool]:
    """Whether each interval contains the truth in one simulation."""
    draw = random.Random(seed).random

    def judged(good: bool) -> bool:
        return draw() >= setup.false_fail if good else draw() < setup.false_pass

    def task() -> Table:
        truths = [draw() < setup.good for _ in range(setup.criteria)]
        return Table.of((truth, judged(truth)) for truth in truths)

    tasks = [task() for _ in range(setup.tasks)]
    table = Table(*map(sum, zip(*tasks, strict=True)))
    errors = clopper_pearson(table.false_pass, table.bad)
    agreement = kappa_interval(tasks, seed=seed)
    met = sum(judged(draw() < TRUE_RATE) for _ in range(setup.batch))
    rate = rogan_gladen(met, setup.batch, table)
    true_kappa = _true_kappa(setup)
    return (
        errors.lower <= setup.false_pass <= errors.upper,
        agreement is not None and agreement.lower <= true_kappa <= agreement.upper,
        rate is not None and rate.interval.lower <= TRUE_RATE <= rate.interval.upper,
    )


def _true_kappa(setup: Setup) -> float:
    good, bad = setup.good * 1e9, (1 - setup.good) * 1e9
    cells = (
        good * (1 - setup.false_fail),
        good * setup.false_fail,
        bad * setup.false_pass,
        bad * (1 - setup.false_pass),
    )
    found = kappa(Table(*map(round, cells)))
    assert found is not None
    return found


if __name__ == "__main__":
    main()

"""The statistics of judges: reference values of SciPy, statsmodels and scikit-learn, and how often intervals cover."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate.judging.calibration.statistics import (
    Interval,
    Table,
    auroc,
    clopper_pearson,
    kappa,
    kappa_interval,
    rogan_gladen,
    trials_until_below,
)

RUNS = 400


@pytest.mark.parametrize(
    ("k", "n", "lower", "upper"),
    [
        (0, 1, 0, 0.975),
        (3, 17, 0.0379851, 0.4343179),
        (28, 203, 0.0936507, 0.1931440),
        (45, 488, 0.0680566, 0.1214413),
        (0, 10_000, 0, 0.0003688),
        (10_000, 10_000, 0.9996312, 1),
    ],
)
def test_the_interval_of_a_rate_is_that_of_scipy(k: int, n: int, lower: float, upper: float) -> None:
    assert clopper_pearson(k, n) == pytest.approx((lower, upper), abs=1e-7)


@given(st.integers(1, 3_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
@settings(max_examples=15, deadline=None)
def test_an_interval_contains_its_rate_and_rises_with_errors(counts: tuple[int, int]) -> None:
    k, n = counts
    lower, upper = clopper_pearson(k, n)
    assert 0 <= lower <= k / n <= upper <= 1
    if k < n:
        assert clopper_pearson(k + 1, n).upper >= upper


@given(st.sampled_from((0.1, 0.05, 0.02)), st.integers(0, 300), st.integers(0, 20))
@settings(max_examples=20, deadline=None)
def test_the_number_of_rulings_to_come_is_enough_and_one_less_is_not(limit: float, n: int, k: int) -> None:
    k = min(k, n)
    more = trials_until_below(limit, k, n)
    if more is None:
        assert k / max(n, 1) >= limit or k / max(n, 1) > limit * 0.9, "the rate so far isn't below, or only just"
        return
    errors = k if not more else -(-k * (n + more) // n) if n else 0
    assert clopper_pearson(errors, n + more).upper < limit
    if more:
        assert clopper_pearson(-(-k * (n + more - 1) // n) if n else 0, n + more - 1).upper >= limit


def test_73_faultless_rulings_show_a_rate_below_five_percent() -> None:
    assert [trials_until_below(limit, 0, 0) for limit in (0.1, 0.05, 0.02)] == [36, 72, 183]
    assert trials_until_below(0.1, 28, 203) is None


def simulated(seed: int, n: int, good: float, false_pass: float, false_fail: float) -> list[tuple[bool, bool]]:
    """(ruled met, judged met) of `n` criteria, of which a share of `good` is really met."""
    draw = random.Random(seed).random
    truths = [draw() < good for _ in range(n)]
    return [(truth, draw() >= false_fail if truth else draw() < false_pass) for truth in truths]


def coverage(interval: Callable[[int], Interval | None], truth: float) -> float:
    found = [interval(seed) for seed in range(RUNS)]
    return sum(one is not None and one.lower <= truth <= one.upper for one in found) / RUNS


def test_the_interval_of_a_simulated_judge_covers_its_error() -> None:
    def interval(seed: int) -> Interval:
        table = Table.of(simulated(seed, 300, 0.4, 0.1, 0.1))
        return clopper_pearson(table.false_pass, table.bad)

    assert 0.93 <= coverage(interval, 0.1) <= 0.97


def test_the_interval_of_a_corrected_rate_covers_the_truth() -> None:
    def interval(seed: int) -> Interval | None:
        table = Table.of(simulated(seed, 300, 0.5, 0.15, 0.05))
        met = sum(judged for _, judged in simulated(seed + RUNS, 300, 0.7, 0.15, 0.05))
        rate = rogan_gladen(met, 300, table)
        return rate.interval if rate else None

    assert 0.93 <= coverage(interval, 0.7) <= 0.97


def test_a_judge_no_better_than_chance_corrects_nothing() -> None:
    assert rogan_gladen(5, 10, Table(5, 5, 5, 5)) is None
    assert rogan_gladen(5, 10, Table(5, 5, 0, 0)) is None
    assert rogan_gladen(0, 0, Table(5, 5, 0, 9)) is None


def test_a_corrected_rate_stays_between_0_and_1() -> None:
    for met in (0, 10):
        rate = rogan_gladen(met, 10, Table(9, 1, 3, 7))
        assert rate
        assert 0 <= rate.interval.lower <= rate.corrected <= rate.interval.upper <= 1


def test_kappa_is_that_of_scikit_learn_and_none_where_it_means_nothing() -> None:
    assert kappa(Table(142, 21, 28, 175)) == pytest.approx(0.730145, abs=1e-6)
    assert kappa(Table(10, 0, 0, 0)) is None
    assert kappa(Table()) is None
    assert kappa_interval([Table(1, 0, 0, 1)]) is None, "of one task nothing can be resampled"


def test_criteria_of_the_same_task_do_not_count_as_independent() -> None:
    apart = [Table(1, 0, 0, 0)] * 40 + [Table(0, 1, 0, 0)] * 10 + [Table(0, 0, 0, 1)] * 40 + [Table(0, 0, 1, 0)] * 10
    together = [Table(*(10 * cell for cell in table)) for table in apart[::10]]
    assert kappa(Table(*map(sum, zip(*apart, strict=True)))) == kappa(Table(*map(sum, zip(*together, strict=True))))
    wide, narrow = kappa_interval(together), kappa_interval(apart)
    assert wide
    assert narrow
    assert wide.upper - wide.lower > 2 * (narrow.upper - narrow.lower)


def test_the_auroc_of_known_scores_is_known() -> None:
    assert auroc([1, 2], [True, True]) is None
    area, interval = auroc([3, 2, 1, 0], [True, True, False, False]) or (0, Interval(0, 0))
    assert (area, interval.upper) == (1, 1)
    assert interval.lower < 0.5, "two of each kind are no certainty"
    area, interval = auroc([1, 1, 1, 1], [True, False, True, False]) or (0, Interval(0, 0))
    assert area == 0.5
    assert interval.lower <= 0.5 <= interval.upper
    draw, labels = random.Random(1), [False, True] * 100
    area, interval = auroc([draw.gauss(label, 1) for label in labels], labels) or (0, Interval(0, 0))
    assert area == pytest.approx(0.7622)
    assert interval == pytest.approx((0.694, 0.825), abs=0.01), "a bootstrap of 4,000"

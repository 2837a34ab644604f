"""Statistics of a binary judge against rulings: exact intervals, kappa, and rates corrected for errors. Pure Python.

All intervals are two-sided. Verified against SciPy, statsmodels and scikit-learn (`scripts/measure_intervals.py`).
"""

import math
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2
_DRAWS = 200_000
"""Gamma variates drawn for one bootstrap interval; the number of resamples is this divided by the distinct tasks."""
_RESAMPLES = (200, 1_000)


class Interval(NamedTuple):
    """The limits of a confidence interval."""

    lower: float
    upper: float


class Table(NamedTuple):
    """Counts of a judge's decisions by the ruling: `met` is the positive class."""

    true_pass: int = 0
    false_fail: int = 0
    false_pass: int = 0
    true_fail: int = 0

    @property
    def n(self) -> int:
        return sum(self)

    @property
    def good(self) -> int:
        """Criteria that were ruled met."""
        return self.true_pass + self.false_fail

    @property
    def bad(self) -> int:
        """Criteria that were ruled not met."""
        return self.false_pass + self.true_fail

    @classmethod
    def of(cls, pairs: Iterable[tuple[bool, bool]]) -> "Table":
        """From pairs of (ruled met, judged met)."""
        counts = Counter(pairs)
        return cls(counts[True, True], counts[True, False], counts[False, True], counts[False, False])


def share(k: float, n: float) -> float | None:
    """`k / n`; None if there is nothing to divide by."""
    return k / n if n else None


def _z() -> float:
    from statistics import NormalDist  # a slow import

    return NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


# ---------------------------------------------------------------------------------------------------- exact intervals


@lru_cache(4096)
def clopper_pearson(k: int, n: int) -> Interval:
    """The exact interval for a probability, after `k` of `n` trials."""
    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n} isn't a count of successes")
    lower = _beta_quantile(_TAIL, k, n - k + 1) if k else 0.0
    upper = _beta_quantile(1 - _TAIL, k + 1, n - k) if k < n else 1.0
    return Interval(lower, upper)


def _beta_quantile(p: float, a: float, b: float) -> float:
    """The p-quantile of a beta distribution, by bisection: its distribution function rises strictly."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if beta_cdf(middle, a, b) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function, by its continued fraction (Numerical Recipes, 6.4)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - beta_cdf(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) * _beta_fraction(x, a, b) / a


def _beta_fraction(x: float, a: float, b: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or tiny)
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            fraction *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return fraction


def trials_until_below(limit: float, k: int, n: int, *, most: int = 1_000_000) -> int | None:
    """How many more trials would bring the upper limit of the interval below `limit`, if errors go on as seen so far.

    None if the rate seen so far is not below the limit, or more than `most` trials would be needed.
    """
    rate = k / n if n else 0.0

    def is_enough(trials: int) -> bool:
        return clopper_pearson(math.ceil(rate * trials - 1e-9), trials).upper < limit

    if n and clopper_pearson(k, n).upper < limit:
        return 0
    if rate >= limit:
        return None
    high = max(n, 8)
    while not is_enough(high):
        high *= 2
        if high > most:
            return None
    index = bisect_left(range(high + 1), True, lo=n, key=is_enough)
    return index - n


# --------------------------------------------------------------------------------------------------------------- kappa


def kappa(table: Sequence[float]) -> float | None:
    """Cohen's kappa of a `Table`, or of weights in its order; None where both always say the same word."""
    true_pass, false_fail, false_pass, true_fail = table
    n = true_pass + false_fail + false_pass + true_fail
    if not n:
        return None
    good, met = true_pass + false_fail, true_pass + false_pass
    by_chance = (good * met + (n - good) * (n - met)) / n / n
    return None if 1 - by_chance < 1e-12 else ((true_pass + true_fail) / n - by_chance) / (1 - by_chance)


def kappa_interval(tasks: Iterable[Table], *, seed: int = 1) -> Interval | None:
    """An interval for kappa by the Bayesian bootstrap over tasks, since the criteria of one task aren't independent.

    Every task gets a random weight. Tasks with the same counts are interchangeable, so they share one gamma variate,
    which makes the time independent of the number of rulings. None if there are fewer than two tasks, or no kappa.
    """
    alike = Counter(table for table in tasks if table.n)
    if alike.total() < 2:
        return None
    least, most = _RESAMPLES
    resamples = max(least, min(most, _DRAWS // len(alike)))
    draw, rates = random.Random(seed).gammavariate, list[float]()
    for _ in range(resamples):
        sums = [0.0, 0.0, 0.0, 0.0]
        for table, count in alike.items():
            weight = draw(count, 1.0)
            for cell, value in enumerate(table):
                if value:
                    sums[cell] += weight * value
        value = kappa(sums)
        if value is not None:
            rates.append(value)
    if not rates:
        return None
    rates.sort()
    return Interval(_quantile(rates, _TAIL), _quantile(rates, 1 - _TAIL))


def _quantile(values: Sequence[float], p: float) -> float:
    place = p * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


# ------------------------------------------------------------------------------------------------------ Rogan-Gladen


class Corrected(NamedTuple):
    """A rate as a judge sees it, and what it is once the judge's errors are taken out."""

    apparent: float
    corrected: float
    interval: Interval


def rogan_gladen(met: int, n: int, table: Table) -> Corrected | None:
    """The true rate behind `met` of `n` decisions, given the judge's errors in `table`.

    The estimate is Rogan and Gladen's (1978). The interval covers the uncertainty of both samples, as by Lang and
    Reiczigel (2014). None if there is nothing to correct or to correct by, or if the judge does no better than chance.
    """
    if not n or not table.good or not table.bad:
        return None
    sensitivity, specificity = table.true_pass / table.good, table.true_fail / table.bad
    if sensitivity + specificity <= 1:
        return None
    corrected = (met / n + specificity - 1) / (sensitivity + specificity - 1)
    z = _z()
    p, p_n = (met + z * z / 2) / (n + z * z), n + z * z
    se, se_n = (table.true_pass + 1) / (table.good + 2), table.good + 2
    sp, sp_n = (table.true_fail + 1) / (table.bad + 2), table.bad + 2
    youden = se + sp - 1
    if youden <= 0:
        return Corrected(met / n, _clipped(corrected), Interval(0, 1))
    rate = (p + sp - 1) / youden
    shift = 2 * z * z * (rate * se * (1 - se) / se_n - (1 - rate) * sp * (1 - sp) / sp_n)
    spread = p * (1 - p) / p_n + rate**2 * se * (1 - se) / se_n + (1 - rate) ** 2 * sp * (1 - sp) / sp_n
    half = z * math.sqrt(spread) / youden
    interval = Interval(_clipped(rate + shift - half), _clipped(rate + shift + half))
    return Corrected(met / n, _clipped(corrected), interval)


def _clipped(rate: float) -> float:
    return min(1.0, max(0.0, rate))


# --------------------------------------------------------------------------------------------------------------- AUROC


def auroc(scores: Sequence[float], labels: Sequence[bool]) -> tuple[float, Interval] | None:
    """The area under the ROC curve, with DeLong's interval (on the logit scale). None without both labels."""
    good = sorted(score for score, label in zip(scores, labels, strict=True) if label)
    bad = sorted(score for score, label in zip(scores, labels, strict=True) if not label)
    if not good or not bad:
        return None
    above = [_rank(bad, score) / len(bad) for score in good]
    below = [1 - _rank(good, score) / len(good) for score in bad]
    area = sum(above) / len(above)
    variance = _variance(above) / len(above) + _variance(below) / len(below)
    z = _z()
    if not variance:  # the ranks show no spread, which in a small sample doesn't mean certainty
        fewer = min(len(good), len(bad))
        return area, clopper_pearson(round(area * fewer), fewer)
    centre, half = math.log(area / (1 - area)), z * math.sqrt(variance) / (area * (1 - area))
    return area, Interval(logistic(centre - half), logistic(centre + half))


def _rank(scores: Sequence[float], score: float) -> float:
    """How many values are below `score`; equal ones count half."""
    return (bisect_left(scores, score) + bisect_right(scores, score)) / 2


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))

"""Fits the detector of reports that aren't true. Needs scikit-learn, which the extra `calibrate` installs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, NamedTuple

from delegate.judging.calibration.detector import LEAST_RULED, Detector, features, linear_score
from delegate.judging.calibration.statistics import Interval, auroc
from delegate.types import ChildRun
from delegate.types.errors import CallError

LEAST_OF_EACH = 10
"""Runs with a true report, and runs with one that isn't, that are needed to fit anything."""
FOLDS = 5
THRESHOLD = 0.5
"""The probability from which the detector speaks."""
_REGULARIZATION = 0.3


class RuledRun(NamedTuple):
    """A run whose report was found to be true or not. Runs of the same `task` are never on both sides of a split."""

    run: ChildRun
    is_false: bool
    task: str


class Fit(NamedTuple):
    """A detector and how well it did on runs that it wasn't fitted to."""

    detector: Detector
    auroc: float
    interval: Interval
    runs: int
    false: int

    @property
    def is_useful(self) -> bool:
        """Whether it is certain to be better than chance."""
        return self.interval.lower > 0.5


def fit(runs: Sequence[RuledRun], *, least: int = LEAST_RULED) -> Fit:
    """Fit and cross-validate a detector. The probability comes from scores of runs that a fold wasn't fitted to.

    Raises CallError if scikit-learn isn't installed, or there are too few runs.
    """
    labels = [run.is_false for run in runs]
    false = sum(labels)
    if len(labels) < least or min(false, len(labels) - false) < LEAST_OF_EACH:
        message = f"rulings on record: of {len(labels)} runs, {false} with a report that isn't true"
        hint = f"at least {least} are needed, with {LEAST_OF_EACH} of each kind: `delegate rule --sample N`"
        raise CallError("too_few_rulings", message, hint=hint)
    try:
        linear, selection = import_module("sklearn.linear_model"), import_module("sklearn.model_selection")
    except ImportError:
        hint = "pip install 'delegate-task[calibrate]'"
        raise CallError(
            "missing_extra", "fitting a detector needs scikit-learn, which isn't installed", hint=hint
        ) from None
    names = tuple(features(ChildRun(status="completed")))
    rows = [tuple(features(run.run).values()) for run in runs]
    groups = [run.task for run in runs]
    folds = selection.StratifiedGroupKFold(n_splits=FOLDS, shuffle=True, random_state=1)
    scores = [0.0] * len(rows)
    parts: list[tuple[list[int], list[int]]] = list(folds.split(rows, labels, groups))
    for train, test in parts:
        if len({labels[i] for i in train}) < 2:  # all runs of one kind are of one task
            raise CallError("too_few_rulings", "the ruled runs are of too few different tasks to learn from")
        weights, intercept = _linear(linear, [rows[i] for i in train], [labels[i] for i in train])
        for i in test:
            scores[i] = linear_score(rows[i], weights, intercept)
    weights, intercept = _linear(linear, rows, labels)
    platt: Any = linear.LogisticRegression(C=1e6).fit([[score] for score in scores], labels)
    area, interval = auroc(scores, labels) or (0.5, Interval(0, 1))
    about = {
        "runs": len(rows),
        "false": false,
        "auroc": round(area, 4),
        "auroc_interval": [round(limit, 4) for limit in interval],
        "fitted_on": datetime.now(UTC).date().isoformat(),
    }
    # A negative slope would say that the detector is right when it is wrong; it isn't useful, and is not turned over.
    scale = max(0.0, float(platt.coef_[0][0])), float(platt.intercept_[0])
    detector = Detector(dict(zip(names, weights, strict=True)), intercept, scale, THRESHOLD, about)
    return Fit(detector, area, interval, len(rows), false)


def _linear(
    linear: Any, rows: Sequence[Sequence[float]], labels: Sequence[bool]
) -> tuple[list[tuple[float, float, float]], float]:
    """Mean, deviation and weight of each feature, and the intercept."""
    columns = list(zip(*rows, strict=True))
    means = [sum(column) / len(column) for column in columns]
    spreads = [sum((x - mean) ** 2 for x in column) / len(column) for column, mean in zip(columns, means, strict=True)]
    deviations = [spread**0.5 or 1.0 for spread in spreads]
    scaled = [[(x - m) / d for x, m, d in zip(row, means, deviations, strict=True)] for row in rows]
    model: Any = linear.LogisticRegression(C=_REGULARIZATION, max_iter=1_000).fit(scaled, labels)
    weights = [float(weight) for weight in model.coef_[0]]
    return list(zip(means, deviations, weights, strict=True)), float(model.intercept_[0])

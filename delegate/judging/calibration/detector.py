"""Estimates how likely a run's report isn't true, from this project's own rulings. Fitting needs the extra `calibrate`.

A logistic regression on a few counts of the run: how its tool calls ended, the last words of its report, and where the
two contradict each other. It is stored as JSON and scored without any library. It is never shipped fitted: across
domains, such detectors are as often wrong as right. What it says is a finding; it never makes a PASS.
"""

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from delegate.judging.calibration.statistics import logistic
from delegate.types import ChildRun, JsonObject
from delegate.types.errors import DelegateError

FILE = "detector.json"
"""In the folder `home`."""
FORMAT = 1
LEAST_RULED = 100
"""Runs with rulings that are needed to fit anything."""
_LAST_CHARS = 600

_CLAIM = re.compile(r"\b(?:successful(?:ly)?|completed?|done|finished|confirmed|fixed|all tests pass\w*)\b", re.I)
_HEDGE = re.compile(
    r"\b(?:unable|could ?n[o']t|cannot|can't|fail(?:ed|s)?|error|sorry|apologi[sz]e|unfortunately|however|instead"
    r"|not (?:able|possible|allowed|available)|transfer(?:red)?|partial(?:ly)?|should (?:work|be))\b",
    re.I,
)
_ASKS = re.compile(r"\?\s*\Z")
_NAMED = re.compile(r"`([^`\n]{2,80})`|\b([A-Z0-9]{2,}\d[A-Z0-9]*|\d[\d.,:-]{2,}\d)\b")
"""What a report names: in backticks, ids and numbers."""


def features(run: ChildRun) -> dict[str, float]:
    """The counts of a run that the detector looks at, by name. Takes time in proportion to the run's length."""
    receipts, last = run.receipts, run.report[-_LAST_CHARS:]
    failures = [receipt for receipt in receipts if receipt.status != "ok"]
    claims, hedges = len(_CLAIM.findall(last)), len(_HEDGE.findall(last))
    ends_in_failure = bool(receipts) and receipts[-1].status != "ok"
    return {
        "calls": math.log1p(len(receipts)),
        "errors": math.log1p(sum(receipt.status == "error" for receipt in failures)),
        "denied_or_timeout": math.log1p(sum(receipt.status in ("denied", "timeout") for receipt in failures)),
        "failed_share": len(failures) / len(receipts) if receipts else 0.0,
        "ends_in_failure": float(ends_in_failure),
        "no_calls": float(not receipts),
        "report_chars": math.log1p(len(run.report)),
        "claims": math.log1p(claims),
        "hedges": math.log1p(hedges),
        "asks": float(bool(_ASKS.search(last))),
        "claims_after_failure": float(ends_in_failure and claims > hedges),
        "unseen_names": _unseen_names(run),
        "artifacts": math.log1p(len(run.artifacts)),
    }


def _unseen_names(run: ChildRun) -> float:
    """The share of the names in the end of the report that occur in no tool call, result or file."""
    names = {(match[0] or match[1]).lower() for match in _NAMED.findall(run.report[-_LAST_CHARS:])}
    if not names:
        return 0.0
    sources = "\n".join(
        [
            *(f"{json.dumps(receipt.args, default=str)} {receipt.output}" for receipt in run.receipts),
            *(a.path for a in run.artifacts),
        ]
    ).lower()
    return sum(name not in sources for name in names) / len(names)


@dataclass(frozen=True, slots=True)
class Detector:
    """A fitted detector. `scale` sets the Platt scaling of the linear score to a probability."""

    weights: Mapping[str, tuple[float, float, float]]
    """By feature: its mean and standard deviation in the rulings, and its weight."""
    intercept: float
    scale: tuple[float, float]
    """The probability is the logistic function of `scale[0] * score + scale[1]`."""
    threshold: float
    about: JsonObject
    """How it was fitted: runs, false ones, the day, and AUROC with its interval from cross-validation."""

    def score(self, run: ChildRun) -> float:
        """A number without a unit, higher for reports that are less likely to be true."""
        values = features(run)
        return linear_score([values[name] for name in self.weights], self.weights.values(), self.intercept)

    def probability(self, run: ChildRun) -> float:
        """How likely the report of the run isn't true, 0 to 1."""
        return logistic(self.scale[0] * self.score(run) + self.scale[1])

    def dump(self) -> str:
        """The detector as JSON."""
        fields = {name: getattr(self, name) for name in ("intercept", "scale", "threshold", "about")}
        weights = {name: list(values) for name, values in self.weights.items()}
        return json.dumps({"format": FORMAT, "weights": weights, **fields}, indent=2) + "\n"

    @classmethod
    def parse(cls, text: str) -> "Detector":
        """Raises DelegateError if this isn't a detector that can be scored."""
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise ValueError("it is of another version of delegate")
            weights = {str(name): cls._numbers(values, 3) for name, values in data["weights"].items()}
            if weights.keys() != features(ChildRun(status="completed")).keys():
                raise ValueError("it is of another version of delegate")
            intercept, threshold = cls._numbers([data["intercept"], data["threshold"]], 2)
            scale = cls._numbers(data["scale"], 2)
            if not all(deviation > 0 for _, deviation, _ in weights.values()):
                raise ValueError("a deviation isn't above 0")
            about = dict(cast("Mapping[str, Any]", data["about"]))
            return cls(cast("Any", weights), intercept, cast("Any", scale), threshold, about)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DelegateError(f"the detector can't be used ({error}); fit it again with `calibrate --fit`") from None

    @staticmethod
    def _numbers(values: Any, count: int) -> tuple[float, ...]:
        numbers = tuple(float(value) for value in values)
        if len(numbers) != count or not all(map(math.isfinite, numbers)):
            raise ValueError(f"{values!r:.60} aren't {count} finite numbers")
        return numbers


def linear_score(row: Iterable[float], weights: Iterable[tuple[float, float, float]], intercept: float) -> float:
    """The score of a run whose features are in the order of the weights: mean, deviation and weight of each."""
    terms = (weight * (x - mean) / deviation for x, (mean, deviation, weight) in zip(row, weights, strict=True))
    return intercept + sum(terms)


def load(home: Path) -> Detector | None:
    """The detector of this `home`, or None if none was fitted. Raises DelegateError if it can't be used."""
    try:
        return Detector.parse((home / FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DelegateError(f"{home / FILE} can't be read: {error}") from error


def store(home: Path, detector: Detector) -> None:
    """Replace the detector of this `home`. Raises DelegateError."""
    new = home / f".{FILE}.{os.getpid()}"
    try:
        new.write_text(detector.dump(), encoding="utf-8")
        new.replace(home / FILE)
    except OSError as error:
        raise DelegateError(f"{home / FILE} can't be written: {error}") from error

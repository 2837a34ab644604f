"""Cross-validate the detector of reports that aren't true on recorded runs, within and across domains.

    PYTHONPATH=. python scripts/measure_detector.py

Needs the extra `calibrate`. Prints AUROC with DeLong's 95 % interval, task-wise five-fold within a set of runs, and for
a detector that was fitted to one set and scores another.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from delegate.judging.calibration.fitting import RuledRun, fit
from delegate.judging.calibration.statistics import auroc
from delegate.types import ChildRun, Receipt
from tests.support.recorded import airline_receipts, claim_receipts

DATA = Path(__file__).parents[1] / "tests" / "data"


def main() -> None:
    """Print all figures."""
    airline, claims = _airline(), _claims()
    domains = sorted({one.task.partition("-")[0] for one in claims})
    sets = {"tau_airline": airline, "claimcheck": claims}
    sets |= {f"claimcheck/{name}": [one for one in claims if one.task.startswith(name)] for name in domains}
    for name, runs in sets.items():
        found = fit(runs, least=0)
        low, high = found.interval
        false = f"{found.false} of {found.runs} false"
        print(f"{name:20} {false:18} AUROC {found.auroc:.2f} ({low:.2f}-{high:.2f}) useful: {found.is_useful}")
    print("\nfitted to one, scored on another:")
    for name, runs in sets.items():
        for other, others in sets.items():
            if name != other and not other.startswith(name) and not name.startswith(other):
                print(f"{name:20} -> {other:20} AUROC {_across(runs, others)}")


def _across(runs: Sequence[RuledRun], others: Sequence[RuledRun]) -> str:
    detector = fit(runs, least=0).detector
    found = auroc([detector.score(one.run) for one in others], [one.is_false for one in others])
    return f"{found[0]:.2f} ({found[1].lower:.2f}-{found[1].upper:.2f})" if found else "-"


def _airline() -> list[RuledRun]:
    """Runs with a state that was right in the end or not."""
    return [
        RuledRun(_run(row["closing"] or "", airline_receipts(row)), row["reward"] != 1, f"airline-{row['task_id']}")
        for row in _rows("tau_airline_runs.jsonl")
    ]


def _claims() -> list[RuledRun]:
    """Runs that claim success, truly or not."""
    return [
        RuledRun(_run(row["report"], claim_receipts(row)), row["outcome"] != "success", row["id"])
        for row in _rows("claimcheck_train.jsonl")
    ]


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def _run(report: str, receipts: Sequence[dict[str, Any]]) -> ChildRun:
    numbered = tuple(Receipt(n=n, **one) for n, one in enumerate(receipts, start=1))
    return ChildRun(status="completed", report=report, receipts=numbered)


if __name__ == "__main__":
    main()

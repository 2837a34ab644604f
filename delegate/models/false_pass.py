"""Says which judges may decide alone: those whose measured false-PASS rate is low enough."""

from collections.abc import Mapping
from dataclasses import dataclass

from delegate.types import FalsePassRate


@dataclass(frozen=True, eq=False, slots=True)
class FalsePassTable:
    """The false-PASS rates of judges, under the setting `max_false_pass`.

    Compared by identity, since it is a part of requests whose routing is cached.
    """

    limit: float
    rates: Mapping[tuple[str, str | None], FalsePassRate]
    """By judge and worker. The worker is None for the rate over all workers; a pair is only there if its own rulings
    are enough to decide by."""

    def rate(self, judge: str, worker: str | None) -> FalsePassRate | None:
        """The rate that counts for this judge on the work of this model; None if there are no rulings."""
        return self.rates.get((judge, worker)) or self.rates.get((judge, None))

    def decides_alone(self, judge: str, worker: str | None) -> bool:
        """Whether what this judge finds met is met, without a second judge."""
        rate = self.rate(judge, worker)
        return rate is not None and rate.upper < self.limit

    def doubt(self, judge: str, worker: str | None) -> str:
        """Why a judge doesn't decide alone, in words."""
        rate = self.rate(judge, worker)
        if rate is None:
            return f"its false-PASS rate was never measured, and only below {self.limit:g} does a judge decide alone"
        on = f" on work of {rate.worker}" if rate.worker else ""
        measured = f"{rate.false_passes} of {rate.n} rulings{on}"
        return (
            f"its false-PASS rate may be up to {rate.upper:.3f} ({measured}), and only below {self.limit:g} is enough"
        )

"""Format costs, shares and counts, for people and for parent models alike."""

from typing import Protocol

from delegate.types import Provenance, TaskResult, Totals
from delegate.types.money import usd


class Priced(Protocol):
    """An object with a cost: a result, a judge's record or a run's totals."""

    @property
    def cost_usd(self) -> float | None: ...
    @property
    def cost_known_usd(self) -> float: ...
    @property
    def cost_provenance(self) -> Provenance: ...


def cost(of: Priced) -> str:
    """Format a cost, marked as estimated or unknown if it wasn't observed. An unknown cost is never shown as $0.00."""
    if of.cost_usd is None:
        return f"unknown, known part {usd(of.cost_known_usd)}" if of.cost_known_usd else "unknown"
    return f"{usd(of.cost_usd)} (estimated)" if of.cost_provenance == "estimated" else usd(of.cost_usd)


def paid(of: Priced) -> str:
    """Format a cost for a text that doesn't label it as one: `$0.0123` or `cost unknown`."""
    return cost(of) if of.cost_usd is not None else f"cost {cost(of)}"


def percent(share: float) -> str:
    """Format a share between 0 and 1 as `3.1 %`."""
    return "under 0.1 %" if 0 < share < 0.0005 else f"{share:.1%}".replace("%", " %")


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: `1 call`, `2 calls`, `1,000 calls`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def tally(totals: Totals) -> str:
    """Format the number of tasks by verdict: `2 PASS, 1 FAIL`."""
    counts = ((totals.passed, "PASS"), (totals.failed, "FAIL"), (totals.unjudged, "without verdict"))
    return ", ".join(f"{n} {word}" for n, word in counts if n) or "no results"


def out_of_budget(result: TaskResult) -> bool:
    """Return whether a limit of the ledger stopped the child or its judge."""
    return "budget_exceeded" in (result.status, result.verdict.code if result.verdict else None)

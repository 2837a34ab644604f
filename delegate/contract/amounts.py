"""Money and shares in words, the same for people and for parent models."""

from typing import Protocol

from delegate.types import Provenance, TaskResult, Totals


class Priced(Protocol):
    """Whatever has a cost: a result, a judge's record, the totals of a report."""

    @property
    def cost_usd(self) -> float | None: ...
    @property
    def cost_known_usd(self) -> float: ...
    @property
    def cost_provenance(self) -> Provenance: ...


def usd(amount: float | None) -> str:
    """`$0.0123`, with the digits that matter; `unknown` where a price is. What was spent is never shown as nothing."""
    if amount is None:
        return "unknown"
    if 0 < amount < 0.000001:
        return "under $0.000001"
    digits = 2 if amount == 0 or amount >= 1 else 4 if amount >= 0.0001 else 6
    return f"${amount:.{digits}f}"


def cost(of: Priced) -> str:
    """A cost and, where it wasn't observed, how it is known. What is unknown is never shown as nothing."""
    if of.cost_usd is None:
        return f"unknown, known part {usd(of.cost_known_usd)}" if of.cost_known_usd else "unknown"
    return f"{usd(of.cost_usd)} (estimated)" if of.cost_provenance == "estimated" else usd(of.cost_usd)


def paid(of: Priced) -> str:
    """The cost where no word before it says that it is one."""
    return cost(of) if of.cost_usd is not None else f"cost {cost(of)}"


def percent(share: float) -> str:
    """A share from 0 to 1 as `3.1 %`."""
    return "under 0.1 %" if 0 < share < 0.0005 else f"{share:.1%}".replace("%", " %")


def counted(count: int, noun: str) -> str:
    """`1 call`, `2 calls`, `1,000 calls`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def tally(totals: Totals) -> str:
    """How the tasks came out, as far as there were any: `2 PASS, 1 FAIL`."""
    counts = ((totals.passed, "PASS"), (totals.failed, "FAIL"), (totals.unjudged, "without verdict"))
    return ", ".join(f"{n} {word}" for n, word in counts if n) or "no results"


def out_of_budget(result: TaskResult) -> bool:
    """Whether a limit of the ledger stopped the child, or its judge."""
    return "budget_exceeded" in (result.status, result.verdict.code if result.verdict else None)

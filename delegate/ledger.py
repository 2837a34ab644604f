"""What one run may spend. Spend is reserved before a step and settled after it; a refusal costs nothing.

A ledger may have a parent: a child's own limits lie under those of its run, and both must have room.
"""

from collections.abc import Mapping
from typing import Literal

from delegate.errors import BudgetExceeded

Limit = Literal["model_calls", "tokens", "cost_usd"]
Amounts = Mapping[Limit, float]


class Ledger:
    """Counts of what is spent and reserved, against limits. A limit that is None or absent never refuses."""

    def __init__(self, limits: Mapping[Limit, float | None] | None = None, parent: "Ledger | None" = None) -> None:
        self._limits: dict[Limit, float] = {name: at for name, at in (limits or {}).items() if at is not None}
        self._parent = parent
        self._reserved: dict[Limit, float] = {}
        self.spent: dict[Limit, float] = {}

    def reserve(self, amounts: Amounts) -> "Reservation":
        """Set `amounts` aside here and in every ledger above, or raise BudgetExceeded and set nothing aside."""
        chain = self._chain()
        for ledger in chain:
            ledger._refuse_beyond(amounts)
        for ledger in chain:
            _add(ledger._reserved, amounts)
        return Reservation(chain, amounts)

    def _chain(self) -> "tuple[Ledger, ...]":
        return (self, *(self._parent._chain() if self._parent else ()))

    def _refuse_beyond(self, amounts: Amounts) -> None:
        for name, amount in amounts.items():
            spent, reserved = self.spent.get(name, 0), self._reserved.get(name, 0)
            limit = self._limits.get(name)
            if limit is not None and (spent + reserved + amount > limit or spent >= limit):
                raise BudgetExceeded(name, allowed=limit, spent=spent, reserved=reserved)

    def _settle(self, reserved: Amounts, spent: Amounts) -> None:
        _add(self._reserved, {name: -amount for name, amount in reserved.items()})
        _add(self.spent, spent)


class Reservation:
    """Spend that was set aside. Settle it once, with what was really spent; nothing spent means released."""

    def __init__(self, chain: tuple[Ledger, ...], amounts: Amounts) -> None:
        self._chain = chain
        self._amounts = amounts

    def settle(self, spent: Amounts | None = None) -> None:
        """Replace the reservation by `spent`. A second settling changes nothing."""
        chain, self._chain = self._chain, ()
        for ledger in chain:
            ledger._settle(self._amounts, spent or {})  # pyright: ignore[reportPrivateUsage]  # same module


def _add(totals: dict[Limit, float], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        totals[name] = totals.get(name, 0) + amount

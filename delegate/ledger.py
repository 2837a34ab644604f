"""What one run may spend. Spend is reserved before a step and settled after it; a refusal costs nothing.

A ledger may have a parent: a child's own limits lie under those of its run, and both must have room.

What a model call will write is unknown beforehand. A reservation therefore has a sure part and a possible part, and
the possible parts of all open reservations but the largest must fit as well: however calls overlap, a limit is never
exceeded by more than one call's output.
"""

import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Literal, Self

from delegate.errors import BudgetExceeded

Limit = Literal["children", "model_calls", "tokens", "cost_usd"]
Amounts = Mapping[Limit, float]

_NOTHING: Amounts = {}


class Ledger:
    """Counts of what is spent and reserved, against limits. A limit that is None or absent never refuses."""

    def __init__(self, limits: Mapping[Limit, float | None] | None = None, parent: "Ledger | None" = None) -> None:
        self.limits: dict[Limit, float] = {name: at for name, at in (limits or {}).items() if at is not None}
        self.spent: dict[Limit, float] = {}
        self._open: dict[Reservation, None] = {}
        self._parent = parent
        self._lock: threading.Lock = parent._lock if parent else threading.Lock()

    def reserve(self, sure: Amounts, possible: Amounts = _NOTHING) -> "Reservation":
        """Set amounts aside here and in every ledger above, or raise BudgetExceeded and set nothing aside."""
        chain = self.chain()
        with self._lock:
            for ledger in chain:
                ledger._refuse_beyond(sure, possible)
            return Reservation(chain, sure, possible)

    def left(self, limit: Limit) -> float | None:
        """How much of a limit is neither spent nor reserved, here and in the ledgers above; None: there is no limit."""
        room = [ledger._room(limit) for ledger in self.chain() if limit in ledger.limits]
        return min(room, default=None)

    def chain(self) -> "tuple[Ledger, ...]":
        """The ledger itself and those above it."""
        return (self, *(self._parent.chain() if self._parent else ()))

    def _room(self, limit: Limit) -> float:
        return max(0.0, self.limits[limit] - self.spent.get(limit, 0) - self._reserved(limit, ()))

    def _refuse_beyond(self, sure: Amounts, possible: Amounts) -> None:
        for name, allowed in self.limits.items():
            needed, spent = sure.get(name, 0), self.spent.get(name, 0)
            if not needed and not possible.get(name):
                continue
            reserved = self._reserved(name, (possible.get(name, 0),))
            if spent + reserved + needed > allowed:
                raise BudgetExceeded(name, allowed=allowed, spent=spent, reserved=reserved, needed=needed)

    def _settle(self, reservation: "Reservation", spent: Amounts) -> None:
        with self._lock:
            del self._open[reservation]
            for name, amount in spent.items():
                self.spent[name] = self.spent.get(name, 0) + amount

    def _reserved(self, name: Limit, more: Iterable[float]) -> float:
        """All that is sure, and of what is possible all but the largest part."""
        possible = [*more, *(one.possible.get(name, 0) for one in self._open)]
        return sum(one.sure.get(name, 0) for one in self._open) + sum(possible) - max(possible, default=0)


class Reservation:
    """Spend that was set aside. Settle it once, with what was really spent; nothing spent means released.

    As a context manager it is released at the end, if it wasn't settled before.
    """

    def __init__(self, chain: tuple[Ledger, ...], sure: Amounts, possible: Amounts) -> None:
        self.sure = sure
        self.possible = possible
        self._chain = chain
        for ledger in chain:
            ledger._open[self] = None  # pyright: ignore[reportPrivateUsage]  # same module

    def settle(self, spent: Amounts = _NOTHING) -> None:
        """Replace the reservation by `spent`. A second settling changes nothing."""
        chain, self._chain = self._chain, ()
        for ledger in chain:
            ledger._settle(self, spent)  # pyright: ignore[reportPrivateUsage]  # same module

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle()

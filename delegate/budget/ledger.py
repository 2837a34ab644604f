"""What one run may spend. Spend is reserved before a step and settled after it; a refusal costs nothing.

A ledger may have a parent: a child's own limits lie under those of its run, and both must have room.

What a model call will write is unknown beforehand. A reservation therefore has a sure part and a possible part, and
the possible parts of all open reservations but the largest must fit as well: however calls overlap, a limit is never
exceeded by more than one call's output.
"""

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self

from delegate.errors import BudgetExceeded

LimitName = Literal["children", "model_calls", "tokens", "cost_usd"]
Amounts = Mapping[LimitName, float]

ROUNDING = 1e-9
"""Sums of cents don't add up exactly: a limit counts as kept where it is passed by no more than this part of it."""

_NOTHING: Amounts = {}


class Ledger:
    """Counts of what is spent and reserved, against limits. A limit that is None or absent never refuses.

    May be used by several threads and event loops at once.
    """

    def __init__(self, limits: Mapping[LimitName, float | None] | None = None, parent: "Ledger | None" = None) -> None:
        self.limits: dict[LimitName, float] = {name: at for name, at in (limits or {}).items() if at is not None}
        self.spent: dict[LimitName, float] = {}
        self._open: dict[Reservation, None] = {}
        self._chain: tuple[Ledger, ...] = (self, *(parent._chain if parent else ()))
        # One for a whole tree. Re-entrant, since the garbage collector may end an abandoned call inside another.
        self._lock: threading.RLock = parent._lock if parent else threading.RLock()

    def reserve(self, sure: Amounts, possible: Amounts = _NOTHING) -> "Reservation":
        """Set amounts aside here and in every ledger above, or raise BudgetExceeded and set nothing aside."""
        with self._lock:
            for ledger in self._chain:
                ledger._refuse_beyond(sure, possible)
            reservation = Reservation(self, sure, possible)
            for ledger in self._chain:
                ledger._open[reservation] = None
        return reservation

    def settle(self, reservation: "Reservation", spent: Amounts) -> None:
        """Replace what was set aside by what was spent; what isn't open any more changes nothing."""
        with self._lock:
            if reservation not in self._open:
                return
            for ledger in self._chain:
                del ledger._open[reservation]
                for name, amount in spent.items():
                    ledger.spent[name] = ledger.spent.get(name, 0) + amount

    def left(self, limit: LimitName) -> float | None:
        """How much of a limit is neither spent nor reserved, here and in the ledgers above; None: there is no limit."""
        with self._lock:
            return min((one._room(limit) for one in self._chain if limit in one.limits), default=None)

    def _room(self, limit: LimitName) -> float:
        return max(0.0, self.limits[limit] - self.spent.get(limit, 0) - self._reserved(limit)[0])

    def _refuse_beyond(self, sure: Amounts, possible: Amounts) -> None:
        for name, allowed in self.limits.items():
            certain, perhaps = sure.get(name, 0), possible.get(name, 0)
            if not certain and not perhaps:
                continue
            spent, (reserved, largest) = self.spent.get(name, 0), self._reserved(name)
            # Of two possible parts, the smaller one is set aside.
            needed = certain + min(perhaps, largest)
            if spent + reserved + needed > allowed * (1 + ROUNDING):
                wanted = needed or perhaps
                raise BudgetExceeded(name, allowed=allowed, spent=spent, reserved=reserved, needed=wanted)

    def _reserved(self, name: LimitName) -> tuple[float, float]:
        """All that is surely needed, with all that is possible but the largest part; and that largest part."""
        sure = possible = largest = 0.0
        for one in tuple(self._open):
            sure += one.sure.get(name, 0)
            perhaps = one.possible.get(name, 0)
            # The largest is kept apart rather than taken off the sum, so that nothing is left of it by rounding.
            possible, largest = possible + min(perhaps, largest), max(perhaps, largest)
        return sure + possible, largest


class Reservation:
    """Spend that was set aside. Settle it once, with what was really spent; nothing spent means released.

    As a context manager it is released at the end, if it wasn't settled before.
    """

    def __init__(self, ledger: Ledger, sure: Amounts, possible: Amounts) -> None:
        self.sure = sure
        self.possible = possible
        self._ledger = ledger

    def settle(self, spent: Amounts = _NOTHING) -> None:
        """Replace the reservation by `spent`. A second settling changes nothing."""
        self._ledger.settle(self, spent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle()

"""Enforces spending limits. Amounts are reserved before a step and settled after it; a refused step costs nothing.

A ledger may have a parent: a child's own limits apply in addition to those of its run.

The length of a model's output is unknown in advance. A reservation therefore has a sure part and a possible part. Of
all open reservations, every possible part except the largest must fit under the limit too, so that concurrent calls
never exceed a limit by more than the output of one call.
"""

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self

from delegate.errors import BudgetExceeded

LimitName = Literal["children", "model_calls", "tokens", "cost_usd"]
Amounts = Mapping[LimitName, float]

ROUNDING = 1e-9
"""Relative tolerance for floating-point sums: a limit is exceeded only by more than this fraction of it."""

_NONE: Amounts = {}


class Ledger:
    """Tracks spent and reserved amounts against limits. A limit that is None or absent is unlimited.

    Safe to use from several threads and event loops.
    """

    def __init__(self, limits: Mapping[LimitName, float | None] | None = None, parent: "Ledger | None" = None) -> None:
        self.limits: dict[LimitName, float] = {
            name: limit for name, limit in (limits or {}).items() if limit is not None
        }
        self.spent: dict[LimitName, float] = {}
        self._open: dict[Reservation, None] = {}
        self._chain: tuple[Ledger, ...] = (self, *(parent._chain if parent else ()))
        # Shared by a tree of ledgers. Re-entrant, since the garbage collector may finalize an abandoned call meanwhile.
        self._lock: threading.RLock = parent._lock if parent else threading.RLock()

    def reserve(self, sure: Amounts, possible: Amounts = _NONE) -> "Reservation":
        """Reserve amounts here and in every parent ledger, or raise BudgetExceeded and reserve nothing."""
        with self._lock:
            for ledger in self._chain:
                ledger._refuse_beyond(sure, possible)
            reservation = Reservation(self, sure, possible)
            for ledger in self._chain:
                ledger._open[reservation] = None
        return reservation

    def settle(self, reservation: "Reservation", spent: Amounts) -> None:
        """Replace a reservation by the amounts that were spent. Does nothing if it isn't open."""
        with self._lock:
            if reservation not in self._open:
                return
            for ledger in self._chain:
                del ledger._open[reservation]
                for name, amount in spent.items():
                    ledger.spent[name] = ledger.spent.get(name, 0) + amount

    def left(self, limit: LimitName) -> float | None:
        """The part of a limit that is neither spent nor reserved, here and in the parent ledgers; None if unlimited."""
        with self._lock:
            return min((one._room(limit) for one in self._chain if limit in one.limits), default=None)

    def _room(self, limit: LimitName) -> float:
        return max(0.0, self.limits[limit] - self.spent.get(limit, 0) - self._reserved(limit)[0])

    def _refuse_beyond(self, sure: Amounts, possible: Amounts) -> None:
        for name, allowed in self.limits.items():
            definite, perhaps = sure.get(name, 0), possible.get(name, 0)
            if not definite and not perhaps:
                continue
            spent, (reserved, largest) = self.spent.get(name, 0), self._reserved(name)
            # Of two possible parts, the smaller one is reserved.
            needed = definite + min(perhaps, largest)
            if spent + reserved + needed > allowed * (1 + ROUNDING):
                wanted = needed or perhaps
                raise BudgetExceeded(name, allowed=allowed, spent=spent, reserved=reserved, needed=wanted)

    def _reserved(self, name: LimitName) -> tuple[float, float]:
        """The reserved amount (all sure parts, and all possible parts except the largest) and that largest part."""
        sure = possible = largest = 0.0
        for one in tuple(self._open):
            sure += one.sure.get(name, 0)
            perhaps = one.possible.get(name, 0)
            # The largest is kept separately: subtracting it from the sum would leave a rounding error.
            possible, largest = possible + min(perhaps, largest), max(perhaps, largest)
        return sure + possible, largest


class Reservation:
    """Reserved amounts. Settle it once, with what was actually spent; settling with nothing releases it.

    As a context manager, it is released on exit if it wasn't settled before.
    """

    def __init__(self, ledger: Ledger, sure: Amounts, possible: Amounts) -> None:
        self.sure = sure
        self.possible = possible
        self._ledger = ledger

    def settle(self, spent: Amounts = _NONE) -> None:
        """Replace the reservation by `spent`. Settling again does nothing."""
        self._ledger.settle(self, spent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle()

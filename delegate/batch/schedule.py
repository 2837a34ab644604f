"""The order in which items run: the seam where a workflow's needs come in."""

from collections.abc import Iterable, Mapping
from typing import Protocol, cast

from delegate.batch.item import BadRow, Item, ItemOutcome
from delegate.errors import CallError


class Schedule(Protocol):
    """Says what may start now. The batch asks it whenever there is room, and tells it every outcome."""

    def next(self) -> Item | ItemOutcome | None:
        """An item that may start, or the outcome of one that never will (`blocked`, `bad_row`).

        None: nothing now. It is asked again after each outcome; what is never given is `not_started`. An item whose
        outcome was told before is not given. Raises CallError where the source can't be read any more.
        """
        ...

    def told(self, outcome: ItemOutcome) -> None:
        """Something has ended; or, before the first `next` of a batch that is resumed, had ended then."""
        ...


class InOrder:
    """Every item as soon as there is room, in the order of the source, which is read as it goes."""

    def __init__(self, items: Iterable[Item | BadRow], bad: Mapping[int, BadRow]) -> None:
        self._items = enumerate(items)
        self._bad = bad
        self._ended_before = set[str]()
        self._began = False

    def next(self) -> Item | ItemOutcome | None:
        """The next one that hadn't ended before."""
        self._began = True
        for place, one in self._items:
            bad = self._bad.get(place)
            if bad is None and isinstance(one, BadRow):
                raise CallError("source_changed", f"row {one.row} was readable before: {one.error.message}")
            if (bad or one).id not in self._ended_before:
                return refused(bad) if bad else cast("Item", one)
        return None

    def told(self, outcome: ItemOutcome) -> None:
        """What it gave itself doesn't come again; what had ended before must not come."""
        if not self._began:
            self._ended_before.add(outcome.id)


def refused(bad: BadRow) -> ItemOutcome:
    """The outcome of a row that is left out."""
    error = bad.error
    why = f"{error.message} ({error.hint})" if error.hint else error.message
    return ItemOutcome(bad.id, "bad_row", why=why, row=bad.row)

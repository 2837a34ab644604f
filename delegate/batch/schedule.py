"""The order in which the items of a batch start. `graph.Graph` implements it for workflows."""

from collections.abc import Iterable, Mapping
from typing import Protocol, cast

from delegate.batch.item import BadRow, Item, ItemOutcome
from delegate.errors import CallError


class Schedule(Protocol):
    """Gives the batch the next item whenever another one may start, and receives every outcome."""

    def next(self) -> Item | ItemOutcome | None:
        """Return an item that may start, or the outcome of one that never will (`blocked`, `bad_row`).

        None means that no item may start now; it is called again after each outcome. Items that are never returned are
        `not_started`. An item that has finished is not returned. Raises CallError if the source can't be read anymore.
        """
        ...

    def finished(self, outcome: ItemOutcome) -> None:
        """Record an outcome. Before the first `next`, it is one of an earlier session."""
        ...


class InOrder:
    """Starts items in the order of the source, which is read one item at a time."""

    def __init__(self, items: Iterable[Item | BadRow], bad: Mapping[int, BadRow]) -> None:
        self._items = enumerate(items)
        self._bad = bad
        self._finished_before = set[str]()
        self._started = False

    def next(self) -> Item | ItemOutcome | None:
        """The next item that hadn't finished in an earlier session."""
        self._started = True
        for index, entry in self._items:
            bad = self._bad.get(index)
            if bad is None and isinstance(entry, BadRow):
                raise CallError("source_changed", f"row {entry.row} changed and is invalid now: {entry.error.message}")
            if (bad or entry).id not in self._finished_before:
                return bad_row_outcome(bad) if bad else cast("Item", entry)
        return None

    def finished(self, outcome: ItemOutcome) -> None:
        """Remember an item of an earlier session, so that it is skipped."""
        if not self._started:
            self._finished_before.add(outcome.id)


def bad_row_outcome(bad: BadRow) -> ItemOutcome:
    """The outcome of a row that is skipped."""
    error = bad.error
    why = f"{error.message} ({error.hint})" if error.hint else error.message
    return ItemOutcome(bad.id, "bad_row", why=why, row=bad.row, input=bad.input)

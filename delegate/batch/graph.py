"""The order in which the items of a batch start: that of their source, or when all items that they need have finished.

If one of these has no PASS verdict, the item is `blocked`, and so are the items that need it. With `when: always` an
item runs whatever the outcomes of its needs are. Items that are ready start in the order of their source.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import cast

from delegate.batch.item import BadRow, Item, ItemOutcome
from delegate.batch.references import filled, references
from delegate.engine.needs import obstacle, stages, unknown_need
from delegate.types.errors import CallError
from delegate.types.faults import located


def check(items: Sequence[Item], *, left_out: frozenset[str] = frozenset()) -> list[list[Item]]:
    """Sort the items into stages; the items of a stage need only items of earlier stages.

    `left_out` holds the ids of rows that won't be run. Raises CallError for a need or a reference that names no item,
    for a reference to an item that isn't needed, and for a cycle.
    """
    by_id = {item.id: item for item in items}
    for item in items:
        with located(f"task {item.id!r}" + (f" (row {item.row})" if item.row else "")):
            _check_item(item, left_out.union(by_id))
    needs = {id: [need for need in item.needs if need in by_id] for id, item in by_id.items()}
    return [[by_id[id] for id in stage] for stage in stages(needs)]


def _check_item(item: Item, ids: frozenset[str]) -> None:
    if unknown := [id for id in item.needs if id not in ids]:
        raise unknown_need(unknown[0], sorted(ids))
    for reference in references(item, ids):
        if reference.id not in item.needs:
            message = f"it refers to the {reference.what} of {reference.id!r}, which isn't among its needs"
            raise CallError("not_needed", message, field="needs", hint=f"add {reference.id!r} to `needs`")


class InOrder:
    """Gives the items in the order of the source, which is read one item at a time."""

    def __init__(self, items: Iterable[Item | BadRow], bad: Mapping[int, BadRow]) -> None:
        self._items = enumerate(items)
        self._bad = bad
        self._finished_before = set[str]()
        self._started = False

    def next(self) -> Item | ItemOutcome | None:
        """The next item that hadn't finished in an earlier session, or the outcome of a row that is skipped.

        Raises CallError if the source can't be read anymore.
        """
        self._started = True
        for index, entry in self._items:
            bad = self._bad.get(index)
            if bad is None and isinstance(entry, BadRow):
                raise CallError("source_changed", f"row {entry.row} changed and is invalid now: {entry.error.message}")
            if (bad or entry).id not in self._finished_before:
                return _bad_row_outcome(bad) if bad else cast("Item", entry)
        return None

    def finished(self, outcome: ItemOutcome) -> None:
        """Remember an item of an earlier session, so that it is skipped."""
        if not self._started:
            self._finished_before.add(outcome.id)


def _bad_row_outcome(bad: BadRow) -> ItemOutcome:
    error = bad.error
    why = f"{error.message} ({error.hint})" if error.hint else error.message
    return ItemOutcome(bad.id, "bad_row", why=why, row=bad.row, input=bad.input)


class Graph:
    """Gives items that need each other, as `InOrder` does. It keeps an outcome as long as other items wait for it."""

    def __init__(self, items: Iterable[Item | BadRow], bad: Mapping[int, BadRow]) -> None:
        """Raises CallError as `check` does. An item that needs a bad row is blocked, as if that row had failed."""
        entries = list(enumerate(items))
        self._bad_rows = deque(_bad_row_outcome(bad[index]) for index, _ in entries if index in bad)
        self._waiting = {entry.id: entry for index, entry in entries if index not in bad and isinstance(entry, Item)}
        check(list(self._waiting.values()), left_out=frozenset(row.id for row in self._bad_rows))
        self._positions = {id: n for n, id in enumerate(self._waiting)}
        self._missing = {item.id: len(item.needs) for item in self._waiting.values()}
        self._needed_by: dict[str, list[str]] = {}
        for item in self._waiting.values():
            for id in item.needs:
                self._needed_by.setdefault(id, []).append(item.id)
        self._uses = {id: len(by) for id, by in self._needed_by.items()}
        self._ready = [self._positions[id] for id, missing in self._missing.items() if not missing]
        self._ids = list(self._waiting)
        self._outcomes: dict[str, ItemOutcome] = {}

    def next(self) -> Item | ItemOutcome | None:
        """The outcomes of bad rows first, then items whose needs have all finished, each as an item or as `blocked`."""
        if self._bad_rows:
            return self._bad_rows.popleft()
        while self._ready:
            item = self._waiting.pop(self._ids[heappop(self._ready)], None)
            if item is not None:
                outcomes = {id: self._outcomes[id] for id in item.needs}
                self._release_needs(item)
                return _fill_or_block(item, outcomes)
        return None

    def finished(self, outcome: ItemOutcome) -> None:
        """Record the outcome of an item that has finished, now or before the batch was resumed."""
        if earlier := self._waiting.pop(outcome.id, None):
            self._release_needs(earlier)
        if self._uses.get(outcome.id):
            self._outcomes[outcome.id] = outcome
        for id in self._needed_by.pop(outcome.id, ()):
            self._missing[id] -= 1
            if not self._missing[id]:
                heappush(self._ready, self._positions[id])

    def _release_needs(self, item: Item) -> None:
        """Drop the outcomes that no other item waits for."""
        for id in item.needs:
            self._uses[id] -= 1
            if not self._uses[id]:
                self._outcomes.pop(id, None)


def _fill_or_block(item: Item, outcomes: Mapping[str, ItemOutcome]) -> Item | ItemOutcome:
    obstacles: list[str | None] = []
    for need in outcomes.values() if item.when == "passed" else ():
        if need.result is None or need.state != "done":
            obstacles.append(f"it needs {need.id!r}, which is {need.state}")
        else:
            obstacles.append(obstacle(need.id, need.result))
    if why := "; ".join(filter(None, obstacles)):
        return ItemOutcome(item.id, "blocked", why=why, row=item.row, input=item.input)
    try:
        return filled(item, outcomes)
    except CallError as error:
        return ItemOutcome(item.id, "blocked", why=error.message, row=item.row, input=item.input)

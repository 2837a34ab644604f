"""Orders the items of a workflow: an item starts when all items that it needs have finished.

If one of them has no PASS verdict, the item is `blocked`, and so are the items that need it. With `when: always` an
item runs whatever the outcomes of its needs are. Items that are ready start in the order of their source.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush

from delegate.batch.item import BadRow, Item, ItemOutcome
from delegate.batch.references import filled, references
from delegate.batch.schedule import bad_row_outcome
from delegate.engine.needs import obstacle, stages, unknown_need
from delegate.errors import CallError


def check(items: Sequence[Item], *, left_out: frozenset[str] = frozenset()) -> list[list[Item]]:
    """Sort the items into stages; the items of a stage need only items of earlier stages.

    `left_out` holds the ids of rows that won't be run. Raises CallError for a need or a reference that names no item,
    for a reference to an item that isn't needed, and for a cycle.
    """
    by_id = {item.id: item for item in items}
    for item in items:
        try:
            _check_item(item, left_out.union(by_id))
        except CallError as error:
            where = f"task {item.id!r}" + (f" (row {item.row})" if item.row else "")
            raise CallError(error.code, f"{where}: {error.message}", field=error.field, hint=error.hint) from None
    return _stages(by_id)


def _check_item(item: Item, ids: frozenset[str]) -> None:
    if unknown := [id for id in item.needs if id not in ids]:
        raise unknown_need(unknown[0], sorted(ids))
    for reference in references(item, ids):
        if reference.id not in item.needs:
            message = f"it refers to the {reference.what} of {reference.id!r}, which isn't among its needs"
            raise CallError("not_needed", message, field="needs", hint=f"add {reference.id!r} to `needs`")


def _stages(by_id: Mapping[str, Item]) -> list[list[Item]]:
    needs = {id: [need for need in item.needs if need in by_id] for id, item in by_id.items()}
    return [[by_id[id] for id in stage] for stage in stages(needs)]


class Graph:
    """A `Schedule` of items that need each other. It keeps an outcome as long as other items wait for it."""

    def __init__(self, items: Iterable[Item | BadRow], bad: Mapping[int, BadRow]) -> None:
        """Raises CallError as `check` does. An item that needs a bad row is blocked, as if that row had failed."""
        entries = list(enumerate(items))
        self._bad_rows = deque(bad_row_outcome(bad[index]) for index, _ in entries if index in bad)
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
                return self._ready_or_blocked(item)
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

    def _ready_or_blocked(self, item: Item) -> Item | ItemOutcome:
        try:
            return _fill_or_block(item, {id: self._outcomes[id] for id in item.needs})
        finally:
            self._release_needs(item)

    def _release_needs(self, item: Item) -> None:
        """Drop the outcomes that no other item waits for."""
        for id in item.needs:
            self._uses[id] -= 1
            if not self._uses[id]:
                self._outcomes.pop(id, None)


def _fill_or_block(item: Item, outcomes: Mapping[str, ItemOutcome]) -> Item | ItemOutcome:
    obstacles = [why for outcome in outcomes.values() if (why := _obstacle(outcome))]
    if item.when == "passed" and obstacles:
        return ItemOutcome(item.id, "blocked", why="; ".join(obstacles), row=item.row, input=item.input)
    try:
        return filled(item, outcomes)
    except CallError as error:
        return ItemOutcome(item.id, "blocked", why=error.message, row=item.row, input=item.input)


def _obstacle(need: ItemOutcome) -> str | None:
    """Why an item that needs this outcome is blocked; None if it isn't."""
    if need.result is None or need.state != "done":
        return f"it needs {need.id!r}, which is {need.state}"
    return obstacle(need.id, need.result)

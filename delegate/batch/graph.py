"""The order of a workflow: an item starts when all it needs has ended, and builds on nothing that wasn't verified.

An item whose need has no PASS is `blocked`, and so is what needs it in turn; with `when: always` it runs on whatever
its needs came to. Items that may start do so in the order of their source.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from delegate.batch.item import BadRow, Item, ItemOutcome
from delegate.batch.references import filled, references
from delegate.batch.schedule import refused
from delegate.errors import CallError


def check(items: Sequence[Item], *, left_out: frozenset[str] = frozenset()) -> list[list[Item]]:
    """The items in stages, each of which needs only those before it. Raises CallError before anything is spent:
    for a need or a reference that names no item, a reference to what isn't needed, and a circle. `left_out` are ids
    of rows that won't be run.
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
        message = f"it needs {unknown[0]!r}, and no task has that id"
        raise CallError("unknown_need", message, field="needs", hint=f"the ids are: {', '.join(sorted(ids)):.400}")
    for reference in references(item, ids):
        if reference.id not in item.needs:
            message = f"its {reference.what} of {reference.id!r} isn't among its needs"
            raise CallError("not_needed", message, field="needs", hint=f"add {reference.id!r} to `needs`")


def _stages(by_id: Mapping[str, Item]) -> list[list[Item]]:
    sorter = TopologicalSorter({id: by_id.keys() & item.needs for id, item in by_id.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        message = f"tasks need each other in a circle: {circle}"
        raise CallError("circle", message, field="needs", hint="one of them must come first") from None
    place = {id: n for n, id in enumerate(by_id)}
    stages: list[list[Item]] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=place.__getitem__)
        stages.append([by_id[id] for id in ready])
        sorter.done(*ready)
    return stages


class Graph:
    """A `Schedule` over items that need each other. It keeps the outcomes that others are still waiting for."""

    def __init__(self, items: Iterable[Item | BadRow], bad: Mapping[int, BadRow]) -> None:
        """Raises CallError as `check` does. What needs a bad row is blocked as if that had failed."""
        given = list(enumerate(items))
        self._given = deque(refused(bad[place]) for place, _ in given if place in bad)
        self._waiting = {one.id: one for place, one in given if place not in bad and isinstance(one, Item)}
        check(list(self._waiting.values()), left_out=frozenset(one.id for one in self._given))
        self._places = {id: n for n, id in enumerate(self._waiting)}
        self._missing = {item.id: len(item.needs) for item in self._waiting.values()}
        self._needed_by: dict[str, list[str]] = {}
        for item in self._waiting.values():
            for id in item.needs:
                self._needed_by.setdefault(id, []).append(item.id)
        self._uses = {id: len(by) for id, by in self._needed_by.items()}
        self._ready = [self._places[id] for id, missing in self._missing.items() if not missing]
        self._ids = list(self._waiting)
        self._outcomes: dict[str, ItemOutcome] = {}

    def next(self) -> Item | ItemOutcome | None:
        """A bad row's outcome, then the first item whose needs have all ended: to be run, or blocked."""
        if self._given:
            return self._given.popleft()
        while self._ready:
            item = self._waiting.pop(self._ids[heappop(self._ready)], None)
            if item is not None:
                return self._decided(item)
        return None

    def told(self, outcome: ItemOutcome) -> None:
        """One has ended, now or before the batch was resumed."""
        if before := self._waiting.pop(outcome.id, None):
            self._let_go(before)
        if self._uses.get(outcome.id):
            self._outcomes[outcome.id] = outcome
        for id in self._needed_by.pop(outcome.id, ()):
            self._missing[id] -= 1
            if not self._missing[id]:
                heappush(self._ready, self._places[id])

    def _decided(self, item: Item) -> Item | ItemOutcome:
        try:
            return _to_do(item, {id: self._outcomes[id] for id in item.needs})
        finally:
            self._let_go(item)

    def _let_go(self, item: Item) -> None:
        """It waits for nothing any more; what nobody else waits for is forgotten."""
        for id in item.needs:
            self._uses[id] -= 1
            if not self._uses[id]:
                self._outcomes.pop(id, None)


def _to_do(item: Item, needed: Mapping[str, ItemOutcome]) -> Item | ItemOutcome:
    if item.when == "passed" and (why := [_why_not(one) for one in needed.values() if not one.passed]):
        return ItemOutcome(item.id, "blocked", why="; ".join(why), row=item.row)
    try:
        return filled(item, needed)
    except CallError as error:
        return ItemOutcome(item.id, "blocked", why=error.message, row=item.row)


def _why_not(need: ItemOutcome) -> str:
    """Why nothing may be built on it."""
    result = need.result
    if result is None:
        return f"it needs {need.id!r}, which is {need.state}"
    if result.status != "completed":
        return f"it needs {need.id!r}, whose run ended as {result.status}"
    if result.verdict is None:
        return f"it needs {need.id!r}, which has no verdict: it had no criteria"
    return f"it needs {need.id!r}, which is {result.verdict.verdict} ({result.verdict.code})"

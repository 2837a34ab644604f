"""How much of a call is done, as a number that grows with every event."""

from collections import Counter

from delegate.ports import Event

_HALF_WAY = 8
"""After so many events a task counts as half done: how many it will have, nobody knows."""


class Share:
    """Done tasks of all tasks. A task at work is a fraction of one, which comes near to 1 only at its verdict."""

    def __init__(self) -> None:
        self._events: Counter[int] = Counter()
        self._ended: set[int] = set()

    def count(self, event: Event) -> None:
        """Take in one event."""
        self._events[event.task_index] += 1
        if event.kind == "judged":
            self._ended.add(event.task_index)

    @property
    def of(self) -> int:
        """Tasks that are known by now; all of a call begin at about the same time."""
        return max(self._events) + 1

    @property
    def done(self) -> float:
        """Between 0 and `of`; more than before the last event."""
        at_work = [count for index, count in self._events.items() if index not in self._ended]
        return len(self._ended) + sum(count / (count + _HALF_WAY) for count in at_work)

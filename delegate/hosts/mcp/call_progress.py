"""Computes how much of a call is done, as a number that grows with every event."""

from collections import Counter

from delegate.ports import Event

_HALF_DONE_EVENTS = 8
"""A task counts as half done after this many events, since their total isn't known in advance."""


class CallProgress:
    """Counts finished tasks. A running task counts as a fraction, which reaches 1 only with its verdict."""

    def __init__(self) -> None:
        self._events: Counter[int] = Counter()
        self._finished: set[int] = set()

    def count(self, event: Event) -> None:
        """Add one event."""
        self._events[event.task_index] += 1
        if event.kind == "judged":
            self._finished.add(event.task_index)

    @property
    def total(self) -> int:
        """The number of tasks that have started; all tasks of a call start at about the same time."""
        return max(self._events) + 1

    @property
    def done(self) -> float:
        """Between 0 and `total`; it grows with every event."""
        running = [count for index, count in self._events.items() if index not in self._finished]
        return len(self._finished) + sum(count / (count + _HALF_DONE_EVENTS) for count in running)

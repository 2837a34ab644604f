"""Lets objects start over in a process that was forked, where other threads and their locks don't exist anymore."""

import os
from typing import Protocol
from weakref import WeakSet


class _Forkable(Protocol):
    def after_fork(self) -> None:
        """Replace locks, and drop what belongs to the parent process."""
        ...


_watched: WeakSet[_Forkable] = WeakSet()
_abandoned: list[object] = []


def watch(target: _Forkable) -> None:
    """Call `target.after_fork` in each process that is forked from this one, before anything else runs there."""
    _watched.add(target)


def abandon(value: object) -> None:
    """Keep an object of the parent process forever, because finalizing it here could disturb the parent."""
    _abandoned.append(value)


def _after_fork() -> None:
    for target in list(_watched):
        target.after_fork()


os.register_at_fork(after_in_child=_after_fork)

"""The values of a batch: what is to be done, and what came of it."""

from dataclasses import dataclass
from typing import Literal

from delegate.errors import CallError
from delegate.types import Task, TaskResult

When = Literal["passed", "always"]
"""When an item with needs may run: when all of them are a PASS, or when all of them have ended in any way."""

ItemState = Literal[
    "done",  # it has a result, good or bad
    "blocked",  # a need of it isn't a PASS: it was not run
    "outcome_unknown",  # it was begun, and what ran it is gone: it may have done anything
    "not_started",  # the batch ended before its turn; a resumed batch runs it
    "bad_row",  # it can't be used as it is written, and was left out
]


@dataclass(frozen=True, slots=True)
class Item:
    """One task of a batch. `id` is unique in it."""

    id: str
    task: Task
    row: int | None = None
    """Where it stands in its file, from 1: the data row of a CSV, the line of a JSONL, the place in a list."""
    needs: tuple[str, ...] = ()
    """Ids of the items that must end before this one."""
    when: When = "passed"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that can't be used, and why. `id` is the row's own where that could be read."""

    id: str
    row: int
    error: CallError


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """What came of one item."""

    id: str
    state: ItemState
    result: TaskResult | None = None
    """There exactly when the state is `done`."""
    why: str = ""
    """For every other state: the reason, in a line."""
    row: int | None = None

    @property
    def passed(self) -> bool:
        """Whether others may build on it: it completed, and its verdict is PASS."""
        return self.good and self.result is not None and self.result.verdict is not None

    @property
    def good(self) -> bool:
        """Whether nothing speaks against it: it completed, and its verdict isn't FAIL."""
        result = self.result
        if result is None or result.status != "completed":
            return False
        return result.verdict is None or result.verdict.verdict == "PASS"

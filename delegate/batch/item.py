"""The items of a batch and their outcomes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from delegate.judging.reading.statements import Template
from delegate.types import Task, TaskResult
from delegate.types.errors import CallError

STOPPED = "it was running when the batch was stopped, and may have done anything"

When = Literal["passed", "always"]
"""When an item with needs may run: if all of them have the verdict PASS, or whenever all of them have finished."""

ItemState = Literal[
    "done",  # it has a result, successful or not
    "blocked",  # an item that it needs has no PASS verdict, so it was not run
    "outcome_unknown",  # it was stopped, or its process or worker was lost, while it ran: it may have done anything
    "not_started",  # the batch ended before it started; a resumed batch runs it
    "bad_row",  # its row is invalid and was skipped
]


@dataclass(frozen=True, slots=True)
class Item:
    """One task of a batch. `id` is unique within the batch. Numbers in `id` and `input` become text, as in files."""

    id: str
    task: Task
    row: int | None = None
    """Position in the file, from 1: the data row of a CSV, the line of a JSONL file, the index in a list."""
    needs: tuple[str, ...] = ()
    """Ids of the items that must finish before this one starts."""
    when: When = "passed"
    input: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the results repeat of its row: the columns of a table, else the goal."""
    template: Template | None = None
    """What the task was made from: its criteria are read once for all rows."""

    def __post_init__(self) -> None:
        given = dict[str, object](self.input).items()
        object.__setattr__(self, "id", str(self.id))
        object.__setattr__(self, "input", {str(name): "" if value is None else str(value) for name, value in given})


@dataclass(frozen=True, slots=True)
class BadRow:
    """An invalid row. `id` is the row's own id if it could be read, else empty."""

    id: str
    row: int
    error: CallError
    input: Mapping[str, str] = field(default_factory=dict[str, str])
    """What could be read of the row, as in `Item`."""


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """The outcome of one item."""

    id: str
    state: ItemState
    result: TaskResult | None = None
    """Set if the state is `done`. For an item that was stopped while it ran, what is known of it, without a verdict."""
    why: str = ""
    """The reason for every other state, in one line."""
    row: int | None = None
    input: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the results repeat of its row, as in `Item`."""
    spent_usd: float = 0
    """What is known to have been spent on an item without a result, whose process was lost."""

    @property
    def cost_known_usd(self) -> float:
        return self.result.cost_known_usd if self.result else self.spent_usd

    @property
    def unpriced(self) -> bool:
        """Whether part of its cost is unknown, as that of the call that a lost process waited for."""
        return self.result.cost_usd is None if self.result else self.state == "outcome_unknown"

    @property
    def estimated(self) -> bool:
        return self.result is not None and self.result.cost_provenance == "estimated"

    @classmethod
    def of_result(
        cls, id: str, result: TaskResult, *, row: int | None, input: Mapping[str, str], stopped: bool
    ) -> Self:
        """The outcome that a result means. If the batch was `stopped`, the item may have been stopped with it."""
        was_cancelled = result.verdict is not None and result.verdict.code == "cancelled"
        if stopped and (was_cancelled or result.status == "cancelled"):
            without_verdict = result.model_copy(update={"verdict": None})
            return cls(id, "outcome_unknown", without_verdict, STOPPED, row, input)
        return cls(id, "done", result, row=row, input=input)

    @property
    def passed(self) -> bool:
        """Whether it completed with the verdict PASS, so that items that need it may run."""
        return self.good and self.result is not None and self.result.verdict is not None

    @property
    def good(self) -> bool:
        """Whether it completed and its verdict isn't FAIL."""
        return self.state == "done" and self.result is not None and self.result.good

    @property
    def bad_work(self) -> bool:
        """Whether its work is bad. False if it is good, and if that is unknown: it wasn't run, its child couldn't run,
        its outcome is unknown, or its work couldn't be examined.
        """
        return self.state == "done" and self.result is not None and not self.result.good and self.result.examined

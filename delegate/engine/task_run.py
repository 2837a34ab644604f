"""One task of a call on its way to its result: what it shares with the others of the call, and who is told of it."""

from dataclasses import dataclass
from typing import Any

from delegate._util.cancellation import Cancellation
from delegate._util.redaction import Redactor, logger
from delegate._util.semaphore import Seat
from delegate.budget.ledger import Ledger
from delegate.budget.metering import Connection
from delegate.budget.runs import Caller
from delegate.judging.submission import Author
from delegate.models.catalog import Model
from delegate.models.tiers import weaker
from delegate.ports import Event, EventKind, EventSink
from delegate.records.history import Records
from delegate.sandbox.workspace import Folder
from delegate.types import ChildRun, JsonObject, Task, Tier

_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A task and the way to the model that will work on it; None for runners that bring their own."""

    task: Task
    connection: Connection | None

    @property
    def model(self) -> Model | None:
        """The model that was chosen."""
        return self.connection.model if self.connection else None

    def served(self, child: ChildRun) -> Model | None:
        """The model that really worked; the chosen one, where the provider's name for it isn't known."""
        way = self.connection
        return way and (way.catalog.served(way.model, child.model) or way.model)


@dataclass(frozen=True, slots=True)
class Call:
    """What the tasks of one call share."""

    caller: Caller
    author: Author
    ceiling: Tier
    """The caller's tier, which neither a child's model nor a judge may exceed."""
    cancellation: Cancellation
    records: Records
    redactor: Redactor
    sinks: tuple[EventSink, ...]
    """All who are told what happens."""


@dataclass(slots=True)
class Order:
    """One task of a call."""

    call: Call
    index: int
    """Its place in the call, or in the batch that made the call for it; from 0."""
    assignment: Assignment
    handle: str
    folder: Folder | None = None
    """The workspace, once it is open."""

    @property
    def task(self) -> Task:
        """What is to be done."""
        return self.assignment.task

    @property
    def model(self) -> Model | None:
        """The model that was chosen; None where the runner brings its own."""
        return self.assignment.model

    @property
    def caller(self) -> Caller:
        """Who asked for it."""
        return self.call.caller

    def as_caller(self, ledger: Ledger, seat: Seat) -> Caller:
        """The child as one that may delegate in its turn."""
        tier = weaker(self.model.tier if self.model else None, self.caller.tier)
        deadline = self.caller.deadline
        return Caller(self.caller.run, ledger, self.caller.depth + 1, tier, seat, deadline=deadline)

    def journal(self, kind: str, data: str | JsonObject) -> None:
        """Put on record what the child just did."""
        self.call.records.event(self.handle, kind, data)

    def notify(self, kind: EventKind, text: str = "", **data: Any) -> None:
        """Tell whoever shows progress what happened to this task."""
        text = self.call.redactor.text(text)
        if kind not in ("model_called", "tool_called"):  # those the recorder writes, in full
            self.journal(kind, {"text": text, **data})
        for tell in self.call.sinks:
            try:
                tell(Event(kind, self.index, text, data))
            except Exception:  # a broken progress display must not cost the work
                _log.exception("the event sink failed")

"""Interface of what runs the items of a batch. `runner.BatchRunner` runs them in this process.

The journal and the results file stay with the batch.
"""

from typing import Protocol

from delegate._util.cancellation import Cancellation
from delegate.batch.item import Item
from delegate.types import TaskResult
from delegate.types.errors import DelegateError
from delegate.types.events import EventSink


class WorkerLost(DelegateError):
    """The worker that ran the item is gone, so the item's outcome is unknown. The message says what is known."""


class Backend(Protocol):
    """Runs items, each at most once."""

    @property
    def capacity(self) -> int | None:
        """Maximum number of items it runs at the same time; None for no limit."""
        ...

    def next_handle(self) -> str | None:
        """The handle that the record of an item will have; None if records are kept where the journal isn't."""
        ...

    async def run(
        self, item: Item, *, handle: str | None, cancellation: Cancellation, on_event: EventSink | None = None
    ) -> TaskResult:
        """Run one item and return its result. `handle` is what `next_handle` returned for it.

        Once `cancellation` is cancelled, it returns soon, with a result of status `cancelled`. Cancelling the awaiting
        task stops the item too. Raises WorkerLost, or CallError if the item was refused and nothing of it was run.
        """
        ...

    async def aclose(self) -> None: ...

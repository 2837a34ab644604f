"""What runs the items of a batch: in this process, or elsewhere. The journal and the results stay with the batch."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from delegate._util.cancellation import Cancellation
from delegate.batch.item import Item
from delegate.errors import DelegateError
from delegate.ports import EventSink
from delegate.types import TaskResult


class WorkerLost(DelegateError):
    """What ran the item is gone, and whether the item was done isn't known. The text says what is known."""


class Backend(Protocol):
    """Runs items, each at most once."""

    @property
    def capacity(self) -> int | None:
        """How many items it runs side by side; None: as many as it is given."""
        ...

    async def run(self, item: Item, *, cancellation: Cancellation, on_event: EventSink | None = None) -> TaskResult:
        """Run one item to its end.

        Once `cancellation` is cancelled it ends soon, with a result that says so. A cancel of the awaiting task ends
        what runs as well. Raises WorkerLost; CallError where the item was refused, and nothing of it was run.
        """
        ...

    async def aclose(self) -> None:
        """Give back what it holds. Nothing runs any more."""
        ...


class RunOne(Protocol):
    """Runs one item in this process; raises CallError where it is refused."""

    def __call__(
        self, item: Item, *, cancellation: Cancellation, on_event: EventSink | None
    ) -> Awaitable[TaskResult]: ...


class LocalBackend:
    """Runs items on the event loop of this process: good for about a thousand at once."""

    def __init__(self, run_one: RunOne, *, close: Callable[[], Awaitable[None]] | None = None) -> None:
        """`close` gives back what `run_one` needs, where nobody else does."""
        self._run_one = run_one
        self._close = close

    @property
    def capacity(self) -> int | None:
        """As many as it is given."""
        return None

    async def run(self, item: Item, *, cancellation: Cancellation, on_event: EventSink | None = None) -> TaskResult:
        """Run one item to its end."""
        return await self._run_one(item, cancellation=cancellation, on_event=on_event)

    async def aclose(self) -> None:
        """Close what it was given to close."""
        if self._close is not None:
            await self._close()


class DeferredBackend:
    """An engine that is opened when it is first needed: a cluster takes seconds, and tasks may be refused before."""

    def __init__(self, open: Callable[[], Backend]) -> None:
        self._open = open
        self._opened: Backend | None = None

    @property
    def capacity(self) -> int | None:
        """That of the engine, which is opened for it."""
        return self._engine.capacity

    async def run(self, item: Item, *, cancellation: Cancellation, on_event: EventSink | None = None) -> TaskResult:
        """Run one item to its end."""
        return await self._engine.run(item, cancellation=cancellation, on_event=on_event)

    async def aclose(self) -> None:
        """Close the engine, where it was opened."""
        if self._opened is not None:
            await self._opened.aclose()

    @property
    def _engine(self) -> Backend:
        self._opened = self._opened or self._open()
        return self._opened

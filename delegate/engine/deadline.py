"""The time that a child has, and the room in its workspace."""

import asyncio
from types import TracebackType

from delegate._util.cancellation import Cancellation, Deadline
from delegate.sandbox.workspace.folder import Folder
from delegate.types.errors import WorkspaceTooLarge


class ChildDeadline(Deadline):
    """A child's deadline, which also expires when its workspace gets too large. It raises `WorkspaceTooLarge` then.

    That is found by `look`, which needs a task only where something may be too large.
    """

    def __init__(self, folder: Folder, cancellation: Cancellation, seconds: float, at_most: float | None) -> None:
        self.seconds = seconds if at_most is None else min(seconds, at_most)
        super().__init__(cancellation, self.seconds, at_most)
        self._folder = folder
        self._error: WorkspaceTooLarge | None = None
        self._is_running = False
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        await super().__aenter__()
        self._is_running = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_running = False
        self._refused = kind is None and self.seconds_left == 0  # it blocked the event loop, so nothing stopped it
        try:
            await super().__aexit__(kind, error, trace)
            if self._refused:
                raise TimeoutError
        except TimeoutError:
            if self._error is None:
                raise
            raise self._error from None
        finally:
            if self._looking is not None:
                self._looking.cancel()
                await asyncio.wait([self._looking])

    @property
    def allowed(self) -> str:
        """Its time, in words."""
        return f"{self.seconds:.6g} s{', the time that the run had left' if self.seconds == self._at_most else ''}"

    def look(self) -> None:
        """Look how large the workspace is, unless that is being done."""
        is_looking = self._looking is not None and not self._looking.done()
        if self._is_running and not is_looking and self._folder.may_be_too_large:
            self._looking = self._loop.create_task(self._check())

    async def _check(self) -> None:
        try:
            await self._folder.check_size(soon=False)
        except WorkspaceTooLarge as error:
            if not self.expired():
                self._error = error
                self.cancel()

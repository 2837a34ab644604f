"""Runs a delegator's work to its end from code that isn't async, with a live display beside it.

The first Ctrl-C or SIGTERM cancels the call, and its report says what each child left; the exit code is the report's.
The second one leaves at once, without a report, with exit code 130.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn, Protocol, Self, TypeVar

from delegate._util.cancellation import Cancellation
from delegate.cli import PROGRAM
from delegate.cli.progress import live
from delegate.delegator import Delegator
from delegate.ports import EventSink

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Display = Callable[[Sequence[str]], AbstractContextManager[EventSink | None]]
"""Shows what happens while its block lasts, given the tasks' titles, and gives the sink for its events."""
Work = Callable[[EventSink | None], Coroutine[Any, Any, T]]

STOPPING = f"{PROGRAM}: stopping, and waiting until all children are gone; once more leaves at once"
LEAVING_SECONDS = 0.5
"""How long leaving at once may take: to kill what runs and to close what is open."""
INTERRUPTED = 130
_SHOW_CURSOR = b"\x1b[?25h"
"""A live display hides it."""


class Stoppable(Protocol[T_co]):
    """A call that ends soon, with what there is, once it is cancelled; such as `Delegator.run`, given its tasks."""

    def __call__(self, *, on_event: EventSink | None, cancellation: Cancellation) -> Coroutine[Any, Any, T_co]: ...


def work(delegator: Delegator, do: "Work[T]", *, titles: Sequence[str] = ()) -> T:
    """Run `do` and close the delegator. `titles` name the tasks in the display, as far as they are known."""

    async def main() -> T:
        async with delegator:
            with live(titles) as sink:
                return await do(sink)

    return asyncio.run(main())


def stoppable(delegator: Delegator, call: "Stoppable[T]", *, titles: Sequence[str] = (), display: Display = live) -> T:
    """The same for a call that the first Ctrl-C or SIGTERM cancels. Raises KeyboardInterrupt on the second."""

    async def main() -> T:
        async with delegator:
            with display(titles) as sink:
                return await call(on_event=sink, cancellation=interrupts.cancellation)

    runner = asyncio.Runner()
    with _Interrupts(runner.get_loop()) as interrupts, runner:
        try:
            return runner.run(main())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


class _Interrupts:
    """What Ctrl-C and SIGTERM do while this lasts."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.cancellation = Cancellation()
        self._loop = loop
        self._came = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        with suppress(ValueError):  # not in the main thread: whoever has that decides
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._came += 1
        if self._came == 1:
            self.cancellation.cancel()
            self._soon(_say_stopping)
        elif self._came == 2:
            last_word = threading.Timer(LEAVING_SECONDS, _leave)
            last_word.daemon = True
            last_word.start()
            self._soon(_cancel_everything)
        else:
            _leave()

    def _soon(self, do: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: all is done
            self._loop.call_soon_threadsafe(do)


def _say_stopping() -> None:
    print(STOPPING, file=sys.stderr, flush=True)


def _leave() -> NoReturn:
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR)
    os._exit(INTERRUPTED)


def _cancel_everything() -> None:
    for task in asyncio.all_tasks():
        task.cancel()

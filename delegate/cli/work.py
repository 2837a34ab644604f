"""Runs a delegator's calls from synchronous code, with a live display and handling of Ctrl-C.

The first Ctrl-C or SIGTERM cancels the call, whose result then contains what each child has done; the exit code is that
of the result. The second one exits at once with code 130, without a result.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Protocol, Self, TypeVar

from delegate._util.cancellation import Cancellation
from delegate.budget.nested import joined
from delegate.cli import PROGRAM, terminations
from delegate.cli.screen.progress import live
from delegate.delegator import Delegator
from delegate.telemetry.operations import written_to
from delegate.types.events import EventSink

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Work = Callable[[EventSink | None], Coroutine[Any, Any, T]]

STOPPING = f"{PROGRAM}: stopping, and waiting until all children have stopped; press Ctrl-C again to exit at once"
EXIT_SECONDS = 0.5
"""Time to kill running processes and close files before the process exits."""
INTERRUPTED = 130
_SHOW_CURSOR = b"\x1b[?25h"
"""Shows the cursor, which a live display hides."""


class Stoppable(Protocol[T_co]):
    """A call that returns soon once it is cancelled, with partial results, such as `Delegator.run` with its tasks."""

    def __call__(self, *, on_event: EventSink | None, cancellation: Cancellation) -> Coroutine[Any, Any, T_co]: ...


def work(delegator: Delegator, do: "Work[T]", *, titles: Sequence[str] = ()) -> T:
    """Run `do` and close the delegator. `titles` are the names of the tasks in the display."""

    async def main() -> T:
        async with delegator:
            with live(titles) as sink:
                return await do(sink)

    if terminations:
        raise KeyboardInterrupt
    return asyncio.run(main())


def stoppable(
    delegator: Delegator, call: "Stoppable[T]", *, titles: Sequence[str] | None = (), trace: Path | None = None
) -> T:
    """Like `work`, but the first Ctrl-C or SIGTERM cancels the call and the second raises KeyboardInterrupt.

    Nothing is displayed if `titles` is None. OpenTelemetry spans are appended to the file `trace`.
    """

    async def main() -> T:
        async with delegator:
            with live(titles) if titles is not None else nullcontext() as sink:
                return await call(on_event=sink, cancellation=interrupts.cancellation)

    runner = asyncio.Runner()
    # The loop takes over the context variables that are set when it is created.
    with written_to(trace), joined(os.environ), _Interrupts(runner.get_loop()) as interrupts, runner:
        try:
            return runner.run(main())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


class _Interrupts:
    """Handles Ctrl-C and SIGTERM inside a `with` block."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.cancellation = Cancellation()
        self._loop = loop
        self._count = 0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        with suppress(ValueError):  # not in the main thread, where signals are handled
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._interrupt)
        if terminations:  # what was imported then may have swallowed its KeyboardInterrupt
            self._interrupt(signal.SIGTERM, None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count == 1:
            self.cancellation.cancel()
            self._call_soon(partial(print, STOPPING, file=sys.stderr, flush=True))
        elif self._count == 2:
            timer = threading.Timer(EXIT_SECONDS, _exit)
            timer.daemon = True
            timer.start()
            self._call_soon(_cancel_all_tasks)
        else:
            _exit()

    def _call_soon(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing is running
            self._loop.call_soon_threadsafe(callback)


def _exit() -> NoReturn:
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR)
    os._exit(INTERRUPTED)


def _cancel_all_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()

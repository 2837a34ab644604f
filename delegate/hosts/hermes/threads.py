"""Hermes's code blocks, and finds its interrupts by thread: each piece of it runs in a thread of its own."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from delegate.hosts.hermes.borrowed import borrow, deny_dangerous_commands

T = TypeVar("T")


class Thread(Generic[T]):
    """Runs `work` in the caller's context. It dies with the process; who waits for `ended` may be cancelled without."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[T] = self._loop.create_future()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True)
        self._thread.start()

    def interrupt(self) -> None:
        """Let Hermes's tools on this thread see that they should end."""
        if self._thread.is_alive():
            _set_interrupt(True, self._thread.ident)

    def _run(self) -> None:
        deny_dangerous_commands()
        try:
            result = self._work()
        except Exception as error:
            self._tell(self.ended.set_exception, error)
        else:
            self._tell(self.ended.set_result, result)
        finally:
            _set_interrupt(False, None)  # the next thread may get this one's number

    def _tell(self, finish: Callable[[Any], None], value: object) -> None:
        def unless_given_up() -> None:
            if not self.ended.done():
                finish(value)

        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(unless_given_up)


def _set_interrupt(active: bool, thread: int | None) -> None:
    if set_interrupt := borrow("tools.interrupt", "set_interrupt"):
        set_interrupt(active, thread)

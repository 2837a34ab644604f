"""Runs Hermes's blocking code in threads: one thread for each child or tool call, since interrupts are per thread."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from delegate.hosts.hermes.compat import deny_dangerous_commands, hermes_attribute

T = TypeVar("T")


class WorkThread(Generic[T]):
    """A daemon thread that runs `work` in the caller's context. Canceling an await of `result` doesn't stop it."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self.result: asyncio.Future[T] = self._loop.create_future()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True)
        self._thread.start()

    def interrupt(self) -> None:
        """Set Hermes's interrupt flag for this thread, which its tools check."""
        if self._thread.is_alive():
            _set_interrupt(True, self._thread.ident)

    def _run(self) -> None:
        deny_dangerous_commands()
        try:
            result = self._work()
        except Exception as error:
            self._finish(self.result.set_exception, error)
        else:
            self._finish(self.result.set_result, result)
        finally:
            _set_interrupt(False, None)  # a later thread may get the same id

    def _finish(self, set_outcome: Callable[[Any], None], outcome: object) -> None:
        def set_unless_cancelled() -> None:
            if not self.result.done():
                set_outcome(outcome)

        with suppress(RuntimeError):  # the loop is closed: nothing awaits the result
            self._loop.call_soon_threadsafe(set_unless_cancelled)


def _set_interrupt(active: bool, thread_id: int | None) -> None:
    if set_interrupt := hermes_attribute("tools.interrupt", "set_interrupt"):
        set_interrupt(active, thread_id)

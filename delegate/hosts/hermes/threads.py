"""Runs Hermes's blocking code in threads: one thread for each child or tool call, since interrupts are per thread."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from delegate.hosts.hermes.compat import deny_dangerous_commands, hermes_attribute

T = TypeVar("T")


class WorkThread(Generic[T]):
    """A daemon thread that runs `work` in the caller's context. Cancelling an await of `result` doesn't stop it."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self._work = work
        self._done = Future[T]()
        self._done.set_running_or_notify_cancel()  # from now on, it can't be cancelled
        self.result = asyncio.wrap_future(self._done)
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
            self._done.set_exception(error)
        else:
            self._done.set_result(result)
        finally:
            _set_interrupt(False, None)  # a later thread may get the same id


def _set_interrupt(active: bool, thread_id: int | None) -> None:
    if set_interrupt := hermes_attribute("tools.interrupt", "set_interrupt"):
        set_interrupt(active, thread_id)

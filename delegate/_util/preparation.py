"""Does in a thread what will be needed soon: imports, tables, regular expressions. Harmless if it is never needed."""

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from weakref import WeakSet

from delegate._util import forking

DELAY_SECONDS = 0.1
"""A program that ends sooner, and one that closes the object sooner, never needed it."""
PATIENCE_SECONDS = 5.0
"""How long a fork and the end of the process wait for a step in progress. An import takes up to 1.6 s."""
_log = logging.getLogger(__name__)
_Load = Callable[[], object]


async def nothing_to_wait_for() -> None:
    """In place of `Preparation.wait`, where there is no preparation."""


class Preparation:
    """Runs the steps of some phases in a daemon thread, which begins soon, or when a phase is first waited for.

    The error of a step is not raised here: the code that needs the step does it again, and gets the error.
    """

    def __init__(self, phases: int) -> None:
        self._done = [Future[None]() for _ in range(phases)]
        for future in self._done:
            future.set_running_or_notify_cancel()  # so that who waits can't cancel it for the others
        self._begin, self._stopped = threading.Event(), False
        self._thread: threading.Thread | None = None
        forking.watch(self)

    def start(self, *phases: Sequence[_Load], key: Hashable = None) -> None:
        """Start the thread, once, with the steps of all phases. What has the same key is prepared once per process."""
        if key is not None and key in _prepared:
            self.after_fork()
            return
        # The thread refers to the steps, and nothing else does: they may refer to what this is a part of.
        self._thread = threading.Thread(target=self._run, args=(phases, key), name="delegate-preparation", daemon=True)
        _running.add(self)
        self._thread.start()

    async def wait(self, phase: int) -> None:
        """Wait until this phase and those before it are done, or until the steps were stopped."""
        future = self._done[phase]
        if not future.done():
            self._begin.set()
            await asyncio.wrap_future(future)

    def stop(self) -> None:
        """Begin no further step. Who needs one does it then."""
        self._stopped = True
        self._begin.set()

    def join(self) -> None:
        """Stop, and wait for the step in progress, but not for long."""
        self.stop()
        if self._thread is not None:
            self._thread.join(PATIENCE_SECONDS)

    def after_fork(self) -> None:
        """The new process has no such thread. Code that needs a step does it itself."""
        self._done = [Future[None]() for _ in self._done]  # another thread may have held the locks of the old ones
        for future in self._done:
            future.set_result(None)

    def _run(self, phases: Sequence[Sequence[_Load]], key: Hashable) -> None:
        self._begin.wait(DELAY_SECONDS)
        try:
            for steps, future in zip(phases, self._done, strict=True):
                for step in steps:
                    with _stepping:  # a process forked in the middle of an import could never import that module
                        try:
                            if not self._stopped:
                                step()
                        except Exception as error:
                            _log.debug("not prepared: %s", error)
                if future is self._done[-1] and key is not None and not self._stopped:
                    _prepared.add(key)
                future.set_result(None)
        finally:
            _running.discard(self)


_prepared: set[Hashable] = set()
_running: WeakSet[Preparation] = WeakSet()
_stepping = threading.RLock()
"""Held during each step."""


def _before_fork() -> None:
    _paused.append(_stepping.acquire(timeout=PATIENCE_SECONDS))


def _after_fork_in_parent() -> None:
    if _paused.pop():
        _stepping.release()


def _after_fork_in_child() -> None:
    global _stepping
    _stepping = threading.RLock()
    _paused.clear()
    _running.clear()


_paused: list[bool] = []
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


@atexit.register
def _join_all() -> None:
    for preparation in list(_running):
        preparation.join()

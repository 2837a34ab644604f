"""Runs work in a thread that always ends before the caller continues: an abandoned thread would still write files."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from delegate._util.cancellation import retrieve_exception

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T], *, stop: threading.Event | None = None) -> T:
    """Run `work` in a thread and wait for it. Cancellation sets `stop`, and still waits for the thread, once."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if stop is not None:
            stop.set()
        running.add_done_callback(retrieve_exception)
        await asyncio.wait([running])
        raise


async def run_in_thread_if(is_large: bool, work: Callable[[], T]) -> T:
    """Run `work` in a thread if it may take long, as work on what a child wrote may. Otherwise a thread costs more."""
    return await run_in_thread(work) if is_large else work()


async def run_in_daemon_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run a blocking call in a thread that neither cancellation nor the process exit waits for."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            settle, outcome = result.set_result, function(*arguments)
        except Exception as error:
            settle, outcome = result.set_exception, error
        with suppress(RuntimeError):  # the loop is closed: nothing awaits the result
            loop.call_soon_threadsafe(_settle, result, settle, outcome)

    threading.Thread(target=run, name=f"delegate-{function.__name__}", daemon=True).start()
    return await result


def _settle(result: "asyncio.Future[Any]", settle: Callable[[Any], None], outcome: Any) -> None:
    if not result.done():  # false after a cancellation
        settle(outcome)

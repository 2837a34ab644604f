"""Runs a delegator's work to its end from code that isn't async, with a live display beside it."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from delegate.cli.progress import live
from delegate.delegator import Delegator
from delegate.ports import EventSink

T = TypeVar("T")
Work = Callable[[EventSink | None], Coroutine[Any, Any, T]]


def work(delegator: Delegator, do: "Work[T]", *, titles: Sequence[str] = ()) -> T:
    """Run `do` and close the delegator. `titles` name the tasks in the display, as far as they are known."""

    async def main() -> T:
        async with delegator:
            with live(titles) as sink:
                return await do(sink)

    return asyncio.run(main())

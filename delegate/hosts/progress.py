"""Formats the events of a call as lines of text, for hosts that show progress as text."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

from delegate._util.fencing import one_line
from delegate.contract.progress import WAITS
from delegate.types.events import Event, EventSink

T = TypeVar("T")
_MAX_CHARS = 80


def _line(event: Event, content: bool) -> str | None:
    """An event as one line, such as `task 1 runs read_file`. A child's text can't add a second line.

    None if a reader of lines needn't know of it: what begins is announced, and its end only if it failed.
    """
    if event.task_index is None or (what := _what(event, content)) is None:
        return None
    return f"task {event.task_index + 1} {one_line(what, _MAX_CHARS)}".rstrip()


def _what(event: Event, content: bool) -> str | None:  # noqa: C901 - one case for each kind
    match event.kind:
        case "child.started":
            instead = f" instead of {event.instead_of}" if event.instead_of else ""
            return f"started {event.model or ''}{instead}"
        case "child.text":
            return f"writes {event.text if content else ''}"
        case "child.usage":
            return f"thinks {event.text if content else ''}"
        case "child.waiting" | "judge.waiting" if event.seconds is None:
            return WAITS[event.reason]
        case "child.tool.started":
            return f"runs {event.text if content else event.tool}"
        case "child.tool" if event.status != "ok":
            return f"failed to run {event.tool}"
        case "child.done":
            return f"ended: {event.status}"
        case "approval.asked":
            return f"asks for an approval of {event.text if content else event.tool}"
        case "question.asked":
            return f"asks {event.text if content else 'a question'}"
        case "step.declared":
            return f"begins step {event.n} {event.goal if content else ''}"
        case "claim.made":
            return f"claims to be done {event.rationale if content else ''}"
        case "claim.judged":
            return "is verified" if event.verdict == "PASS" else f"is not verified: {event.code}"
        case "check.done":
            return f"checked {event.text if content else event.id}: {event.outcome}"
        case "judge.asked":
            return f"is judged by {event.model}"
        case "verdict":
            return f"verdict: {event.verdict or 'no criteria'}"
        case _:
            return None


def news(write: Callable[[Event, str], None], *, content: bool = True) -> EventSink:
    """An event sink that passes what a reader of lines wants to know to `write`, each event with its line.

    Without `content`, what models wrote is left out: texts, commands and criteria.
    """

    def sink(event: Event) -> None:
        if (line := _line(event, content)) is not None:
            write(event, line)

    return sink


def lines(write: Callable[[str], None]) -> EventSink:
    """An event sink that passes what happens to `write`, line by line."""
    return news(lambda _, line: write(line))


async def steps(call: Callable[[EventSink], Coroutine[Any, Any, T]]) -> AsyncGenerator[tuple[Event, str] | T]:
    """Run the call in a task of its own, yield what happens as `news` does, and then its answer.

    Closing or canceling the stream before the answer cancels the call and waits until it has ended.
    """
    queue: asyncio.Queue[tuple[Event, str] | None] = asyncio.Queue()
    running = asyncio.create_task(call(news(lambda event, line: queue.put_nowait((event, line)))))
    running.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (step := await queue.get()) is not None:
            yield step
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait([running])
    yield running.result()

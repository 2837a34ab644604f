"""Formats the events of a call as lines of text, for hosts that show progress as text."""

from collections.abc import Callable

from delegate._util.fencing import one_line
from delegate.ports import Event, EventKind, EventSink

_VERBS: dict[EventKind, str] = {
    "task_queued": "waits for its turn",
    "child_started": "started",
    "model_called": "thinks",
    "tool_started": "runs",
    "tool_called": "failed to run",
    "child_ended": "ended:",
    "check_ended": "checked",
    "judge_asked": "is judged by",
    "judged": "verdict:",
    "task_ended": "is done",
}
_MAX_CHARS = 80


def line(event: Event) -> str:
    """An event as one line, such as `task 1 runs read_file`. A child's text can't add a second line."""
    return f"task {event.task_index + 1} {_VERBS[event.kind]} {one_line(event.text, _MAX_CHARS)}".rstrip()


def is_news(event: Event) -> bool:
    """Whether a reader of lines wants to know of it: tools are announced when they begin, unless they fail."""
    if event.kind == "tool_called":
        return event.data.get("status", "ok") != "ok"
    return event.kind not in ("task_queued", "task_ended")


def lines(write: Callable[[str], None]) -> EventSink:
    """An event sink that passes what happens to `write`, line by line."""

    def sink(event: Event) -> None:
        if is_news(event):
            write(line(event))

    return sink

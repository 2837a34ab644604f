"""Formats the events of a call as lines of text, for hosts that show progress as text."""

from collections.abc import Callable

from delegate._util.fencing import one_line
from delegate.ports import Event, EventKind

_VERBS: dict[EventKind, str] = {
    "child_started": "started",
    "model_called": "thinks",
    "tool_called": "used",
    "child_ended": "ended:",
    "check_ended": "checked",
    "judge_asked": "is judged by",
    "judged": "verdict:",
}
_MAX_CHARS = 80


def line(event: Event) -> str:
    """An event as one line, such as `task 0 used read_file`. A child's text can't add a second line."""
    return f"task {event.task_index} {_VERBS[event.kind]} {one_line(event.text, _MAX_CHARS)}".rstrip()


def lines(write: Callable[[str], None]) -> Callable[[Event], None]:
    """An event sink that passes each event to `write` as a line."""
    return lambda event: write(line(event))

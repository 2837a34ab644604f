"""What happens to the tasks of a call, in lines, for hosts that show progress as text."""

from collections.abc import Callable

from delegate._util.fencing import one_line
from delegate.ports import Event, EventKind

_SAYS: dict[EventKind, str] = {
    "child_started": "started",
    "model_called": "thinks",
    "tool_called": "used",
    "child_ended": "ended:",
    "check_ended": "checked",
    "judge_asked": "is judged by",
    "judged": "verdict:",
}
_CHARS = 80


def line(event: Event) -> str:
    """An event in one line that no child's words can break out of: `task 0 used read_file`."""
    return f"task {event.task_index} {_SAYS[event.kind]} {one_line(event.text, _CHARS)}".rstrip()


def lines(say: Callable[[str], None]) -> Callable[[Event], None]:
    """An event sink that says each event as a line."""
    return lambda event: say(line(event))

"""Formats the events of a call as lines of text, for hosts that show progress as text."""

from collections.abc import Callable

from delegate._util.fencing import one_line
from delegate.contract.progress import WAITS
from delegate.types.events import Event, EventSink

_MAX_CHARS = 80
_NEWS = (
    *("child.started", "child.text", "child.usage", "child.tool.started", "child.done", "step.declared"),
    *("check.done", "judge.asked", "verdict", "claim.made", "claim.judged", "approval.asked", "question.asked"),
)


def line(event: Event, *, content: bool = True) -> str:
    """An event as one line, such as `task 1 runs read_file`. A child's text can't add a second line.

    Without `content`, what models wrote is left out: texts, commands and criteria.
    """
    who = "the run" if event.task_index is None else f"task {event.task_index + 1}"
    return f"{who} {one_line(_what(event, content), _MAX_CHARS)}".rstrip()


def _what(event: Event, content: bool) -> str:  # noqa: C901 - one case for each kind
    match event.kind:
        case "run.started":
            return "started"
        case "task.queued":
            return "waits for its turn"
        case "child.started":
            instead = f" instead of {event.instead_of}" if event.instead_of else ""
            return f"started {event.model or ''}{instead}"
        case "child.text":
            return f"writes {event.text if content else ''}"
        case "child.usage":
            return f"thinks {event.text if content else ''}"
        case "child.waiting" | "judge.waiting":
            return WAITS[event.reason] if event.seconds is None else "goes on"
        case "child.tool.started":
            return f"runs {event.text if content else event.tool}"
        case "child.tool":
            return f"failed to run {event.tool}"
        case "child.done":
            return f"ended: {event.status}"
        case "approval.asked":
            return f"asks for an approval of {event.text if content else event.tool}"
        case "approval.answered":
            return f"{'may' if event.approved else 'may not'} call {event.tool}"
        case "question.asked":
            return f"asks {event.text if content else 'a question'}"
        case "question.answered":
            return "has an answer" if event.outcome == "answered" else "has no answer"
        case "step.declared":
            return f"begins step {event.n} {event.goal if content else ''}"
        case "step.verified":
            return f"ends step {event.n}"
        case "message.delivered":
            return f"reads a message {event.text if content else ''}"
        case "claim.made":
            return f"claims to be done {event.rationale if content else ''}"
        case "claim.judged":
            return "is verified" if event.verdict == "PASS" else f"is not verified: {event.code}"
        case "check.started":
            return f"checks {event.id}"
        case "check.done":
            return f"checked {event.text if content else event.id}: {event.outcome}"
        case "judge.asked":
            return f"is judged by {event.model}"
        case "judge.done":
            return f"was judged by {event.model}"
        case "verdict":
            return f"verdict: {event.verdict or 'no criteria'}"
        case "task.done" | "run.done":
            return "is done"


def is_news(event: Event) -> bool:
    """Whether a reader of lines wants to know of it: what begins is announced, and its end only if it failed."""
    match event.kind:
        case "child.tool":
            return event.status != "ok"
        case "child.waiting" | "judge.waiting":
            return event.seconds is None
        case kind:
            return kind in _NEWS


def news(write: Callable[[Event, str], None], *, content: bool = True) -> EventSink:
    """An event sink that passes what a reader of lines wants to know to `write`, each event with its line."""

    def sink(event: Event) -> None:
        if is_news(event):
            write(event, line(event, content=content))

    return sink


def lines(write: Callable[[str], None]) -> EventSink:
    """An event sink that passes what happens to `write`, line by line."""
    return news(lambda _, line: write(line))

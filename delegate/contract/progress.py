"""What is known of a call while it runs, and how it is said to its parent and to people."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from delegate._util.fencing import one_line
from delegate.contract.amounts import counted
from delegate.types.events import Event

WAITS: Mapping[str, str] = {
    "rate_limit": "waits for a provider's rate limit",
    "retry": "waits for the retry of a failed model call",
    "permit": "waits for other children",
    "budget": "waits for what others have reserved of the budget",
    "approval": "waits for an approval",
    "needs": "waits for tasks that it needs",
    "question": "waits for an answer to its question",
}
_HALF_DONE_STEPS = 8
"""A task counts as half done after this many events, since their total isn't known in advance."""
_MAX_CHARS = 80


@dataclass(slots=True)
class TaskProgress:
    """One task of a call, or one attempt at it, as far as it got. Times are those of the call's clock, in seconds."""

    index: int
    """The task's position in its call, from 0."""
    handle: str | None
    doing: str
    """What it does now, as the rest of a sentence: "runs `make test`"."""
    since: float
    """When it began to do that."""
    verdict: str = ""
    """PASS, FAIL or "no criteria", once it is known."""
    tool_calls: int = 0
    steps: float = 0
    """The number of its events, and of the times that its progress was reported."""
    ended: bool = False


class CallProgress:
    """Follows a call through its events. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tasks: dict[tuple[int, str], TaskProgress] = {}

    def add(self, event: Event) -> None:
        """Take note of one event."""
        if event.task_index is None:
            return
        key = event.task_index, event.handle
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = TaskProgress(event.task_index, None, "waits for its turn", self._clock())
        task.steps += 1
        match event.kind:
            case "task.queued":
                task.handle = event.handle
            case "child.tool":
                task.tool_calls += 1
            case "verdict":
                task.verdict = event.verdict or "no criteria"
            case "task.done":
                task.ended = True
            case _:
                pass
        if doing := _activity(event):
            task.doing, task.since = doing, self._clock()

    @property
    def handles(self) -> tuple[str, ...]:
        """The handles of the tasks, in the order of the call."""
        return tuple(task.handle for task in self._in_order if task.handle)

    def task(self, handle: str) -> TaskProgress | None:
        """The task with this handle."""
        return next((task for task in self._tasks.values() if task.handle == handle), None)

    @property
    def total(self) -> int:
        """The number of tasks."""
        return len(self._tasks)

    @property
    def is_done(self) -> bool:
        """Whether all tasks have ended."""
        return self._ended == self.total

    def advance(self) -> float:
        """How much is done: a number between 0 and `total` that is greater with every event and every call of this.

        A running task counts as a fraction, which reaches 1 only with its end.
        """
        for task in self._tasks.values():
            task.steps += 0.01
        running = (task.steps / (task.steps + _HALF_DONE_STEPS) for task in self._tasks.values() if not task.ended)
        return self._ended + sum(running)

    def line(self) -> str:
        """All that is going on, in one line: "1 of 3 done; task 2 runs `make test`, 34 s; task 3 thinks, 2 s"."""
        running = [f"task {task.index + 1} {self._now(task)}" for task in self._in_order if not task.ended]
        return "; ".join([f"{self._ended} of {self.total} done", *running])

    def lines(self) -> list[str]:
        """A line for each task that hasn't ended, with its handle."""
        return [
            f"task {task.index + 1} (handle {task.handle or 'none'}): {self._now(task)}; "
            f"{counted(task.tool_calls, 'tool call')}"
            for task in self._in_order
            if not task.ended
        ]

    @property
    def _in_order(self) -> list[TaskProgress]:
        return sorted(self._tasks.values(), key=lambda task: task.index)

    @property
    def _ended(self) -> int:
        return sum(task.ended for task in self._tasks.values())

    def _now(self, task: TaskProgress) -> str:
        return f"{task.doing}, {self._clock() - task.since:.0f} s"


def _activity(event: Event) -> str | None:
    """What the task does from this event on, or None if it goes on with what it did. A child can't add a line to it."""
    match event.kind:
        case "child.started" | "child.usage" | "child.tool" | "approval.answered" | "claim.judged":
            return "thinks"
        case "child.waiting":
            return WAITS[event.reason] if event.seconds is None else "thinks"
        case "child.tool.started":
            return f"{'uses' if event.text == event.tool else 'runs'} `{_quoted(event.text)}`"
        case "approval.asked":
            return f"waits for an approval of `{_quoted(event.text)}`"
        case "child.done" | "claim.made":
            return "is being checked"
        case "judge.waiting" if event.seconds is None:
            return WAITS[event.reason]
        case "judge.asked" | "judge.waiting":
            return f"is being judged by {_quoted(event.model)}"
        case _:
            return None


def _quoted(text: str) -> str:
    return one_line(text, _MAX_CHARS).replace("`", "'")

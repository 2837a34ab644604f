"""Asks a person, or a program, what a child wants to know from its parent."""

from collections.abc import Awaitable, Callable

from delegate._util.fencing import one_line
from delegate.policy.approvals import shown
from delegate.types import ParentQuestion

OnQuestion = Callable[[ParentQuestion], Awaitable[str | None]]
"""Answers a question. The child waits meanwhile, and none of that time is its own. None means that there is no answer:
the child decides itself, or, in a call in the background, anyone with its handle may answer."""


def describe(question: ParentQuestion) -> str:
    """The question as text for a person. No line that a child wrote can be mistaken for another one."""
    lines = [f"Task {question.task_index + 1} ({one_line(question.goal, 100)}) asks:"]
    lines += [f"  | {line}" for line in shown(question.text).split("\n")]
    lines += [f"  {n}. {one_line(option, 300)}" for n, option in enumerate(question.options, 1)]
    return "\n".join(lines)

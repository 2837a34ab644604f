"""What a parent says to a child while it works, and what the child asks."""

from typing import Literal

from delegate.types.base import Value

MessageState = Literal[
    "queued",  # the child will read it before its next turn
    "delivered",  # it is in the child's conversation
    "never_read",  # the child ended, or its process was lost, before it was delivered
]


class SentMessage(Value):
    """A message that was sent to a running child. Times are seconds since the epoch."""

    id: str
    handle: str
    """The task of the child."""
    state: MessageState
    text: str
    """Without secrets, which the child doesn't get either."""
    sent_at: float
    delivered_at: float | None = None
    is_answer: bool = False
    """Whether it answers a question of the child."""


class ParentQuestion(Value):
    """A question of a child, which waits for the answer: an instruction, which proves nothing.

    Texts are those of a model, without secrets and hidden characters.
    """

    handle: str
    """The child's task, which takes a message as the answer."""
    task_index: int
    """The task's position in its call, from 0."""
    goal: str
    n: int
    """1 for the task's first question."""
    text: str
    options: tuple[str, ...] = ()
    """Answers to choose from: the number of one, from 1, is an answer."""
    answer_before: float
    """When the child goes on without an answer, in seconds since the epoch."""

"""What a child asks its parent while it works."""

from delegate.types.base import Value


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

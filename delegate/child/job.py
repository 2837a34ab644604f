"""What a child runner gets, and what it owes: the seam where a host puts its own agent in."""

from dataclasses import dataclass
from typing import Protocol

from delegate.ledger import Ledger
from delegate.metered import Connection
from delegate.ports import Notify, Tool
from delegate.recorder import Recorder
from delegate.sandbox.workspace import Folder
from delegate.types import ChildRun, Task, Tier


@dataclass(frozen=True, slots=True)
class Job:
    """One task, ready to be worked on by one child."""

    task: Task
    task_index: int
    run_id: str
    connection: Connection | None
    """The model to work with and the way to it; None when the runner brings its own."""
    ceiling: Tier | None
    """The parent's tier: a model above it may not answer, whatever was asked for. None when it is unknown."""
    folder: Folder
    tools: tuple[Tool, ...]
    recorder: Recorder
    ledger: Ledger
    max_steps: int
    max_output_tokens: int
    notify: Notify


class ChildRunner(Protocol):
    """Runs one child to its end.

    Whatever it raises becomes the child's result: it needs no error handling of its own. The deadline is kept
    outside; on `CancelledError` it only has to stop. Receipts go to `job.recorder` as tools are called, so that they
    survive every kind of end; `job.recorder.finish("completed", output=…)` makes the `ChildRun`.
    """

    needs_model: bool
    """Whether `job.connection` must be there."""

    async def run(self, job: Job) -> ChildRun:
        """Do the task."""
        ...

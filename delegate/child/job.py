"""What a child runner gets, and what it owes: the seam where a host puts its own agent in."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from delegate.budget import costs
from delegate.budget.costs import Charge
from delegate.budget.ledger import Amounts, Ledger
from delegate.child import prompt
from delegate.models.connections import Connection
from delegate.ports import Notify, Tool, ToolOutput
from delegate.records.recorder import Recorder
from delegate.sandbox.workspace import Folder
from delegate.types import ChildRun, Provenance, Task, Tier, Usage


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

    @property
    def workspace(self) -> Path:
        """The folder to work in, a real path. What is left in it are the task's artifacts."""
        return self.folder.root

    @property
    def prompt(self) -> str:
        """All that a child has to be told, in one text: rules, criteria, goal and context."""
        return prompt.whole(self.task, self.workspace)

    def record_tool(
        self, tool: str, args: Mapping[str, Any], answer: ToolOutput | str = "", *, seconds: float = 0
    ) -> None:
        """Write the receipt of a tool call that has ended, and report the event. Text is the answer of one that was ok.

        Only a runner with `records_tools` writes receipts that count: see `ChildRunner`. For a call that is about to
        begin, `tool_call` does this whatever its end.
        """
        output = answer if isinstance(answer, ToolOutput) else ToolOutput(answer)
        self.recorder.tool_called(self.recorder.next_receipt(), tool, args, output, seconds)
        self.notify("tool_called", tool, status=output.status)

    def tool_call(self, tool: str, args: Mapping[str, Any]) -> "PendingReceipt":
        """The receipt of a tool call that begins now: `with job.tool_call(name, args) as receipt: receipt.output = …`.

        It is written when the block ends; without an output it says that the call was stopped before it ended.
        """
        return PendingReceipt(self, self.recorder.next_receipt(), tool, args)

    def record_usage(
        self,
        usage: Usage,
        cost_usd: float | None = None,
        *,
        provenance: Provenance = "observed",
        model: str | None = None,
    ) -> None:
        """Book model calls that a runner made by itself, on the child's bill and on the run's ledger.

        Without a cost the child's is unknown, whatever else is known. `model` is the name that the provider gave.
        """
        recorder = self.recorder
        if recorder.charge is costs.UNOBSERVED:  # nothing is unseen that is told
            recorder.charge = Charge()
        sure = "unknown" if cost_usd is None else provenance
        recorder.charge += Charge(usage, cost_usd, cost_usd or 0, sure)
        recorder.model = model or recorder.model
        spent: Amounts = {"model_calls": usage.model_calls, "tokens": usage.total_tokens, "cost_usd": cost_usd or 0}
        self.ledger.reserve({}).settle(spent)


@dataclass(slots=True)
class PendingReceipt:
    """The receipt of one tool call that is under way."""

    job: Job
    n: int
    tool: str
    args: Mapping[str, Any]
    output: ToolOutput = field(default_factory=lambda: ToolOutput("stopped before it ended", "timeout"))
    _started: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.write()

    def write(self) -> None:
        """Write the receipt, and report the event."""
        self.job.recorder.tool_called(self.n, self.tool, self.args, self.output, time.monotonic() - self._started)
        self.job.notify("tool_called", self.tool, status=self.output.status)


class ChildRunner(Protocol):
    """Runs one child to its end.

    Whatever it raises becomes the child's result: it needs no error handling of its own. The deadline is kept
    outside; on `CancelledError` it only has to stop. Receipts go to `job.recorder` as tools are called, so that they
    survive every kind of end; `job.recorder.finish("completed", output=…)` makes the `ChildRun`.
    """

    needs_model: bool
    """Whether `job.connection` must be there."""
    records_tools: bool
    """Whether every tool call gets its receipt. Where not, the verdict says that receipts are unavailable: that none
    is on record then proves nothing, and criteria about actions are met by checks only. A runner without this
    attribute records none."""

    async def run(self, job: Job) -> ChildRun:
        """Do the task."""
        ...

"""What runners of children that are agents of a framework share."""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from pydantic import TypeAdapter

from delegate.child.job import Job, PendingReceipt, failed
from delegate.types import ChildRun, Usage
from delegate.types.codes import ChildCode
from delegate.types.errors import BudgetExceeded
from delegate.types.ports import Tool, ToolOutput

R = TypeVar("R", bound="ChildRecorder")


@dataclass(frozen=True, slots=True)
class NativeTool(Tool):
    """A converted tool that still has its form in the framework."""

    native: Any = field(kw_only=True)


class TooManyTurns(Exception):
    """The child's model was called more often than its task allows."""


class ChildRecorder:
    """Records the model calls and tool calls of one child, and counts its turns."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.sees_all_calls = True
        """False once the child was offered tools whose calls the framework doesn't tell."""
        self.over_limit: BudgetExceeded | TooManyTurns | None = None
        """Why no further call of the model may be made."""
        self._turns = 0
        self._recorded = Usage()
        self._receipts: dict[Hashable, PendingReceipt] = {}
        """Of the calls that are running, by what identifies a call in the framework."""

    def begin_turn(self) -> None:
        """Count a call of the model before it is made. Raises BudgetExceeded or TooManyTurns if it mustn't be."""
        self._turns += 1
        try:
            self.job.ledger.reserve({"model_calls": 1, "tokens": 1}).settle({})
            if self._turns > self.job.max_steps:
                raise TooManyTurns
        except (BudgetExceeded, TooManyTurns) as error:
            self.over_limit = error
            raise

    def end_turn(self, usage: Usage, cost: float | None = None, *, model: str | None, text: str = "") -> None:
        """Record a call of the model. `cost` is the framework's estimate in US dollars."""
        self._recorded += usage
        self.job.record_usage(usage, cost, provenance="estimated", model=model, text=text)

    def record_besides(self, all_used: Usage) -> None:
        """Record the model calls in a run's usage that weren't recorded yet, such as of agents that its tools run."""
        other = {name: max(0, n - getattr(self._recorded, name)) for name, n in all_used}
        if other["model_calls"]:
            self.job.record_usage(Usage.model_validate(other))

    def began(self, key: Hashable, tool: str, args: Mapping[str, Any]) -> None:
        """Open the receipt of a tool call."""
        self._receipts[key] = self.job.tool_call(tool, args)

    def ended(self, key: Hashable, output: ToolOutput) -> None:
        """Write the receipt of a tool call, unless that is done."""
        if receipt := self._receipts.pop(key, None):
            receipt.output = output
            receipt.write()

    def stop(self) -> None:
        """Write the receipts of tool calls that were stopped before they ended."""
        while self._receipts:
            self._receipts.popitem()[1].write()


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child ended: well, unless there is a `code`."""

    report: str | None = None
    code: ChildCode | None = None
    message: str = ""

    @classmethod
    def by_reason(cls, report: str, finish_reason: object) -> Self:
        """How a child ended whose last message is the report, by the provider's finish reason of it."""
        if finish_reason in ("length", "max_tokens", "MAX_TOKENS"):
            return cls(report, "truncated", "the model's last message was cut off by a token limit")
        return cls(report)


@dataclass(slots=True)
class AgentRunner(Generic[R]):
    """Runs children as agents of a framework: `play` runs one to its end, and may raise TooManyTurns."""

    make_recorder: Callable[[Job], R]
    play: Callable[[Job, R], Awaitable[Ending]]
    gives_job_tools: bool = False
    """Whether the agent has the tools of the job. Otherwise it has its own tools, which a task can't restrict."""
    records_tools: bool = True
    """False once a child's recorder didn't see all calls."""
    needs_model = False

    async def run(self, job: Job) -> ChildRun:
        """Run one child."""
        if not self.gives_job_tools and job.task.tools is not None:
            message = "this child's agent has its own tools, which a task can't restrict: remove `tools` from the task"
            return failed(job, "tools_fixed", message)
        recorder = self.make_recorder(job)
        try:
            ending = await self.play(job, recorder)
        except TooManyTurns as error:
            message = str(error) or f"the child still called tools after {job.max_steps} turns"
            ending = Ending(code="max_steps", message=message)
        finally:
            recorder.stop()
            self.records_tools = self.records_tools and recorder.sees_all_calls
        if ending.code is None:
            return job.recorder.finish("completed", report=ending.report)
        return failed(job, ending.code, ending.message, report=ending.report)


def as_report(value: object) -> str:
    """An agent's result, which may have any type, as a report: everything but a string becomes JSON."""
    return value if isinstance(value, str) else TypeAdapter[Any](type(value)).dump_json(value, indent=1).decode()

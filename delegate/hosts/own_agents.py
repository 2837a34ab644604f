"""What runners of children that are agents of a framework share."""

from collections.abc import Hashable, Mapping
from typing import Any

from pydantic import TypeAdapter

from delegate.child.job import Job, PendingReceipt
from delegate.codes import ChildCode
from delegate.ports import ToolOutput
from delegate.types import ChildRun, ErrorDetail, Usage


def refuse_tools_of_task(job: Job) -> ChildRun | None:
    """The failed run of a child that brings its own tools, if the task wants to restrict them; else None."""
    if job.task.tools is None:
        return None
    message = "this child's agent has its own tools, which a task can't restrict: remove `tools` from the task and "
    return failed(job, "tools_fixed", message + "resend the call")


def failed(job: Job, code: ChildCode, message: str, *, output: str | None = None) -> ChildRun:
    """The run of a child that failed."""
    return job.recorder.finish("failed", output=output, error=ErrorDetail(code=code, message=message))


def too_many_turns(job: Job, why: str = "") -> ChildRun:
    """The run of a child that used up its model calls, or steps of which its framework says `why`."""
    message = why or f"the child still called tools after {job.max_steps} turns"
    return job.recorder.finish("max_steps", error=ErrorDetail(code="max_steps", message=message))


class RunningCalls:
    """The receipts of a child's tool calls that are running, by what identifies a call in the framework."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._receipts: dict[Hashable, PendingReceipt] = {}

    def began(self, key: Hashable, tool: str, args: Mapping[str, Any]) -> None:
        """Open the receipt of a call."""
        self._receipts[key] = self._job.tool_call(tool, args)

    def ended(self, key: Hashable, output: ToolOutput) -> None:
        """Write the receipt of a call, unless that is done."""
        if receipt := self._receipts.pop(key, None):
            receipt.output = output
            receipt.write()

    def stop(self) -> None:
        """Write the receipts of calls that were stopped before they ended."""
        while self._receipts:
            self._receipts.popitem()[1].write()


def as_report(output: object) -> str:
    """An agent's output, which may have any type, as a report: everything but a string becomes JSON."""
    return output if isinstance(output, str) else TypeAdapter[Any](type(output)).dump_json(output, indent=1).decode()


def calls_besides(all_used: Usage, recorded: Usage) -> Usage | None:
    """The model calls of a child's run besides those that are recorded, such as of agents that its tools run."""
    other = {name: max(0, n - getattr(recorded, name)) for name, n in all_used}
    return Usage.model_validate(other) if other["model_calls"] else None

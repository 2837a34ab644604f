"""What runners of children that are agents of a framework share."""

from typing import Any

from pydantic import TypeAdapter

from delegate.child.job import Job
from delegate.types import ChildRun, ErrorDetail, Usage


def refuse_tools_of_task(job: Job) -> ChildRun | None:
    """The failed run of a child that brings its own tools, if the task wants to restrict them; else None."""
    if job.task.tools is None:
        return None
    message = "this child's agent has its own tools, which a task can't restrict: remove `tools` from the task and "
    return job.recorder.finish("failed", error=ErrorDetail(code="tools_fixed", message=message + "resend the call"))


def as_report(output: object) -> str:
    """An agent's output, which may have any type, as a report: everything but a string becomes JSON."""
    return output if isinstance(output, str) else TypeAdapter[Any](type(output)).dump_json(output, indent=1).decode()


def calls_besides(all_used: Usage, recorded: Usage) -> Usage | None:
    """The model calls of a child's run besides those that are recorded, such as of agents that its tools run."""
    other = {name: max(0, n - getattr(recorded, name)) for name, n in all_used}
    return Usage.model_validate(other) if other["model_calls"] else None

"""A child that is any async function: a host's own agent, a call of another service, a script in Python."""

import inspect
from collections.abc import Awaitable, Callable
from typing import cast

from delegate.child.job import Job
from delegate.errors import ConfigError
from delegate.types import ChildRun, ErrorDetail

ChildFunction = Callable[[Job], Awaitable[str | ChildRun]]
"""Does a task and gives back the child's report, or the whole run as `job.recorder.finish` makes it."""


class FunctionRunner:
    """Runs each child by calling `function(job)`.

    What it needs is on the job: `job.task` (goal, context, criteria), `job.prompt` (all of it as one text),
    `job.workspace`, `job.tools`, and `job.record_tool` and `job.record_usage` for what it did and spent.

    At its deadline, and when the call is cancelled, the function gets `asyncio.CancelledError` where it awaits; it has
    to let it travel on. So it must be async: a sync function can't be stopped, and would work on after its verdict.
    One that is known to be quick can be called with `asyncio.to_thread` inside an async one.

    Args:
        function: an async function, method or object.
        records_tools: it calls `job.record_tool` for every tool call of its agent; see `ChildRunner.records_tools`.

    Raises:
        ConfigError: `function` isn't async.
    """

    needs_model = False

    def __init__(self, function: ChildFunction, *, records_tools: bool = False) -> None:
        if not _is_async(function):
            name = getattr(function, "__name__", type(function).__name__)
            raise ConfigError(
                f"the child {name} is not an async function, so it couldn't be stopped at its deadline: "
                "write `async def`, and `await asyncio.to_thread(…)` in it for what blocks"
            )
        self._function = function
        self.records_tools = records_tools

    async def run(self, job: Job) -> ChildRun:
        """Call the function and take its report."""
        given = cast("object", await self._function(job))
        if isinstance(given, ChildRun):
            return given
        if isinstance(given, str):
            return job.recorder.finish("completed", output=given)
        message = f"the child's function gave back a {type(given).__name__}, which is neither text nor a ChildRun"
        return job.recorder.finish("failed", error=ErrorDetail(code="bad_report", message=message))


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004

"""Runs any async function as the child: a host's own agent, a call to another service, a Python script."""

import inspect
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from pydantic import BaseModel

from delegate._util.threads import run_in_thread_if
from delegate.child.job import ChildRunner, Job
from delegate.records.recorder import LARGE_CHARS
from delegate.types import ChildRun, ErrorDetail
from delegate.types.errors import ConfigError

ChildFunction = Callable[[Job], Awaitable[str | dict[str, Any] | list[Any] | BaseModel | ChildRun]]
"""Does a task and returns the child's report, or a whole run made by `job.recorder.finish`.

A report that isn't text is a dict, a list or a Pydantic model, and is reported as JSON.
"""


class FunctionRunner:
    """Runs each child by calling `function(job)`.

    The job has everything that it needs: `job.task` (goal, context, criteria), `job.prompt` (all of that as one text),
    `job.workspace`, `job.tools`, and `job.record_tool` and `job.record_usage` to record what it did and spent.

    At its deadline, and when the call is cancelled, `asyncio.CancelledError` is raised where the function awaits; it
    must not swallow it. It must be async because a sync function can't be stopped, and would continue after its
    verdict. Inside the async function, quick blocking code can be run with `asyncio.to_thread`.

    Args:
        function: An async function, method or callable object.
        records_tools: Whether it calls `job.record_tool` for every tool call of its agent; see
            `ChildRunner.records_tools`.

    Raises:
        ConfigError: `function` isn't async.
    """

    needs_model = False

    def __init__(self, function: ChildFunction, *, records_tools: bool = False) -> None:
        is_async = inspect.iscoroutinefunction
        if not is_async(function) and not is_async(getattr(function, "__call__", None)):  # noqa: B004
            name = getattr(function, "__name__", type(function).__name__)
            raise ConfigError(
                f"the child {name} is not an async function, so it couldn't be stopped at its deadline: "
                "define it with `async def`, and call blocking code with `await asyncio.to_thread(…)`"
            )
        self._function = function
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        self.records_tools = records_tools

    async def run(self, job: Job) -> ChildRun:
        """Call the function and take what it returns as the report."""
        value = cast("object", await self._function(job))
        if isinstance(value, ChildRun):
            return value
        try:
            report = value if isinstance(value, str) else _as_json(value)
        except (TypeError, ValueError, RecursionError) as problem:
            message = f"the child's function returned a {type(value).__name__}, which {problem}"
            return job.recorder.finish("failed", error=ErrorDetail(code="bad_report", message=message))
        finish = partial(job.recorder.finish, "completed", report=report)
        return await run_in_thread_if(len(report) > LARGE_CHARS, finish)


def _as_json(value: object) -> str:
    """The JSON text of a report that isn't text. Raises TypeError, ValueError or RecursionError if there is none."""
    if not isinstance(value, (dict, list, BaseModel)):
        raise TypeError("is neither text nor a ChildRun, a dict, a list or a Pydantic model")
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_dumped)
    except (TypeError, ValueError, RecursionError) as problem:
        raise ValueError(f"can't be written as JSON: {problem}") from None


def _dumped(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"it contains a {type(value).__name__}")


def runner_of(runner: ChildRunner | ChildFunction) -> ChildRunner:
    """Return a runner as it is, and a runner for an async function.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(runner, type) or not (callable(runner) or hasattr(runner, "run")):
        name = runner.__name__ if isinstance(runner, type) else type(runner).__name__
        raise ConfigError(f"the runner {name} is neither an async function nor an instance with an async method `run`")
    return cast("ChildRunner", runner) if hasattr(runner, "run") else FunctionRunner(cast("ChildFunction", runner))

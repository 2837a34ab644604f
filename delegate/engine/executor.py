"""Runs the tasks of one call side by side and gives each exactly one result, with its verdict.

    task ──▶ permit ──▶ workspace ──▶ child, under its deadline ──▶ artifacts ──▶ verdict ──▶ result, stored

* Who starts a child: `TaskRun.run` calls the `ChildRunner`: the built-in loop, a host's agent, a function or a command.
  A child is run once; nothing is retried.
* Errors: an error, a timeout or an exceeded limit becomes the status of that task's result. Other tasks continue.
* Verdicts: each result is judged as soon as its child has finished. The child's permit is released by then, so a slow
  judge never keeps another child from starting.
* Where money is counted: every model call, of child or judge, goes through `budget.metering.complete`, which reserves
  its estimated cost in the ledger of the run before the request is sent and settles the actual cost afterwards.
* Cancellation, by the `Cancellation` or of the awaiting task, stops every child and judge of the call. The caller
  regains control when all of them have finished and their work is recorded: with a report if the `Cancellation` was
  used, otherwise with `CancelledError`.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delegate._util.cancellation import Cancellation, run_to_completion
from delegate.budget import costs
from delegate.budget.runs import RunContext
from delegate.engine.consumers import Consumer
from delegate.engine.scope import CallScope, Services
from delegate.engine.task_run import TaskRun
from delegate.errors import CallError
from delegate.events import Event, RunDone, RunStarted, TaskQueued
from delegate.judging.reading.reader import CallReading, TaskToRead
from delegate.judging.reading.statements import Template
from delegate.models.catalog import Model
from delegate.models.connections import Connection
from delegate.ports import Tool
from delegate.sandbox.commands.commands import Author
from delegate.telemetry import operations
from delegate.types import TIERS, Report, Task, TaskResult

if TYPE_CHECKING:
    from delegate.engine.resume import Resumed

WATCH_SECONDS = 2.0
"""Between two looks at the sizes of workspaces, while commands may be writing to them."""


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs the admitted tasks of one delegator."""

    services: Services
    running: dict[str, TaskRun] = field(default_factory=dict[str, TaskRun])
    """The tasks that run now, by their handles."""

    async def run(
        self,
        tasks: Sequence[Task],
        connections: Sequence[Connection | None],
        *,
        context: RunContext,
        author: Author,
        first_index: int = 0,
        consumers: tuple[Consumer[Event], ...] = (),
        is_run: bool = True,
        cancellation: Cancellation | None = None,
        resumed: "Resumed | None" = None,
        template: Template | None = None,
        handle: str | None = None,
        server_tools: tuple[Tool, ...] = (),
    ) -> Report:
        """Run all tasks. The report has their results in the same order, numbered from `first_index`.

        Unless the call `is_run`, but an item of a batch, its beginning and end are no events of their own. With
        `resumed`, the only task goes on where its record ends. `template` is what the only task was made from, and
        `handle` that of its record, if it is known before. `server_tools` are those of MCP servers.
        """
        start = time.monotonic()
        ceiling = context.bounds(self.services.settings).ceiling
        settings, run = self.services.settings, context.run
        traced = operations.workflow(settings.tool_name, run_id=run.id, tasks=len(tasks), depth=context.depth)
        with traced, (cancellation or Cancellation()).part() as own:
            handle = resumed.handle if resumed else handle
            handles = [handle or run.next_handle() for _ in tasks]
            told = tuple(filter(None, (*resumed.heard, resumed.message))) if resumed else ()
            reading = CallReading(
                self.services.judging.reader,
                [TaskToRead(key, task, template, messages=told) for key, task in zip(handles, tasks, strict=True)],
                self.services.tools_to_read(server_tools),
                worker=_weakest(connections),
                ceiling=ceiling,
                ledger=context.ledger,
            )
            call = CallScope(self.services, context, author, ceiling, own, reading, consumers, server_tools)
            runs = [
                TaskRun(call, n, task, connection, handle, resumed)
                for n, (task, connection, handle) in enumerate(
                    zip(tasks, connections, handles, strict=True), first_index
                )
            ]
            self.running.update((run.handle, run) for run in runs)
            call.unfinished.update(run.handle for run in runs)
            try:
                results = await run_to_completion(self._run_all(call, runs, is_run=is_run), own)
            finally:
                for run in runs:
                    self.running.pop(run.handle, None)
        totals = costs.totals(results, time.monotonic() - start)
        return Report(results=results, totals=totals, run_id=context.run.id)

    async def _run_all(self, call: CallScope, runs: Sequence[TaskRun], *, is_run: bool) -> tuple[TaskResult, ...]:
        """Run all tasks concurrently. All of them are recorded before the first one starts."""
        start, run_id = time.monotonic(), call.context.run.id
        resumed = runs[0].resumed if runs else None
        if resumed is not None and not resumed.message:
            await self._take_over(resumed)
        else:
            await self.services.records.begin(
                call.context.run.id,
                [(run.handle, run.task) for run in runs],
                first=runs[0].index if runs else 0,
                depth=call.context.depth,
                mailbox_of=call.author if self.services.takes_messages else None,
                message=resumed.message if resumed else "",
            )
        if is_run and call.consumers:
            call.deliver(RunStarted(run_id=run_id, at=time.time(), tasks=len(runs)))
        for run in runs:
            run.events.notify(TaskQueued, goal=run.task.goal)
        watch = _Watch(runs)
        call.reading.start()
        try:
            async with asyncio.TaskGroup() as group:
                call.context.ledger.join(len(runs))  # before the first may reserve all that is left
                running = [group.create_task(run.run()) for run in runs]
                for task in running:
                    task.add_done_callback(lambda _: call.context.ledger.leave())
            return tuple(task.result() for task in running)
        finally:
            watch.stop()
            await call.reading.close()
            if is_run and call.consumers:
                results = [run.result for run in runs if run.result is not None]
                call.deliver(_run_done(run_id, results, time.monotonic() - start))

    async def _take_over(self, resumed: "Resumed") -> None:
        """Make a task whose process was lost one of this process. Raises CallError if that isn't possible."""
        start = await self.services.records.take_over(resumed.handle)
        if start is None:
            message = f"{resumed.handle} can't be resumed: what its workspace was at its start isn't on record"
            hint = "it had too many files, or another process resumed it first; look at `delegate show`"
            raise CallError("cannot_resume", message, field="handle", hint=hint)
        resumed.start = start


def _weakest(connections: Sequence[Connection | None]) -> Model | None:
    """The model of the lowest tier: no model above it may read or judge its work."""
    models = [connection.model for connection in connections if connection is not None]
    return max(models, key=lambda model: TIERS.index(model.tier), default=None)


class _Watch:
    """Looks now and then at the workspaces of running children: one timer for all of a call."""

    def __init__(self, runs: Sequence[TaskRun]) -> None:
        self._runs = runs
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(WATCH_SECONDS, self._look)

    def _look(self) -> None:
        for run in self._runs:
            run.look()
        self._timer = self._loop.call_later(WATCH_SECONDS, self._look)

    def stop(self) -> None:
        """Stop looking."""
        self._timer.cancel()


def _run_done(run_id: str, results: Sequence[TaskResult], seconds: float) -> RunDone:
    totals = costs.totals(results, seconds)
    return RunDone(
        run_id=run_id,
        at=time.time(),
        tasks=totals.tasks,
        passed=totals.passed,
        failed=totals.failed,
        cost_usd=totals.cost_usd,
        seconds=round(seconds, 6),
    )

"""Runs the tasks of one call side by side and gives each exactly one result, with its verdict.

    task ──▶ permit ──▶ workspace ──▶ child, under its deadline ──▶ artifacts ──▶ verdict ──▶ result, stored

* Attempts: a task may be attempted several times, side by side. All are waited for, and the best one is chosen by its
  verdict: a PASS, at the best level, with the best score, at the least cost. Each has a workspace, handle and record
  of its own; none sees another, and nothing is tried again. What they spend counts together toward `max_cost_usd`.
* What a task needs: it waits for the verdicts of other tasks of the call before it asks for a permit. `needs.py`
* Who starts a child: `TaskRun.run` calls the `ChildRunner`: the built-in loop, a host's agent, a function or a command.
  A child is run once; nothing is retried.
* Errors: an error, a timeout or an exceeded limit becomes the status of that task's result. Other tasks continue.
* Verdicts: each result is judged as soon as its child has finished. The child's permit is released by then, so a slow
  judge never keeps another child from starting.
* Where money is counted: every model call, of child or judge, goes through `budget.metering.complete`, which reserves
  its estimated cost in the ledger of the run before the request is sent and settles the actual cost afterwards.
* Cancellation, by the `Cancellation` or of the awaiting task, stops every child and judge of the call. The caller
  regains control when all of them have finished and their work is recorded: with a result if the `Cancellation` was
  used, otherwise with `CancelledError`.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from delegate._util.cancellation import Cancellation
from delegate._util.threads import run_in_thread
from delegate.budget import costs
from delegate.budget.ledger import Ledger
from delegate.engine.consumers import Consumer
from delegate.engine.needs import names_of
from delegate.engine.scope import CallOptions, CallScope, Services
from delegate.engine.task_run import TaskRun, shown
from delegate.judging.reading.reader import CallReading, TaskToRead
from delegate.models.connections import Connection
from delegate.types import LEVELS, TIERS, Attempt, RunResult, Task, TaskResult
from delegate.types.errors import CallError
from delegate.types.events import Event, RunDone, RunStarted, TaskQueued
from delegate.types.ports import Tool

WATCH_SECONDS = 2.0
"""Between two looks at the sizes of workspaces, while commands may be writing to them."""


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs the admitted tasks of one delegator."""

    services: Services
    running: dict[str, TaskRun] = field(default_factory=dict[str, TaskRun])

    async def run(
        self,
        tasks: Sequence[Task],
        connections: Sequence[Sequence[Connection | None]],
        options: CallOptions,
        cancellation: Cancellation,
        *,
        consumers: tuple[Consumer[Event], ...] = (),
        server_tools: tuple[Tool, ...] = (),
    ) -> RunResult:
        """Run all tasks side by side. All of them are recorded before the first one starts.

        The result has those of the tasks, in the same order. A task with several `connections` is attempted with each
        of them. `server_tools` are those of MCP servers. It must not be cancelled: `cancellation` stops it.
        """
        start, run_id = time.monotonic(), options.context.run.id
        call, groups = self._groups(tasks, connections, options, cancellation, consumers, server_tools)
        runs = [run for group in groups for run in group.runs]
        reports_run = options.is_run and bool(consumers)
        self.running.update((run.handle, run) for run in runs)
        try:
            await self._record(runs, call, options)
            if reports_run:
                call.deliver(RunStarted(run_id=run_id, at=time.time(), tasks=len(groups)))
            for run in runs:
                run.events.notify(TaskQueued, goal=run.task.goal)
            watch = _Watch(runs)
            call.reading.start()
            try:
                async with asyncio.TaskGroup() as group_tasks:
                    for group in groups:  # before the first may reserve all that is left
                        group.ledger.join(len(group.runs))
                    running = [group_tasks.create_task(group.run()) for group in groups]
                    by_name = dict(zip(names_of(tasks), running, strict=True))
                    for run in runs if options.resumed is None else ():
                        run.needs = {name: by_name[name] for name in run.task.needs}
                    for task, group in zip(running, groups, strict=True):
                        task.add_done_callback(lambda _, group=group: group.ledger.join(-len(group.runs)))
                results = tuple(task.result() for task in running)
            finally:
                watch.timer.cancel()
                await call.reading.close()
                chosen = [group.chosen.result for group in groups if group.chosen.result]
                others = [run.result for run in runs if run.result and all(run.result is not one for one in chosen)]
                totals = costs.totals(chosen, time.monotonic() - start, others=others)
                if reports_run:
                    sums = totals.model_dump(include={"tasks", "passed", "failed", "cost_usd", "seconds"})
                    call.deliver(RunDone(run_id=run_id, at=time.time(), **sums))
        finally:
            for run in runs:
                self.running.pop(run.handle, None)
        return RunResult(results=results, totals=totals, run_id=run_id)

    def _groups(
        self,
        tasks: Sequence[Task],
        connections: Sequence[Sequence[Connection | None]],
        options: CallOptions,
        cancellation: Cancellation,
        consumers: tuple[Consumer[Event], ...],
        server_tools: tuple[Tool, ...],
    ) -> "tuple[CallScope, list[TaskAttempts]]":
        """The attempts at each task, and what all of them share."""
        context, resumed = options.context, options.resumed
        ceiling = context.bounds(self.services.settings).ceiling
        handle = resumed.handle if resumed else options.handle
        handles = [[handle or context.run.next_handle() for _ in attempts] for attempts in connections]
        told = (*(heard.text for heard in resumed.heard), resumed.message) if resumed else ()
        to_read = [
            TaskToRead(of_task[0], task, options.template, messages=told)
            for of_task, task in zip(handles, tasks, strict=True)
        ]
        shared, tools = None, server_tools
        if options.scratch:
            from delegate.child.scratch import Scratch  # loaded only where it is asked for

            shared = Scratch()
            tools = (*tools, shared.tool(options.first_index))
        models = [one.model for attempts in connections for one in attempts if one is not None]
        reading = CallReading(
            self.services.judging.reader,
            to_read,
            self.services.tools_to_read(tools),
            # No model above the lowest tier may read or judge the work.
            worker=max(models, key=lambda model: TIERS.index(model.tier), default=None),
            ceiling=ceiling,
            ledger=context.ledger,
        )
        call = CallScope(
            self.services, context, options.author, ceiling, cancellation, reading, consumers, server_tools, shared
        )
        groups: list[TaskAttempts] = []
        for n, (task, of_task, own) in enumerate(zip(tasks, connections, handles, strict=True), options.first_index):
            ledger = context.ledger.within("cost_usd", task.max_cost_usd) if len(own) > 1 else context.ledger
            runs: list[TaskRun] = []
            runs += (TaskRun(call, n, task, *pair, resumed, ledger, runs) for pair in zip(of_task, own, strict=True))
            groups.append(TaskAttempts(runs, ledger, runs[0]))
            call.unfinished.update(own)
        return call, groups

    async def _record(self, runs: Sequence[TaskRun], call: CallScope, options: CallOptions) -> None:
        """Record that the tasks begin, or make one whose process was lost one of this process.

        Raises CallError if that isn't possible.
        """
        if (resumed := options.resumed) is None or not resumed.process:
            await self.services.records.begin(
                call.context.run.id,
                [(run.handle, run.index, run.task) for run in runs],
                depth=call.context.depth,
                mailbox_of=call.author if self.services.runner_has("takes_messages") else None,
                message=resumed.message if resumed else "",
            )
            return
        if resumed.start is not None and resumed.workspace:
            from delegate.sandbox.workspace.start_state import refuse_lost  # loaded only where it is needed

            await run_in_thread(partial(refuse_lost, Path(resumed.workspace), resumed.start))
        if not await self.services.records.take_over(resumed.handle, resumed.process):
            message = f"{resumed.handle} can't be resumed: another process resumed it first"
            raise CallError("cannot_resume", message, field="handle", hint="look at `delegate show`")


@dataclass(slots=True)
class TaskAttempts:
    """All attempts at one task of a call: one for each connection. `run` must be called only once."""

    runs: Sequence[TaskRun]
    ledger: Ledger
    """What they spend from together."""
    chosen: TaskRun

    async def run(self) -> TaskResult:
        """Run all attempts, and return the result of the best one."""
        if len(self.runs) == 1:
            return await self.chosen.run()
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(run.run()) for run in self.runs]
        results = [task.result() for task in running]
        self.chosen, best = min(zip(self.runs, results, strict=True), key=lambda pair: _rank(pair[1]))
        attempts = tuple(
            Attempt(
                chosen=result is best,
                **shown(result, "handle", "status", "model", "cost_usd"),
                **shown(result.verdict, "verdict", "code", "level", "score"),
            )
            for result in results
        )
        for run, result in zip(self.runs, results, strict=True):
            run.result = result.model_copy(update={"attempts": attempts})
        await self.chosen.call.services.records.note_attempts([run.handle for run in self.runs], attempts)
        assert self.chosen.result is not None
        return self.chosen.result


def _rank(result: TaskResult) -> tuple[bool, bool, int, float, bool, float]:
    """How far it is from the best: a PASS, at the best level, with the best score, at the least cost."""
    verdict, cost = result.verdict, result.cost_usd
    level = LEVELS.index(verdict.level) if result.good and verdict and verdict.level else len(LEVELS)
    score = verdict.score if verdict and verdict.score is not None else 0.0
    return not result.good, not result.examined, level, -score, cost is None, cost or 0.0


class _Watch:
    """Looks now and then at the workspaces of running children: one timer for all of a call."""

    def __init__(self, runs: Sequence[TaskRun]) -> None:
        self._runs = runs
        self._start()

    def _start(self) -> None:
        self.timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)

    def _look(self) -> None:
        for deadline in filter(None, (run.deadline for run in self._runs)):
            deadline.look()
        self._start()

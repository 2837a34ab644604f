"""Runs the attempts at one task: usually one, or several side by side, of which the best is chosen by its verdict.

    attempt 1, 2, 3 ──▶ a verdict each ──▶ a PASS, at the best level, with the best score, at the least cost

All of them are waited for, within the limits of each. Each has a workspace, a handle and a record of its own; none sees
another, and nothing is tried again. What they spend counts together toward the task's `max_cost_usd`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from delegate.budget.ledger import Ledger
from delegate.engine.scope import CallScope
from delegate.engine.task_run import TaskRun
from delegate.models.connections import Connection
from delegate.types import LEVELS, Attempt, Task, TaskResult

if TYPE_CHECKING:
    from delegate.engine.resume import Resumed


@dataclass(slots=True)
class TaskAttempts:
    """All attempts at one task of a call. `run` must be called only once."""

    task: Task
    runs: Sequence[TaskRun]
    ledger: Ledger
    """What they spend from."""
    outcome: "asyncio.Future[TaskResult]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """The task's result, for tasks that need it."""
    _chosen: int = 0

    @classmethod
    def of(
        cls,
        call: CallScope,
        index: int,
        task: Task,
        attempts: Iterable[tuple[Connection | None, str]],
        resumed: "Resumed | None",
    ) -> Self:
        """The attempts at the task in this position, each given with its connection and handle."""
        pairs = list(attempts)
        ledger = call.context.ledger
        if len(pairs) > 1:
            ledger = ledger.within("cost_usd", task.max_cost_usd)
        runs = [TaskRun(call, index, task, connection, handle, resumed, ledger) for connection, handle in pairs]
        for run in runs if len(runs) > 1 else ():
            run.attempts = runs
        return cls(task, runs, ledger)

    @property
    def result(self) -> TaskResult | None:
        return self.runs[self._chosen].result

    @property
    def others(self) -> list[TaskRun]:
        return [run for n, run in enumerate(self.runs) if n != self._chosen]

    async def run(self) -> TaskResult:
        """Run all attempts, and return the result of the best one."""
        try:
            result = await (self.runs[0].run() if len(self.runs) == 1 else self._run_all())
            self.outcome.set_result(result)
            return result
        finally:
            self.outcome.cancel()  # unless it is there

    async def _run_all(self) -> TaskResult:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(run.run()) for run in self.runs]
        results = [task.result() for task in running]
        self._chosen = min(range(len(results)), key=lambda n: _rank(results[n]))
        attempts = tuple(
            Attempt(
                chosen=n == self._chosen,
                handle=result.handle,
                status=result.status,
                model=result.model,
                cost_usd=result.cost_usd,
                **{name: getattr(result.verdict, name, None) for name in ("verdict", "code", "level", "score")},
            )
            for n, result in enumerate(results)
        )
        results = [result.model_copy(update={"attempts": attempts}) for result in results]
        for run, result in zip(self.runs, results, strict=True):
            run.result = result
        await self.runs[0].call.services.records.note_attempts([run.handle for run in self.runs], attempts)
        return results[self._chosen]


def _rank(result: TaskResult) -> tuple[bool, bool, int, float, bool, float]:
    """How far it is from the best: a PASS, at the best level, with the best score, at the least cost."""
    verdict, cost = result.verdict, result.cost_usd
    level = LEVELS.index(verdict.level) if result.good and verdict and verdict.level else len(LEVELS)
    score = verdict.score if verdict and verdict.score is not None else 0.0
    return not result.good, not result.examined, level, -score, cost is None, cost or 0.0

"""Runs the attempts at one task: usually one, or several side by side, of which the best is chosen by its verdict.

    attempt 1, 2, 3 ──▶ a verdict each ──▶ a PASS, at the best level, with the best score, at the least cost

All of them are waited for, within the limits of each. Each has a workspace, a handle and a record of its own; none sees
another, and nothing is tried again. What they spend counts together toward the task's `max_cost_usd`.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from delegate.engine.scope import CallScope
from delegate.engine.task_run import TaskRun
from delegate.models.connections import Connection
from delegate.types import LEVELS, Attempt, Task, TaskResult

if TYPE_CHECKING:
    from delegate.engine.resume import Resumed


class TaskAttempts:
    """All attempts at the task in one position of a call: one for each connection. `run` must be called only once."""

    def __init__(
        self,
        call: CallScope,
        index: int,
        task: Task,
        connections: Sequence[Connection | None],
        handles: Sequence[str],
        resumed: "Resumed | None",
    ) -> None:
        several, self.ledger = len(connections) > 1, call.context.ledger
        if several:
            self.ledger = self.ledger.within("cost_usd", task.max_cost_usd)
        pairs = zip(connections, handles, strict=True)
        self.runs = [TaskRun(call, index, task, *pair, resumed, self.ledger) for pair in pairs]
        for run in self.runs if several else ():
            run.attempts = self.runs
        self.chosen = self.runs[0]
        self.outcome: asyncio.Future[TaskResult] = asyncio.get_running_loop().create_future()
        """The task's result, for tasks that need it."""

    async def run(self) -> TaskResult:
        """Run all attempts, and return the result of the best one."""
        try:
            result = await (self._run_all() if self.chosen.attempts else self.chosen.run())
            self.outcome.set_result(result)
            return result
        finally:
            self.outcome.cancel()  # unless it is there

    async def _run_all(self) -> TaskResult:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(run.run()) for run in self.runs]
        results = [task.result() for task in running]
        self.chosen, best = min(zip(self.runs, results, strict=True), key=lambda pair: _rank(pair[1]))
        attempts = tuple(
            Attempt(
                chosen=result is best,
                handle=result.handle,
                status=result.status,
                model=result.model,
                cost_usd=result.cost_usd,
                **{name: getattr(result.verdict, name, None) for name in ("verdict", "code", "level", "score")},
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

"""Propose → verify → review → propose again, for runners without a conversation that can go on.

Each shot is a task of its own with a result of its own. The next one gets the same task, and besides its context what
the verdict refused in the last one.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from delegate._util.fencing import one_line
from delegate.control.loop import LoopLimits, LoopResult, LoopStep, Stop, run_loop
from delegate.control.review import refusal
from delegate.types import Task, TaskResult
from delegate.types.errors import CallError

Propose = Callable[[Task], Awaitable[TaskResult]]
Review = Callable[[TaskResult], str]


@dataclass(frozen=True, slots=True)
class Shots:
    """All results, in order, and how the loop ended. `verified`: the last one is a PASS on verified evidence."""

    results: tuple[TaskResult, ...]
    loop: LoopResult

    @property
    def verified(self) -> bool:
        """Whether the last result is a PASS whose every decision rests on evidence."""
        return self.loop.end == "verified"


async def run_shots(
    propose: Propose,
    task: Task,
    *,
    max_shots: int = 3,
    max_seconds: float | None = None,
    max_cost_usd: float | None = None,
    review: Review | None = None,
    on_step: Callable[[LoopStep], None] | None = None,
) -> Shots:
    """Run a task again until its work is verified, at most `max_shots` times.

        async def propose(task):
            return (await delegator.run(task)).results[0]

        shots = await run_shots(propose, Task(goal="…", acceptance_criteria=["shell: pytest -q"]))

    Every shot starts from the same files: what one shot did to the checks must not be the beginning of the next.

    Args:
        propose: Runs a task once and returns its result, with a verdict.
        task: The task. It needs criteria, and a workspace that is made anew for each shot.
        max_shots: Maximum number of shots.
        max_seconds: Maximum wall time.
        max_cost_usd: Maximum cost. It is exceeded by no more than one shot.
        review: Writes what the next shot is told about a result that was refused. Default: `refusal`.
        on_step: Receives every step. What it raises is logged and ignored.

    Raises:
        CallError: The task has no criteria, or its workspace is shared.
    """
    if not task.criteria:
        message = "shots need acceptance_criteria: they decide when the work is done"
        raise CallError("bad_task", message, field="acceptance_criteria")
    if task.workspace is not None and task.workspace.mode == "shared":
        message = "shots can't work in a shared folder: what one did to the checks would be where the next begins"
        raise CallError("bad_task", message, field="workspace", hint="use mode worktree or copy")
    controller = _Shooter(propose, task, review or _review)
    limits = LoopLimits(
        max_steps=max_shots,
        max_seconds=max_seconds,
        max_cost_usd=max_cost_usd,
        max_no_progress_steps=None,
        max_repeated_actions=None,
    )
    loop = await run_loop(
        controller, limits, state_digest=lambda _: None, cost=controller.cost, on_step=on_step, raises=(CallError,)
    )
    return Shots(tuple(controller.results), loop)


@dataclass(slots=True)
class _Shooter:
    """The controller of shots: its state is the latest result, its action the next task."""

    propose: Propose
    task: Task
    review: Review
    results: list[TaskResult] = field(default_factory=list[TaskResult])

    async def observe(self) -> TaskResult | None:
        return self.results[-1] if self.results else None

    async def validate(self, state: TaskResult | None) -> bool:
        return state is not None and state.good and state.verdict is not None and state.verdict.verified

    async def decide(self, state: TaskResult | None) -> Task | Stop:
        if state is None:
            return self.task
        if state.status == "cancelled":
            return Stop("the shot was cancelled")
        context = (self.task.context or "").strip()
        message = f"An earlier attempt at this was refused. You start anew.\n\n{self.review(state)}"
        return self.task.model_copy(update={"context": f"{context}\n\n{message}" if context else message})

    async def act(self, action: Task) -> None:
        self.results.append(await self.propose(action))

    def cost(self) -> float | None:
        costs = [result.cost_usd for result in self.results]
        return None if None in costs else sum(cost for cost in costs if cost is not None)


def _review(result: TaskResult) -> str:
    if result.verdict is None:
        return "There was no verdict."
    text = refusal(result.verdict)
    error = result.error
    return f"{text}\nIt ended with {error.code}: {one_line(error.message, 300)}" if error else text

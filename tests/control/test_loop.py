"""The control loop: its four ends, its limits, and errors that don't end it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from delegate.control import LoopLimits, LoopResult, LoopStep, Stop, digest_of, run_loop

ONLY_STEPS = LoopLimits(max_steps=5, max_no_progress_steps=None, max_repeated_actions=None)


@dataclass
class Counter:
    """Counts up to a goal. `fails` are the phases that raise, by the number of their call."""

    goal: int = 3
    by: Callable[[int], int] = lambda n: 1
    fails: Sequence[tuple[str, int]] = ()
    n: int = 0
    cost: float = 0
    calls: dict[str, int] = field(default_factory=dict[str, int])

    async def observe(self) -> int:
        self._called("observe")
        return self.n

    async def validate(self, state: int) -> bool:
        self._called("validate")
        return state >= self.goal

    async def decide(self, state: int) -> Any:
        self._called("decide")
        return self.by(self.calls["decide"])

    async def act(self, action: int) -> None:
        self._called("act")
        self.n += action
        self.cost += 0.4

    def _called(self, phase: str) -> None:
        self.calls[phase] = self.calls.get(phase, 0) + 1
        if (phase, self.calls[phase]) in self.fails:
            raise OSError(f"{phase} failed")


async def test_it_ends_as_verified_after_the_action_that_reached_the_goal() -> None:
    counter = Counter()
    result = await run_loop(counter, LoopLimits(max_steps=3))
    assert (result.end, len(result.steps), counter.n) == ("verified", 3, 3)
    assert [step.action for step in result.steps] == [digest_of(1)] * 3
    assert not any(step.errors for step in result.steps)


async def test_a_goal_that_is_reached_already_needs_no_step() -> None:
    result = await run_loop(Counter(goal=0))
    assert (result.end, result.steps) == ("verified", ())


async def test_the_controller_can_give_up_but_never_accept() -> None:
    for stop, end in (
        (Stop("why"), "aborted"),
        (Stop("why", "verified"), "aborted"),
        (Stop("", "no_progress"), "no_progress"),
    ):
        result = await run_loop(Counter(by=lambda n, stop=stop: stop))  # pyright: ignore[reportArgumentType]
        assert (result.end, result.reason) == (end, stop.reason)


async def test_steps_and_cost_are_limits_and_cost_is_passed_by_one_call_at_most() -> None:
    result = await run_loop(Counter(goal=99), ONLY_STEPS)
    assert (result.end, len(result.steps)) == ("budget_limited", 5)
    counter = Counter(goal=99)
    result = await run_loop(counter, LoopLimits(max_cost_usd=1, max_repeated_actions=None), cost=lambda: counter.cost)
    assert (result.end, result.reason) == ("budget_limited", "max_cost_usd (1) is reached")
    assert counter.calls["act"] == 3
    assert result.cost_usd == pytest.approx(1.2)


async def test_a_cost_that_is_unknown_ends_a_loop_whose_cost_is_limited() -> None:
    result = await run_loop(Counter(), LoopLimits(max_cost_usd=1), cost=lambda: None)
    assert (result.end, result.cost_usd) == ("budget_limited", None)


async def test_wall_time_stops_what_runs() -> None:
    class Slow(Counter):
        async def act(self, action: int) -> None:
            await asyncio.sleep(60)

    result = await run_loop(Slow(), LoopLimits(max_seconds=0.02))
    assert (result.end, result.reason) == ("budget_limited", "max_seconds (0.02) is reached")


async def test_a_timeout_of_the_controller_is_an_error_like_any_other() -> None:
    class Late(Counter):
        async def act(self, action: int) -> None:
            await super().act(action)
            if self.calls["act"] == 1:
                raise TimeoutError("late")

    result = await run_loop(Late(), LoopLimits(max_seconds=60))
    assert result.end == "verified"
    assert result.steps[0].errors == ("act: TimeoutError: late",)


async def test_a_state_that_does_not_change_ends_without_progress() -> None:
    limits = LoopLimits(max_no_progress_steps=2, max_repeated_actions=None)
    result = await run_loop(Counter(by=lambda n: 1 if n < 3 else 0, goal=9), limits)
    assert (result.end, result.reason) == ("no_progress", "nothing changed in 2 steps")
    assert len(result.steps) == 4


async def test_a_state_without_a_digest_is_neither_progress_nor_the_lack_of_it() -> None:
    limits = LoopLimits(max_steps=9, max_no_progress_steps=2, max_repeated_actions=None)
    seen = iter([None, "a", None, "a", None, "a"])
    result = await run_loop(Counter(goal=99), limits, state_digest=lambda state: next(seen))
    assert (result.end, len(result.steps)) == ("no_progress", 5)


async def test_an_action_that_is_repeated_is_not_made_again() -> None:
    limits = LoopLimits(max_steps=9, max_repeated_actions=2, max_no_progress_steps=None)
    counter = Counter(by=lambda n: 0)
    result = await run_loop(counter, limits)
    assert (result.end, counter.calls["act"]) == ("no_progress", 2)
    different = Counter(by=lambda n: 0 if n % 3 else 1)
    assert (await run_loop(different, limits)).end == "verified", "and in a new state it is no repetition"


PHASES = ["observe", "validate", "decide", "act"]


@pytest.mark.parametrize("phase", PHASES)
async def test_an_error_is_recorded_and_the_loop_goes_on(phase: str) -> None:
    result = await run_loop(Counter(fails=[(phase, 2)]))
    assert result.end == "verified"
    assert [error for step in result.steps for error in step.errors] == [f"{phase}: OSError: {phase} failed"]


@pytest.mark.parametrize("phase", PHASES)
async def test_errors_without_an_end_are_no_progress_or_use_up_the_steps(phase: str) -> None:
    fails = [(phase, n) for n in range(1, 99)]
    result = await run_loop(Counter(fails=fails), LoopLimits(max_no_progress_steps=3, max_repeated_actions=None))
    assert (result.end, len(result.steps)) == ("no_progress", 3)
    assert all(f"{phase} failed" in step.errors[0] for step in result.steps)
    result = await run_loop(Counter(fails=fails), ONLY_STEPS)
    assert (result.end, len(result.steps)) == ("budget_limited", 5)


async def test_an_error_that_the_caller_wants_ends_the_loop() -> None:
    with pytest.raises(OSError, match="act failed"):
        await run_loop(Counter(fails=[("act", 1)]), raises=(OSError,))


async def test_telemetry_that_fails_ends_nothing() -> None:
    steps: list[LoopStep] = []

    def receive(step: LoopStep) -> None:
        steps.append(step)
        raise ValueError("no disk")

    result = await run_loop(Counter(), on_step=receive)
    assert (result.end, tuple(steps)) == ("verified", result.steps)


async def test_a_cancel_travels() -> None:
    class Waits(Counter):
        async def act(self, action: int) -> None:
            await asyncio.sleep(60)

    running: asyncio.Task[LoopResult] = asyncio.create_task(run_loop(Waits(), LoopLimits(max_seconds=60)))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

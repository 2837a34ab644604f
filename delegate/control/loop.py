"""Runs observe → validate → decide → act until the goal is verified, the controller gives up, or a limit ends it.

    observe ──▶ validate ──▶ holds: verified
                    └──▶ does not ──▶ nothing changed for too long: no_progress
                                └──▶ a limit is reached: budget_limited
                                └──▶ decide ──▶ Stop: aborted, or as it says
                                          └──▶ act ──▶ observe …

What the last action did is still observed and validated, so that work done in the last step counts. There is no end
that accepts work which was not verified.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from delegate._util.redaction import logger
from delegate.types import GoalEnd

State = TypeVar("State")
Action = TypeVar("Action")

_log = logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """When a loop ends without success. None: no such limit."""

    max_steps: int = 30
    """How many steps may decide and act. A step that fails with an error counts too."""
    max_seconds: float | None = None
    """Wall time, after which what runs is cancelled."""
    max_cost_usd: float | None = None
    """Looked at before every call that may cost something, so that it is exceeded by no more than one of them."""
    max_no_progress_steps: int | None = 5
    """How many steps in a row may leave the state as it was, or fail with an error."""
    max_repeated_actions: int | None = 3
    """How many times in a row the same action may be made in the same state."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Returned by `decide` to end the loop without success. `end` is never `verified`."""

    reason: str
    end: GoalEnd = "aborted"


@dataclass(frozen=True, slots=True)
class LoopStep:
    """One step. Digests are None if the step didn't get that far, or there is none."""

    n: int
    state: str | None
    action: str | None
    errors: tuple[str, ...]
    """Errors of the controller, each with the phase in which it was raised."""
    seconds: float
    cost_usd: float | None
    """The cost of the whole loop after this step."""


@dataclass(frozen=True, slots=True)
class LoopResult:
    """How a loop ended. Only `verified` is a success."""

    end: GoalEnd
    reason: str
    steps: tuple[LoopStep, ...]
    seconds: float
    cost_usd: float | None
    """None if a part of it is unknown."""


class Controller(Protocol[State, Action]):
    """What the loop runs. Every method may raise: the error is recorded, and the loop goes on with the next step."""

    async def observe(self) -> State:
        """Look at what there is now."""
        ...

    async def validate(self, state: State) -> bool:
        """Whether the goal is reached in this state. An error is no."""
        ...

    async def decide(self, state: State) -> Action | Stop:
        """What to do next, or that nothing can be done."""
        ...

    async def act(self, action: Action) -> None:
        """Do it."""
        ...


def digest_of(value: object) -> str | None:
    """A digest of any value, by its JSON; what JSON can't express counts by its `repr`. None has none."""
    if value is None:
        return None
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


async def run_loop(
    controller: Controller[State, Action],
    limits: LoopLimits | None = None,
    *,
    state_digest: Callable[[State], str | None] = digest_of,
    action_digest: Callable[[Action], str | None] = digest_of,
    cost: Callable[[], float | None] | None = None,
    on_step: Callable[[LoopStep], None] | None = None,
    raises: tuple[type[Exception], ...] = (),
) -> LoopResult:
    """Run a controller until one of the four ends.

    Args:
        controller: What to run.
        limits: When to end without success.
        state_digest: Tells states apart. A digest of None says nothing: it counts neither as progress nor as the lack
            of it.
        action_digest: Tells actions apart. An action without one is never a repetition.
        cost: The cost so far in US dollars. An unknown cost (None) ends a loop that has `max_cost_usd`.
        on_step: Receives every step. What it raises is logged and ignored.
        raises: Exceptions that end the loop and are raised, instead of being recorded.
    """
    loop = _Loop(
        controller, limits or LoopLimits(), state_digest, action_digest, cost or (lambda: 0.0), on_step, raises
    )
    deadline = asyncio.timeout(loop.limits.max_seconds)
    try:
        async with deadline:
            return await loop.run()
    except TimeoutError:
        if not deadline.expired():
            raise
    return loop.ended("budget_limited", f"max_seconds ({loop.limits.max_seconds:g}) is reached")


@dataclass(slots=True)
class _Loop:
    controller: Controller[Any, Any]
    limits: LoopLimits
    state_digest: Callable[[Any], str | None]
    action_digest: Callable[[Any], str | None]
    cost: Callable[[], float | None]
    on_step: Callable[[LoopStep], None] | None
    raises: tuple[type[Exception], ...]
    steps: list[LoopStep] = field(default_factory=list[LoopStep])
    started: float = field(default_factory=time.monotonic)
    unchanged: int = 0
    """Steps in a row that left the state as it was, or failed."""
    repeated: int = 0
    state: str | None = None
    action: str | None = None
    action_in: str | None = None
    """The digest of the state in which it was chosen."""
    phase: str = "observe"

    async def run(self) -> LoopResult:
        while True:
            began, errors, stop = time.monotonic(), tuple[str, ...](), None
            try:
                stop = await self._step()
            except self.raises:
                self._record(began, ("raised, which ends the loop",))
                raise
            except Exception as error:
                errors = (f"{self.phase}: {type(error).__name__}: {error}",)
                # After the other phases, the next state tells whether anything changed.
                self.unchanged += self.phase in ("observe", "validate")
                stop = self._stuck() or self._used_up(len(self.steps) + 1)
            if stop is not None and not errors:
                return self.ended(stop.end, stop.reason)
            self._record(began, errors)
            if stop is not None:
                return self.ended(stop.end, f"{stop.reason}; the last error was in {errors[0]}")

    async def _step(self) -> Stop | None:
        controller = self.controller
        self.phase = "observe"
        state = await controller.observe()
        if stop := self._too_costly():
            return stop
        self.phase = "validate"
        if await controller.validate(state):
            return Stop("the goal is verified", "verified")
        if (digest := self.state_digest(state)) is not None:
            self.unchanged = self.unchanged + 1 if digest == self.state else 0
            self.state = digest
        if stop := self._stuck() or self._used_up(len(self.steps)) or self._too_costly():
            return stop
        self.phase = "decide"
        action = await controller.decide(state)
        if isinstance(action, Stop):
            return action if action.end != "verified" else Stop(action.reason)
        if stop := self._note_action(self.action_digest(action)) or self._too_costly():
            return stop
        self.phase = "act"
        await controller.act(action)
        return None

    def ended(self, end: GoalEnd, reason: str) -> LoopResult:
        seconds = round(time.monotonic() - self.started, 6)
        return LoopResult(end, reason, tuple(self.steps), seconds, self.cost())

    def _note_action(self, digest: str | None) -> Stop | None:
        again = digest is not None and (digest, self.state) == (self.action, self.action_in)
        self.repeated = self.repeated + 1 if again else 1
        self.action, self.action_in = digest, self.state
        most = self.limits.max_repeated_actions
        if most is not None and self.repeated > most:
            return Stop(f"the same action was chosen {self.repeated} times in a row", "no_progress")
        return None

    def _stuck(self) -> Stop | None:
        most = self.limits.max_no_progress_steps
        if most is None or self.unchanged < most:
            return None
        return Stop(f"nothing changed in {self.unchanged} steps", "no_progress")

    def _used_up(self, steps: int) -> Stop | None:
        most = self.limits.max_steps
        return Stop(f"max_steps ({most}) is reached", "budget_limited") if steps >= most else None

    def _too_costly(self) -> Stop | None:
        limit = self.limits.max_cost_usd
        if limit is None:
            return None
        cost = self.cost()
        if cost is None:
            return Stop("max_cost_usd can't be kept, since the cost so far is unknown", "budget_limited")
        return Stop(f"max_cost_usd ({limit:g}) is reached", "budget_limited") if cost >= limit else None

    def _record(self, began: float, errors: tuple[str, ...]) -> None:
        seconds = round(time.monotonic() - began, 6)
        step = LoopStep(len(self.steps) + 1, self.state, self.action, errors, seconds, self.cost())
        self.steps.append(step)
        if self.on_step is not None:
            try:
                self.on_step(step)
            except Exception:  # an error in telemetry must not end the work
                _log.exception("the receiver of steps failed")

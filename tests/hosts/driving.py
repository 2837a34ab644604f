"""What a host's driver does for the conformance suite: one turn of a parent in the framework's own agent loop.

A driver is a module `tests/hosts/drivers/<host>.py` with one object `DRIVER`. It builds an agent of the framework whose
model is at `world.server`, gives it `delegate.hosts.<host>.tool(delegator)`, lets it run, and says what came of it.
"""

import asyncio
import importlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import pytest

from delegate import Delegator
from delegate.types import JsonObject
from tests.hosts.world import World

Scenario = Literal[
    "single",
    "batch",
    "criteria_met",
    "criteria_failed",
    "check_fails",
    "bad_arguments",
    "too_many_tasks",
    "cancel_in_flight",
    "timeout",
    "progress_seen",
    "usage_counted",
    "four_calls_in_one_turn",
    "forged_verdict",
    "judge_down",
    "nested_delegation_refused",
]


@dataclass(frozen=True)
class Outcome:
    """What the host made of the turn. What the parent's model read is on record at the model server."""

    progress: list[str] = field(default_factory=list[str])
    """Texts that the host's own channel of progress carried while children worked, in order."""
    usage: tuple[int, int] | None = None
    """Input and output tokens in the host's own totals at the end of the run; None where it has none."""
    structured: list[JsonObject] = field(default_factory=list[JsonObject])
    """Reports that the host kept beside the texts, where it has a place for them."""
    results: list[str] | None = None
    """What was answered to each call; only from hosts that have no model, such as an MCP client."""


class Driver(Protocol):
    """Drives one framework."""

    name: str
    """As in `delegate.hosts.<name>`."""
    package: str
    """Distribution whose version stands in the table."""
    side_by_side: bool
    """Whether the framework makes the calls of one turn at the same time."""
    gaps: Mapping[Scenario, str]
    """What the framework can't do, each with the reason; those scenarios are not run."""

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        """Run a parent that makes `world.calls` in its first turn and ends in its second.

        When `cancel` is set, stop the run by the framework's own means, and return once it says it has stopped.
        """
        ...


async def outcome_of(turn: Coroutine[Any, Any, Outcome], cancel: asyncio.Event | None) -> Outcome:
    """What a turn comes to in a framework that is stopped by cancelling the task it runs in."""
    running = asyncio.create_task(turn)
    if cancel is None:
        return await running
    await cancel.wait()
    running.cancel()
    await asyncio.wait([running])
    return Outcome()


def driver_of(host: str) -> Driver:
    """The driver of that name; skips the test where its framework isn't there."""
    try:
        return importlib.import_module(f"tests.hosts.drivers.{host}").DRIVER
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("delegate", "tests"):
            raise
        pytest.skip(f"{error.name} isn't installed here: make hosts")

"""The conformance suite's interface to a framework: a driver runs a parent in the framework's own agent loop.

A driver is a module `tests/hosts/drivers/<host>.py` with one object `DRIVER`. It creates an agent of the framework
whose model is at `world.server` and which has one of delegate's tools, runs it, and returns what the host observed.
"""

import asyncio
import importlib
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol

import pytest

from delegate import Delegator, Tool
from delegate.types import JsonObject
from tests.hosts.world import NativeTool, World

Scenario = Literal[
    "single", "batch", "criteria_met", "criteria_failed", "check_fails", "bad_arguments", "refused_call_marked",
    "too_many_tasks", "cancel_in_flight", "timeout", "progress_seen", "usage_counted", "result_kept",
    "report_read_later", "think_checklist", "four_calls_in_one_turn", "one_ledger_per_run", "tier_ceiling",
    "forged_verdict", "judge_down", "nested_delegation_refused", "own_tools_omitted", "parent_tools_used",
    "parent_tools_only", "tool_refuses_arguments", "approval_denied", "message", "continuation", "question",
    "resume",
]  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What the host observed of a run. What the parent's model read is recorded by the model server."""

    progress: list[str] = field(default_factory=list[str])
    """The texts of the host's own progress reports, in order."""
    usage: tuple[int, int] | None = None
    """Input and output tokens in the host's own totals at the end of the run; None if it has no totals."""
    structured: list[JsonObject] = field(default_factory=list[JsonObject])
    """The results that the host kept in addition to the results' texts."""
    errors: list[bool] = field(default_factory=list[bool])
    """For each call, whether the host marked its result as an error."""
    results: list[str] | None = None
    """The text of each result; only if it differs from what the parent's model read, or if there is no such model."""


class Driver(Protocol):
    """Drives one framework."""

    name: str
    """The host's name in the table."""
    package: str
    """The distribution whose version is in the table."""
    side_by_side: bool
    """Whether the framework runs the calls of one turn in parallel."""
    gaps: Mapping[Scenario, str]
    """The scenarios that the framework can't play, each with the reason. They are skipped."""

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        """Run a parent with the tools `world.own` and `world.native`, which makes `world.calls` and then ends.

        When `cancel` is set, stop the run in the framework's own way, and return after it has stopped.
        """
        ...


class ToolDriver(Driver, Protocol):
    """Drives a framework whose tools children can use."""

    refusal: str
    """The framework's error text for a call of `multiply` without its argument `b`."""

    def native_tool(self, world: World, name: NativeTool) -> Any:
        """The function of that name as a tool of the framework."""
        ...

    def own_tools(self, delegator: Delegator) -> list[Any]:
        """All tools that delegate offers to the framework."""
        ...

    def child_tools(self, tools: Sequence[Any]) -> Sequence[Tool]:
        """`child_tools` of the adapter."""
        ...


def own_tool(host: Any, world: World, delegator: Delegator, form: str = "") -> Any:
    """The tool of delegate's that the parent has, made by the host's module; `form` ends the names of its functions."""
    if world.own == "message":
        return getattr(host, f"follow_up_tools{form}")(delegator)[0]
    name = {"delegate": "tool", "read": "read_tool", "think": "think_tool"}[world.own]
    return getattr(host, f"{name}{form}")(delegator)


def own_tools(host: Any, delegator: Delegator, form: str = "") -> list[Any]:
    """All tools that the host's module makes."""
    made = [getattr(host, f"{name}{form}")(delegator) for name in ("tool", "read_tool", "think_tool")]
    return [*made, *getattr(host, f"follow_up_tools{form}")(delegator)]


async def outcome_of(turn: Coroutine[Any, Any, Outcome], cancel: asyncio.Event | None) -> Outcome:
    """The outcome of a run in a framework that is stopped by canceling its task."""
    running = asyncio.create_task(turn)
    if cancel is None:
        return await running
    await cancel.wait()
    running.cancel()
    await asyncio.wait([running])
    return Outcome()


def errors_in_messages(world: World) -> list[bool]:
    """Whether each tool result in the last request of a parent on the Messages API is marked as an error."""
    messages = world.of("parent")[-1].body["messages"]
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    return [bool(block.get("is_error")) for block in blocks if block["type"] == "tool_result"]


def driver_of(host: str) -> Driver:
    """The driver of that name. Skips the test if the framework isn't installed."""
    if isinstance(found := _driver_or_missing(host), str):
        pytest.skip(f"{found} isn't installed here: make hosts")
    return found


def is_installed(host: str) -> bool:
    """Whether the framework of the driver of that name is installed."""
    return not isinstance(_driver_or_missing(host), str)


@cache
def _driver_or_missing(host: str) -> Driver | str:
    """The driver, or the name of the module that isn't installed."""
    try:
        return importlib.import_module(f"tests.hosts.drivers.{host}").DRIVER
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("delegate", "tests"):
            raise
        return str(error.name)

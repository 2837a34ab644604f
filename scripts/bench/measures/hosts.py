"""Time that a host adapter adds to a call: the framework's tool, invoked as by its loop, compared to `Delegator.call`.

Only installed frameworks are measured, so this benchmark is run by name in each host's virtual environment:
`.venv-hosts/langchain/bin/python -m scripts.bench hosts`.
"""

import asyncio
import gc
import importlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from delegate import Delegator
from delegate.models.providers.scripted import Scripted
from scripts.bench.arena import Arena, Row

DRIVERS = Path(__file__).resolve().parents[3] / "tests" / "hosts" / "drivers"
LIMIT_MS = 2.0
ROUNDS = 300
ARGUMENTS = {"goal": "Find the answer."}

Call = Callable[[], Awaitable[Any]]


def measure(arena: Arena) -> list[Row]:
    """Measure each installed host."""
    rounds = ROUNDS // 10 if arena.quick else ROUNDS
    return [asyncio.run(_row(driver, rounds)) for driver in _drivers()]


def _drivers() -> list[ModuleType]:
    found: list[ModuleType] = []
    for path in sorted(DRIVERS.glob("[a-z]*.py")):
        try:
            module = importlib.import_module(f"tests.hosts.drivers.{path.stem}")
        except ModuleNotFoundError:
            continue
        if hasattr(module, "invoke") and _make(module.DRIVER.name):
            found.append(module)
    return found


def _make(host: str) -> Callable[[Delegator], Any] | None:
    """Return the function that creates the framework's object, or None for plugins such as Hermes's."""
    module = importlib.import_module(f"delegate.hosts.{host}")
    return getattr(module, "tool", None) or getattr(module, "server", None)


async def _row(driver: ModuleType, rounds: int) -> Row:
    make = _make(driver.DRIVER.name)
    assert make
    client = Scripted(lambda request: "The answer is 42.")
    async with Delegator(client=client, max_children=1_000_000) as delegator:  # all calls can belong to one run
        tool = make(delegator)
        assert "The answer is 42." in str(await driver.invoke(tool, ARGUMENTS)), driver.DRIVER.name
        bare, adapted = await _alternating(
            lambda: delegator.call(ARGUMENTS), lambda: driver.invoke(tool, ARGUMENTS), rounds=rounds
        )
    note = f"{adapted:.3g} ms with it, {bare:.3g} ms without; median of {rounds} alternating calls"
    return Row(f"adapter {driver.DRIVER.name}, wall per call over Delegator.call, ms", adapted - bare, LIMIT_MS, note)


async def _alternating(*calls: Call, rounds: int) -> list[float]:
    """Return each call's median in milliseconds."""
    figures: list[list[float]] = [[] for _ in calls]
    for call in calls:
        await call()
    gc.collect()
    for _ in range(rounds):
        for call, times in zip(calls, figures, strict=True):
            started = time.perf_counter()
            await call()
            times.append((time.perf_counter() - started) * 1000)
    return [median(times) for times in figures]

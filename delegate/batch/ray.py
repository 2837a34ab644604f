"""Items on the workers of a Ray cluster: one asynchronous actor for each processor, none of whose calls Ray repeats.

Journal and results stay with the driver, so a worker needs nothing but this package and its keys. What is on record of
a child (`delegate show HANDLE`) is where it ran. A task's workspace must be reachable from every node. Progress of a
single item isn't sent: its result is.

A worker that is lost, with its node or alone, costs what ran on it: those items raise WorkerLost, since nobody knows
how far they came. Another is started in its place for what comes next.
"""

# pyright: reportUnknownMemberType=false
# Ray has few type hints.

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from delegate._util.cancellation import Cancellation, run_to_completion
from delegate.batch.backend import Backend, WorkerLost
from delegate.batch.item import Item
from delegate.errors import CallError, ConfigError
from delegate.ports import EventSink
from delegate.types import Task, TaskResult

OpenBackend = Callable[[int], Backend]
"""Makes what runs items inside a worker, given how many at once. Must be importable there by its name."""

ATTEMPTS = 5
"""Workers that are tried for one item before the batch ends: each is a new one, and none of them has begun it."""

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


class Worker:
    """The actor. It speaks JSON, so that driver and worker may differ in their libraries' versions."""

    def __init__(self, open_engine: OpenBackend, concurrency: int) -> None:
        self._engine = open_engine(concurrency)
        self._at_work: dict[int, Cancellation] = {}

    async def run(self, number: int, id: str, row: int | None, task: str) -> tuple[str, str]:
        """Run one item; gives `("result", JSON)` or, where nothing of it was run, `("refused", JSON)`."""
        item = Item(id, Task.model_validate_json(task), row)
        with contextlib.ExitStack() as done:
            self._at_work[number] = cancellation = Cancellation()
            done.callback(self._at_work.pop, number)
            try:
                result = await self._engine.run(item, cancellation=cancellation)
            except CallError as error:
                return "refused", _refusal(error)
            return "result", result.model_dump_json()

    async def cancel(self, number: int) -> None:
        """Stop one item, which then ends with a result that says so."""
        if cancellation := self._at_work.get(number):
            cancellation.cancel()

    def pid(self) -> int:
        """The worker's process."""
        return os.getpid()

    async def aclose(self) -> None:
        """Give back what the worker holds."""
        await self._engine.aclose()


@dataclass(eq=False)
class _WorkerSlot:
    """One worker as the driver sees it."""

    actor: Any
    at_work: set[int] = field(default_factory=set[int])
    started: bool = False
    """It has answered: nothing is sent to a worker of which it isn't known that it ever lived."""


class RayBackend:
    """An `Backend` over a Ray cluster; with neither `address` nor RAY_ADDRESS it starts one on this machine.

    `workers` is how many actors there are; None: as many as the cluster has processors. Raises ConfigError where Ray
    isn't installed, or the cluster can't be reached.
    """

    def __init__(
        self, open_engine: OpenBackend, *, concurrency: int, address: str | None = None, workers: int | None = None
    ) -> None:
        self._ray = _connected(address)
        self._open_engine = open_engine
        processors = int(self._ray.cluster_resources().get("CPU", 1))
        seats = max(1, min(workers or processors, concurrency))
        self._each = -(-concurrency // seats)
        self._numbers, self._turns = count(), count()
        self._slots = [self._new_slot() for _ in range(seats)]

    @property
    def capacity(self) -> int | None:
        """As many as all workers take together."""
        return self._each * len(self._slots)

    async def run(self, item: Item, *, cancellation: Cancellation, on_event: EventSink | None = None) -> TaskResult:
        """Run one item on the worker with the least to do."""
        number = next(self._numbers)
        slot = await self._slot_for(number)
        running = slot.actor.run.remote(number, item.id, item.row, item.task.model_dump_json())
        try:
            with cancellation.part() as own:
                own.add(_Stop(slot.actor, number, asyncio.get_running_loop()))
                # Cancelling the wait alone would let the item go on where it runs.
                kind, text = await run_to_completion(_awaited(running), own)
        except self._ray.exceptions.RayError as error:
            raise self._lost(slot, error) from None
        finally:
            slot.at_work.discard(number)
        if kind == "refused":
            raise _refused(text)
        return TaskResult.model_validate_json(text)

    async def pid_of_a_worker(self) -> int:
        """The process of the worker with the most to do, on whatever node it is."""
        return await max(self._slots, key=lambda one: len(one.at_work)).actor.pid.remote()

    async def aclose(self) -> None:
        """End the workers. A cluster that was there before stays."""
        for slot in self._slots:
            with contextlib.suppress(self._ray.exceptions.RayError, TimeoutError):
                await asyncio.wait_for(slot.actor.aclose.remote(), 10)
            self._ray.kill(slot.actor)
        self._slots.clear()
        await asyncio.to_thread(self._ray.shutdown)

    def _new_slot(self) -> _WorkerSlot:
        # Ray repeats neither an actor nor its calls unless it is told to. That is said here once more, since at most
        # once is what a batch promises.
        options = {"max_restarts": 0, "max_task_retries": 0, "num_cpus": 0, "scheduling_strategy": self._next_node()}
        actor = self._ray.remote(Worker).options(max_concurrency=2 * self._each + 2, **options)
        return _WorkerSlot(actor.remote(self._open_engine, self._each))

    def _next_node(self) -> Any:
        """Nodes take turns; Ray's own spreading may put all workers that ask for no processor on one."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        alive = [node["NodeID"] for node in self._ray.nodes() if node["Alive"]]
        return NodeAffinitySchedulingStrategy(alive[next(self._turns) % len(alive)], soft=True)

    async def _slot_for(self, number: int) -> _WorkerSlot:
        """A place on a worker that lives. A new one may have been put on a node that is going down, so it is asked."""
        why = ""
        for _ in range(ATTEMPTS):
            slot = min(self._slots, key=lambda one: len(one.at_work))
            slot.at_work.add(number)
            try:
                slot.started = slot.started or bool(await slot.actor.pid.remote())
            except self._ray.exceptions.RayError as error:
                slot.at_work.discard(number)
                why = self._replaced(slot, error)
                continue
            except BaseException:
                slot.at_work.discard(number)
                raise
            return slot
        raise CallError("no_worker", f"the cluster starts no worker: {why}", hint="see `ray status`")

    def _lost(self, slot: _WorkerSlot, error: Exception) -> WorkerLost:
        return WorkerLost(f"its worker was lost, and how far it came isn't known: {self._replaced(slot, error)}")

    def _replaced(self, slot: _WorkerSlot, error: Exception) -> str:
        """Put another worker in its place, where nobody has yet, and say what it died of."""
        if slot in self._slots:
            self._slots[self._slots.index(slot)] = self._new_slot()
        why = str(error).strip().partition("\n")[0]
        return f"{type(error).__name__}: {why:.200}"


@dataclass(frozen=True, eq=False)
class _Stop:
    """Passes a cancel on to where the item runs, from whatever thread it comes."""

    actor: Any
    number: int
    loop: asyncio.AbstractEventLoop

    def cancel(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs on it any more
            self.loop.call_soon_threadsafe(self.actor.cancel.remote, self.number)


async def _awaited(running: Any) -> tuple[str, str]:
    return await running


def _connected(address: str | None) -> Any:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError:
        raise ConfigError("the engine `ray` isn't installed: pip install 'delegate-task[ray]'") from None
    if not ray.is_initialized():
        try:
            ray.init(address=address or os.environ.get("RAY_ADDRESS"), log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            why = str(error).strip().partition("\n")[0]
            raise ConfigError(f"the Ray cluster at {address or 'this machine'} can't be reached: {why}") from None
    return ray


def _refusal(error: CallError) -> str:
    return json.dumps([error.code, error.message, error.field, error.hint])


def _refused(text: str) -> CallError:
    code, message, at, hint = json.loads(text)
    return CallError(code, message, field=at, hint=hint)

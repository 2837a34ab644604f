"""Runs items on a Ray cluster, with one asynchronous actor per processor. Ray retries none of the actors' calls.

The journal and the results file stay with the driver, so a worker needs only this package and its API keys. The record
of a child (`delegate show HANDLE`) is on the node where it ran. A task's workspace must be reachable from every node.
Workers send results, but no events.

When a worker is lost, alone or with its node, the items that ran on it raise WorkerLost, because their outcome is
unknown. A new worker replaces it for later items.
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
from delegate.types import Task, TaskResult
from delegate.types.errors import CallError, ConfigError
from delegate.types.events import EventSink

OpenBackend = Callable[[int], Backend]
"""Makes the backend inside a worker, given its concurrency. Workers must be able to import it by name."""

ATTEMPTS = 5
"""How many workers are tried for one item before the batch ends. None of them has started the item."""


class Worker:
    """The Ray actor. It exchanges JSON, so that driver and worker may use different library versions."""

    def __init__(self, open_backend: OpenBackend, concurrency: int) -> None:
        self._backend = open_backend(concurrency)
        self._running: dict[int, Cancellation] = {}

    async def run(self, number: int, id: str, row: int | None, task: str) -> tuple[str, str]:
        """Run one item. Returns `("result", JSON)`, or `("refused", JSON)` if nothing of it was run."""
        item = Item(id, Task.model_validate_json(task), row)
        with contextlib.ExitStack() as stack:
            self._running[number] = cancellation = Cancellation()
            stack.callback(self._running.pop, number)
            try:
                result = await self._backend.run(item, handle=self._backend.next_handle(), cancellation=cancellation)
            except CallError as error:
                return "refused", json.dumps([error.code, error.message, error.field, error.hint])
            return "result", result.model_dump_json()

    async def cancel(self, number: int) -> None:
        """Cancel one item, which then returns a result of status `cancelled`."""
        if cancellation := self._running.get(number):
            cancellation.cancel()

    def pid(self) -> int:
        return os.getpid()

    async def aclose(self) -> None:
        await self._backend.aclose()


@dataclass(eq=False)
class _WorkerSlot:
    actor: Any
    running: set[int] = field(default_factory=set[int])
    started: bool = False
    """Whether it has answered once. Items are sent only to workers that have."""


class RayBackend:
    """A `Backend` on a Ray cluster. With neither `address` nor RAY_ADDRESS, it starts a cluster on this machine.

    `workers` is the number of actors, by default the number of processors in the cluster. They start with the first
    item: that takes seconds, and the tasks may be refused before. Raises ConfigError then if Ray isn't installed or the
    cluster can't be reached.
    """

    def __init__(
        self, open_backend: OpenBackend, *, concurrency: int, address: str | None = None, workers: int | None = None
    ) -> None:
        self._open_backend = open_backend
        self._concurrency, self._address, self._workers = concurrency, address, workers
        self._item_numbers, self._worker_numbers = count(), count()
        self._ray: Any = None
        self._slots: list[_WorkerSlot] = []

    @property
    def capacity(self) -> int | None:
        self._start()
        return self._per_worker * len(self._slots)

    def _start(self) -> None:
        """Connect and start the workers, unless that was done already."""
        if self._ray is not None:
            return
        self._ray = _connect(self._address)
        processors = int(self._ray.cluster_resources().get("CPU", 1))
        size = max(1, min(self._workers or processors, self._concurrency))
        self._per_worker = -(-self._concurrency // size)
        self._slots = [self._new_slot() for _ in range(size)]

    def next_handle(self) -> None:
        """None: a record is on the node where its child ran."""

    async def run(
        self, item: Item, *, handle: str | None, cancellation: Cancellation, on_event: EventSink | None = None
    ) -> TaskResult:
        self._start()
        number = next(self._item_numbers)
        slot = await self._slot_for(number)
        running = slot.actor.run.remote(number, item.id, item.row, item.task.model_dump_json())
        try:
            with cancellation.part() as own:
                own.add(_RemoteCancel(slot.actor, number, asyncio.get_running_loop()))
                # Cancelling only the wait would leave the item running on its worker.
                kind, text = await run_to_completion(_wait_for(running), own)
        except self._ray.exceptions.RayError as error:
            raise WorkerLost(f"its worker was lost and its outcome is unknown: {self._replace(slot, error)}") from None
        finally:
            slot.running.discard(number)
        if kind == "refused":
            code, message, field_name, hint = json.loads(text)
            raise CallError(code, message, field=field_name, hint=hint)
        return TaskResult.model_validate_json(text)

    async def pid_of_a_worker(self) -> int:
        """Process id of the busiest worker, on whichever node it runs."""
        return await max(self._slots, key=lambda slot: len(slot.running)).actor.pid.remote()

    async def aclose(self) -> None:
        """Stop the workers. A cluster that was running before keeps running."""
        if self._ray is None:
            return
        for slot in self._slots:
            with contextlib.suppress(self._ray.exceptions.RayError, TimeoutError):
                await asyncio.wait_for(slot.actor.aclose.remote(), 10)
            self._ray.kill(slot.actor)
        self._slots.clear()
        await asyncio.to_thread(self._ray.shutdown)

    def _new_slot(self) -> _WorkerSlot:
        # No restarts and no retries are Ray's defaults, set explicitly because a batch runs each item at most once.
        options = {"max_restarts": 0, "max_task_retries": 0, "num_cpus": 0, "scheduling_strategy": self._next_node()}
        actor = self._ray.remote(Worker).options(max_concurrency=2 * self._per_worker + 2, **options)
        return _WorkerSlot(actor.remote(self._open_backend, self._per_worker))

    def _next_node(self) -> Any:
        """Assigns workers to nodes round-robin: Ray may put all actors that reserve no processor on one node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        alive = [node["NodeID"] for node in self._ray.nodes() if node["Alive"]]
        return NodeAffinitySchedulingStrategy(alive[next(self._worker_numbers) % len(alive)], soft=True)

    async def _slot_for(self, number: int) -> _WorkerSlot:
        """Reserve a slot on a live worker. A new worker is pinged first, since its node may be going down."""
        reason = ""
        for _ in range(ATTEMPTS):
            slot = min(self._slots, key=lambda slot: len(slot.running))
            slot.running.add(number)
            try:
                slot.started = slot.started or bool(await slot.actor.pid.remote())
            except self._ray.exceptions.RayError as error:
                slot.running.discard(number)
                reason = self._replace(slot, error)
                continue
            except BaseException:
                slot.running.discard(number)
                raise
            return slot
        raise CallError(
            "no_worker", f"the cluster can't start a worker: {reason}", hint="check the cluster with `ray status`"
        )

    def _replace(self, slot: _WorkerSlot, error: Exception) -> str:
        """Replace a lost worker, unless that was done already. Returns what it failed with."""
        if slot in self._slots:
            self._slots[self._slots.index(slot)] = self._new_slot()
        reason = str(error).strip().partition("\n")[0]
        return f"{type(error).__name__}: {reason:.200}"


@dataclass(frozen=True, eq=False)
class _RemoteCancel:
    """Cancels an item on its worker, from any thread."""

    actor: Any
    number: int
    loop: asyncio.AbstractEventLoop

    def cancel(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing runs on it
            self.loop.call_soon_threadsafe(self.actor.cancel.remote, self.number)


async def _wait_for(running: Any) -> tuple[str, str]:
    return await running


def _connect(address: str | None) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ModuleNotFoundError:
        raise ConfigError(
            "the engine `ray` isn't installed: run `pip install '.[ray]'` in a clone of delegate"
        ) from None
    if not ray.is_initialized():
        try:
            ray.init(address=address or os.environ.get("RAY_ADDRESS"), log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ConfigError(f"the Ray cluster at {address or 'this machine'} can't be reached: {reason}") from None
    return ray

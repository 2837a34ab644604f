"""Runs a batch on two Ray nodes of this machine, in a separate process, and prints the outcome as JSON.

    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 python -m tests.batch.ray_scene whole|worker|node|cancel [TASKS]

After a third of the tasks, a worker or a node is killed, or the batch is cancelled. Lost items are `outcome_unknown`. A
resumed batch runs only the items that hadn't started, and another one with `rerun` runs the lost items. The model
server counts how often each task was started, and the calls that are unanswered at the end.
"""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# Ray has few type hints.

import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from delegate import Cancellation, Delegator, Settings, Task
from delegate.batch.ray import RayBackend
from delegate.delegator import engine_of
from delegate.models.overrides import DeclaredEndpoint
from tests.support.model_server import Call, ModelServer, Reply

CONCURRENCY = 40


def settings(home: Path, url: str) -> Settings:
    model = {"id": "local", "tier": "standard", "input_price": 0, "output_price": 0, "context_tokens": 100_000}
    endpoint = DeclaredEndpoint.model_validate({"name": "here", "base_url": url, "models": [model]})
    return Settings(home=home, endpoints=(endpoint,), model="local")


Disruption = Callable[[], Awaitable[None]]


async def outcomes_of(
    delegator: Delegator, tasks: list[Task], engine: RayBackend, disrupt: Disruption | None = None, **options: Any
) -> tuple[str, Counter[str]]:
    """The run id, and the number of items per outcome."""
    batch = delegator.batches.run(tasks, engine=engine, concurrency=CONCURRENCY, **options)
    states: list[str] = []
    async for outcome in batch:
        states.append(outcome.result.status if outcome.result else outcome.state)
        if disrupt and len(states) == len(tasks) // 3:
            await disrupt()
    return batch.run_id, Counter(states)


async def scene(what: str, size: int, cluster: Any, home: Path) -> dict[str, Any]:
    started: Counter[str] = Counter()

    def answer(call: Call) -> Reply:
        started[number := call.texts[0].split()[1]] += 1
        waits = what == "cancel" and started[number] == 1 and int(number) > size // 3
        return Reply("The answer is 42.", delay=30 if waits else 0.05)

    tasks = [Task(goal=f"task {n} find the answer") for n in range(1, size + 1)]
    with ModelServer(answer, record=False) as server:
        configured = settings(home, server.openai_url)
        async with Delegator(configured) as delegator:
            engine = RayBackend(partial(engine_of, configured), concurrency=CONCURRENCY, workers=2)
            try:
                cancellation, start = Cancellation(), time.monotonic()

                async def disrupt() -> None:
                    if what == "worker":
                        os.kill(await engine.pid_of_a_worker(), signal.SIGKILL)
                    elif what == "node":
                        cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
                    elif what == "cancel":
                        cancellation.cancel()

                run_id, first = await outcomes_of(delegator, tasks, engine, disrupt, cancellation=cancellation)
                seconds, in_flight = time.monotonic() - start, server.wait_until_idle()
                _, second = await outcomes_of(delegator, tasks, engine, resume=run_id)
                twice_before = [id for id, times in started.items() if times > 1]
                _, third = await outcomes_of(delegator, tasks, engine, resume=run_id, rerun=("unknown",))
            finally:
                await engine.aclose()
    return {
        "first": first,
        "second": second,
        "third": third,
        "in_flight": in_flight,
        "started": len(started),
        "twice_before_rerun": len(twice_before),
        "seconds": seconds,
        "overhead_ms_per_task": (seconds - size / CONCURRENCY * 0.05) * 1000 / size,
    }


def main() -> None:
    what, size = sys.argv[1], int([*sys.argv, "60"][2])
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        with tempfile.TemporaryDirectory() as home:
            print(json.dumps(asyncio.run(scene(what, size, cluster, Path(home)))))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()

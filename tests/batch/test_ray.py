"""Batches on two Ray nodes of this machine, each in a separate process. Skipped if Ray isn't installed."""

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator
from delegate.batch.ray import RayBackend
from delegate.types.errors import ConfigError

HAVE_RAY = importlib.util.find_spec("ray") is not None
with_ray = pytest.mark.skipif(not HAVE_RAY, reason="Ray isn't installed here: make ray")
TASKS = 60
ROOT = Path(__file__).parents[2]


async def scene(what: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.batch.ray_scene", what, str(TASKS)]
    with tempfile.TemporaryDirectory(prefix="r") as scratch:  # Ray leaves its sessions' files there
        env = {**os.environ, "TMPDIR": scratch, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await asyncio.wait_for(process.communicate(), 55)
    assert process.returncode == 0, err.decode()[-2000:]
    return json.loads(out.splitlines()[-1])


@with_ray
async def test_a_batch_runs_each_task_once() -> None:
    found = await scene("whole")
    assert found["first"] == {"completed": TASKS}
    assert (found["started"], found["twice_before_rerun"]) == (TASKS, 0)


@with_ray
@pytest.mark.parametrize("what", ["worker", "node"])
async def test_lost_items_have_an_unknown_outcome_and_rerun_only_on_request(what: str) -> None:
    found = await scene(what)
    lost = found["first"].get("outcome_unknown", 0)
    assert found["first"].get("completed", 0) + lost == TASKS
    assert lost > 0 or what == "node"  # Ray may have put both workers on the other node
    assert (found["second"], found["twice_before_rerun"]) == ({}, 0)
    assert found["third"].get("completed", 0) == lost


@with_ray
async def test_a_cancel_reaches_what_runs_on_the_workers() -> None:
    found = await scene("cancel")
    assert found["first"]["cancelled"] > 0
    assert found["in_flight"] == 0
    assert found["seconds"] < 25  # the running calls would take 30
    assert found["second"] == {"completed": TASKS - sum(found["first"].values())}


@pytest.mark.skipif(HAVE_RAY, reason="Ray is installed here")
def test_without_ray_the_message_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"pip install '\.\[ray\]'"):
        _ = RayBackend(Delegator().batches.backend, concurrency=3).capacity

"""Kills `delegate batch` at random moments and resumes it: one result per task, no task run twice, no partial line.

`KILL_ROUNDS=10` runs the long version.
"""

import json
import os
import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from delegate import Delegator
from delegate.models.providers.scripted import Scripted
from tests.batch.rows import DONE, ids, lines
from tests.cli.command import delegate, openai_at
from tests.killed.lost import kill
from tests.support import warm
from tests.support.model_server import Call, ModelServer, Reply

ROUNDS = int(os.environ.get("KILL_ROUNDS", "2"))
CONCURRENCY = 6
PER_ROUND = 25
"""Maximum number of tasks started in a round."""
TASKS = ROUNDS * (PER_ROUND + 2 * CONCURRENCY) + 20


def _model(call: Call) -> Reply:
    if call.wants_json:
        answer = {"id": "c1", "evidence": "did my part", "reason": "It says so.", "verdict": "met"}
        return Reply(json.dumps({"answers": [answer]}), delay=0.01)
    return Reply(DONE + " and more" * 2000, delay=0.02)


def _starts(server: ModelServer) -> Counter[str]:
    return Counter(call.texts[0].split("\n")[0] for call in server.calls if not call.wants_json)


def _run_and_kill(server: ModelServer, chance: random.Random, *arguments: str) -> None:
    """Run the command, and kill it shortly after some more calls have arrived."""
    more = chance.randrange(1, PER_ROUND)
    environment = {**os.environ, **openai_at(server)}
    command = [*warm.delegate(), "batch", *arguments, "--concurrency", str(CONCURRENCY)]
    before = len(server.calls)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        server.wait_for_calls(before + more, timeout=30)
        time.sleep(chance.random() * 0.03)  # so that the kill doesn't coincide with a call
        kill(process, Path(os.environ["DELEGATE_HOME"]))


def _complete_ids(path: Path) -> list[str]:
    """The ids of the complete lines. Only the last line, without a newline, may be partial."""
    *complete, _ = path.read_text().split("\n")
    return [json.loads(line)["id"] for line in complete]


@pytest.mark.slow
async def test_after_random_kills_every_task_has_one_result_and_ran_once() -> None:
    chance, path = random.Random(20_261_121), Path("r.jsonl")
    Path("t.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(TASKS)))
    with ModelServer(_model) as server:
        arguments = [
            "t.csv",
            "-o",
            "r.jsonl",
            "--goal",
            "task {n} of many",
            "-c",
            "report: the report says it did its part",
        ]
        for _ in range(ROUNDS):
            _run_and_kill(server, chance, *arguments)
            async with Delegator(client=Scripted(lambda request: "")) as delegator:
                (batch,) = await delegator.batches.latest()
            found = _complete_ids(path)
            assert batch.state == "interrupted"
            assert len(found) == len(set(found)), "no task has two lines"
            assert len(found) <= batch.settled, "every line of the file is on record"
            assert len(_starts(server)) <= batch.settled, "and so is every task that was started"
            arguments = ["--resume", batch.run_id]
        last = delegate("batch", *arguments, "--concurrency", "20", **openai_at(server))
        assert set(_starts(server).values()) == {1}, "no task ran twice"
        rows = lines(path)
        unknown = [row for row in rows if row["state"] == "outcome_unknown"]
        assert ids(rows) == sorted(str(n + 1) for n in range(TASKS))
        assert last.returncode == 3
        assert 0 < len(unknown) <= ROUNDS * 2 * CONCURRENCY
        assert all(row["verdict"] == "PASS" for row in rows if row not in unknown)
        again = delegate("batch", *arguments, "--rerun", "unknown", **openai_at(server))
        assert again.returncode == 0, again.stdout + again.stderr
        assert ids(lines(path)) == sorted(str(n + 1) for n in range(TASKS))
        assert max(_starts(server).values()) <= 2

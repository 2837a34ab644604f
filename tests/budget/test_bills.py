"""Whatever goes wrong on the wire, the bill on record is the server's, and no program passes its limit."""

import http.client
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from delegate.models import ratelimit
from tests.budget.programs import Biller, Program, Sum, fast_limiter
from tests.killed.lost import kill
from tests.support import warm
from tests.support.model_server import ModelServer, Reply, cut_off
from tests.support.samples import sampled

PROGRAMS, MORE_PROGRAMS = range(7), range(7, 120)
"""The random programs that the suite runs, and those of slow tests. `play(range(500), …)` runs all."""
KILLED = range(27)
EVENTS_SECONDS = 0.2
"""More than events of a child wait until they are committed."""


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratelimit, "POLL_SECONDS", 0.001)


async def play(seeds: Iterable[int], home: Path) -> Counter[str]:
    """Run the programs and compare their bills. Returns how often each kind of accident happened."""
    accidents = Counter[str]()
    for seed in seeds:
        bills = await Program(seed).run(home / str(seed))
        bills.compare()
        accidents += bills.server.accidents
    return accidents


async def test_the_bill_on_record_is_the_servers_and_within_the_limit(tmp_path: Path) -> None:
    accidents = await play(PROGRAMS, tmp_path)
    assert {"ok", "error", "cut_error", "cut", "hang"} <= accidents.keys()


@pytest.mark.slow
@pytest.mark.more_cases
@pytest.mark.timeout(300)
async def test_the_bill_of_many_more_programs_is_the_servers(tmp_path: Path) -> None:
    await play(MORE_PROGRAMS, tmp_path)


@pytest.mark.parametrize(("share", "whole"), [(0, 0), (0.3, 1), (0.6, 3), (0.99, 4)])
def test_the_server_cuts_a_stream_within_any_event(share: float, whole: int) -> None:
    with ModelServer(lambda call: cut_off(call, Reply("I found it"), share)) as server:
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=5)
        body = json.dumps({"model": "worker", "stream": True, "messages": [{"role": "user", "content": "x"}]})
        connection.request("POST", "/v1/chat/completions", body)
        response = connection.getresponse()
        with pytest.raises(http.client.IncompleteRead) as cut:
            response.read()
        connection.close()
    assert response.headers["content-type"] == "text/event-stream"
    *events, rest = cut.value.partial.split(b"\n\n")
    assert (len(events), rest != b"") == (whole, True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(KILLED, 8))
async def test_after_a_kill_nothing_is_paid_twice_and_the_bill_is_the_servers(tmp_path: Path, seed: int) -> None:
    program, home = Program.killed(seed), tmp_path / "home"
    biller = program.biller()
    with ModelServer(biller) as server:
        run_id, at = killed_at(program.kill_at, server, home, seed)
        unsure = in_doubt(biller, server, at)
        async with program.delegator(server.url, home) as delegator:
            delegator.connections.limiters.make = lambda _: fast_limiter()
            with_verdict = {task.goal for task in await delegator.records.tasks(run_id) if task.state == "ended"}
            billed = Counter(biller.billed)
            batch = delegator.batches.run(
                program.tasks, concurrency=program.concurrency, resume=run_id, rerun=["unknown"]
            )
            outcomes = [outcome async for outcome in batch]
            summary = await delegator.batches.summary(run_id)
    assert summary.settled == len(program.goals)
    assert {outcome.state for outcome in outcomes} <= {"done"}
    again = biller.billed - billed
    assert not [request for request in again if f"{request.partition(',')[0]}." in with_verdict], "it was paid twice"
    assert abs(summary.cost_known_usd - biller.bill.usd) <= biller.doubt.usd + unsure.usd + 1e-9
    assert (summary.cost_known_usd, summary.unpriced) == (
        pytest.approx(batch.tally.cost_known_usd),  # pyright: ignore[reportUnknownMemberType]
        batch.tally.unpriced,
    )


def killed_at(request: int, server: ModelServer, home: Path, seed: int) -> tuple[str, float]:
    """Run the batch in a process that is killed at a request. Returns the id of the run, and when it was killed."""
    command = [*warm.python(), "-m", "tests.budget.killed", str(home), server.url, str(seed)]
    root = Path(__file__).resolve().parent.parent.parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        try:
            assert process.stdout
            run_id = process.stdout.readline().strip()
            server.wait_for_calls(request, timeout=20)
        finally:
            at = time.monotonic()
            kill(process, home)
    return run_id, at


def in_doubt(biller: Biller, server: ModelServer, killed_at: float) -> Sum:
    """The most that the calls of the last moments cost, which the records of a killed process may lack."""
    unsure = Sum()
    for call in server.calls:
        if call.at > killed_at - EVENTS_SECONDS:
            unsure.add(len(call.raw) + biller.written, call.max_output_tokens)
    return unsure

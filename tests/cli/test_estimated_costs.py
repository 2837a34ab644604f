"""A cost of which a part is estimated is marked as such in every sum."""

import json
import re
from pathlib import Path

from delegate import Delegator, RunResult, Settings, Task
from delegate.cli.screen.batch_progress import BatchProgress, summary
from delegate.pages.amounts import run_bill, task_bill
from delegate.policy.settings import DeclaredEndpoint, DeclaredModel
from tests.cli.command import delegate
from tests.support.model_server import Call, Fault, ModelServer, Reply

MODEL = DeclaredModel(id="m", tier="standard", input_price=1, output_price=5)


def script(call: Call) -> Reply | Fault:
    """An answer to the first task, and to the second one that can't be read, so that its cost isn't known for sure."""
    return Reply("Done.") if "first" in call.texts[0] else Fault(200, b"{}")


def settings(home: Path, url: str) -> Settings:
    endpoint = DeclaredEndpoint(name="e", base_url=url, protocol="openai", models=(MODEL,))
    return Settings(home=home, endpoints=(endpoint,))


async def both(home: Path) -> tuple[RunResult, RunResult]:
    with ModelServer(script) as server:
        async with Delegator(settings(home, server.openai_url)) as delegator:
            return await delegator.run(Task(goal="Do the first.")), await delegator.run(Task(goal="Do the second."))


async def test_in_lists_of_runs_and_of_tasks(home: Path) -> None:
    sure, unsure = await both(home)
    runs = {run["run_id"]: run for run in json.loads(delegate("runs", "--format", "json").stdout)}
    assert (runs[sure.run_id]["estimated"], runs[unsure.run_id]["estimated"]) == (False, True)
    lines = delegate("runs", COLUMNS="200").stdout.splitlines()
    assert ["~$" in line for line in lines if "Do the" in line] == [True, False]
    assert "(estimated)" in delegate("show", unsure.run_id or "", COLUMNS="200").stdout
    with ModelServer(script) as server:
        async with Delegator(settings(home, server.openai_url)) as delegator:
            both_at_once = await delegator.run(Task(goal="Do the first."), Task(goal="Do the second."))
    lines = delegate("show", both_at_once.run_id or "", COLUMNS="200").stdout.splitlines()
    assert ["~$" in line for line in lines if "Do the" in line] == [False, True]


async def test_in_notebooks_and_on_pages(home: Path) -> None:
    sure, unsure = await both(home)
    assert f"(estimated), run {unsure.run_id}" in str(unsure)
    assert "estimated" not in str(sure)
    assert ">~$0." in unsure._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert ">~$0." not in sure._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert [row.cost[0] for row in task_bill(unsure.results[0])] == ["~", "$"]
    assert [row.cost[0] for row in run_bill(unsure.totals)] == ["~", "$", "$"]
    assert run_bill(unsure.totals)[-1].cost.endswith("(estimated)")


async def test_in_batches_also_once_they_are_resumed(home: Path) -> None:
    tasks = [Task(goal="Do the first."), Task(goal="Do the second."), Task(goal="Do the first one again.")]
    with ModelServer(script) as server:
        async with Delegator(settings(home, server.openai_url)) as delegator:
            batch = delegator.batches.run(tasks, concurrency=1, stop_after_failures=1)
            async for _ in batch:
                pass
            line, end = BatchProgress(batch).line(), summary(batch)
            stopped = await delegator.batches.summary(batch.run_id)
            again = delegator.batches.run(tasks, concurrency=1, resume=batch.run_id)
            async for _ in again:
                pass
    assert re.search(r"· ~\$0\.\d+$", line)
    assert re.search(r"cost \$0\.\d+ \(estimated\)", end)
    assert (stopped.estimated, stopped.unpriced, again.tally.estimated) == (True, False, True)
    assert "(estimated)" in summary(again)
    assert "~$" in delegate("runs", COLUMNS="200").stdout

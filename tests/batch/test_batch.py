"""`Delegator.batches.run`: one outcome per task, each run at most once, and no outcome kept in memory."""

import asyncio
import csv
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from delegate import CallError, Cancellation, DelegateError, Delegator, Task
from delegate.batch.backend import WorkerLost
from delegate.batch.item import BadRow, Item
from delegate.budget.ledger import LEAST_OUTPUT
from delegate.models.catalog import Catalog, cost_usd
from delegate.models.providers.scripted import Scripted
from delegate.types import TaskResult, Usage
from delegate.types.events import Event, EventSink, VerdictGiven
from delegate.types.ports import ChatRequest
from tests.batch.rows import DONE, Children, ids, lines, outcomes, tasks, words

INDEXES = {"1": 0, "2": 1, "3": 2}


@pytest.fixture
async def children() -> Children:
    return Children()


@pytest.fixture
async def delegator(children: Children) -> AsyncIterator[Delegator]:
    async with Delegator(client=children) as delegator:
        yield delegator


async def test_every_task_has_one_outcome_and_one_line_verdict_first(delegator: Delegator) -> None:
    path = Path("results.jsonl")
    batch = delegator.batches.run(tasks("a", "fail b", "c"), results=path)
    found = await outcomes(batch)
    assert words(found) == {"1": "PASS", "2": "FAIL", "3": "PASS"}
    assert {row["id"]: row["verdict"] for row in lines(path)} == words(found)
    assert path.read_text().startswith('{"verdict": ')
    assert (batch.tally.passed, batch.tally.failed, batch.stopped) == (2, 1, "")


async def test_the_columns_of_an_items_input_are_in_a_csv_of_results(delegator: Delegator) -> None:
    (task,) = tasks("a")
    await outcomes(
        delegator.batches.run([Item("1", task, row=1, input={"company": "Acme", "id": "7"})], results="r.csv")
    )
    with Path("r.csv").open(newline="") as text:
        (row,) = csv.DictReader(text)
    assert list(row)[:4] == ["verdict", "id", "row", "company"]
    assert (row["id"], row["row"], row["company"]) == ("1", "1", "Acme")


async def test_numbers_in_an_item_become_text(delegator: Delegator) -> None:
    (task,) = tasks("a")
    columns: Any = {"n": -1, "x": None, 3: 7.5}
    number: Any = 3
    batch = delegator.batches.run([Item(number, task, row=1, input=columns)], results="r.csv")
    assert words(await outcomes(batch)) == {"3": "PASS"}
    with Path("r.csv").open(newline="") as text:
        (row,) = csv.DictReader(text)
    assert (row["id"], row["n"], row["x"], row["3"]) == ("3", "-1", "", "7.5")


async def test_an_item_without_a_task_is_refused_before_anything_runs(delegator: Delegator) -> None:
    no_task: Any = {"goal": "a"}
    with pytest.raises(CallError, match="not a Task"):
        delegator.batches.run([Item("a", no_task)], results="r.csv")
    assert not Path("r.csv").exists()


async def test_concurrency_is_that_of_the_batch_and_not_that_of_a_call() -> None:
    at_work, peak, full = 0, 0, asyncio.Event()

    def watch(item: Item) -> EventSink:
        def see(event: Event) -> None:
            nonlocal at_work, peak
            at_work += {"child.started": 1, "child.done": -1}.get(event.kind, 0)
            peak = max(peak, at_work)
            if at_work == 5:
                full.set()

        return see

    async def wait_for_the_others(request: ChatRequest) -> str:
        await asyncio.wait_for(full.wait(), 20)
        return DONE

    async with Delegator(client=Scripted(wait_for_the_others), max_concurrent=1) as delegator:
        await outcomes(delegator.batches.run(tasks(*(f"t{n}" for n in range(20))), concurrency=5, on_event=watch))
    assert peak == 5


async def test_results_and_events_of_a_batch_have_the_index_of_the_task(children: Children) -> None:
    operators: list[Event] = []
    callers: dict[str, set[int | None]] = {}

    def watch(item: Item) -> EventSink:
        return lambda event: callers.setdefault(item.id, set()).add(event.task_index)

    async with Delegator(client=children, on_event=operators.append) as delegator:
        found = await outcomes(delegator.batches.run(tasks("a", "b", "c"), on_event=watch))
    assert {id: outcome.result and outcome.result.task_index for id, outcome in found.items()} == INDEXES
    assert sorted(event.task_index for event in operators if isinstance(event, VerdictGiven)) == [0, 1, 2]
    assert callers == {id: {index} for id, index in INDEXES.items()}


async def test_no_more_items_run_than_the_concurrency(delegator: Delegator) -> None:
    running: list[int] = []

    class Recorder:
        capacity = None

        def next_handle(self) -> None: ...

        async def run(
            self, item: Item, *, handle: str | None, cancellation: Cancellation, on_event: EventSink | None = None
        ) -> TaskResult:
            running.append(batch.running)
            return TaskResult(verdict=None, task_index=0, status="completed", report=DONE)

        async def aclose(self) -> None: ...

    batch = delegator.batches.run(tasks(*(f"t{n}" for n in range(12))), concurrency=3, engine=Recorder())
    await outcomes(batch)
    assert max(running) == 3


async def test_items_of_a_batch_do_not_count_toward_max_children(children: Children) -> None:
    async with Delegator(client=children, max_children=0) as delegator:
        assert words(await outcomes(delegator.batches.run(tasks("a", "b")))) == {"1": "PASS", "2": "PASS"}


async def test_a_batch_can_t_start_inside_a_run(delegator: Delegator) -> None:
    with delegator.root_run(), pytest.raises(CallError, match="inside a run"):
        delegator.batches.run(tasks("a"))


async def test_nothing_is_run_if_one_task_is_invalid(delegator: Delegator, children: Children) -> None:
    bad = Task.model_validate({"goal": "b", "acceptance_criteria": [{"kind": "regex", "pattern": "("}]})
    with pytest.raises(CallError, match="tasks: row 2: ") as error:
        await outcomes(delegator.batches.run([*tasks("a"), bad], results=Path("r.jsonl")))
    assert "--skip-bad" in (error.value.hint or "") or error.value.hint
    assert not children.starts
    assert not Path("r.jsonl").exists()
    assert await delegator.batches.latest() == []


async def test_bad_tasks_can_be_skipped_and_are_reported(delegator: Delegator) -> None:
    bad = Task.model_validate({"goal": "b", "model": "no-such-model"})
    found = await outcomes(delegator.batches.run([*tasks("a"), bad, *tasks("c")], skip_bad=True, results="r.jsonl"))
    assert words(found) == {"1": "PASS", "2": "bad_row", "3": "PASS"}
    assert "no-such-model" in found["2"].why
    assert ids(lines(Path("r.jsonl"))) == ["1", "2", "3"]


async def test_a_criterion_that_cannot_fail_is_refused_or_skipped_wherever_it_stands(
    delegator: Delegator, children: Children
) -> None:
    bad = Task.model_validate({"goal": "b", "acceptance_criteria": [{"kind": "json_predicate", "expr": "true"}]})
    with pytest.raises(CallError, match="tasks: row 2: it can't fail") as planned:
        await delegator.batches.plan([*tasks("a"), bad])
    with pytest.raises(CallError, match="tasks: row 2: it can't fail") as run:
        await outcomes(delegator.batches.run([*tasks("a"), bad]))
    for error in (planned.value, run.value):
        assert (error.code, error.field) == ("vacuous_check", "acceptance_criteria[0]")
    assert not children.starts
    assert (await delegator.batches.plan([*tasks("a"), bad, bad], skip_bad=True)).bad_rows == 2
    found = await outcomes(delegator.batches.run([*tasks("a"), bad, bad], skip_bad=True))
    assert words(found) == {"1": "PASS", "2": "bad_row", "3": "bad_row"}


async def test_a_cancel_ends_running_items_and_a_resume_starts_the_rest(
    delegator: Delegator, children: Children
) -> None:
    given, path, stop = tasks("a", "hang b", "c", "d"), Path("r.jsonl"), Cancellation()
    batch = delegator.batches.run(given, concurrency=2, results=path, cancellation=stop)

    async def cancel() -> None:
        await children.hanging.wait()
        stop.cancel()

    canceller = asyncio.create_task(cancel())
    first = await outcomes(batch)
    await canceller
    assert (first["2"].state, first["2"].result and first["2"].result.status) == ("outcome_unknown", "cancelled")
    assert (await delegator.batches.latest())[0].state == "stopped"
    second = await outcomes(delegator.batches.run(given, resume=batch.run_id, results=path))
    assert not set(first) & set(second)
    assert set(first) | set(second) == {"1", "2", "3", "4"}
    assert ids(lines(path)) == ["1", "2", "3", "4"]
    assert set(children.starts.values()) == {1}
    assert (await delegator.batches.latest())[0].state == "ended"


async def test_breaking_out_cancels_running_items_and_records_them(delegator: Delegator, children: Children) -> None:
    batch = delegator.batches.run(tasks("a", "hang b"), concurrency=2)
    async with aclosing(batch.outcomes()) as found:
        async for outcome in found:
            assert outcome.id == "1"
            await children.hanging.wait()
            break
    (on_record,) = await delegator.batches.latest()
    assert (on_record.state, on_record.settled) == ("ended", 2)


async def test_a_batch_that_ends_early_reads_its_file_no_more(delegator: Delegator, children: Children) -> None:
    read_on: list[int] = []

    class Rows:
        name = "rows"

        def __iter__(self) -> Iterator[Item | BadRow]:
            n = 0
            try:
                for n, task in enumerate(tasks(*("a" * n for n in range(1, 9))), start=1):
                    yield Item(str(n), task, n)
            finally:
                read_on.append(n)

    batch = delegator.batches.run(Rows(), concurrency=1)
    async with aclosing(batch.outcomes()) as found:
        async for _ in found:
            break
    assert read_on[-1] < 8, "it was closed where reading had come to"


async def test_a_canceled_loop_waits_until_all_outcomes_are_recorded(delegator: Delegator, children: Children) -> None:
    running = asyncio.create_task(outcomes(delegator.batches.run(tasks("hang a", "b", "hang c"), concurrency=3)))
    await children.hanging.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (on_record,) = await delegator.batches.latest()
    assert on_record.state in ("stopped", "ended")
    assert on_record.failed == 0
    started = sum(children.starts.values())
    assert on_record.unknown >= max(1, started - on_record.passed), "what hung; the others may have been stopped too"


async def test_a_failed_item_reruns_only_on_request_and_has_one_line(delegator: Delegator, children: Children) -> None:
    given, path = tasks("a", "fail b"), Path("r.jsonl")
    first = delegator.batches.run(given, results=path)
    await outcomes(first)
    assert await outcomes(delegator.batches.run(given, resume=first.run_id, results=path)) == {}
    again = await outcomes(delegator.batches.run(given, resume=first.run_id, rerun=["fail"], results=path))
    assert words(again) == {"2": "FAIL"}
    assert children.starts == {"a": 1, "fail b": 2}
    assert ids(lines(path)) == ["1", "2"]
    handles = {row["handle"] for row in lines(path)}
    assert len(handles) == 2, "a handle is used only once"


async def test_a_lost_item_has_an_unknown_outcome_and_reruns_only_on_request(delegator: Delegator) -> None:
    class LosingBackend:
        capacity = None

        def next_handle(self) -> None: ...

        async def run(
            self, item: Item, *, handle: str | None, cancellation: Cancellation, on_event: EventSink | None = None
        ) -> TaskResult:
            raise WorkerLost("its node was lost")

        async def aclose(self) -> None: ...

    given, path = tasks("a", "b"), Path("r.jsonl")
    lost = delegator.batches.run(given, engine=LosingBackend(), results=path)
    found = await outcomes(lost)
    assert words(found) == {"1": "outcome_unknown", "2": "outcome_unknown"}
    assert found["1"].why == "its node was lost"
    assert [row["state"] for row in lines(path)] == ["outcome_unknown"] * 2
    assert await outcomes(delegator.batches.run(given, resume=lost.run_id, rerun=["fail"], results=path)) == {}
    again = await outcomes(delegator.batches.run(given, resume=lost.run_id, rerun=["unknown"], results=path))
    assert words(again) == {"1": "PASS", "2": "PASS"}
    assert [row["verdict"] for row in lines(path)] == ["PASS", "PASS"]


async def test_a_batch_can_t_be_resumed_with_other_tasks(delegator: Delegator, children: Children) -> None:
    first = delegator.batches.run(tasks("a"))
    await outcomes(first)
    with pytest.raises(CallError, match="aren't the tasks of batch"):
        await outcomes(delegator.batches.run(tasks("b"), resume=first.run_id))
    with pytest.raises(CallError, match="no batch 'nothing'"):
        await outcomes(delegator.batches.run(tasks("a"), resume="nothing"))
    assert children.starts == {"a": 1}


async def test_a_batch_that_runs_in_another_process_can_t_be_resumed(
    delegator: Delegator, children: Children, home: Path
) -> None:
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from delegate.batch.journal import BatchHeader, Journal\n"
        "from delegate.records.history import Records\n"
        "async def main():\n"
        "    home, header = Path(sys.argv[1]), BatchHeader('abc', sys.argv[2], 'tasks', None, '{}', 'a', 1)\n"
        "    await Journal(home, Records(home)).create(header)\n"
        "    print('there', flush=True); sys.stdin.read()\n"
        "asyncio.run(main())\n"
    )
    await outcomes(delegator.batches.run(tasks("a")))
    (known,) = await delegator.batches.latest()
    command = [sys.executable, "-c", code, str(home), known.digest]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "there\n"
        assert (await delegator.batches.summary("abc")).state == "running"
        with pytest.raises(CallError, match="running in another process"):
            await outcomes(delegator.batches.run(tasks("a"), resume="abc"))
        other.kill()
    assert (await delegator.batches.summary("abc")).state == "interrupted"
    assert words(await outcomes(delegator.batches.run(tasks("a"), resume="abc"))) == {"1": "PASS"}


async def test_the_same_tasks_are_refused_a_second_time_with_once(delegator: Delegator, children: Children) -> None:
    first = delegator.batches.run(tasks("a"), results=Path("r.jsonl"), once=True)
    await outcomes(first)
    with pytest.raises(CallError, match=f"batch {first.run_id}.*r.jsonl") as error:
        await outcomes(delegator.batches.run(tasks("a"), once=True))
    assert "--again" in (error.value.hint or "")
    assert children.starts == {"a": 1}


async def test_stop_after_failures_starts_no_more_items(delegator: Delegator, children: Children) -> None:
    batch = delegator.batches.run(tasks(*(f"fail {n}" for n in range(20))), concurrency=1, stop_after_failures=3)
    found = await outcomes(batch)
    assert len(found) == 3
    assert batch.stopped == "stop_after_failures (3) is reached"
    assert len(children.starts) == len(found)


async def test_max_cost_stops_a_batch_which_can_be_resumed_with_more(delegator: Delegator, children: Children) -> None:
    given = tasks(*(f"t{n}" for n in range(20)))
    one = delegator.batches.run(tasks("one"))
    (outcome,) = (await outcomes(one)).values()
    assert outcome.result
    model = Catalog.shipped().find(outcome.result.requested_model or "")
    assert model
    least, price = cost_usd(model, Usage(output_tokens=LEAST_OUTPUT), date.today()), one.tally.cost_known_usd
    assert least
    batch = delegator.batches.run(given, max_cost_usd=price * 5 + least, concurrency=2)
    first = await outcomes(batch)
    assert 0 < len(first) < 20
    assert batch.tally.cost_known_usd <= price * 5 + least
    assert batch.stopped
    assert (
        await outcomes(delegator.batches.run(given, resume=batch.run_id, max_cost_usd=price * (len(first) - 0.5))) == {}
    )
    second = await outcomes(delegator.batches.run(given, resume=batch.run_id))
    assert len(first) + len(second) == 20
    assert set(children.starts.values()) == {1}
    spent = sum(outcome.result.cost_known_usd for outcome in (*first.values(), *second.values()) if outcome.result)
    assert spent == pytest.approx((await delegator.batches.latest())[0].cost_known_usd)


async def test_running_items_are_canceled_at_the_time_limit(delegator: Delegator, children: Children) -> None:
    batch = delegator.batches.run(tasks("hang a", "b"), concurrency=1, max_minutes=0.3 / 60)
    found = await outcomes(batch)
    assert words(found) == {"1": "outcome_unknown"}
    assert "max_minutes" in batch.stopped


async def test_nothing_is_run_if_the_journal_can_t_be_written(
    delegator: Delegator, children: Children, home: Path
) -> None:
    (home / "batches.sqlite3").mkdir(parents=True)
    with pytest.raises(DelegateError, match="the journal of batches can't be written"):
        await outcomes(delegator.batches.run(tasks("a")))
    assert not children.starts


async def test_old_batches_are_deleted_like_old_records(children: Children, home: Path) -> None:
    async with Delegator(client=children, keep_days=1e-9) as delegator:
        first, second = delegator.batches.run(tasks("a")), delegator.batches.run(tasks("b"))
        await outcomes(first)
        await outcomes(second)
        assert [batch.run_id for batch in await delegator.batches.latest()] == [second.run_id]

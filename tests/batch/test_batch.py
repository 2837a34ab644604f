"""`Delegator.batch`: one outcome per task, each begun at most once, and nothing kept."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from delegate import CallError, Cancellation, DelegateError, Delegator, Task
from delegate.batch.backend import WorkerLost
from delegate.batch.item import Item
from delegate.models.providers.scripted import Scripted
from delegate.ports import ChatRequest, Event, EventSink
from delegate.types import TaskResult
from tests.batch.rows import DONE, Children, ids, lines, outcomes, tasks, words

PLACES = {"1": 0, "2": 1, "3": 2}


@pytest.fixture
async def children() -> Children:
    return Children()


@pytest.fixture
async def delegator(children: Children) -> AsyncIterator[Delegator]:
    async with Delegator(client=children) as delegator:
        yield delegator


async def test_every_task_has_one_outcome_and_one_line_with_the_verdict_first(delegator: Delegator) -> None:
    path = Path("results.jsonl")
    batch = delegator.batch(tasks("a", "fail b", "c"), results=path)
    found = await outcomes(batch)
    assert words(found) == {"1": "PASS", "2": "FAIL", "3": "PASS"}
    assert {row["id"]: row["verdict"] for row in lines(path)} == words(found)
    assert path.read_text().startswith('{"verdict": ')
    assert (batch.tally.passed, batch.tally.failed, batch.stopped) == (2, 1, "")


async def test_items_bring_ids_of_their_own(delegator: Delegator) -> None:
    given = [Item(id, task) for id, task in zip(("x", "y"), tasks("a", "b"), strict=True)]
    assert words(await outcomes(delegator.batch(given))) == {"x": "PASS", "y": "PASS"}


async def test_so_many_children_are_at_work_and_no_more_whatever_the_limit_for_one_call_is() -> None:
    at_work, peak, full = 0, 0, asyncio.Event()

    def watch(item: Item) -> EventSink:
        def see(event: Event) -> None:
            nonlocal at_work, peak
            at_work += {"child_started": 1, "child_ended": -1}.get(event.kind, 0)
            peak = max(peak, at_work)
            if at_work == 5:
                full.set()

        return see

    async def wait_for_the_others(request: ChatRequest) -> str:
        await asyncio.wait_for(full.wait(), 20)
        return DONE

    async with Delegator(client=Scripted(wait_for_the_others), max_concurrent=1) as delegator:
        await outcomes(delegator.batch(tasks(*(f"t{n}" for n in range(20))), concurrency=5, on_event=watch))
    assert peak == 5


async def test_results_and_events_of_a_batch_name_each_task_by_its_place_in_it(children: Children) -> None:
    operators: list[Event] = []
    callers: dict[str, set[int]] = {}

    def watch(item: Item) -> EventSink:
        return lambda event: callers.setdefault(item.id, set()).add(event.task_index)

    async with Delegator(client=children, on_event=operators.append) as delegator:
        found = await outcomes(delegator.batch(tasks("a", "b", "c"), on_event=watch))
    assert {id: outcome.result and outcome.result.task_index for id, outcome in found.items()} == PLACES
    assert sorted(event.task_index for event in operators if event.kind == "judged") == [0, 1, 2]
    assert callers == {id: {place} for id, place in PLACES.items()}


async def test_no_more_is_begun_than_may_be_at_work(delegator: Delegator) -> None:
    under_way: list[int] = []

    class Sees:
        capacity = None

        async def run(self, item: Item, *, cancellation: Cancellation, on_event: EventSink | None = None) -> TaskResult:
            under_way.append(batch.running)
            return TaskResult(verdict=None, task_index=0, status="completed", summary=DONE)

        async def aclose(self) -> None: ...

    batch = delegator.batch(tasks(*(f"t{n}" for n in range(12))), concurrency=3, engine=Sees())
    await outcomes(batch)
    assert max(under_way) == 3


async def test_what_a_person_asks_for_isn_t_counted_as_what_models_ask_for(children: Children) -> None:
    async with Delegator(client=children, max_children=0) as delegator:
        assert words(await outcomes(delegator.batch(tasks("a", "b")))) == {"1": "PASS", "2": "PASS"}


async def test_a_batch_isn_t_started_inside_a_run(delegator: Delegator) -> None:
    with delegator.root_run(), pytest.raises(CallError, match="inside a run"):
        delegator.batch(tasks("a"))


async def test_nothing_is_run_where_one_task_can_t_be_used(delegator: Delegator, children: Children) -> None:
    bad = Task.model_validate({"goal": "b", "acceptance_criteria": [{"kind": "regex", "pattern": "("}]})
    with pytest.raises(CallError, match="tasks: row 2: ") as error:
        await outcomes(delegator.batch([*tasks("a"), bad], results=Path("r.jsonl")))
    assert "--skip-bad" in (error.value.hint or "") or error.value.hint
    assert not children.starts
    assert not Path("r.jsonl").exists()
    assert await delegator.batches() == []


async def test_bad_tasks_can_be_left_out_and_are_reported(delegator: Delegator) -> None:
    bad = Task.model_validate({"goal": "b", "model": "no-such-model"})
    found = await outcomes(delegator.batch([*tasks("a"), bad, *tasks("c")], skip_bad=True, results=Path("r.jsonl")))
    assert words(found) == {"1": "PASS", "2": "bad_row", "3": "PASS"}
    assert "no-such-model" in found["2"].why
    assert ids(lines(Path("r.jsonl"))) == ["1", "2", "3"]


async def test_the_first_cancel_ends_what_runs_and_a_resume_starts_only_the_rest(
    delegator: Delegator, children: Children
) -> None:
    given, path, stop = tasks("a", "hang b", "c", "d"), Path("r.jsonl"), Cancellation()
    batch = delegator.batch(given, concurrency=2, results=path, cancellation=stop)

    async def cancel() -> None:
        await children.hanging.wait()
        stop.cancel()

    canceller = asyncio.create_task(cancel())
    first = await outcomes(batch)
    await canceller
    assert first["2"].result is not None
    assert first["2"].result.status == "cancelled"
    assert (await delegator.batches())[0].state == "stopped"
    second = await outcomes(delegator.batch(given, resume=batch.run_id, results=path))
    assert not set(first) & set(second)
    assert set(first) | set(second) == {"1", "2", "3", "4"}
    assert ids(lines(path)) == ["1", "2", "3", "4"]
    assert set(children.starts.values()) == {1}
    assert (await delegator.batches())[0].state == "ended"


async def test_leaving_early_cancels_what_runs_and_all_is_on_record(delegator: Delegator, children: Children) -> None:
    batch = delegator.batch(tasks("a", "hang b"), concurrency=2)
    async with aclosing(batch.outcomes()) as found:
        async for outcome in found:
            assert outcome.id == "1"
            await children.hanging.wait()
            break
    (on_record,) = await delegator.batches()
    assert (on_record.state, on_record.settled) == ("ended", 2)


async def test_a_cancelled_loop_waits_until_all_is_on_record(delegator: Delegator, children: Children) -> None:
    running = asyncio.create_task(outcomes(delegator.batch(tasks("hang a", "b", "hang c"), concurrency=3)))
    await children.hanging.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (on_record,) = await delegator.batches()
    assert on_record.state in ("stopped", "ended")
    assert on_record.unknown == 0


async def test_what_failed_is_run_again_only_when_asked_and_has_one_line_then(
    delegator: Delegator, children: Children
) -> None:
    given, path = tasks("a", "fail b"), Path("r.jsonl")
    first = delegator.batch(given, results=path)
    await outcomes(first)
    assert await outcomes(delegator.batch(given, resume=first.run_id, results=path)) == {}
    again = await outcomes(delegator.batch(given, resume=first.run_id, rerun=["fail"], results=path))
    assert words(again) == {"2": "FAIL"}
    assert children.starts == {"a": 1, "fail b": 2}
    assert ids(lines(path)) == ["1", "2"]
    handles = {row["handle"] for row in lines(path)}
    assert len(handles) == 2, "a handle isn't given twice"


async def test_a_lost_worker_s_task_is_unknown_and_run_again_only_when_asked(delegator: Delegator) -> None:
    class Loses:
        capacity = None

        async def run(self, item: Item, *, cancellation: Cancellation, on_event: EventSink | None = None) -> TaskResult:
            raise WorkerLost("its node went away")

        async def aclose(self) -> None: ...

    given, path = tasks("a", "b"), Path("r.jsonl")
    lost = delegator.batch(given, engine=Loses(), results=path)
    found = await outcomes(lost)
    assert words(found) == {"1": "outcome_unknown", "2": "outcome_unknown"}
    assert found["1"].why == "its node went away"
    assert [row["state"] for row in lines(path)] == ["outcome_unknown"] * 2
    assert await outcomes(delegator.batch(given, resume=lost.run_id, rerun=["fail"], results=path)) == {}
    again = await outcomes(delegator.batch(given, resume=lost.run_id, rerun=["unknown"], results=path))
    assert words(again) == {"1": "PASS", "2": "PASS"}
    assert [row["verdict"] for row in lines(path)] == ["PASS", "PASS"]


async def test_other_tasks_can_t_go_on_with_a_batch(delegator: Delegator, children: Children) -> None:
    first = delegator.batch(tasks("a"))
    await outcomes(first)
    with pytest.raises(CallError, match="aren't the tasks of batch"):
        await outcomes(delegator.batch(tasks("b"), resume=first.run_id))
    with pytest.raises(CallError, match="no batch 'nothing'"):
        await outcomes(delegator.batch(tasks("a"), resume="nothing"))
    assert children.starts == {"a": 1}


async def test_a_batch_that_another_process_is_at_can_t_be_taken_over(
    delegator: Delegator, children: Children, home: Path
) -> None:
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from delegate.batch.journal import BatchHeader, Journal\n"
        "async def main():\n"
        "    await Journal(Path(sys.argv[1])).create(BatchHeader('abc', sys.argv[2], 'tasks', None, '{}', 'a', 1))\n"
        "    print('there', flush=True); sys.stdin.read()\n"
        "asyncio.run(main())\n"
    )
    await outcomes(delegator.batch(tasks("a")))
    (known,) = await delegator.batches()
    command = [sys.executable, "-c", code, str(home), known.digest]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "there\n"
        assert (await delegator.batch_on_record("abc")).state == "running"
        with pytest.raises(CallError, match="running in another process"):
            await outcomes(delegator.batch(tasks("a"), resume="abc"))
        other.kill()
    assert (await delegator.batch_on_record("abc")).state == "interrupted"
    assert words(await outcomes(delegator.batch(tasks("a"), resume="abc"))) == {"1": "PASS"}


async def test_the_same_tasks_are_refused_a_second_time_where_that_is_asked_for(
    delegator: Delegator, children: Children
) -> None:
    first = delegator.batch(tasks("a"), results=Path("r.jsonl"), once=True)
    await outcomes(first)
    with pytest.raises(CallError, match=f"batch {first.run_id}.*r.jsonl") as error:
        await outcomes(delegator.batch(tasks("a"), once=True))
    assert "--again" in (error.value.hint or "")
    assert children.starts == {"a": 1}


async def test_after_so_many_failures_nothing_more_is_started(delegator: Delegator, children: Children) -> None:
    batch = delegator.batch(tasks(*(f"fail {n}" for n in range(20))), concurrency=1, stop_after_failures=3)
    found = await outcomes(batch)
    assert 3 <= len(found) <= 4, "one more may have been under way"
    assert batch.stopped == "stop_after_failures (3) is reached"
    assert len(children.starts) == len(found)


async def test_when_the_money_is_spent_the_rest_is_not_started_and_can_be_resumed_with_more(
    delegator: Delegator, children: Children
) -> None:
    given = tasks(*(f"t{n}" for n in range(20)))
    one = delegator.batch(tasks("one"))
    await outcomes(one)
    price = one.tally.cost_known_usd
    batch = delegator.batch(given, max_cost_usd=price * 5, concurrency=2)
    first = await outcomes(batch)
    assert 0 < len(first) < 20
    assert batch.tally.cost_known_usd <= price * 6
    assert batch.stopped
    assert await outcomes(delegator.batch(given, resume=batch.run_id, max_cost_usd=price * (len(first) - 0.5))) == {}
    second = await outcomes(delegator.batch(given, resume=batch.run_id))
    assert len(first) + len(second) == 20
    assert set(children.starts.values()) == {1}
    spent = sum(outcome.result.cost_known_usd for outcome in (*first.values(), *second.values()) if outcome.result)
    assert spent == pytest.approx((await delegator.batches())[0].cost_known_usd)


async def test_when_the_time_is_up_what_runs_is_stopped(delegator: Delegator, children: Children) -> None:
    batch = delegator.batch(tasks("hang a", "b"), concurrency=1, max_minutes=0.3 / 60)
    found = await outcomes(batch)
    assert words(found) == {"1": "FAIL"}
    assert "max_minutes" in batch.stopped


async def test_nothing_is_run_that_can_t_be_journalled(delegator: Delegator, children: Children, home: Path) -> None:
    (home / "batches.sqlite3").mkdir(parents=True)
    with pytest.raises(DelegateError, match="the journal of batches can't be written"):
        await outcomes(delegator.batch(tasks("a")))
    assert not children.starts


async def test_results_are_not_kept_in_memory(delegator: Delegator) -> None:
    def alive() -> int:
        gc.collect()
        return sum(isinstance(one, TaskResult) for one in gc.get_objects())

    before, most = alive(), 0
    async for outcome in delegator.batch(tasks(*(f"t{n}" for n in range(60))), concurrency=2):
        if outcome.row and outcome.row % 20 == 0:
            most = max(most, alive() - before)
    assert most <= 6


async def test_old_batches_are_forgotten_as_old_records_are(children: Children, home: Path) -> None:
    async with Delegator(client=children, keep_days=1e-9) as delegator:
        first, second = delegator.batch(tasks("a")), delegator.batch(tasks("b"))
        await outcomes(first)
        await outcomes(second)
        assert [batch.run_id for batch in await delegator.batches()] == [second.run_id]

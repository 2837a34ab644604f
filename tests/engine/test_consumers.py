"""A consumer of events that is slow, fails or hangs never harms a run."""

import asyncio
import logging
import threading
from collections.abc import Coroutine

import pytest

from delegate import Delegator, Event, Task
from delegate.batch.item import Item
from delegate.engine import consumers
from delegate.models.providers.scripted import Scripted
from delegate.types.events import EventSink

ALL = ["run.started", "task.queued", "child.started", "child.usage", "child.done", "verdict", "task.done", "run.done"]


def delegator_with(on_event: object) -> Delegator:
    return Delegator(client=Scripted(lambda request: "did my part"), on_event=on_event)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def all_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "SLOW_SECONDS", 0.0)


@pytest.mark.usefixtures("all_are_slow")
async def test_a_slow_consumer_gets_the_others_in_order_in_a_thread(caplog: pytest.LogCaptureFixture) -> None:
    got: list[tuple[str, bool]] = []

    def slow_display(event: Event) -> None:
        got.append((event.kind, threading.current_thread() is threading.main_thread()))

    async with delegator_with(slow_display) as delegator:
        await delegator.run(Task(goal="a"))
        first = [*got]
        await delegator.run(Task(goal="b"))
    assert [kind for kind, _ in first] == ALL
    assert [is_main for _, is_main in got] == [True] + [False] * (2 * len(ALL) - 1)
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "slow_display" in warnings[0]


@pytest.mark.usefixtures("all_are_slow")
async def test_a_run_ends_although_its_consumer_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "SETTLE_SECONDS", 0.05)
    got: list[str] = []
    may_go_on, has_all = threading.Event(), threading.Event()

    def hang(event: Event) -> None:
        if got:
            may_go_on.wait(20)
        got.append(event.kind)
        if event.kind == "run.done":
            has_all.set()

    async with delegator_with(hang) as delegator:
        result = await delegator.run(Task(goal="a"))
        assert result.results[0].status == "completed"
        assert got == ALL[:1]
        may_go_on.set()
        assert await asyncio.to_thread(has_all.wait, 20)
    assert got == ALL, "what it missed, it gets later"


@pytest.mark.usefixtures("all_are_slow")
async def test_a_full_queue_drops_events_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(consumers, "MAX_QUEUED", 2)
    monkeypatch.setattr(consumers, "SETTLE_SECONDS", 0.05)
    got: list[str] = []
    may_go_on = threading.Event()

    def hang(event: Event) -> None:
        if got:
            may_go_on.wait(20)
        got.append(event.kind)

    consumer = consumers.Consumer(hang)
    async with delegator_with(consumer) as delegator:
        await delegator.run(Task(goal="a"))
        behind = consumer.pending
        assert behind
        may_go_on.set()
        await asyncio.wait_for(asyncio.wrap_future(behind), 20)
    assert got[0] == ALL[0]
    assert 2 < len(got) < len(ALL)
    assert [kind for kind in ALL if kind in got] == got
    told = [one.getMessage() for one in caplog.records if "dropped" in one.getMessage()]
    assert len(told) == 2
    assert f"{len(ALL) - len(got)} events" in told[1]


async def test_an_async_consumer_gets_all_events_one_after_the_other() -> None:
    got: list[str] = []
    active = 0

    async def consume(event: Event) -> None:
        nonlocal active
        active += 1
        assert active == 1
        await asyncio.sleep(0)
        got.append(event.kind)
        active -= 1

    def in_disguise(event: Event) -> Coroutine[None, None, None]:
        return consume(event)

    for on_event in (consume, in_disguise):
        got.clear()
        async with delegator_with(on_event) as delegator:
            await delegator.run(Task(goal="a"))
        assert got == ALL


@pytest.mark.parametrize("error", [RuntimeError("the display is broken"), asyncio.CancelledError()])
@pytest.mark.parametrize("is_async", [False, True])
async def test_failures_of_a_consumer_are_logged_once(
    is_async: bool, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[str] = []

    def fail(event: Event) -> None:
        got.append(event.kind)
        raise error

    async def fail_later(event: Event) -> None:
        fail(event)

    async with delegator_with(fail_later if is_async else fail) as delegator:
        result = await delegator.run(Task(goal="a"))
    assert result.results[0].status == "completed"
    assert got == ALL
    assert sum("failed" in one.getMessage() for one in caplog.records) == 1


@pytest.mark.usefixtures("all_are_slow")
async def test_the_queue_of_a_loop_is_never_used_from_a_thread() -> None:
    queue: asyncio.Queue[Event] = asyncio.Queue()
    async with delegator_with(queue.put_nowait) as delegator:
        await delegator.run(Task(goal="a"))
    assert [queue.get_nowait().kind for _ in range(queue.qsize())] == ALL


@pytest.mark.usefixtures("all_are_slow")
async def test_a_batch_moves_its_slow_consumers_to_one_thread(caplog: pytest.LogCaptureFixture) -> None:
    got: list[str] = []

    def watch(item: Item) -> EventSink:
        return lambda event: got.append(event.kind)

    async with delegator_with(None) as delegator:
        async for _ in delegator.batches.run([Task(goal="a"), Task(goal="b")], on_event=watch):
            pass
    assert got.count("verdict") == 2
    assert sum("event consumer" in one.getMessage() for one in caplog.records) == 1

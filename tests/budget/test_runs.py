"""What all calls of a run share, and what happens at each of its limits."""

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from delegate import Delegator, RunResult, Task
from delegate.budget import runs
from delegate.budget.ledger import LEAST_OUTPUT
from delegate.budget.runs import RunRegistry
from delegate.models.catalog import Catalog
from delegate.models.providers.scripted import Scripted
from delegate.policy.settings import Settings
from delegate.types import JsonObject, Parent, TaskResult, Usage
from delegate.types.errors import ConfigError
from delegate.types.events import Event
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.deadlines import in_time
from tests.support.model_server import Call, ModelServer, Reply
from tests.support.words import goal_of, is_judge, met_by, words

TURN = Parent(run_id="turn-1")
CHEAP = "gpt-6-luna"
"""Its prices in US dollars per million tokens: 0.10 for input, 0.50 for output."""


def three(name: str) -> JsonObject:
    return {"tasks": [{"goal": f"{name}, part {n}"} for n in range(3)]}


def codes(run: RunResult) -> list[str]:
    return [result.error.code if result.error else result.status for result in run.results]


# --------------------------------------------------------------------------- many calls in one turn, over real HTTP


class Gate:
    """A model that blocks every call until the test releases it."""

    def __init__(self) -> None:
        self._held: queue.Queue[Future[Reply]] = queue.Queue()

    async def __call__(self, call: Call) -> Reply:
        answer: Future[Reply] = Future()
        self._held.put(answer)
        return await asyncio.wrap_future(answer)

    async def hold(self, number: int) -> list[Future[Reply]]:
        """Wait for this many calls."""
        return [await asyncio.to_thread(self._held.get, timeout=10) for _ in range(number)]


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def server(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer(gate) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "dummy")
        yield server


Calling = Callable[[JsonObject], Coroutine[Any, Any, RunResult]]
Way = Callable[[Delegator], AbstractAsyncContextManager[Calling]]


@asynccontextmanager
async def with_one_run_id(delegator: Delegator) -> AsyncGenerator[Calling]:
    yield lambda arguments: delegator.call(arguments, parent=TURN)


@asynccontextmanager
async def from_threads_inside_root_run(delegator: Delegator) -> AsyncGenerator[Calling]:
    with delegator.root_run():
        yield lambda arguments: asyncio.to_thread(delegator.call_sync, arguments)


@asynccontextmanager
async def on_two_event_loops(delegator: Delegator) -> AsyncGenerator[Calling]:
    """Make every other call on an event loop in another thread."""
    other = asyncio.new_event_loop()
    thread = threading.Thread(target=other.run_forever)
    thread.start()
    here = [True]

    async def call(arguments: JsonObject) -> RunResult:
        here[0] = not here[0]
        made = delegator.call(arguments, parent=TURN)
        return await (made if here[0] else asyncio.wrap_future(asyncio.run_coroutine_threadsafe(made, other)))

    yield call
    closed = asyncio.run_coroutine_threadsafe(delegator.connections.aclose(), other)
    await asyncio.wrap_future(closed)
    other.call_soon_threadsafe(other.stop)
    thread.join()
    other.close()


WAYS: Sequence[Way] = (
    with_one_run_id, from_threads_inside_root_run, on_two_event_loops
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_four_calls_in_one_turn_share_three_permits_and_twelve_children(
    way: Way, gate: Gate, server: ModelServer
) -> None:
    started: list[Event] = []

    def watch(event: Event) -> None:
        if event.kind == "child.started":
            started.append(event)

    async with Delegator(model=CHEAP, on_event=watch) as delegator, way(delegator) as call:
        turn = [asyncio.create_task(call(three(f"call {n}"))) for n in range(4)]
        for n in range(1, 5):
            held = await gate.hold(3)
            assert (len(started), len(server.calls)) == (3 * n, 3 * n), "three run, and no others"
            for answer in held:
                answer.set_result(Reply("did my part as asked"))
        results = [await run for run in turn]
        fifth = await call({"goal": "one more"})
    assert [codes(run) for run in results] == [["completed"] * 3] * 4
    assert len({run.run_id for run in results}) == 1
    assert len({result.handle for run in results for result in run.results}) == 12
    assert fifth.error
    assert fifth.error.code == "budget_exceeded"
    assert "limit children: 12 of 12 spent, 0 reserved, 0 left, 1 needed" in fifth.error.message
    assert fifth.error.hint == "nothing was run; do the work yourself"
    assert (server.peak, len(server.calls)) == (3, 12)


async def test_concurrent_calls_that_write_all_they_may_stay_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limit, allowed = 0.006, list[int]()

    def all_it_may(call: Call) -> Reply:
        allowed.append(call.max_output_tokens)
        thought = {"thought": f"this is number {len(allowed)}"}
        return Reply(tool_calls=(("think", thought),), input_tokens=500, output_tokens=allowed[-1], delay=0.05)

    with ModelServer(all_it_may) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "dummy")
        async with Delegator(model=CHEAP, max_cost_usd=limit, max_output_tokens=8_192) as delegator:
            result = await delegator.call(three("write much"))
    assert codes(result) == ["budget_exceeded"] * 3
    assert min(allowed) >= LEAST_OUTPUT
    assert max(allowed[:3]) > min(allowed[:3]), "each leaves the others half"
    assert result.totals.cost_usd
    assert 0.9 * limit <= result.totals.cost_usd <= limit


async def test_endless_children_use_up_a_cost_limit_and_do_not_exceed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = 0.003

    def forever(call: Call) -> Reply:
        thought = {"thought": f"this is number {len(call.texts)}"}
        return Reply(tool_calls=(("think", thought),), input_tokens=500, output_tokens=256)

    with ModelServer(forever) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "dummy")
        async with Delegator(model=CHEAP, max_cost_usd=limit, max_output_tokens=256) as delegator:
            result = await delegator.call(three("never stop"), parent=TURN)
            more = await delegator.call({"goal": "one more"}, parent=TURN)
    assert codes(result) == ["budget_exceeded"] * 3
    assert codes(more) == ["budget_exceeded"]
    assert result.totals.cost_usd
    assert 0.9 * limit < result.totals.cost_usd <= limit
    assert len(server.calls) == result.totals.child_usage.model_calls


# ---------------------------------------------------------------------------------------------- which run is meant


def done() -> Scripted:
    return Scripted(lambda request: "did my part as asked")


async def test_a_call_for_more_children_than_are_left_runs_none_of_them() -> None:
    client = done()
    async with Delegator(client=client, max_children=5) as delegator:
        await delegator.call(three("first"), parent=TURN)
        refused = await delegator.call(three("second"), parent=TURN)
        assert len(client.requests) == 3
        fits = await delegator.call({"tasks": three("third")["tasks"][:2]}, parent=TURN)
        last = await delegator.call({"goal": "one more"}, parent=TURN)
    assert refused.error
    assert refused.error.code == "budget_exceeded"
    assert "limit children: 3 of 5 spent, 0 reserved, 2 left, 3 needed" in refused.error.message
    assert refused.error.hint == "nothing was run; send at most 2"
    assert codes(fits) == ["completed", "completed"]
    assert last.error
    assert len(client.requests) == 5


async def test_without_a_run_id_or_a_context_each_call_is_a_run_of_its_own() -> None:
    async with Delegator(client=done(), max_children=1) as delegator:
        results = await asyncio.gather(*(delegator.call({"goal": f"part {n}"}) for n in range(3)))
    assert [codes(result) for result in results] == [["completed"]] * 3
    assert len({result.run_id for result in results}) == 3


async def test_other_run_ids_are_other_runs() -> None:
    async with Delegator(client=done(), max_children=1) as delegator:
        for name in ("a", "b"):
            assert not (await delegator.call({"goal": "x"}, parent=Parent(run_id=name))).error
            assert (await delegator.call({"goal": "x"}, parent=Parent(run_id=name))).error


async def test_a_root_run_yields_the_id_in_its_reports_and_ends_with_its_block() -> None:
    async with Delegator(client=done(), max_children=1) as delegator:
        with delegator.root_run() as run_id:
            first = await delegator.call({"goal": "x"})
            assert (await delegator.call({"goal": "x"})).error
        after = await delegator.call({"goal": "x"})
    assert first.run_id == run_id != after.run_id
    assert codes(after) == ["completed"]


async def test_tasks_of_a_user_do_not_count_as_children_of_a_model() -> None:
    async with Delegator(client=done(), max_children=1) as delegator:
        with delegator.root_run():
            result = await delegator.run(*(Task(goal=f"part {n}") for n in range(5)))
            assert codes(result) == ["completed"] * 5
            assert not (await delegator.call({"goal": "x"})).error
            assert (await delegator.call({"goal": "x"})).error


async def test_an_invalid_call_counts_no_children() -> None:
    async with Delegator(client=done(), max_children=3) as delegator:
        wrong = {"tasks": [*three("x")["tasks"][:2], {"goal": "y", "output_schema": {"type": "objekt"}}]}
        assert (await delegator.call(wrong, parent=TURN)).error
        assert codes(await delegator.call(three("x"), parent=TURN)) == ["completed"] * 3


def test_a_run_in_use_is_remembered_however_many_others_there_are(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "KEPT_RUNS", 100)
    registry = RunRegistry(Settings(home=home), Catalog.shipped())
    in_use = registry.context(Parent(run_id="in use")).run
    idle = registry.context(Parent(run_id="idle")).run.id
    for n in range(100):
        registry.context(Parent(run_id=f"another {n}"))
    assert registry.context(Parent(run_id="in use")).run is in_use
    assert registry.context(Parent(run_id="idle")).run.id != idle


# -------------------------------------------------------------------------------------------------- limits of a run


def reply(*calls: tuple[str, JsonObject], text: str = "did my part as asked") -> ChatReply:
    """A turn with 10,000 input and 100 output tokens: 0.00105 USD."""
    turn = Scripted.calls(*calls, text=text)
    usage = Usage(model_calls=1, input_tokens=10_000, output_tokens=100)
    return ChatReply(turn.text, "tool_calls" if calls else "end", usage, turn.tool_calls)


def quick_or_long(request: ChatRequest) -> ChatReply:
    """Some children report at once, others write a file first."""
    if is_judge(request):
        return reply(text=met_by("did my part")(request))
    if goal_of(request) == "long" and len(request.messages) == 1:
        return reply(("write_file", {"path": "half.txt", "content": "half"}), text="half-way there")
    return reply()


TIGHT: dict[str, Any] = {"max_run_model_calls": 2, "max_run_tokens": 25_000, "max_cost_usd": 0.0025}
LIMIT_NAMES = {"max_run_model_calls": "model_calls", "max_run_tokens": "tokens", "max_cost_usd": "cost_usd"}


@pytest.mark.parametrize("limit", TIGHT)
async def test_a_run_limit_stops_a_child_before_its_next_call_and_keeps_work(limit: str) -> None:
    client = Scripted(quick_or_long)
    async with Delegator(client=client, model=CHEAP, max_concurrent=1, **{limit: TIGHT[limit]}) as delegator:
        result = await delegator.call({"tasks": [{"goal": "quick"}, {"goal": "long"}]}, parent=TURN)
    quick, long = result.results
    assert (quick.status, quick.report) == ("completed", "did my part as asked")
    assert (long.status, long.report, long.receipts.ok) == ("budget_exceeded", "half-way there", 1)
    assert [artifact.path for artifact in long.artifacts] == ["half.txt"]
    assert long.error
    assert f"limit {LIMIT_NAMES[limit]}:" in long.error.message
    assert len(client.requests) == 2


@pytest.mark.parametrize("limit", TIGHT)
async def test_a_judge_beyond_the_runs_budget_is_not_called_and_reported(limit: str) -> None:
    client = Scripted(quick_or_long)
    tight: Any = {"max_run_model_calls": 1, "max_run_tokens": 10_200, "max_cost_usd": 0.0011}[limit]
    async with Delegator(client=client, model=CHEAP, **{limit: tight}) as delegator:
        run = await delegator.call(
            {"goal": "quick", "acceptance_criteria": ["report: the report says that my part was done"]}
        )
    (result,) = run.results
    assert result.status == "completed"
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.code) == ("FAIL", "budget_exceeded")
    assert f"limit {LIMIT_NAMES[limit]}" in result.verdict.criteria[0].reason
    assert len(client.requests) == 1


async def test_the_wall_time_stops_a_child_refuses_later_ones_and_keeps_work() -> None:
    async def answer(request: ChatRequest) -> str:
        if goal_of(request) == "hangs":
            await asyncio.Event().wait()
        return "did my part as asked"

    async def play(seconds: float) -> tuple[RunResult, RunResult, int]:
        client = Scripted(answer)
        async with Delegator(client=client, max_concurrent=1, run_timeout_seconds=seconds) as delegator:
            tasks = [{"goal": goal} for goal in ("works", "hangs", "waits")]
            run = await delegator.call({"tasks": tasks}, parent=TURN)
            return run, await delegator.call({"goal": "late"}, parent=TURN), len(client.requests)

    run, late, asked = await in_time(play, lambda played: played[2] == 2)
    assert [result.status for result in run.results] == ["completed", "timeout", "budget_exceeded"]
    hung, behind = run.results[1].error, run.results[2].error
    assert hung
    assert "had left" in hung.message
    assert behind
    assert "time was up" in behind.message
    assert late.error
    assert (late.error.code, late.error.hint) == ("budget_exceeded", "nothing was run; do the work yourself")
    assert asked == 2


async def test_a_verdict_that_exceeds_the_runs_wall_time_fails_for_that_reason() -> None:
    async def answer(request: ChatRequest) -> str:
        if is_judge(request):
            await asyncio.Event().wait()
        return "did my part as asked"

    async def play(seconds: float) -> RunResult:
        async with Delegator(client=Scripted(answer), run_timeout_seconds=seconds) as delegator:
            return await delegator.call(
                {"goal": "x", "acceptance_criteria": ["report: the report says that it was done"]}
            )

    run = await in_time(play, lambda run: run.results[0].status == "completed")
    (result,) = run.results
    assert (result.status, result.report) == ("completed", "did my part as asked")
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.code) == ("FAIL", "budget_exceeded")


def test_the_wall_time_of_a_run_starts_with_its_first_call(home: Any) -> None:
    run = RunRegistry(Settings(home=home, run_timeout_seconds=60), Catalog.shipped()).context(TURN).run
    assert run.seconds_left() == 60, "it was only looked at"
    run.refuse_if_over()
    assert (run.seconds_left() or 0) < 60


@pytest.mark.parametrize("depth", [0, 5])
def test_an_unsupported_depth_is_an_invalid_setting(depth: int) -> None:
    with pytest.raises(ConfigError, match="max_depth"):
        Delegator(client=done(), max_depth=depth)


# ------------------------------------------------------------------------------------------------- limits of a task


async def one(client: Scripted, task: Task, **options: Any) -> TaskResult:
    async with Delegator(client=client, model=CHEAP, **options) as delegator:
        result = await delegator.run(task)
    assert not result.error
    return result.results[0]


def judged(**fields: Any) -> Task:
    return Task.model_validate(
        {"goal": "quick", "acceptance_criteria": ["report: the report says that my part was done"], **fields}
    )


async def test_a_tasks_cost_limit_applies_to_its_child_and_judge_together() -> None:
    client = Scripted(quick_or_long)
    result = await one(client, judged(max_cost_usd=0.0011))
    assert result.status == "completed"
    assert result.verdict
    assert result.verdict.code == "budget_exceeded"
    assert len(client.requests) == 1
    enough = await one(Scripted(quick_or_long), judged(max_cost_usd=0.01))
    assert enough.verdict
    assert enough.verdict.verdict == "PASS"


async def test_a_tasks_limit_does_not_apply_to_its_siblings() -> None:
    async with Delegator(client=Scripted(quick_or_long), model=CHEAP) as delegator:
        run = await delegator.run(Task(goal="long", max_cost_usd=0.0015), Task(goal="long"))
    assert [result.status for result in run.results] == ["budget_exceeded", "completed"]


async def test_a_task_may_ask_for_less_than_the_run_allows_and_never_for_more() -> None:
    async with Delegator(client=Scripted(quick_or_long), model=CHEAP, max_cost_usd=0.0015) as delegator:
        result = await delegator.run(Task(goal="long", max_cost_usd=100))
    assert codes(result) == ["budget_exceeded"]


async def test_a_token_limit_per_child_applies_to_each_child_separately() -> None:
    client = words(lambda request: reply(("think", {"thought": "x"})))
    async with Delegator(client=client, model=CHEAP, max_tokens=25_000) as delegator:
        run = await delegator.run(Task(goal="a"), Task(goal="b"))
    assert codes(run) == ["budget_exceeded"] * 2
    assert [result.usage.model_calls for result in run.results] == [2, 2]

"""Children that delegate: one run, one ledger, three permits, and no tool that their parent doesn't have."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from delegate import Delegator, RunResult, Task, Tool
from delegate.models.providers.scripted import Scripted
from delegate.types import JsonObject, Parent, Usage
from delegate.types.events import Event
from delegate.types.ports import ChatReply, ChatRequest, ToolSpec
from tests.support.deadlines import in_time
from tests.support.model_server import Call, ModelServer, Reply
from tests.support.words import goal_of, is_judge, met_by

TURN = Parent(run_id="turn-1")
CHEAP = "gpt-6-luna"
"""A model whose prices are 0.10 (input) and 0.50 (output) US dollars per million tokens."""
TURN_USD = 0.00105
"""The cost of a turn with 10,000 input tokens and 100 output tokens."""


def turn(*calls: tuple[str, JsonObject], text: str = "did my part as asked") -> ChatReply:
    made = Scripted.calls(*calls, text=text).tool_calls
    usage = Usage(model_calls=1, input_tokens=10_000, output_tokens=100)
    return ChatReply(text, "tool_calls" if calls else "end", usage, made)


def delegating(*goals: str, tool: str = "delegate_task", **fields: Any) -> tuple[str, JsonObject]:
    """Return a tool call with a task for each goal."""
    return tool, {"tasks": [{"goal": goal, **fields} for goal in goals]}


def boss_of(*calls: tuple[str, JsonObject]) -> Scripted:
    """The child with the goal `boss` makes these calls in its first turn. All others report immediately."""

    def answer(request: ChatRequest) -> ChatReply:
        if is_judge(request):
            return turn(text=met_by("did my part")(request))
        first = len(request.messages) == 1
        return turn(*calls) if goal_of(request) == "boss" and first else turn()

    return Scripted(answer)


def requests_of(client: Scripted, goal: str) -> list[ChatRequest]:
    return [request for request in client.requests if not is_judge(request) and goal_of(request) == goal]


def offered(request: ChatRequest, name: str = "delegate_task") -> ToolSpec | None:
    return next((tool for tool in request.tools if tool.name == name), None)


_DEFAULTS: dict[str, Any] = {"model": CHEAP, "judge_model": CHEAP, "max_depth": 2}


async def result_of(client: Scripted, task: Task | None = None, **options: Any) -> RunResult:
    async with Delegator(client=client, **(_DEFAULTS | options)) as delegator:
        result = await delegator.run(task or Task(goal="boss"))
    assert not result.error
    return result


# ------------------------------------------------------------------------------------------------ places, over HTTP


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """Three bosses with two calls of two workers each. Replies are sent in groups of three."""
    together: list[asyncio.Barrier] = []

    async def answer(call: Call) -> Reply:
        together[:] = together or [asyncio.Barrier(3)]
        if call.tool_results:
            return Reply("put the parts together")
        await asyncio.wait_for(together[0].wait(), 20)
        if "boss" in call.texts[0]:
            both = [delegating("worker a", "worker b"), delegating("worker c", "worker d")]
            return Reply(tool_calls=tuple(both))
        return Reply("did my part as asked")

    with ModelServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "dummy")
        yield server


async def test_waiting_parents_lend_their_permits_and_at_most_three_run(
    server: ModelServer,
) -> None:
    async with Delegator(model=CHEAP, max_depth=2, max_children=15) as delegator:
        run = await delegator.call({"tasks": [{"goal": f"boss {n}"} for n in range(3)]}, parent=TURN)
        one_more = await delegator.call({"goal": "worker"}, parent=TURN)
    assert [result.status for result in run.results] == ["completed"] * 3
    assert (server.peak, len(server.calls)) == (3, 3 + 12 + 3)
    for result in run.results:
        assert result.delegated
        assert (result.delegated.tasks, result.delegated.completed) == (4, 4)
    assert one_more.error
    assert "15 of 15 spent" in one_more.error.message
    assert run.totals.child_usage.model_calls == 18
    assert run.totals.cost_usd == pytest.approx(18 * (10 * 0.10 + 5 * 0.50) / 1e6)


@pytest.mark.parametrize("places", [1, 2])
async def test_fewer_places_than_levels_are_enough_at_any_depth(places: int) -> None:
    deepest = 4

    def answer(request: ChatRequest) -> ChatReply:
        depth = int(goal_of(request))
        if len(request.messages) == 1 and depth < deepest:
            return turn(delegating(str(depth + 1)), delegating(str(depth + 1)))
        assert (offered(request) is not None) == (depth < deepest)
        return turn()

    client = Scripted(answer)
    options: dict[str, Any] = {"max_depth": deepest, "max_concurrent": places, "max_children": 20}
    result = await asyncio.wait_for(result_of(client, Task(goal="1"), **options), 20)
    below = result.results[0].delegated
    assert below
    assert len(requests_of(client, "4")) == 8
    assert (below.tasks, below.child_usage.model_calls) == (2, 2 * (2 + 2 * (2 + 2 * 1)))
    assert result.totals.cost_usd == pytest.approx((2 + below.child_usage.model_calls) * TURN_USD)


async def test_events_of_a_call_leave_out_the_tasks_of_its_children() -> None:
    operators: list[Event] = []
    calls: list[Event] = []
    async with Delegator(client=boss_of(delegating("a", "b")), on_event=operators.append, **_DEFAULTS) as delegator:
        result = await delegator.run(Task(goal="boss"), on_event=calls.append)
    assert result.totals.child_usage.model_calls == 4
    for told in (operators, calls):
        assert [event.model for event in told if event.kind == "child.started"] == [CHEAP]


# ------------------------------------------------------------------------------------------------------ the bill


async def test_delegated_costs_are_charged_to_the_child_and_to_the_run() -> None:
    client = boss_of(
        delegating("a", acceptance_criteria=["report: the report says that it was done"]), delegating("b", "c")
    )
    result = await result_of(
        client,
        Task.model_validate({"goal": "boss", "acceptance_criteria": ["report: the report says that it was done"]}),
    )
    (boss,) = result.results
    below = boss.delegated
    assert below
    assert (below.tasks, below.passed, below.unjudged, below.completed) == (3, 1, 2, 3)
    assert (below.child_usage.model_calls, below.judge_usage.model_calls) == (3, 1)
    assert boss.usage.model_calls == 2
    assert boss.cost_usd == pytest.approx(7 * TURN_USD)
    assert result.totals.tasks == 1
    assert result.totals.cost_usd == pytest.approx(7 * TURN_USD)
    assert result.totals.child_cost_usd == pytest.approx(5 * TURN_USD)
    assert result.totals.judge_cost_usd == pytest.approx(2 * TURN_USD)
    assert result.totals.verification_share == boss.verification_share == pytest.approx(2 / 7, abs=1e-5)


async def test_a_child_reads_the_verdict_on_its_own_child() -> None:
    client = boss_of(delegating("a", acceptance_criteria=["report: the report says that it was done"]))
    await result_of(client)
    reply = requests_of(client, "boss")[1].messages[-1].tool_replies[0]
    assert "PASS" in reply.text[:200]
    assert not reply.is_error


# ------------------------------------------------------------------------------------------------------ the ledger


async def test_a_task_s_limit_of_cost_holds_for_all_that_its_child_delegates() -> None:
    client = boss_of(delegating("a", "b"))
    result = await result_of(client, Task(goal="boss", max_cost_usd=2.05 * TURN_USD), max_concurrent=1)
    (boss,) = result.results
    assert boss.status == "budget_exceeded"
    assert boss.delegated
    assert (boss.delegated.tasks, boss.delegated.completed) == (2, 1)
    assert boss.cost_usd == pytest.approx(2 * TURN_USD)


async def test_grandchildren_spend_from_the_run_and_their_finished_work_stays() -> None:
    client = boss_of(delegating("a", "b"))
    result = await result_of(client, max_run_model_calls=3)
    (boss,) = result.results
    assert boss.status == "budget_exceeded"
    assert boss.error
    assert "limit model_calls: 3 of 3 spent" in boss.error.message
    assert boss.delegated
    assert boss.delegated.completed == 2


async def test_grandchildren_count_as_children_of_the_run_and_may_be_refused() -> None:
    client = boss_of(delegating("a", "b"), delegating("c", "d"))
    async with Delegator(client=client, model=CHEAP, max_depth=2, max_children=4) as delegator:
        result = await delegator.call({"goal": "boss"}, parent=TURN)
    (boss,) = result.results
    assert boss.status == "completed"
    done, refused = requests_of(client, "boss")[1].messages[-1].tool_replies
    assert (done.is_error, refused.is_error) == (False, True)
    assert "limit children: 3 of 4 spent, 0 reserved, 1 left, 2 needed" in refused.text
    assert "send at most 1" in refused.text
    assert not requests_of(client, "c")


# --------------------------------------------------------------------------------------------- who may, and with what


async def test_the_tool_is_offered_only_where_the_depth_allows_it() -> None:
    client = boss_of(delegating("worker", tool="hand_over"))
    await result_of(client, tool_name="hand_over")
    assert offered(requests_of(client, "boss")[0], "hand_over")
    assert not offered(requests_of(client, "worker")[0], "hand_over")
    alone = boss_of()
    await result_of(alone, max_depth=1)
    assert not offered(alone.requests[0])


async def test_a_host_tool_that_delegates_at_the_last_depth_is_refused() -> None:
    results: list[RunResult] = []

    async def smuggle(args: Mapping[str, Any]) -> str:
        results.append(await delegator.call({"goal": "worker"}, parent=Parent(run_id="another", tier="deep")))
        return "refused"

    tool = Tool("smuggle", "smuggle", {"type": "object"}, smuggle)
    client = boss_of(("smuggle", {}))
    async with Delegator(client=client, tools=[tool]) as delegator:
        await delegator.call({"goal": "boss"}, parent=TURN)
    (result,) = results
    assert result.error
    assert (result.error.code, result.error.hint) == ("too_deep", "do the work yourself")
    assert not requests_of(client, "worker")


async def test_grandchildren_get_no_tool_that_their_parent_has_not() -> None:
    client = boss_of(delegating("worker"))
    await result_of(client, Task(goal="boss", tools=("read_file", "delegate_task")))
    boss, worker = requests_of(client, "boss")[0], requests_of(client, "worker")[0]
    assert {tool.name for tool in boss.tools} == {"read_file", "delegate_task", "read_earlier_result"}
    assert {tool.name for tool in worker.tools} == {"read_file", "read_earlier_result"}


# --------------------------------------------------------------------------------------------------- how it is ended


class Hanging:
    """A boss with two workers. After one turn, one of them finishes and the other never does."""

    def __init__(self) -> None:
        self.hangs = asyncio.Event()
        self.stopped = asyncio.Event()
        self.client = Scripted(self._answer)

    async def _answer(self, request: ChatRequest) -> ChatReply:
        first = len(request.messages) == 1
        if goal_of(request) == "boss" and first:
            return turn(delegating("quick", "hangs"))
        if goal_of(request) == "hangs":
            if first:
                return turn(("think", {"thought": "on and on"}))
            self.hangs.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.set()
        return turn()


async def test_cancelling_a_call_stops_grandchildren_before_it_returns() -> None:
    script = Hanging()
    async with Delegator(client=script.client, model=CHEAP, max_depth=2) as delegator:
        call = asyncio.create_task(delegator.call({"goal": "boss"}, parent=TURN))
        await asyncio.wait_for(script.hangs.wait(), 20)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert script.stopped.is_set()
        again = await asyncio.wait_for(delegator.call({"tasks": [{"goal": "a"}] * 3}, parent=TURN), 20)
    assert [result.status for result in again.results] == ["completed"] * 3, "all places are free again"


async def test_a_childs_deadline_stops_its_children_and_keeps_their_cost() -> None:
    async def play(seconds: float) -> tuple[RunResult, Hanging]:
        script = Hanging()
        return await result_of(script.client, Task(goal="boss", timeout_seconds=seconds)), script

    result, script = await in_time(play, lambda played: played[1].hangs.is_set())
    (boss,) = result.results
    assert script.stopped.is_set()
    assert boss.status == "timeout"
    assert boss.delegated
    assert (boss.delegated.tasks, boss.delegated.completed) == (2, 1)
    assert boss.delegated.child_usage.model_calls == 3, "with the one that was cut off"
    assert boss.cost_usd
    assert boss.cost_usd > 3 * TURN_USD
    assert boss.cost_provenance == "estimated"


# ------------------------------------------------------------------------------------------- what the tool says is left


async def test_the_tool_says_what_is_left_of_its_run_now() -> None:
    client = boss_of(delegating("a", "b"))
    options: dict[str, Any] = {"max_depth": 2, "max_children": 7, "max_cost_usd": 1}
    async with Delegator(client=client, model=CHEAP, **options) as delegator:

        def words() -> str:
            return delegator.tool("mcp", parent=TURN)["description"]

        assert "7 tasks, $1.00, depth 1 left" in words()
        await delegator.call({"goal": "boss"}, parent=TURN)
        assert "4 tasks, $1.00, depth 1 left" in words()
        assert "7 tasks" in delegator.tool("mcp", parent=Parent(run_id="another"))["description"]
        assert "7 tasks" in delegator.tool("mcp")["description"]
    tool = offered(requests_of(client, "boss")[0])
    assert tool
    assert "6 tasks, $1.00, depth 0 left" in tool.description

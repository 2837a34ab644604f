"""Features that only Pydantic AI has: usage limits, deadlines, events, dependencies, and children that are agents."""

import asyncio
from collections.abc import AsyncGenerator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

import openai
from pydantic import BaseModel
from pydantic_ai import Agent, CancellationToken, FunctionToolset, RunContext, Tool, ToolReturn
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.exceptions import ModelRetry, RunCancelled
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RunUsage, UsageLimits

import delegate
from delegate import Delegator
from delegate.hosts import pydantic_ai
from delegate.types import JsonObject, Task
from delegate.types.errors import ConfigError
from tests.hosts.drivers.pydantic_ai import chat_model, client_of, observed
from tests.hosts.world import (
    CHILD_TOKENS,
    JUDGE_TOKENS,
    PARENT,
    PARENT_TOKENS,
    SAVED,
    SAVING,
    WORKER,
    World,
    answers,
    child_that_calls,
    delegating_with,
    save,
    turns,
)
from tests.support.model_server import Call, Fault, Reply

TASK: JsonObject = {"goal": "Find the answer."}
JUDGED: JsonObject = {**TASK, "acceptance_criteria": ["report: it gives the answer"]}


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def send_money(to: str) -> str:
    """Send all the money."""
    return f"sent to {to}"


def who(context: RunContext[str]) -> str:
    """Tell the user's name."""
    return f"it is {context.deps}"


@pytest.fixture
async def client(world: World) -> AsyncGenerator[openai.AsyncOpenAI]:
    async with client_of(world) as client:
        yield client


delegating = delegating_with(pydantic_ai.child_tools)


def parent_of(client: openai.AsyncOpenAI, delegator: Delegator, *tools: Any, model: str = PARENT) -> Agent[Any, str]:
    return Agent[Any, str](chat_model(client, model), tools=[*tools, pydantic_ai.tool(delegator)])


# ------------------------------------------------------------------------------------------------------- the tool


@pytest.mark.parametrize("name", ["ctx", "run_context", "self", "args", "kwargs"])
async def test_unknown_fields_with_special_names_are_refused(
    name: str, world: World, client: openai.AsyncOpenAI
) -> None:
    world.calls = [{**TASK, name: {}}]
    async with delegating() as delegator:
        (run,) = (await observed(parent_of(client, delegator))).structured
    assert run["error"]["code"] == "unknown_field"


async def test_it_works_in_a_sync_run(world: World) -> None:
    def run() -> None:
        with asyncio.Runner() as loop:
            asyncio.set_event_loop(loop.get_loop())  # the framework looks for one there
            client, delegator = client_of(world), delegating()
            parent_of(client, delegator).run_sync("Find it out.")
            loop.run(client.close())
            loop.run(delegator.aclose())

    await asyncio.to_thread(run)
    assert "The answer is 42." in world.results[0]


@pytest.mark.parametrize(
    ("arguments", "code"), [("nothing", "invalid_json"), ("[1]", "not_an_object"), ("", "no_task")]
)
async def test_arguments_that_are_not_an_object_are_refused(
    arguments: str, code: str, world: World, client: openai.AsyncOpenAI
) -> None:
    world.calls = [arguments]
    async with delegating() as delegator:
        (run,) = (await observed(parent_of(client, delegator))).structured
    assert run["error"]["code"] == code
    assert world.of("child") == []


# ------------------------------------------------------------------------------------------- usage, limits and events


async def test_the_run_s_usage_has_tokens_and_cost_but_not_requests(world: World, client: openai.AsyncOpenAI) -> None:
    world.calls = [JUDGED]
    async with delegating() as delegator:
        usage = (await parent_of(client, delegator).run("Find it out.")).usage
    assert usage.input_tokens == 2 * PARENT_TOKENS[0] + CHILD_TOKENS[0] + JUDGE_TOKENS[0]
    assert (usage.requests, usage.details["delegated_requests"]) == (2, 2)
    assert usage.cost is not None
    assert usage.cost > Decimal(0)


async def test_requests_of_children_don_t_count_toward_the_limit(world: World, client: openai.AsyncOpenAI) -> None:
    world.child = child_that_calls("multiply", {"a": 6, "b": 7})
    async with delegating([multiply]) as delegator:
        limits = UsageLimits(request_limit=2)
        outcome = await observed(parent_of(client, delegator, multiply), usage_limits=limits)
    assert outcome.structured[0]["results"][0]["status"] == "completed"


async def test_children_end_before_the_run_s_deadline(world: World, client: openai.AsyncOpenAI) -> None:
    world.child = answers(Fault(kind="hang"))
    async with delegating() as delegator:
        (run,) = (await observed(parent_of(client, delegator), timeout=3)).structured
    assert run["results"][0]["status"] == "timeout"
    assert world.server.in_flight == 0


async def test_a_cancelled_token_stops_the_children(world: World, client: openai.AsyncOpenAI) -> None:
    world.child = answers(Fault(kind="hang"))
    token = CancellationToken()
    async with delegating() as delegator:
        running = asyncio.create_task(parent_of(client, delegator).run("Find it out.", cancellation_token=token))
        await asyncio.wait_for(world.working.wait(), 20)
        token.cancel()
        with pytest.raises(RunCancelled):
            await running
        states = [
            task.status for run in await delegator.records.runs() for task in await delegator.records.tasks(run.run_id)
        ]
    assert states == ["cancelled"]
    assert world.server.in_flight == 0


async def test_progress_events_name_their_tool_call(world: World, client: openai.AsyncOpenAI) -> None:
    async with delegating() as delegator, parent_of(client, delegator).run_stream_events("Find it out.") as events:
        received = [event async for event in events if isinstance(event, pydantic_ai.ChildProgressEvent)]
    assert received[0].kind == "child.started"
    assert {event.tool_name for event in received} == {"delegate_task"}
    assert all(event.tool_call_id for event in received)


# ------------------------------------------------------------------------------------- the parent's tools for children


def test_a_sequential_tool_is_never_called_in_parallel() -> None:
    tools = pydantic_ai.child_tools([multiply, Tool(send_money, sequential=True)])
    assert [(tool.name, tool.parallel) for tool in tools] == [("multiply", True), ("send_money", False)]


async def child_reads(world: World, client: openai.AsyncOpenAI, tool: Any, name: str, **run: Any) -> str:
    """What a child's model reads when it calls the tool."""
    world.child = child_that_calls(name, {})
    async with delegating([tool]) as delegator:
        await parent_of(client, delegator, tool).run("Find it out.", **run)
    return world.of("child")[-1].tool_results[0]


async def test_a_child_s_tool_gets_the_run_s_dependencies(world: World, client: openai.AsyncOpenAI) -> None:
    assert "it is Ada" in await child_reads(world, client, who, "who", deps="Ada")


async def test_what_a_child_s_tool_writes_is_in_the_child_s_workspace(world: World, client: openai.AsyncOpenAI) -> None:
    world.calls, world.child = [SAVING], child_that_calls("save", {"text": "tide"})
    async with delegating([save]) as delegator:
        await parent_of(client, delegator, save).run("Find it out.")
    assert "\ntask 1: PASS" in world.results[0]


async def test_the_run_s_usage_has_tokens_of_a_child_s_tool_but_not_its_call(
    world: World, client: openai.AsyncOpenAI
) -> None:
    def spend(context: RunContext[Any]) -> str:
        """Spend tokens."""
        context.usage.incr(RunUsage(input_tokens=7))
        return "spent"

    world.child = child_that_calls("spend", {})
    async with delegating([spend]) as delegator:
        usage = (await parent_of(client, delegator, spend).run("Find it out.")).usage
    assert usage.input_tokens == 2 * PARENT_TOKENS[0] + 2 * CHILD_TOKENS[0] + 7
    assert usage.tool_calls == 1


async def test_a_child_reads_the_error_or_the_value_that_a_tool_returns(
    world: World, client: openai.AsyncOpenAI
) -> None:
    def again() -> str:
        """Ask again."""
        raise ModelRetry("ask for something else")

    def rich() -> ToolReturn[dict[str, int]]:
        """Return a value with metadata."""
        return ToolReturn({"answer": 42}, metadata="not for models")

    assert "ask for something else" in await child_reads(world, client, again, "again")
    assert '{"answer":42}' in await child_reads(world, client, rich, "rich")


# ------------------------------------------------------------------------------------------ children that are agents


def agent_children(client: openai.AsyncOpenAI, tools: list[Any] | None = None, **settings: Any) -> Delegator:
    return delegating(tools, runner=pydantic_ai.runner(Agent(chat_model(client, WORKER))), **settings)


async def test_an_agent_uses_the_parent_s_tools_with_receipts(world: World, client: openai.AsyncOpenAI) -> None:
    world.calls = [{**TASK, "acceptance_criteria": [{"kind": "receipt", "calls": [{"tool": "who"}]}]}]
    world.child = child_that_calls("who", {})
    async with agent_children(client, [who, send_money]) as delegator:
        outcome = await observed(parent_of(client, delegator, who), deps="Ada")
    assert "\ntask 1: PASS" in world.results[0]
    assert "it is Ada" in world.results[0]
    assert world.tools_of_children == {"who"}
    assert "task 1 runs who" in "\n".join(outcome.progress)


async def test_the_tokens_of_an_agent_are_counted_once(world: World, client: openai.AsyncOpenAI) -> None:
    async with agent_children(client) as delegator:
        outcome = await observed(parent_of(client, delegator))
    assert outcome.usage == (2 * PARENT_TOKENS[0] + CHILD_TOKENS[0], 2 * PARENT_TOKENS[1] + CHILD_TOKENS[1])
    assert outcome.structured[0]["results"][0]["model"] == WORKER


async def test_an_agent_uses_the_built_in_tools_in_its_workspace(world: World, client: openai.AsyncOpenAI) -> None:
    world.child = child_that_calls("write_file", {"path": "answer.txt", "content": "42"})
    async with agent_children(client) as delegator:
        result = await delegator.call(TASK)
    assert [artifact.path for artifact in result.results[0].artifacts] == ["answer.txt"]
    assert result.results[0].receipts.tools == {"write_file": 1}


async def test_refused_and_failed_calls_of_an_agent_leave_receipts(world: World, client: openai.AsyncOpenAI) -> None:
    def child(call: Call) -> Reply:
        if call.tool_results:
            return Reply("Both failed.")
        outside = {"path": "../outside.txt", "content": "x"}
        return Reply(tool_calls=(("write_file", outside), ("read_file", {"path": "missing.txt"})))

    world.child = child
    async with agent_children(client) as delegator:
        result = await delegator.call(TASK)
    assert result.results[0].status == "completed"
    assert (result.results[0].receipts.denied, result.results[0].receipts.error) == (1, 1)


async def test_a_tool_that_needs_approval_is_denied_to_an_agent(world: World, client: openai.AsyncOpenAI) -> None:
    world.child = child_that_calls("send_money", {"to": "me"})
    async with agent_children(client, [Tool(send_money, requires_approval=True)]) as delegator:
        result = await delegator.call(TASK)
    assert result.results[0].status == "completed"
    assert result.results[0].receipts.ok == 0
    assert "needs a person's approval" in world.of("child")[-1].tool_results[0]


async def test_an_agent_has_only_the_tools_of_its_task(world: World, client: openai.AsyncOpenAI) -> None:
    async with agent_children(client) as delegator:
        await delegator.run(Task(goal="Find the answer.", tools=("read_file",)))
    assert world.tools_of_children == {"read_file"}


async def test_tools_added_to_an_agent_later_are_not_offered(world: World, client: openai.AsyncOpenAI) -> None:
    agent = Agent(chat_model(client, WORKER))
    async with delegating([multiply], runner=pydantic_ai.runner(agent)) as delegator:
        agent.tool_plain(send_money)
        await delegator.call(TASK)
    assert world.tools_of_children == {"multiply"}


async def test_an_agent_with_tools_of_its_own_is_refused_by_the_runner_that_gives_it_tools(
    world: World, client: openai.AsyncOpenAI
) -> None:
    with pytest.raises(ConfigError, match=r"child\(agent\)"):
        pydantic_ai.runner(Agent(chat_model(client, WORKER), tools=[multiply]))


async def test_an_agent_ends_after_its_steps(world: World, client: openai.AsyncOpenAI) -> None:
    world.child = answers(Reply(tool_calls=(("multiply", {"a": 6, "b": 7}),)))
    async with agent_children(client, [multiply], max_steps=2) as delegator:
        result = await delegator.call(TASK)
    assert result.results[0].status == "max_steps"
    assert len(world.of("child")) == 2


async def test_an_agent_ends_when_its_tokens_are_used_up(world: World, client: openai.AsyncOpenAI) -> None:
    world.child = answers(Reply(tool_calls=(("multiply", {"a": 6, "b": 7}),)))
    async with agent_children(client, [multiply], max_tokens=1_500) as delegator:
        result = await delegator.call(TASK)
    assert result.results[0].status == "budget_exceeded"
    assert len(world.of("child")) == 2


async def test_an_agent_that_is_stopped_keeps_its_receipts(world: World, client: openai.AsyncOpenAI) -> None:
    async def forever() -> None:
        """Never end."""
        await asyncio.Event().wait()

    world.child = answers(Reply(tool_calls=(("multiply", {"a": 6, "b": 7}), ("forever", {}))))
    async with agent_children(client, [multiply, forever], timeout_seconds=0.5) as delegator:
        run = await delegator.call(TASK)
    (result,) = run.results
    assert result.status == "timeout"
    assert (result.receipts.ok, result.receipts.timeout) == (1, 1)
    assert result.usage.input_tokens == CHILD_TOKENS[0]


async def test_an_agent_with_typed_output_reports_it_as_json(world: World, client: openai.AsyncOpenAI) -> None:
    class Answer(BaseModel):
        answer: int

    world.child = answers(Reply(tool_calls=(("final_result", {"answer": 42}),)))
    agent = Agent(chat_model(client, WORKER), output_type=Answer)
    async with delegating(runner=pydantic_ai.runner(agent)) as delegator:
        result = await delegator.call({**TASK, "output_schema": {"type": "object", "required": ["answer"]}})
    assert result.results[0].structured_output == {"answer": 42}


async def test_an_agent_whose_model_fails_is_failed(world: World, client: openai.AsyncOpenAI) -> None:
    world.child = answers(Fault(400))
    async with agent_children(client) as delegator:
        result = await delegator.call(TASK)
    assert result.results[0].status == "failed"


# ------------------------------------------------------------------------- children that are agents with own tools


def whole(agent: Agent[Any, Any], **settings: Any) -> Delegator:
    return delegating(runner=pydantic_ai.child(agent, make_deps=lambda job: job.workspace), **settings)


def folder_of(context: RunContext[Path]) -> str:
    """Tell the folder in the dependencies."""
    assert context.deps == delegate.workspace()
    return "the workspace"


def fail() -> str:
    """Fail."""
    raise ModelRetry("the disk is full")


async def test_a_whole_agent_works_in_the_workspace_with_its_own_tools(
    world: World, client: openai.AsyncOpenAI
) -> None:
    world.child = turns(("save", {"text": "tide"}), ("folder_of", {}), ("fail", {}))
    own = FunctionToolset[Any]([folder_of, fail])
    async with whole(Agent(chat_model(client, WORKER), tools=[save], toolsets=[own])) as delegator:
        called: JsonObject = {"kind": "receipt", "calls": [{"tool": "save", "args": {"text": "tide"}}]}
        (result,) = (await delegator.call(SAVING | {"acceptance_criteria": [SAVED, called]})).results
    assert result.verdict
    assert (result.verdict.verdict, result.receipts.recorded) == ("PASS", True)
    assert (result.receipts.tools, result.receipts.error) == ({"save": 1, "folder_of": 1}, 1)
    assert world.tools_of_children == {"save", "folder_of", "fail"}
    assert (result.usage.model_calls, result.usage.input_tokens) == (4, 4 * CHILD_TOKENS[0])


async def test_the_tokens_of_an_agent_that_a_tool_runs_are_counted(world: World, client: openai.AsyncOpenAI) -> None:
    inner = Agent(chat_model(client, WORKER))
    outer = Agent(chat_model(client, WORKER))

    @outer.tool
    async def ask(context: RunContext[Any]) -> str:
        """Ask another agent."""
        return (await inner.run("Look it up.", usage=context.usage)).output

    def answer(call: Call) -> Reply:
        return Reply(tool_calls=(("ask", {}),)) if call.tool_names and not call.tool_results else Reply("It is 42.")

    world.child = answer
    async with whole(outer) as delegator:
        (result,) = (await delegator.call(TASK)).results
    assert result.receipts.tools == {"ask": 1}
    assert (result.usage.model_calls, result.usage.input_tokens) == (3, 3 * CHILD_TOKENS[0])


async def test_tools_that_the_provider_runs_make_receipts_prove_nothing(
    world: World, client: openai.AsyncOpenAI
) -> None:
    never: JsonObject = {"kind": "receipt", "mode": "none", "calls": [{"tool": "save"}]}
    model = OpenAIResponsesModel(WORKER, provider=OpenAIProvider(openai_client=client))
    searching = Agent(model, tools=[save], capabilities=[NativeTool(WebSearchTool())])
    async with whole(searching) as delegator:
        (result,) = (await delegator.call({**TASK, "acceptance_criteria": [never]})).results
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.code, result.receipts.recorded) == ("FAIL", "no_receipts", False)


async def test_a_whole_agent_is_stopped_at_its_deadline_and_keeps_its_receipts(
    world: World, client: openai.AsyncOpenAI
) -> None:
    async def forever() -> None:
        """Never end."""
        await asyncio.Event().wait()

    world.child = turns(("forever", {}))
    async with whole(Agent(chat_model(client, WORKER), tools=[forever]), timeout_seconds=0.5) as delegator:
        (result,) = (await delegator.call(TASK)).results
    assert (result.status, result.receipts.timeout) == ("timeout", 1)


async def test_a_whole_agent_ends_within_its_limits(world: World, client: openai.AsyncOpenAI) -> None:
    world.child = turns(*[("multiply", {"a": n, "b": n}) for n in range(5)])
    statuses: list[str] = []
    for limits in ({"max_steps": 2}, {"max_run_model_calls": 2}):
        async with whole(Agent(chat_model(client, WORKER), tools=[multiply]), **limits) as delegator:
            statuses.append((await delegator.call(TASK)).results[0].status)
    assert statuses == ["max_steps", "budget_exceeded"]


async def test_a_task_can_t_restrict_the_tools_of_a_whole_agent(world: World, client: openai.AsyncOpenAI) -> None:
    async with whole(Agent(chat_model(client, WORKER), tools=[multiply])) as delegator:
        (result,) = (await delegator.run(Task(goal="Find the answer.", tools=("multiply",)))).results
    assert result.error
    assert (result.error.code, world.of("child")) == ("tools_fixed", [])

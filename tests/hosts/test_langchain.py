"""Features that only LangChain has: sync runs, streams, callbacks, nested graphs, and children that are graphs."""

# create_agent and LangGraph are partly untyped:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any

import pytest

pytest.importorskip("langgraph")

import httpx
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.callbacks import UsageMetadataCallbackHandler, get_usage_metadata_callback
from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool
from langchain_core.tools import tool as as_tool
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from delegate import ConfigError, Delegator
from delegate.hosts import langchain
from delegate.types import JsonObject, Task
from tests.hosts.drivers.langchain import chat_model, observed, total
from tests.hosts.world import (
    CHILD_TOKENS,
    JUDGE,
    JUDGE_TOKENS,
    PARENT,
    PARENT_TOKENS,
    SAVING,
    WORKER,
    World,
    child_that_calls,
    delegating_with,
    save,
)
from tests.support.model_server import Fault, Reply

TASK: JsonObject = {"goal": "Find the answer."}
JUDGED: JsonObject = {**TASK, "acceptance_criteria": ["report: it gives the answer"]}
ASKED: Any = {"messages": [{"role": "user", "content": "Find it out."}]}


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@as_tool
def send_money(to: str) -> str:
    """Send all the money."""
    return f"sent to {to}"


@pytest.fixture
async def client() -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient() as client:
        yield client


delegating = delegating_with(langchain.child_tools)


def tool_messages(state: Mapping[str, Any]) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


# ------------------------------------------------------------------------------------------------------- the tool


@pytest.mark.parametrize("name", ["config", "run_manager", "runtime", "callbacks", "self", "args", "kwargs"])
async def test_unknown_fields_with_names_special_to_langchain_are_refused(
    name: str, world: World, client: httpx.AsyncClient
) -> None:
    world.calls = [{**TASK, name: {}}]
    async with delegating() as delegator:
        agent = create_agent(chat_model(world, PARENT, client), [langchain.tool(delegator)])
        (message,) = tool_messages(await agent.ainvoke(ASKED))
    assert message.artifact["error"]["code"] == "unknown_field"
    assert world.of("child") == []


async def test_it_works_in_a_sync_run(world: World) -> None:
    counted, lines = UsageMetadataCallbackHandler(), list[str]()
    async with delegating() as delegator:
        agent = create_agent(chat_model(world, PARENT), [langchain.tool(delegator)])

        def run() -> None:
            for part in agent.stream(ASKED, {"callbacks": [counted]}, stream_mode="custom"):
                lines.append(part["delegate"]["text"])

        world.calls = [JUDGED]
        await asyncio.to_thread(run)
    assert "\ntask 1: PASS" in world.results[0]
    assert "task 1 verdict: PASS" in "\n".join(lines)
    parent, child, judge = PARENT_TOKENS, CHILD_TOKENS, JUDGE_TOKENS
    assert total(counted) == (2 * parent[0] + child[0] + judge[0], 2 * parent[1] + child[1] + judge[1])


async def test_it_can_be_called_outside_any_graph(world: World) -> None:
    async with delegating() as delegator:
        assert "The answer is 42." in await langchain.tool(delegator).ainvoke(TASK)


@pytest.mark.parametrize("name", ["config", "run_manager", "self"])
async def test_such_fields_are_refused_in_a_sync_call_too(name: str) -> None:
    async with delegating() as delegator:
        assert "unknown_field" in await asyncio.to_thread(langchain.tool(delegator).invoke, {**TASK, name: {}})


async def test_it_works_inside_deepagents(world: World, client: httpx.AsyncClient) -> None:
    world.calls = [JUDGED]
    async with delegating() as delegator:
        outcome = await observed(create_deep_agent(chat_model(world, PARENT, client), [langchain.tool(delegator)]))
    assert "\ntask 1: PASS" in world.results[0]
    assert "task 1 verdict: PASS" in "\n".join(outcome.progress)
    assert outcome.structured[0]["results"][0]["verdict"]["verdict"] == "PASS"


# --------------------------------------------------------------------------------------------------- ledger and usage


def in_sequence(tool: BaseTool, times: int) -> Any:
    """A graph that calls a tool so many times in sequence."""
    graph = StateGraph(MessagesState)

    def ask(_: Any) -> Any:
        return {"messages": [AIMessage("", tool_calls=[ToolCall(name=tool.name, args=TASK, id="1")])]}

    steps: list[Any] = [
        (f"{name}{n}", node) for n in range(times) for name, node in (("ask", ask), ("call", ToolNode([tool])))
    ]
    return graph.add_sequence(steps).set_entry_point("ask0").compile()


async def test_graphs_inside_a_graph_share_its_ledger(world: World) -> None:
    async with delegating(max_children=1) as delegator:
        inner = in_sequence(langchain.tool(delegator), 1)
        outer = (
            StateGraph(MessagesState).add_sequence([("one", inner), ("two", inner)]).set_entry_point("one").compile()
        )
        first, second = tool_messages(await outer.ainvoke({"messages": []}))
    assert (first.status, second.status) == ("success", "error")


async def test_tokens_are_counted_per_model_by_langchain_s_callback(world: World, client: httpx.AsyncClient) -> None:
    world.calls = [JUDGED]
    async with delegating() as delegator:
        agent = create_agent(chat_model(world, PARENT, client), [langchain.tool(delegator)])
        with get_usage_metadata_callback() as counted:
            await agent.ainvoke(ASKED)
    assert {model: used["input_tokens"] for model, used in counted.usage_metadata.items()} == {
        PARENT: 2 * PARENT_TOKENS[0],
        WORKER: CHILD_TOKENS[0],
        JUDGE: JUDGE_TOKENS[0],
    }


async def test_token_counts_are_not_streamed_as_messages(world: World, client: httpx.AsyncClient) -> None:
    async with delegating() as delegator:
        agent = create_agent(chat_model(world, PARENT, client), [langchain.tool(delegator)])
        streamed = [message async for message, _ in agent.astream(ASKED, stream_mode="messages")]
    assert not [
        one for one in streamed if isinstance(one, AIMessage) and one.response_metadata.get("model_name") == WORKER
    ]


# ------------------------------------------------------------------------------------- the parent's tools for children


def test_tools_of_a_provider_are_omitted() -> None:
    assert [tool.name for tool in langchain.child_tools([multiply, {"type": "web_search"}])] == ["multiply"]


async def child_reads(world: World, client: httpx.AsyncClient, tool: Any, **run: Any) -> str:
    """What a child's model reads when it calls the tool."""
    world.child = child_that_calls(tool.name, {})
    async with delegating([tool]) as delegator:
        agent: Any = create_agent(chat_model(world, PARENT, client), [tool, langchain.tool(delegator)])
        await agent.ainvoke(ASKED, **run)
    return world.of("child")[-1].tool_results[0]


async def test_a_child_s_tool_gets_the_context_of_the_parent_s_run(world: World, client: httpx.AsyncClient) -> None:
    @as_tool
    def who(runtime: ToolRuntime[Any, Any]) -> str:
        """Who is it?"""
        return f"{runtime.context} in {runtime.config.get('configurable', {})['place']}"

    run = {"context": "Ada", "config": {"configurable": {"place": "London"}}}
    assert "Ada in London" in await child_reads(world, client, who, **run)


async def test_a_child_reads_that_it_can_t_change_a_graph_s_state(world: World, client: httpx.AsyncClient) -> None:
    @as_tool
    def remember(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Remember it."""
        return Command(update={"messages": [ToolMessage("remembered", tool_call_id=tool_call_id)], "memory": "it"})

    assert "nothing was changed" in await child_reads(world, client, remember)


async def test_a_tool_that_fails_leaves_a_receipt_with_the_error(world: World) -> None:
    @as_tool
    def broken() -> str:
        """Break."""
        raise ValueError("it broke")

    world.child = child_that_calls("broken", {})
    async with delegating([broken]) as delegator:
        result = await delegator.call(TASK)
    assert result.results[0].receipts.error == 1
    assert "it broke" in world.of("child")[-1].tool_results[0]


# ------------------------------------------------------------------------------------------ children that are graphs


def graph_children(
    world: World, client: httpx.AsyncClient, tools: list[Any] | None = None, **settings: Any
) -> Delegator:
    model = chat_model(world, WORKER, client)
    return delegating(tools, runner=langchain.runner(lambda tools: create_agent(model, tools)), **settings)


async def test_a_graph_uses_the_parent_s_tools_with_receipts(world: World, client: httpx.AsyncClient) -> None:
    world.calls = [{**TASK, "acceptance_criteria": [{"kind": "receipt", "calls": [{"tool": "multiply"}]}]}]
    world.child = child_that_calls("multiply", {"a": 6, "b": 7})
    async with graph_children(world, client, [multiply, send_money]) as delegator:
        agent = create_agent(chat_model(world, PARENT, client), [multiply, langchain.tool(delegator)])
        outcome = await observed(agent)
    assert "\ntask 1: PASS" in world.results[0]
    assert world.tools_of_children == {"multiply"}
    assert "task 1 runs multiply" in "\n".join(outcome.progress)


async def test_the_tokens_of_a_graph_are_counted_once(world: World, client: httpx.AsyncClient) -> None:
    async with graph_children(world, client) as delegator:
        agent = create_agent(chat_model(world, PARENT, client), [langchain.tool(delegator)])
        with get_usage_metadata_callback() as counted:
            outcome = await observed(agent)
    read, written = 2 * PARENT_TOKENS[0] + CHILD_TOKENS[0], 2 * PARENT_TOKENS[1] + CHILD_TOKENS[1]
    assert outcome.usage == total(counted) == (read, written)
    assert outcome.structured[0]["results"][0]["model"] == WORKER


async def test_messages_of_a_graph_are_not_streamed_as_the_parent_s(world: World, client: httpx.AsyncClient) -> None:
    async with graph_children(world, client) as delegator:
        agent = create_agent(chat_model(world, PARENT, client), [langchain.tool(delegator)])
        streamed = [part async for part in agent.astream(ASKED, stream_mode="messages", subgraphs=True)]
    texts = "".join(str(message.text) for _, (message, _) in streamed if isinstance(message, AIMessage))
    assert texts == "I have read the results."


async def test_a_graph_uses_the_built_in_tools_in_its_workspace(world: World, client: httpx.AsyncClient) -> None:
    world.child = child_that_calls("write_file", {"path": "answer.txt", "content": "42"})
    async with graph_children(world, client) as delegator:
        result = await delegator.call(TASK)
    assert [artifact.path for artifact in result.results[0].artifacts] == ["answer.txt"]
    assert result.results[0].receipts.tools == {"write_file": 1}


async def test_a_refused_call_of_a_graph_leaves_a_receipt(world: World, client: httpx.AsyncClient) -> None:
    world.child = child_that_calls("read_file", {"path": "../../secret"})
    async with graph_children(world, client) as delegator:
        result = await delegator.call(TASK)
    assert result.results[0].status == "completed"
    assert result.results[0].receipts.ok == 0
    assert result.results[0].receipts.total == 1


async def test_a_graph_ends_after_its_steps(world: World, client: httpx.AsyncClient) -> None:
    world.child = lambda call: Reply(tool_calls=(("multiply", {"a": 6, "b": 7}),))
    async with graph_children(world, client, [multiply], max_steps=2) as delegator:
        result = await delegator.call(TASK)
    assert result.results[0].status == "max_steps"
    assert len(world.of("child")) == 2


async def test_a_graph_ends_when_its_tokens_are_used_up(world: World, client: httpx.AsyncClient) -> None:
    world.child = lambda call: Reply(tool_calls=(("multiply", {"a": 6, "b": 7}),))
    async with graph_children(world, client, [multiply], max_tokens=1_500) as delegator:
        result = await delegator.call(TASK)
    assert result.results[0].status == "budget_exceeded"
    assert len(world.of("child")) == 2


async def test_a_graph_that_is_stopped_keeps_its_receipts(world: World, client: httpx.AsyncClient) -> None:
    async def forever() -> str:
        """Never end."""
        await asyncio.Event().wait()
        return ""

    world.child = lambda call: Reply(tool_calls=(("multiply", {"a": 6, "b": 7}), ("forever", {})))
    endless = StructuredTool.from_function(coroutine=forever)
    async with graph_children(world, client, [multiply, endless], timeout_seconds=0.5) as delegator:
        run = await delegator.call(TASK)
    (result,) = run.results
    assert result.status == "timeout"
    assert (result.receipts.ok, result.receipts.timeout) == (1, 1)
    assert result.usage.input_tokens == CHILD_TOKENS[0]


async def test_a_graph_whose_tool_asks_a_person_fails(world: World, client: httpx.AsyncClient) -> None:
    @as_tool
    def approve() -> str:
        """Ask for approval."""
        return f"approved by {interrupt('May I?')}"

    world.child = child_that_calls("approve", {})
    async with graph_children(world, client, [approve]) as delegator:
        result = await delegator.call(TASK)
    assert result.results[0].error
    assert result.results[0].error.code == "needs_a_person"


async def test_a_whole_graph_works_in_the_workspace_with_its_own_tools(world: World, client: httpx.AsyncClient) -> None:
    world.child = child_that_calls("save", {"text": "tide"})
    graph: Any = create_agent(chat_model(world, WORKER, client), [save])
    async with delegating(runner=langchain.child(graph)) as delegator:
        result = await delegator.call(SAVING)
        narrowed = await delegator.run(Task(goal="Find the answer.", tools=("read_file",)))
    assert result.results[0].verdict
    assert (result.results[0].verdict.verdict, result.results[0].receipts.tools) == ("PASS", {"save": 1})
    with pytest.raises(ConfigError, match=r"child\(graph\)"):
        langchain.runner(graph)
    assert narrowed.results[0].error
    assert narrowed.results[0].error.code == "tools_fixed"


async def test_a_graph_whose_model_fails_is_failed(world: World, client: httpx.AsyncClient) -> None:
    world.child = lambda call: Fault(400)
    async with graph_children(world, client) as delegator:
        result = await delegator.call(TASK)
    assert result.results[0].status == "failed"

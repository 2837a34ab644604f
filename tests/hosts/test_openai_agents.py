"""Features that only the OpenAI Agents SDK has: contexts, guardrails, traces, and children that are its agents."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="openai-agents isn't installed here: make hosts")

import openai
from agents import (
    Agent,
    FunctionTool,
    OpenAIProvider,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunResult,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    Usage,
    function_tool,
    handoff,
    set_trace_processors,
)
from agents.items import ToolCallOutputItem
from agents.mcp import MCPServerStdio
from agents.testing import ScriptedModel, assistant_message, function_call
from pydantic import BaseModel

import delegate
from delegate import ConfigError, Delegator, Task, TaskResult, Tool
from delegate.hosts import openai_agents
from delegate.models.providers.scripted import Scripted
from delegate.types import JsonObject, Receipt
from delegate.types.ports import ChatRequest
from tests.hosts.drivers.openai_agents import SpanRecorder
from tests.hosts.world import CHILD_TOKENS, JUDGE, SAVED, SAVING, WORKER, World, calling, save, turns
from tests.support import mcp_server
from tests.support.deadlines import in_time
from tests.support.model_server import Call, Reply

CHEAP = "gpt-6-luna"
GOAL: JsonObject = {"goal": "Look it up."}


@pytest.fixture(autouse=True)
def spans() -> Iterator[SpanRecorder]:
    """Records the spans and exports nothing."""
    spans = SpanRecorder()
    set_trace_processors([spans])
    yield spans
    set_trace_processors([])


def parent(*turns: list[JsonObject]) -> ScriptedModel:
    """A model that calls delegate_task with these arguments, turn by turn, and then ends."""
    return scripted(*([("delegate_task", one) for one in turn] for turn in turns))


def scripted(*turns: list[tuple[str, JsonObject]]) -> ScriptedModel:
    """A model that calls these tools, turn by turn, and then ends."""
    steps: list[Any] = [
        [function_call(name, arguments, call_id=f"call_{t}_{n}") for n, (name, arguments) in enumerate(turn)]
        for t, turn in enumerate(turns)
    ]
    return ScriptedModel([*steps, [assistant_message("All done.")]], default_usage=Usage(1, 10, output_tokens=5))


def lead(delegator: Delegator, *tools: FunctionTool, model: Any = None) -> Agent[Any]:
    return Agent(name="lead", model=model or parent([GOAL]), tools=[*tools, openai_agents.tool(delegator)])


def texts(result: RunResult) -> list[str]:
    """The results of the tools."""
    return [str(item.output) for item in result.new_items if isinstance(item, ToolCallOutputItem)]


def returned(result: RunResult) -> list[delegate.RunResult]:
    outputs = [item for item in result.new_items if isinstance(item, ToolCallOutputItem)]
    return [delegate.RunResult.model_validate(item.custom_data["result"]) for item in outputs if item.custom_data]


async def receipts(delegator: Delegator, result: RunResult) -> list[Receipt]:
    """The recorded tool calls of the only child."""
    (run,) = returned(result)
    record = await delegator.records.read(run.results[0].handle or "")
    assert record
    return [Receipt.model_validate(one) for one in record["run"]["receipts"]]


@function_tool
async def look_up(context: RunContextWrapper[Any], word: str) -> str:
    """Look up a word."""
    return f"{word}: {context.context}"


@function_tool
async def break_down() -> str:
    """Always fail."""
    raise OSError("the disk is full")


# ------------------------------------------------------------------------------------------------- the tool in the SDK


async def test_the_model_gets_the_schema_unchanged() -> None:
    async with Delegator(client=calling(), model=CHEAP) as delegator:
        tool = openai_agents.tool(delegator)
        assert (tool.params_json_schema, tool.strict_json_schema) == (delegator.tool("mcp")["inputSchema"], False)


async def test_an_agent_that_is_a_tool_shares_its_caller_s_ledger() -> None:
    async with Delegator(client=calling(), model=CHEAP, max_children=1) as delegator:
        helper_model = parent([GOAL])
        helper = lead(delegator, model=helper_model).as_tool("ask_helper", "Ask the helper.")
        model = scripted([("delegate_task", GOAL)], [("ask_helper", {"input": "go"})])
        await Runner.run(lead(delegator, helper, model=model), "go")
    assert helper_model.last_call
    assert "budget_exceeded" in str(helper_model.last_call.input)


async def test_children_end_within_the_timeout_of_the_tool() -> None:
    async def never(request: ChatRequest) -> str:
        await asyncio.Event().wait()
        return ""

    async with Delegator(client=Scripted(never), model=CHEAP) as delegator:
        agent = lead(delegator)
        agent.tools[0].timeout_seconds = 1  # pyright: ignore[reportAttributeAccessIssue]
        result = await Runner.run(agent, "go")
    assert "timed out" not in texts(result)[0]
    assert [one.status for one in returned(result)[0].results] == ["timeout"]


async def test_traces_without_sensitive_data_have_no_text_of_children(spans: SpanRecorder) -> None:
    for sensitive in (True, False):
        spans.names.clear()
        async with Delegator(client=calling(), model=CHEAP) as delegator:
            await Runner.run(lead(delegator), "go", run_config=RunConfig(trace_include_sensitive_data=sensitive))
        assert "task 1 started" in "\n".join(spans.names)
        assert ("I looked it up." in "\n".join(spans.names)) is sensitive


# ------------------------------------------------------------------------------------- the parent's tools for children


async def test_a_child_s_tool_gets_the_context_of_the_parent_s_run() -> None:
    client = calling(("look_up", {"word": "tide"}))
    async with Delegator(client=client, model=CHEAP, tools=openai_agents.child_tools([look_up])) as delegator:
        result = await Runner.run(lead(delegator, look_up), "go", context="the context of the run")
        (receipt,) = await receipts(delegator, result)
    assert (receipt.status, receipt.output) == ("ok", "tide: the context of the run")


async def test_a_tool_that_fails_leaves_a_receipt_with_the_sdk_s_text() -> None:
    client = calling(("break_down", {}))
    async with Delegator(client=client, model=CHEAP, tools=openai_agents.child_tools([break_down])) as delegator:
        (receipt,) = await receipts(delegator, await Runner.run(lead(delegator, break_down), "go"))
    assert receipt.status == "error"
    assert "disk" not in receipt.output


async def test_a_tool_that_exceeds_its_timeout_is_stopped() -> None:
    @function_tool(timeout=0.05)
    async def wait_forever() -> str:
        """Wait forever."""
        await asyncio.Event().wait()
        return ""

    client = calling(("wait_forever", {}))
    async with Delegator(client=client, model=CHEAP, tools=openai_agents.child_tools([wait_forever])) as delegator:
        (receipt,) = await receipts(delegator, await Runner.run(lead(delegator, wait_forever), "go"))
    assert receipt.status == "timeout"


def erasing(called: list[str], **options: Any) -> FunctionTool:
    """A tool that records its calls in `called`."""

    async def erase() -> str:
        """Erase everything."""
        called.append("erase")
        return "erased"

    return function_tool(erase, **options)


def _reject(_: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.reject_content("not today")


async def test_a_tool_with_a_guardrail_is_denied_to_a_child() -> None:
    called: list[str] = []
    erase = erasing(called, tool_input_guardrails=[ToolInputGuardrail(_reject)])
    client = calling(("erase", {}))
    async with Delegator(client=client, model=CHEAP, tools=openai_agents.child_tools([erase])) as delegator:
        (receipt,) = await receipts(delegator, await Runner.run(lead(delegator, erase), "go"))
    assert (receipt.status, called) == ("denied", [])


# ------------------------------------------------------------------------------------------ children that are agents


def child(model: ScriptedModel) -> Agent[Any]:
    return Agent(name="child", model=model)


async def with_runner(
    model: ScriptedModel, *tools: FunctionTool, **options: Any
) -> tuple[delegate.RunResult, list[Receipt]]:
    """The result and receipts of one task that an agent with this model does, with these tools of its parent."""
    options = {"tools": openai_agents.child_tools(tools)} | options if tools else options
    async with Delegator(runner=openai_agents.runner(child(model)), **options) as delegator:
        result = await Runner.run(lead(delegator, *tools), "go", context="the context of the run")
        return returned(result)[0], await receipts(delegator, result)


async def test_an_agent_uses_the_parent_s_tool_with_receipts_and_usage() -> None:
    run, (receipt,) = await with_runner(scripted([("look_up", {"word": "tide"})]), look_up)
    (result,) = run.results
    assert (result.status, result.report, result.receipts.recorded) == ("completed", "All done.", True)
    assert (receipt.tool, receipt.args, receipt.status) == ("look_up", {"word": "tide"}, "ok")
    assert receipt.output == "tide: the context of the run"
    assert (result.usage.model_calls, result.usage.input_tokens, result.usage.output_tokens) == (2, 20, 10)


async def test_an_agent_gets_the_whole_task() -> None:
    model = scripted()
    await with_runner(model)
    assert model.first_call
    assert "Look it up." in str(model.first_call.input)


async def test_an_agent_can_use_the_built_in_tools() -> None:
    calls = [("write_file", {"path": "a.txt", "content": "tide"}), ("read_file", {"path": "b.txt"})]
    run, recorded = await with_runner(scripted(calls))
    assert [artifact.path for artifact in run.results[0].artifacts] == ["a.txt"]
    assert [(receipt.tool, receipt.status) for receipt in recorded] == [("write_file", "ok"), ("read_file", "error")]


async def test_a_tool_of_an_agent_that_fails_leaves_a_receipt() -> None:
    _, (receipt,) = await with_runner(scripted([("break_down", {})]), break_down)
    assert receipt.status == "error"
    assert "disk" not in receipt.output


async def test_an_agent_may_call_a_tool_that_does_not_exist() -> None:
    run, recorded = await with_runner(scripted([("delegate_task", GOAL)]))
    assert (run.results[0].status, recorded) == ("completed", [])


async def test_a_guardrail_applies_to_an_agent() -> None:
    called: list[str] = []
    model = scripted([("erase", {})])
    run, _ = await with_runner(model, erasing(called, tool_input_guardrails=[ToolInputGuardrail(_reject)]))
    assert (run.results[0].status, called) == ("completed", [])
    assert model.last_call
    assert "not today" in str(model.last_call.input)


async def _always_fine(*_: Any) -> bool:
    return False


@pytest.mark.parametrize("approval", [True, _always_fine], ids=["always", "by a policy"])
async def test_a_tool_that_may_need_approval_ends_an_agent(approval: Any) -> None:
    called: list[str] = []
    run, _ = await with_runner(scripted([("erase", {})]), erasing(called, needs_approval=approval))
    (result,) = run.results
    assert result.error
    assert (result.status, result.error.code, called) == ("failed", "needs_approval", [])


async def test_an_agent_ends_after_its_steps() -> None:
    model = scripted(*[[("look_up", {"word": "tide"})] for _ in range(5)])
    run, recorded = await with_runner(model, look_up, max_steps=2)
    assert (run.results[0].status, len(recorded)) == ("max_steps", 2)


async def test_an_agent_stops_when_no_model_call_is_left() -> None:
    model = scripted(*[[("look_up", {"word": "tide"})] for _ in range(5)])
    run, _ = await with_runner(model, look_up, max_run_model_calls=2)
    assert (run.results[0].status, len(model.calls)) == ("budget_exceeded", 2)


async def test_the_tools_of_an_agent_that_timed_out_end_before_its_result() -> None:
    ended: list[str] = []

    @function_tool
    async def wait_forever() -> str:
        """Wait forever."""
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            ended.append("the tool")
        return ""

    async def play(seconds: float) -> tuple[delegate.RunResult, list[Receipt]]:
        ended.clear()
        return await with_runner(scripted([("wait_forever", {})]), wait_forever, timeout_seconds=seconds)

    run, (receipt,) = await in_time(play, lambda played: bool(played[1]))
    (result,) = run.results
    assert (result.status, receipt.status, ended) == ("timeout", "timeout", ["the tool"])
    assert result.usage.model_calls == 1


async def test_an_agent_makes_calls_that_must_not_overlap_in_sequence() -> None:
    running, most = 0, 0

    async def write(arguments: Any) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "written"

    tools = [Tool("write", "Write.", {"type": "object", "properties": {}}, write, parallel=False)]
    runner = openai_agents.runner(child(scripted([("write", {}), ("write", {})])))
    async with Delegator(runner=runner, tools=tools) as delegator:
        result = await delegator.call(GOAL)
    assert (result.results[0].receipts.ok, most) == (2, 1)


async def test_an_agent_keeps_its_model_if_the_parent_s_run_sets_another() -> None:
    own = scripted()
    async with Delegator(runner=openai_agents.runner(child(own))) as delegator:
        await Runner.run(lead(delegator), "go", run_config=RunConfig(model=parent([GOAL])))
    assert len(own.calls) == 1


async def test_an_agent_with_tools_of_its_own_is_refused_by_the_runner_that_gives_it_tools() -> None:
    with pytest.raises(ConfigError, match=r"child\(agent\)"):
        openai_agents.runner(Agent(name="child", tools=[look_up]))


# ------------------------------------------------------------------------- children that are agents with own tools


@asynccontextmanager
async def whole(world: World, agent: Agent[Any], **options: Any) -> AsyncGenerator[Delegator]:
    """A delegator whose children are this agent, on the models of the server."""
    async with openai.AsyncOpenAI(base_url=world.server.openai_url, api_key="dummy") as client:
        config = RunConfig(model_provider=OpenAIProvider(openai_client=client))
        runner = openai_agents.child(agent, run_config=config, make_context=lambda job: job.workspace)
        async with Delegator(runner=runner, judge_model=JUDGE, **options) as delegator:
            yield delegator


async def recorded(delegator: Delegator, task: Any = GOAL) -> tuple[TaskResult, list[Receipt]]:
    (result,) = (await delegator.call(task)).results
    record = await delegator.records.read(result.handle or "")
    assert record
    return result, [Receipt.model_validate(one) for one in record["run"]["receipts"]]


def own(*tools: Any, name: str = "clerk", **fields: Any) -> Agent[Any]:
    return Agent(name=name, model=WORKER, tools=list(tools), **fields)


@function_tool
async def folder_of(context: RunContextWrapper[Path]) -> str:
    """Tell the folder in the context."""
    assert context.context == delegate.workspace()
    return "the workspace"


async def test_a_whole_agent_works_in_the_workspace_with_its_own_tools(world: World) -> None:
    world.child = turns(("save", {"text": "tide"}), ("folder_of", {}), ("break_down", {}))
    async with whole(world, own(function_tool(save), folder_of, break_down)) as delegator:
        called = {"kind": "receipt", "calls": [{"tool": "save", "args": {"text": "tide"}}]}
        result, receipts = await recorded(delegator, SAVING | {"acceptance_criteria": [SAVED, called]})
    assert result.verdict
    assert (result.verdict.verdict, result.receipts.recorded) == ("PASS", True)
    assert [(one.tool, one.status) for one in receipts] == [
        ("save", "ok"),
        ("folder_of", "ok"),
        ("break_down", "error"),
    ]
    assert world.tools_of_children == {"save", "folder_of", "break_down"}
    assert (result.usage.model_calls, result.usage.input_tokens) == (4, 4 * CHILD_TOKENS[0])


@pytest.mark.parametrize("wrapped", [False, True], ids=["an agent", "a Handoff"])
async def test_the_calls_after_a_handoff_and_the_handoffs_leave_receipts(wrapped: bool, world: World) -> None:
    billing = own(look_up, name="billing")
    triage = own(name="triage", handoffs=[handoff(billing) if wrapped else billing])
    billing.handoffs = [triage]
    world.child = turns(("transfer_to_billing", {}), ("look_up", {"word": "tide"}), ("transfer_to_triage", {}))
    async with whole(world, triage) as delegator:
        result, receipts = await recorded(delegator)
    assert (result.status, result.receipts.recorded) == ("completed", True)
    assert [(one.tool, one.status) for one in receipts] == [
        ("transfer_to_billing", "ok"),
        ("look_up", "ok"),
        ("transfer_to_triage", "ok"),
    ]
    assert billing.tools == [look_up], "the user's agents stay as they are"


async def test_what_an_agent_inside_of_a_tool_does_is_counted_and_makes_receipts_prove_nothing(world: World) -> None:
    def answer(call: Call) -> Reply:
        if "look_up" in call.tool_names and not call.tool_results:
            return Reply(tool_calls=(("look_up", {"word": "tide"}),))
        if "ask" in call.tool_names and not call.tool_results:
            return Reply(tool_calls=(("ask", {"input": "Look it up."}),))
        return Reply("Done.")

    world.child = answer
    nothing_else: JsonObject = {"kind": "receipt", "mode": "none", "calls": [{"tool": "look_up"}]}
    async with whole(world, own(own(look_up).as_tool("ask", "Ask."))) as delegator:
        result, receipts = await recorded(delegator, {**GOAL, "acceptance_criteria": [nothing_else]})
    assert [one.tool for one in receipts] == ["ask"]
    assert (result.usage.model_calls, result.usage.input_tokens) == (4, 4 * CHILD_TOKENS[0])
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.code, result.verdict.receipts) == ("FAIL", "no_receipts", "reported")


async def test_the_tools_of_an_agent_s_mcp_server_leave_receipts(world: World, tmp_path: Path) -> None:
    arguments = ["-P", str(Path(mcp_server.__file__)), str(tmp_path / "log")]
    world.child = turns(("add", {"a": 6, "b": 7}), ("refuse", {}))
    server = MCPServerStdio({"command": sys.executable, "args": arguments})
    async with server, whole(world, own(mcp_servers=[server])) as delegator:
        result, receipts = await recorded(delegator)
    assert [(one.tool, one.status, one.args) for one in receipts] == [
        ("add", "ok", {"a": 6, "b": 7}),
        ("refuse", "error", {}),
    ]
    assert result.receipts.recorded


async def test_a_whole_agent_is_stopped_at_its_deadline_with_its_tools(world: World) -> None:
    ended: list[str] = []

    @function_tool
    async def forever() -> str:
        """Never end."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("the tool")
        return ""

    world.child = turns(("forever", {}))

    async def play(seconds: float) -> tuple[TaskResult, list[Receipt]]:
        ended.clear()
        async with whole(world, own(forever), timeout_seconds=seconds) as delegator:
            return await recorded(delegator)

    result, (receipt,) = await in_time(play, lambda played: bool(played[1]))
    assert (result.status, receipt.status, ended) == ("timeout", "timeout", ["the tool"])


async def test_a_whole_agent_ends_within_its_limits(world: World) -> None:
    world.child = turns(*[("look_up", {"word": str(n)}) for n in range(5)])
    async with whole(world, own(look_up), max_steps=2) as delegator:
        result, _ = await recorded(delegator)
    async with whole(world, own(look_up), max_run_model_calls=2) as delegator:
        limited, _ = await recorded(delegator)
    assert (result.status, limited.status) == ("max_steps", "budget_exceeded")


async def test_a_task_can_t_restrict_the_tools_of_a_whole_agent(world: World) -> None:
    async with whole(world, own(look_up)) as delegator:
        (result,) = (await delegator.run(Task(goal="Look it up.", tools=("look_up",)))).results
    assert result.error
    assert (result.error.code, world.of("child")) == ("tools_fixed", [])


async def test_a_whole_agent_with_a_typed_output_reports_json(world: World) -> None:
    class Answer(BaseModel):
        answer: int

    world.judge = lambda call: Reply('{"answer": 42}')  # who is asked for JSON is taken for a judge
    async with whole(world, own(output_type=Answer)) as delegator:
        result, _ = await recorded(delegator, {**GOAL, "output_schema": {"type": "object", "required": ["answer"]}})
    assert result.structured_output == {"answer": 42}

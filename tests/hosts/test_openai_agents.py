"""What only the OpenAI Agents SDK has: contexts, guardrails, approvals, traces, and children that are its agents."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("agents", reason="openai-agents isn't installed here: make hosts")

from agents import (
    Agent,
    FunctionTool,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunResult,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    Usage,
    function_tool,
    set_trace_processors,
)
from agents.items import ToolCallOutputItem
from agents.testing import ScriptedModel, assistant_message, function_call

from delegate import ConfigError, Delegator, Report, Tool
from delegate.hosts import openai_agents
from delegate.models.providers.scripted import Scripted
from delegate.ports import ChatReply, ChatRequest
from delegate.types import JsonObject, Receipt
from tests.hosts.drivers.openai_agents import Watching

CHEAP = "gpt-6-luna"
GOAL: JsonObject = {"goal": "Look it up."}


@pytest.fixture(autouse=True)
def watching() -> Iterator[Watching]:
    """What is traced stays here."""
    watching = Watching()
    set_trace_processors([watching])
    yield watching
    set_trace_processors([])


def parent(*turns: list[JsonObject]) -> ScriptedModel:
    """A model that calls our tool with these arguments, turn by turn, and then ends."""
    return scripted(*([("delegate_task", one) for one in turn] for turn in turns))


def scripted(*turns: list[tuple[str, JsonObject]]) -> ScriptedModel:
    """A model that calls these tools, turn by turn, and then says that it is done."""
    steps: list[Any] = [
        [function_call(name, arguments, call_id=f"call_{t}_{n}") for n, (name, arguments) in enumerate(turn)]
        for t, turn in enumerate(turns)
    ]
    return ScriptedModel([*steps, [assistant_message("All done.")]], default_usage=Usage(1, 10, output_tokens=5))


def calling(*calls: tuple[str, JsonObject]) -> Scripted:
    """A child in delegate's own loop that makes these calls in its first turn, and then reports."""

    def answer(request: ChatRequest) -> ChatReply | str:
        return "I looked it up." if len(request.messages) > 1 or not calls else Scripted.calls(*calls)

    return Scripted(answer)


def lead(delegator: Delegator, *tools: FunctionTool, model: Any = None) -> Agent[Any]:
    return Agent(name="lead", model=model or parent([GOAL]), tools=[*tools, openai_agents.tool(delegator)])


def texts(result: RunResult) -> list[str]:
    """What our tool answered."""
    return [str(item.output) for item in result.new_items if isinstance(item, ToolCallOutputItem)]


def reports(result: RunResult) -> list[Report]:
    outputs = [item for item in result.new_items if isinstance(item, ToolCallOutputItem)]
    return [Report.model_validate(item.custom_data["report"]) for item in outputs if item.custom_data]


async def receipts(delegator: Delegator, result: RunResult) -> list[Receipt]:
    """The record of the only child's tool calls."""
    (report,) = reports(result)
    record = await delegator.read(report.results[0].handle or "")
    assert record
    return [Receipt.model_validate(one) for one in record["run"]["receipts"]]


@function_tool
async def look_up(context: RunContextWrapper[Any], word: str) -> str:
    """Look a word up."""
    return f"{word}: {context.context}"


@function_tool
async def break_down() -> str:
    """Never works."""
    raise OSError("the disk is full")


# ------------------------------------------------------------------------------------------------ what the SDK knows


async def test_the_model_is_shown_the_schema_as_it_is() -> None:
    async with Delegator(client=calling(), model=CHEAP) as delegator:
        offered = openai_agents.tool(delegator)
        assert (offered.params_json_schema, offered.strict_json_schema) == (delegator.tool("mcp")["inputSchema"], False)


async def test_the_report_stands_beside_the_text() -> None:
    async with Delegator(client=calling(), model=CHEAP) as delegator:
        result = await Runner.run(lead(delegator), "go")
    (report,) = reports(result)
    assert report.results[0].summary == "I looked it up."


async def test_calls_of_one_run_share_its_limits_and_the_next_run_has_its_own() -> None:
    async with Delegator(client=calling(), model=CHEAP, max_children=2) as delegator:
        first = await Runner.run(lead(delegator, model=parent([GOAL], [GOAL], [GOAL])), "go")
        second = await Runner.run(lead(delegator), "go")
    assert ["budget_exceeded" in text for text in texts(first)] == [False, False, True]
    assert "budget_exceeded" not in texts(second)[0]


async def test_an_agent_that_is_a_tool_delegates_in_the_run_of_its_caller() -> None:
    async with Delegator(client=calling(), model=CHEAP, max_children=1) as delegator:
        asked = parent([GOAL])
        helper = lead(delegator, model=asked).as_tool("ask_helper", "Asks the helper.")
        model = scripted([("delegate_task", GOAL)], [("ask_helper", {"input": "go"})])
        await Runner.run(lead(delegator, helper, model=model), "go")
    assert asked.last_call
    assert "budget_exceeded" in str(asked.last_call.input)


async def test_a_parent_gets_no_child_of_a_tier_above_its_own() -> None:
    model = parent([GOAL])
    model.model = CHEAP  # pyright: ignore[reportAttributeAccessIssue]  — as the SDK's own models name theirs
    async with Delegator(client=calling(), model="gpt-6.1-terra") as delegator:
        result = await Runner.run(lead(delegator, model=model), "go")
    (report,) = reports(result)
    assert report.error
    assert "tier" in report.error.code


async def test_children_end_within_the_timeout_of_the_tool() -> None:
    async def never(request: ChatRequest) -> str:
        await asyncio.Event().wait()
        return ""

    async with Delegator(client=Scripted(never), model=CHEAP) as delegator:
        agent = lead(delegator)
        agent.tools[0].timeout_seconds = 1  # pyright: ignore[reportAttributeAccessIssue]
        result = await Runner.run(agent, "go")
    assert "timed out" not in texts(result)[0]
    assert [one.status for one in reports(result)[0].results] == ["timeout"]


async def test_traces_without_sensitive_data_get_no_words_of_the_children(watching: Watching) -> None:
    for sensitive in (True, False):
        watching.said.clear()
        async with Delegator(client=calling(), model=CHEAP) as delegator:
            await Runner.run(lead(delegator), "go", run_config=RunConfig(trace_include_sensitive_data=sensitive))
        assert "task 0 started" in "\n".join(watching.said)
        assert ("I looked it up." in "\n".join(watching.said)) is sensitive


async def test_a_cut_report_can_be_read_on_in_a_later_run_and_a_thought_becomes_a_checklist() -> None:
    async with Delegator(client=Scripted(lambda _: "x" * 3_000 + " the end"), model=CHEAP, result_chars=1_000) as one:
        (report,) = reports(first := await Runner.run(lead(one), "go"))
        read, think = openai_agents.read_tool(one), openai_agents.think_tool(one)
        wanted = {"handle": report.results[0].handle, "offset": 2_500}
        model = scripted(
            [(read.name, wanted)], [(think.name, {"thought": "It ends.", "acceptance_criteria": ["ends"]})]
        )
        later = await Runner.run(Agent(name="lead", model=model, tools=[read, think]), "go")
    assert ["the end" in text for text in texts(first) + texts(later)] == [False, True, False]
    assert "ends" in texts(later)[1]


# --------------------------------------------------------------------------------- tools of the parent, for children


async def test_a_child_has_the_tools_of_its_parent_and_no_others() -> None:
    client = calling(("look_up", {"word": "tide"}))
    tools = [look_up, break_down]
    async with Delegator(client=client, model=CHEAP, tools=openai_agents.child_tools(tools)) as delegator:
        agent = lead(delegator, look_up)  # this parent lacks the other
        result = await Runner.run(agent, "go", context="the context of the run")
        (receipt,) = await receipts(delegator, result)
    assert [tool.name for tool in client.requests[0].tools] == ["look_up"]
    assert (receipt.status, receipt.output) == ("ok", "tide: the context of the run")


async def test_our_own_tool_is_never_among_the_children_s() -> None:
    async with Delegator(client=calling(), model=CHEAP) as delegator:
        own = [openai_agents.tool, openai_agents.read_tool, openai_agents.think_tool]
        given = [*(make(delegator) for make in own), look_up]
        assert [tool.name for tool in openai_agents.child_tools(given)] == ["look_up"]


async def test_a_tool_that_fails_is_an_error_on_record_and_its_words_are_the_sdk_s() -> None:
    client = calling(("break_down", {}))
    async with Delegator(client=client, model=CHEAP, tools=openai_agents.child_tools([break_down])) as delegator:
        (receipt,) = await receipts(delegator, await Runner.run(lead(delegator, break_down), "go"))
    assert receipt.status == "error"
    assert "disk" not in receipt.output


async def test_a_tool_that_takes_too_long_is_stopped() -> None:
    @function_tool(timeout=0.05)
    async def wait_forever() -> str:
        """Waits."""
        await asyncio.Event().wait()
        return ""

    client = calling(("wait_forever", {}))
    async with Delegator(client=client, model=CHEAP, tools=openai_agents.child_tools([wait_forever])) as delegator:
        (receipt,) = await receipts(delegator, await Runner.run(lead(delegator, wait_forever), "go"))
    assert receipt.status == "timeout"


def forbidding(called: list[str], **options: Any) -> FunctionTool:
    """A tool that says when it is called."""

    async def erase() -> str:
        """Erases everything."""
        called.append("erase")
        return "erased"

    return function_tool(erase, **options)


def _reject(_: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.reject_content("not today")


GUARDED: list[JsonObject] = [{"needs_approval": True}, {"tool_input_guardrails": [ToolInputGuardrail(_reject)]}]


@pytest.mark.parametrize("options", GUARDED, ids=["approval", "guardrail"])
async def test_a_guarded_tool_is_denied_to_children_of_our_own_loop(options: JsonObject) -> None:
    called: list[str] = []
    erase = forbidding(called, **options)
    client = calling(("erase", {}))
    async with Delegator(client=client, model=CHEAP, tools=openai_agents.child_tools([erase])) as delegator:
        (receipt,) = await receipts(delegator, await Runner.run(lead(delegator, erase), "go"))
    assert (receipt.status, called) == ("denied", [])


# ------------------------------------------------------------------------------------------ children that are agents


def child(model: ScriptedModel) -> Agent[Any]:
    return Agent(name="child", model=model)


async def with_runner(model: ScriptedModel, *tools: FunctionTool, **options: Any) -> tuple[Report, list[Receipt]]:
    """What comes of one task that an agent with this model does, with these tools of its parent's."""
    options = {"tools": openai_agents.child_tools(tools)} | options if tools else options
    async with Delegator(runner=openai_agents.runner(child(model)), **options) as delegator:
        result = await Runner.run(lead(delegator, *tools), "go", context="the context of the run")
        return reports(result)[0], await receipts(delegator, result)


async def test_a_child_of_the_sdk_uses_the_parent_s_tool_and_leaves_receipts_and_usage() -> None:
    report, (receipt,) = await with_runner(scripted([("look_up", {"word": "tide"})]), look_up)
    (result,) = report.results
    assert (result.status, result.summary, result.receipts.recorded) == ("completed", "All done.", True)
    assert (receipt.tool, receipt.args, receipt.status) == ("look_up", {"word": "tide"}, "ok")
    assert receipt.output == "tide: the context of the run"
    assert (result.usage.model_calls, result.usage.input_tokens, result.usage.output_tokens) == (2, 20, 10)


async def test_a_child_of_the_sdk_is_told_the_whole_task() -> None:
    model = scripted()
    await with_runner(model)
    assert model.first_call
    assert "Look it up." in str(model.first_call.input)


async def test_a_child_of_the_sdk_can_use_the_built_in_tools() -> None:
    calls = [("write_file", {"path": "a.txt", "content": "tide"}), ("read_file", {"path": "b.txt"})]
    report, found = await with_runner(scripted(calls))
    assert [artifact.path for artifact in report.results[0].artifacts] == ["a.txt"]
    assert [(receipt.tool, receipt.status) for receipt in found] == [("write_file", "ok"), ("read_file", "error")]


async def test_a_failure_of_the_parent_s_tool_is_an_error_on_record_too() -> None:
    _, (receipt,) = await with_runner(scripted([("break_down", {})]), break_down)
    assert receipt.status == "error"
    assert "disk" not in receipt.output


async def test_a_child_of_the_sdk_may_try_a_tool_that_is_not_there() -> None:
    report, found = await with_runner(scripted([("delegate_task", GOAL)]))
    assert (report.results[0].status, found) == ("completed", [])


async def test_a_guardrail_holds_for_a_child_of_the_sdk() -> None:
    called: list[str] = []
    model = scripted([("erase", {})])
    report, _ = await with_runner(model, forbidding(called, tool_input_guardrails=[ToolInputGuardrail(_reject)]))
    assert (report.results[0].status, called) == ("completed", [])
    assert model.last_call
    assert "not today" in str(model.last_call.input)


async def _always_fine(*_: Any) -> bool:
    return False


@pytest.mark.parametrize("approval", [True, _always_fine], ids=["always", "by a policy"])
async def test_a_tool_that_may_need_approval_ends_a_child_of_the_sdk(approval: Any) -> None:
    called: list[str] = []
    report, _ = await with_runner(scripted([("erase", {})]), forbidding(called, needs_approval=approval))
    (result,) = report.results
    assert result.error
    assert (result.status, result.error.code, called) == ("failed", "needs_approval", [])


async def test_a_child_of_the_sdk_ends_after_its_steps() -> None:
    model = scripted(*[[("look_up", {"word": "tide"})] for _ in range(5)])
    report, found = await with_runner(model, look_up, max_steps=2)
    assert (report.results[0].status, len(found)) == ("max_steps", 2)


async def test_a_child_of_the_sdk_stops_when_no_model_call_is_left() -> None:
    model = scripted(*[[("look_up", {"word": "tide"})] for _ in range(5)])
    report, _ = await with_runner(model, look_up, max_run_model_calls=2)
    assert (report.results[0].status, len(model.calls)) == ("budget_exceeded", 2)


async def test_a_child_of_the_sdk_that_is_late_has_ended_with_its_tools_when_its_result_is_there() -> None:
    ended: list[str] = []

    @function_tool
    async def wait_forever() -> str:
        """Waits."""
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            ended.append("the tool")
        return ""

    report, (receipt,) = await with_runner(scripted([("wait_forever", {})]), wait_forever, timeout_seconds=0.1)
    (result,) = report.results
    assert (result.status, receipt.status, ended) == ("timeout", "timeout", ["the tool"])
    assert result.usage.model_calls == 1


async def test_calls_that_must_not_overlap_are_made_one_by_one_in_a_child_of_the_sdk() -> None:
    at_work, most = 0, 0

    async def write(arguments: Any) -> str:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0)
        at_work -= 1
        return "written"

    given = [Tool("write", "Writes.", {"type": "object", "properties": {}}, write, parallel=False)]
    runner = openai_agents.runner(child(scripted([("write", {}), ("write", {})])))
    async with Delegator(runner=runner, tools=given) as delegator:
        report = await delegator.call(GOAL)
    assert (report.results[0].receipts.ok, most) == (2, 1)


async def test_a_child_runs_on_its_own_model_whatever_the_parent_s_run_is_set_to() -> None:
    own = scripted()
    async with Delegator(runner=openai_agents.runner(child(own))) as delegator:
        await Runner.run(lead(delegator), "go", run_config=RunConfig(model=parent([GOAL])))
    assert len(own.calls) == 1


async def test_an_agent_with_tools_of_its_own_is_refused_as_a_child() -> None:
    with pytest.raises(ConfigError, match="child_tools"):
        openai_agents.runner(Agent(name="child", tools=[look_up]))

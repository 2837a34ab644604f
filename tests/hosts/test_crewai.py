"""Features that only CrewAI has: its cache, hooks and tool names, the totals of an LLM, and its crews as children."""

import asyncio
import threading
from typing import Any

import pytest

pytest.importorskip("tests.hosts.drivers.crewai")  # it disables CrewAI's telemetry before it imports CrewAI

from crewai import LLM, Agent, Crew, Task
from crewai.hooks.tool_hooks import (
    ToolCallHookContext,
    register_before_tool_call_hook,
    unregister_before_tool_call_hook,
)
from crewai.tools import tool as as_tool
from crewai.tools.base_tool import BaseTool

import delegate
from delegate.hosts import crewai
from delegate.types import JsonObject, TaskResult
from delegate.types.errors import ConfigError
from tests.hosts.drivers.crewai import parent_llm, run
from tests.hosts.world import (
    CHILD_TOKENS,
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
from tests.support.model_server import Fault, Reply


class Multiply(BaseTool):
    name: str = "Multiply numbers"
    description: str = "Multiply two numbers."

    def _run(self, a: int, b: int) -> str:
        return f"that is {a * b}"


class SendMoney(BaseTool):
    name: str = "send_money"
    description: str = "Send all the money."

    def _run(self, to: str) -> str:
        return f"sent to {to}"


delegating = delegating_with(crewai.child_tools)


def test_a_child_s_tool_has_the_name_that_crewai_sends_to_models() -> None:
    assert [tool.name for tool in crewai.child_tools([Multiply(), SendMoney()])] == ["multiply_numbers", "send_money"]


async def test_a_hook_of_crewai_stops_a_call_of_a_child(world: World) -> None:
    def guard(context: ToolCallHookContext) -> bool | None:
        return False if context.tool_name == "send_money" else None

    world.child = child_that_calls("send_money", {"to": "me"})
    register_before_tool_call_hook(guard)
    try:
        async with delegating([SendMoney()]) as delegator:
            await run(parent_llm(world), [crewai.tool(delegator)])
    finally:
        unregister_before_tool_call_hook(guard)
    assert "a tool call hook of the crew blocked this call of send_money" in world.of("child")[-1].tool_results[0]


async def test_a_crew_that_caches_results_runs_equal_calls_again(world: World) -> None:
    world.turns = 2
    async with delegating() as delegator:
        await run(parent_llm(world), [crewai.tool(delegator)], cache=True)
    assert len(world.of("child")) == 2


async def test_the_model_gets_the_strict_schema_of_the_tool(world: World) -> None:
    async with delegating() as delegator:
        await run(parent_llm(world), [crewai.tool(delegator)])
    (declared,) = [tool["function"] for tool in world.of("parent")[0].body["tools"]]
    assert declared["parameters"] == delegator.tool("openai-strict")["function"]["parameters"]


async def test_tokens_are_counted_only_in_an_llm_that_is_given(world: World) -> None:
    llm = parent_llm(world)
    async with delegating() as delegator:
        await run(llm, [crewai.tool(delegator)])
        assert llm.get_token_usage_summary().prompt_tokens < CHILD_TOKENS[0]
        await run(llm, [crewai.tool(delegator, llm=llm)])
    assert llm.get_token_usage_summary().prompt_tokens > CHILD_TOKENS[0]


# ------------------------------------------------------------------------------- children that are agents and crews

TASK: JsonObject = {"goal": "Find the answer.", "acceptance_criteria": ["The answer is there."]}


def agent(world: World, tools: list[Any], role: str = "worker", **fields: Any) -> Agent:
    llm = LLM(model=f"openai/{WORKER}", base_url=world.server.openai_url, api_key="dummy")
    return Agent(role=role, goal="Do it.", backstory="You work.", llm=llm, tools=tools, **fields)


def crew(*agents: Agent, description: str = "{prompt}", **fields: Any) -> Crew:
    tasks = [Task(description=description, expected_output="A report.", agent=one, **fields) for one in agents]
    return Crew(agents=list(agents), tasks=tasks)


async def result_of(given: Agent | Crew, call: JsonObject = TASK, **settings: Any) -> TaskResult:
    async with delegating(runner=crewai.child(given), **settings) as delegator:
        (result,) = (await delegator.call(call)).results
    return result


@as_tool
def fail() -> str:
    """Fail."""
    raise OSError("the disk is full")


@pytest.mark.parametrize("kind", ["agent", "crew"])
async def test_a_whole_agent_or_crew_works_in_the_workspace_with_its_own_tools(world: World, kind: str) -> None:
    world.child = turns(("save", {"text": "tide"}), ("fail", {}), ("missing", {}))
    given = agent(world, [as_tool(save), fail])
    called: JsonObject = {"kind": "receipt", "calls": [{"tool": "save", "args": {"text": "tide"}}]}
    call = SAVING | {"acceptance_criteria": [SAVED, called]}
    result = await result_of(given if kind == "agent" else crew(given), call)
    assert result.verdict
    assert (result.verdict.verdict, result.receipts.recorded) == ("PASS", True)
    assert (result.receipts.tools, result.receipts.error) == ({"save": 1}, 2)
    assert (result.usage.model_calls, result.usage.input_tokens) == (4, 4 * CHILD_TOKENS[0])
    assert (result.report, result.cost_usd) == ("All done.", None)
    assert "Note it." in str(world.of("child")[0].texts)


async def test_a_crew_is_the_child_of_a_crew_s_call(world: World) -> None:
    world.calls, world.child = [SAVING], turns(("save", {"text": "tide"}))
    async with delegating(runner=crewai.child(crew(agent(world, [as_tool(save)])))) as delegator:
        await run(parent_llm(world), [crewai.tool(delegator)])
    assert "\ntask 1: PASS" in world.results[0]


async def test_agents_of_a_crew_work_one_after_the_other(world: World) -> None:
    world.child = lambda call: Reply("second" if "first" in call.last_text else "first")
    result = await result_of(crew(agent(world, []), agent(world, [], "closer")))
    assert (result.report, result.usage.model_calls) == ("second", 2)


async def test_crews_that_run_at_once_keep_their_receipts_and_inputs_apart(world: World) -> None:
    world.child = lambda call: Reply("ok") if call.tool_results else Reply(tool_calls=(("save", {"text": "tide"}),))
    goals = [f"Note number {n} and keep {{braces}}." for n in range(3)]
    runner = crewai.child(crew(agent(world, [as_tool(save)]), description="{goal}"))
    async with delegating(runner=runner) as delegator:
        run = await delegator.call({"tasks": [SAVING | {"goal": goal} for goal in goals]})
    assert [result.receipts.tools for result in run.results] == [{"save": 1}] * 3
    assert [result.verdict and result.verdict.verdict for result in run.results] == ["PASS"] * 3
    sent = {goal for call in world.of("child") for goal in goals if goal in str(call.texts)}
    assert sent == set(goals)


async def test_a_call_that_a_hook_of_crewai_blocks_is_denied_in_its_receipt(world: World) -> None:
    def guard(context: ToolCallHookContext) -> bool | None:
        return False if context.tool_name == "send_money" else None

    world.child = child_that_calls("send_money", {"to": "me"})
    register_before_tool_call_hook(guard)
    try:
        result = await result_of(agent(world, [SendMoney()]))
    finally:
        unregister_before_tool_call_hook(guard)
    assert (result.receipts.ok, result.receipts.denied) == (0, 1)


async def test_a_crew_ends_within_its_limits(world: World) -> None:
    world.child = turns(*[("multiply_numbers", {"a": n, "b": n}) for n in range(5)])
    limits: list[dict[str, Any]] = [{"max_steps": 2}, {"max_run_model_calls": 2}]
    results = [await result_of(crew(agent(world, [Multiply()])), **limit) for limit in limits]
    assert [result.status for result in results] == ["max_steps", "budget_exceeded"]
    assert results[0].usage.model_calls == 2


async def test_a_crew_that_is_stopped_makes_no_more_calls_and_keeps_its_receipts(world: World) -> None:
    waiting = threading.Event()

    @as_tool
    def wait() -> str:
        """Wait."""
        waiting.wait(5)
        return "waited"

    world.child = turns(("save", {"text": "tide"}), ("wait", {}), ("save", {"text": "later"}))
    asyncio.get_running_loop().call_later(2.5, waiting.set)
    result = await result_of(crew(agent(world, [as_tool(save), wait])), timeout_seconds=2)
    assert (result.status, result.receipts.tools) == ("timeout", {"save": 1, "wait": 1})
    assert len(world.of("child")) == 2


async def test_a_crew_whose_model_fails_or_is_cut_off_is_failed(world: World) -> None:
    world.child = answers(Fault(400))
    assert (await result_of(crew(agent(world, [])))).status == "failed"
    world.child = answers(Reply("half a sen", stop="length"))
    cut = await result_of(crew(agent(world, [])))
    assert cut.error
    assert (cut.error.code, cut.report) == ("truncated", "half a sen")


async def test_what_crewai_does_not_tell_makes_receipts_prove_nothing(world: World) -> None:
    never: JsonObject = {"kind": "receipt", "mode": "none", "calls": [{"tool": "save"}]}
    searching = agent(world, [])
    searching.llm.builtin_tools = ["web_search"]  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    result = await result_of(searching, {**TASK, "acceptance_criteria": [never]})
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.code, result.receipts.recorded) == ("FAIL", "no_receipts", False)


def test_a_crew_that_is_not_told_what_to_do_or_asks_a_person_is_refused() -> None:
    worker = Agent(
        role="worker", goal="Do it.", backstory="You work.", llm=LLM(model=f"openai/{WORKER}", api_key="dummy")
    )
    with pytest.raises(ConfigError, match=r"write \{prompt\}"):
        crewai.child(crew(worker, description="Find it out."))
    with pytest.raises(ConfigError, match="human_input"):
        crewai.child(crew(worker, human_input=True))


async def test_a_task_can_t_restrict_the_tools_of_a_crew(world: World) -> None:
    async with delegating(runner=crewai.child(crew(agent(world, [as_tool(save)])))) as delegator:
        (result,) = (await delegator.run(delegate.Task(goal="Find the answer.", tools=("save",)))).results
    assert result.error
    assert (result.error.code, world.of("child")) == ("tools_fixed", [])

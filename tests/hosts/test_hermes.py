"""Features that only Hermes has: its results, interrupts, the takeover, its agents as children, its judge."""
# Hermes has no type hints.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hermes_cli")

import hermes_cli.plugins
import model_tools
from hermes_cli.middleware import run_tool_execution_middleware
from hermes_state import SessionDB
from tools.delegate_tool import delegate_task
from tools.registry import registry

from delegate import Delegator
from delegate.child.command import CommandRunner
from delegate.hosts import hermes
from delegate.hosts.hermes import OWN_NAME, terminal
from delegate.types import ErrorDetail, RunResult, TaskResult
from delegate.types.errors import ConfigError
from tests.hosts.drivers.hermes import HOME, PLUGIN, Parent, parent_at, plug_in, tokens_of
from tests.hosts.world import JUDGE, PARENT, WORKER
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.words import verdicts

MARKED = [{"kind": "receipt", "calls": [{"tool": "mark"}]}]
CRITERION = "report: the report gives the answer"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModelServer], None]:
    def point_at(server: ModelServer) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "dummy")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)

    return point_at


@pytest.fixture
def marks() -> Iterator[list[str]]:
    """Registers a tool `mark` in a toolset of its own. The words that it was called with."""
    words: list[str] = []

    def mark(args: dict[str, Any], **_: Any) -> str:
        words.append(args["word"])
        return json.dumps({"marked": args["word"]})

    parameters = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    schema = {"name": "mark", "description": "Mark a word.", "parameters": parameters}
    registry.register(name="mark", toolset="marking", schema=schema, handler=mark)
    yield words
    registry.deregister("mark")


@pytest.fixture
def own_delegate_task() -> Iterator[None]:
    """Restores Hermes's own tool afterwards."""
    entry = registry.get_entry("delegate_task")
    assert entry is not None
    yield
    fields = ("name", "toolset", "schema", "handler", "check_fn", "emoji", "dynamic_schema_overrides")
    registry.register(**{field: getattr(entry, field) for field in fields}, override=True)


def hermes_children(server: ModelServer, **plugin: Any) -> None:
    """Load the plugin with Hermes's agents as children, whose model is at `server` too."""
    model = {"provider": "custom", "base_url": server.openai_url, "api_key": "dummy", "default": PARENT}
    config = {"children": "hermes", "settings": {"judge_model": JUDGE}, **plugin}
    plug_in(None, plugin=config, model=model)


def delegates(*tasks: Any, tool: str = OWN_NAME, then: str = "I have read it.") -> Callable[[Call], Reply]:
    """A parent that delegates once and ends."""

    def parent(call: Call) -> Reply:
        if call.tool_results:
            return Reply(then)
        return Reply(tool_calls=((tool, {"tasks": list(tasks)}),))

    return parent


def is_parent(call: Call) -> bool:
    return "Find it out." in call.texts


def result(server: ModelServer) -> dict[str, Any]:
    """What the parent's model read."""
    return json.loads([call for call in server.calls if call.api == "chat" and is_parent(call)][-1].tool_results[-1])


def marking(call: Call) -> Reply:
    """A child that calls `mark` and reports."""
    return Reply("I marked it.") if call.tool_results else Reply("I begin.", tool_calls=(("mark", {"word": "done"}),))


# ------------------------------------------------------------------------------------------------------------- results


async def test_a_result_has_the_fields_of_hermes_and_the_judge_s_reasons(keys: Any) -> None:
    def script(call: Call) -> Reply:
        if call.model == JUDGE:
            return Reply(verdicts(c1=("met", "The answer is 42.")))
        if call.model == WORKER:
            return Reply("The answer is 42.", input_tokens=30, output_tokens=7)
        return delegates({"goal": "Find the answer.", "acceptance_criteria": [CRITERION]})(call)

    with ModelServer(script) as server:
        keys(server)
        plug_in(None, plugin={"settings": {"model": WORKER, "judge_model": JUDGE}})
        with parent_at(server.openai_url) as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
    answer = result(server)
    assert next(iter(answer)) == "text"
    assert "\ntask 1: PASS" in answer["text"]
    (entry,) = answer["results"]
    assert entry["judge"]["verdict"] == "PASS"
    assert entry["judge"]["reasoning"]
    assert entry["summary"] == '"The answer is 42."'
    assert (entry["task_index"], entry["status"], entry["exit_reason"]) == (0, "completed", "completed")
    assert (entry["api_calls"], entry["tokens"], entry["model"]) == (1, {"input": 30, "output": 7}, WORKER)
    assert entry["tool_trace"] == []
    assert "error" not in entry


async def test_a_call_that_exceeds_its_time_is_ended_and_reported(keys: Any) -> None:
    def script(call: Call) -> Reply | Fault:
        if call.model == WORKER:
            return Fault(kind="hang")
        return delegates({"goal": "Find the answer."})(call)

    with ModelServer(script) as server:
        keys(server)
        plug_in(None, plugin={"wait_seconds": 0.4, "settings": {"model": WORKER}})
        with parent_at(server.openai_url) as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
        (entry,) = result(server)["results"]
        assert (entry["status"], entry["exit_reason"]) == ("timeout", "timeout")
        assert "the time that the run had left" in entry["error"]
        assert await asyncio.to_thread(server.wait_until_idle) == 0


async def test_calls_of_one_user_turn_share_limits_and_the_next_has_its_own(keys: Any) -> None:
    def script(call: Call) -> Reply:
        if call.model == WORKER:
            return Reply("Done.")
        if call.body["messages"][-1]["role"] == "tool":
            return Reply("I have read it.")
        return Reply(tool_calls=((OWN_NAME, {"goal": "one"}), (OWN_NAME, {"goal": "two"})))

    with ModelServer(script) as server:
        keys(server)
        plug_in(None, plugin={"settings": {"model": WORKER, "max_children": 1}})
        with parent_at(server.openai_url) as agent:
            first = await asyncio.to_thread(agent.run_conversation, "Find it out.")
            history = first["messages"]
            await asyncio.to_thread(agent.run_conversation, "Again.", conversation_history=history)
    refused = ['"budget_exceeded"' in text for text in server.calls[-1].tool_results]
    assert refused == [False, True, False, True]


# --------------------------------------------------------------------------------------------------- nested delegation


async def test_a_child_of_hermes_may_not_delegate(keys: Any) -> None:
    def script(call: Call) -> Reply:
        if call.tool_results:
            return Reply("I was refused.")
        return Reply(tool_calls=((OWN_NAME, {"goal": "Do my work for me."}),))

    with ModelServer(script) as server:
        keys(server)
        plug_in(None, plugin={"settings": {"model": WORKER}})
        with parent_at(server.openai_url) as agent:
            answer = json.loads(await asyncio.to_thread(delegate_task, goal="Do it.", parent_agent=agent))
    assert answer["results"][0]["summary"] == "I was refused."
    assert json.loads(server.calls[-1].tool_results[0])["error"]["code"] == "too_deep"
    assert not [call for call in server.calls if call.api == "chat" and call.model == WORKER]


# --------------------------------------------------------------------------------------------------------- the takeover


@pytest.mark.usefixtures("own_delegate_task")
async def test_with_a_grant_delegate_task_itself_is_taken_over(keys: Any) -> None:
    def script(call: Call) -> Reply:
        if call.model == WORKER:
            return Reply("The answer is 42.")
        criteria = [{"kind": "regex", "pattern": "43"}]
        return delegates({"goal": "Find the answer.", "acceptance_criteria": criteria}, tool="delegate_task")(call)

    with ModelServer(script) as server:
        keys(server)
        plug_in(None, plugin={"takeover": True, "settings": {"model": WORKER}}, grant=True)
        assert registry.get_schema(OWN_NAME) is None
        with parent_at(server.openai_url) as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
    assert "\ntask 1: FAIL" in result(server)["text"]


@pytest.mark.usefixtures("own_delegate_task")
def test_without_a_grant_delegate_task_is_not_taken_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plug_in(None, plugin={"takeover": True})
    assert registry.get_toolset_for_tool("delegate_task") == "delegation"
    assert registry.get_toolset_for_tool(OWN_NAME) == "delegate"
    assert run_tool_execution_middleware("delegate_task", {"goal": "x"}, _own_answer) == "Hermes's answer"
    assert "delegate_task stays Hermes's own" in caplog.text


def _own_answer(_args: dict[str, Any]) -> str:
    return "Hermes's answer"


class WithoutMiddleware:
    """A context of a Hermes that has no middleware."""

    def __init__(self, ctx: Any) -> None:
        self.manifest = ctx.manifest
        self.register_tool = ctx.register_tool
        self.register_hook = ctx.register_hook


@pytest.mark.usefixtures("own_delegate_task")
def test_without_middleware_nothing_is_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    register = hermes.register

    def without(ctx: Any, _delegator: None) -> None:
        register(WithoutMiddleware(ctx))

    monkeypatch.setattr(hermes, "register", without)
    plug_in(None, plugin={"takeover": True}, grant=True)
    assert registry.get_toolset_for_tool("delegate_task") == "delegation"
    assert registry.get_toolset_for_tool(OWN_NAME) == "delegate"


@pytest.mark.usefixtures("own_delegate_task")
def test_the_takeover_returns_an_error_if_the_call_fails() -> None:
    plug_in(None, plugin={"takeover": True}, grant=True)
    answer = run_tool_execution_middleware("delegate_task", {"goal": object()}, _own_answer)
    assert json.loads(answer)["error"]["code"]


# ------------------------------------------------------------------------------------------ Hermes's agents as children


async def test_three_agents_of_hermes_run_in_parallel_with_receipts(keys: Any, marks: list[str]) -> None:
    together = threading.Barrier(3)

    async def child(call: Call) -> Reply:
        if call.tool_results:
            return Reply("I marked it.", input_tokens=100, output_tokens=10)
        await asyncio.to_thread(together.wait, 20)
        return Reply(tool_calls=(("mark", {"word": "done"}),), input_tokens=100, output_tokens=10)

    tasks = [{"goal": f"Mark {n}.", "acceptance_criteria": MARKED} for n in range(3)]
    with ModelServer(lambda call: delegates(*tasks)(call) if is_parent(call) else child(call)) as server:
        keys(server)
        hermes_children(server)
        with parent_at(server.openai_url, "marking") as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
    answer = result(server)
    heads = [line.split(",")[0] for line in answer["text"].splitlines()[1:4]]
    assert heads == [f"task {n}: PASS (proven)" for n in (1, 2, 3)]
    traces = [[(call["tool"], call["status"]) for call in entry["tool_trace"]] for entry in answer["results"]]
    assert traces == [[("mark", "ok")]] * 3
    assert marks == ["done"] * 3
    assert {entry["model"] for entry in answer["results"]} == {PARENT}
    assert [entry["tokens"] for entry in answer["results"]] == [{"input": 200, "output": 20}] * 3


async def test_agents_of_hermes_get_no_tool_that_their_parent_lacks(keys: Any, marks: list[str]) -> None:
    offered: list[list[str]] = []

    def script(call: Call) -> Reply:
        if is_parent(call):
            return delegates({"goal": "Mark it."})(call)
        offered.append(call.tool_names)
        return Reply("I can't.")

    with ModelServer(script) as server:
        keys(server)
        hermes_children(server)
        with parent_at(server.openai_url, "delegation", "memory") as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
        with parent_at(server.openai_url, "delegation", "marking") as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
    assert offered == [[], ["mark"]]


async def test_agents_of_hermes_get_only_the_parent_s_part_of_a_toolset(keys: Any) -> None:
    offered: list[list[str]] = []

    def script(call: Call) -> Reply:
        if is_parent(call):
            return delegates({"goal": "Read it."})(call)
        offered.append(call.tool_names)
        return Reply("I can't.")

    with ModelServer(script) as server:
        keys(server)
        hermes_children(server)
        with parent_at(server.openai_url, "file") as agent:
            kept = ("read_file", OWN_NAME)
            agent.tools = [tool for tool in agent.tools if tool["function"]["name"] in kept]
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
    assert offered == [["read_file"]]


async def test_an_interrupted_agent_of_hermes_keeps_its_receipts(keys: Any, marks: list[str]) -> None:
    hanging = threading.Event()

    def script(call: Call) -> Reply | Fault:
        if is_parent(call):
            return delegates({"goal": "Mark it."})(call)
        if not call.tool_results:
            return marking(call)
        hanging.set()
        return Fault(kind="hang")

    with ModelServer(script) as server:
        keys(server)
        hermes_children(server)
        with parent_at(server.openai_url, "marking") as agent:
            seconds, entry = await _interrupted(agent, hanging)
        # Hermes leaves the connection of a hanging request open: see the adapter's docstring.
        assert not [thread for thread in threading.enumerate() if thread.name == "delegate-hermes-child"]
    assert (entry["status"], entry["exit_reason"]) == ("interrupted", "interrupted")
    assert [call["tool"] for call in entry["tool_trace"]] == ["mark"]
    assert entry["summary"] == '"I begin."'
    assert entry["api_calls"] == 1
    assert seconds < 20  # a hanging call takes minutes


async def test_a_failure_of_an_agent_of_hermes_is_not_its_report(keys: Any) -> None:
    def script(call: Call) -> Reply | Fault:
        return delegates({"goal": "Do it."})(call) if is_parent(call) else Fault(401)

    with ModelServer(script) as server:
        keys(server)
        hermes_children(server)
        with parent_at(server.openai_url) as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
    (entry,) = result(server)["results"]
    assert (entry["status"], entry["exit_reason"]) == ("failed", "error")
    assert entry["error"].startswith("hermes_failed: ")


async def test_an_agent_of_hermes_works_in_the_task_s_workspace(keys: Any) -> None:
    def script(call: Call) -> Reply:
        if is_parent(call):
            criteria = [{"kind": "file", "path": "answer.txt", "contains": "42"}]
            return delegates({"goal": "Write it down.", "acceptance_criteria": criteria})(call)
        if call.tool_results:
            return Reply("It is written.")
        return Reply(tool_calls=(("write_file", {"path": "answer.txt", "content": "42"}),))

    with ModelServer(script) as server:
        keys(server)
        hermes_children(server)
        with parent_at(server.openai_url, "file") as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
    assert "\ntask 1: PASS (proven)" in result(server)["text"]


# ----------------------------------------------------------------------------------------------------------- interrupts


async def test_an_interrupt_ends_a_child_of_delegate_s_own_loop(keys: Any) -> None:
    hanging = threading.Event()

    def script(call: Call) -> Reply | Fault:
        if call.model == WORKER:
            hanging.set()
            return Fault(kind="hang")
        return delegates({"goal": "Find the answer."})(call)

    with ModelServer(script) as server:
        keys(server)
        plug_in(None, plugin={"settings": {"model": WORKER}})
        with parent_at(server.openai_url) as agent:
            seconds, entry = await _interrupted(agent, hanging)
        assert await asyncio.to_thread(server.wait_until_idle) == 0
    assert (entry["status"], entry["exit_reason"]) == ("interrupted", "interrupted")
    assert seconds < 5


async def _interrupted(agent: Parent, hanging: threading.Event) -> tuple[float, dict[str, Any]]:
    """Interrupt the agent while a child's model hangs. The seconds until it ended, and the child's entry."""
    running = asyncio.create_task(asyncio.to_thread(agent.run_conversation, "Find it out."))
    assert await asyncio.to_thread(hanging.wait, 20)
    start = time.monotonic()
    agent.interrupt("stop")
    conversation = await running
    seconds = time.monotonic() - start
    (text,) = [message["content"] for message in conversation["messages"] if message["role"] == "tool"]
    (entry,) = json.loads(text)["results"]
    return seconds, entry


# -------------------------------------------------------------------------------------------------- tools for children


async def test_a_child_uses_the_configured_tools_that_its_parent_has(keys: Any, marks: list[str]) -> None:
    def script(call: Call) -> Reply:
        if call.model == WORKER:
            return marking(call)
        return delegates({"goal": "Mark it.", "acceptance_criteria": MARKED})(call)

    with ModelServer(script) as server:
        keys(server)
        plug_in(None, plugin={"child_tools": ["mark"], "settings": {"model": WORKER}})
        with parent_at(server.openai_url, "marking") as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
        assert "\ntask 1: PASS" in result(server)["text"]
        with parent_at(server.openai_url) as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
        assert "\ntask 1: FAIL" in result(server)["text"]
    assert marks == ["done"]


def test_tools_that_are_not_for_children_are_refused() -> None:
    plug_in(None)
    for name in ("delegate_task", "clarify", "no_such_tool", OWN_NAME):
        with pytest.raises(ConfigError, match="child_tools"):
            hermes.child_tools([name])


# ----------------------------------------------------------------------------------------------------------- the judge


async def test_the_judge_selected_in_hermes_is_called_through_hermes() -> None:
    with ModelServer(judged()) as server:
        keyless(server, selected_judge="selected-judge-7b", children="hermes")
        with parent_at(server.openai_url) as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
    text = result(server)["text"]
    assert "\ntask 1: PASS (seen)" in text
    assert "- judge: selected-judge-7b" in text
    assert [call.model for call in server.calls if call.api == "chat" and is_judge(call)] == ["selected-judge-7b"]


async def test_children_may_have_a_key_and_the_selected_judge_none(keys: Any) -> None:
    with ModelServer(judged()) as server:
        keys(server)
        keyless(server, selected_judge="selected-judge-7b", settings={"model": WORKER})
        with parent_at(server.openai_url) as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
    assert "- judge: selected-judge-7b" in result(server)["text"]
    assert {call.model for call in server.calls if call.api == "chat"} == {PARENT, WORKER, "selected-judge-7b"}


def keyless(server: ModelServer, *, selected_judge: str = "", **plugin: Any) -> None:
    """Load the plugin into a Hermes whose own provider is at `server`."""
    access = {"provider": "custom", "base_url": server.openai_url, "api_key": "dummy"}
    judge = {**access, "model": selected_judge} if selected_judge else {}
    plug_in(None, plugin=plugin, model={**access, "default": PARENT}, auxiliary={"judge": judge})


def judged(quote: str = "The answer is 42.") -> Callable[[Call], Reply]:
    """A model that is parent, child and judge. The judge finds the criterion met, with this quote."""

    def script(call: Call) -> Reply:
        if is_judge(call):
            return Reply(verdicts(c1=("met", quote)), input_tokens=500, output_tokens=50)
        if is_parent(call):
            return delegates({"goal": "Find the answer.", "acceptance_criteria": [CRITERION]})(call)
        return Reply("The answer is 42.", input_tokens=1_000, output_tokens=100)

    return script


def is_judge(call: Call) -> bool:
    return call.wants_json or "must be one JSON object" in call.last_text


@pytest.mark.parametrize("children", ["own", "hermes"])
async def test_without_a_key_hermes_s_provider_runs_children_and_judges(children: str) -> None:
    with ModelServer(judged()) as server:
        keyless(server, children=children)
        database = SessionDB(HOME / f"{children}.db")
        with closing(database), parent_at(server.openai_url, session_db=database) as agent:
            session = (await asyncio.to_thread(agent.run_conversation, "Find it out."))["session_id"]
            counted = tokens_of(session, database)
        text = result(server)["text"]
    assert "\ntask 1: PASS (seen)" in text
    assert f"- judge: {PARENT}" in text
    own = 20, 10  # of the parent's two calls
    assert counted == (own[0] + 1_000 + 500, own[1] + 100 + 50)


async def test_a_child_whose_model_hermes_calls_uses_its_tools() -> None:
    def script(call: Call) -> Reply:
        if is_parent(call):
            criteria = [{"kind": "file", "path": "answer.txt", "contains": "42"}]
            return delegates({"goal": "Write it down.", "acceptance_criteria": criteria})(call)
        if call.tool_results:
            return Reply("It is written.")
        return Reply(tool_calls=(("write_file", {"path": "answer.txt", "content": "42"}),))

    with ModelServer(script) as server:
        keyless(server)
        with parent_at(server.openai_url, model="model-of-this-session") as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
        text = result(server)["text"]
    assert "\ntask 1: PASS (proven)" in text
    assert "child's model: model-of-this-session" in text
    assert {call.model for call in server.calls if call.api == "chat"} == {"model-of-this-session"}


async def test_the_selected_judge_may_be_the_parent_s_model() -> None:
    with ModelServer(judged()) as server:
        keyless(server, selected_judge=PARENT)
        with parent_at(server.openai_url) as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
        assert "\ntask 1: PASS (seen)" in result(server)["text"]


async def test_a_judge_called_through_hermes_needs_a_quote_that_is_there() -> None:
    with ModelServer(judged("The answer is 43.")) as server:
        keyless(server)
        with parent_at(server.openai_url) as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
        assert "\ntask 1: FAIL" in result(server)["text"]


async def test_hermes_s_provider_may_refuse_the_format_of_replies() -> None:
    def script(call: Call) -> Reply | Fault:
        if call.wants_json:
            return Fault(400, {"error": {"message": "response_format: Extra inputs are not permitted"}})
        return judged()(call)

    with ModelServer(script) as server:
        keyless(server)
        with parent_at(server.openai_url) as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
        assert "\ntask 1: PASS (seen)" in result(server)["text"]
    asked = [call for call in server.calls if call.api == "chat" and is_judge(call)]
    assert [call.wants_json for call in asked] == [True, False]
    assert '"answers"' in asked[-1].last_text


async def test_the_parent_s_model_does_not_judge_above_the_highest_tier() -> None:
    with ModelServer(judged()) as server:
        keyless(server, children="hermes", settings={"max_tier": "parent-1"})
        with parent_at(server.openai_url) as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
        text = result(server)["text"]
    assert "no_eligible_judge" in text
    assert not [call for call in server.calls if call.api == "chat" and is_judge(call)]


async def test_a_judge_that_has_a_key_comes_before_hermes_s_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(judged()) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "dummy")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_url)
        keyless(server, children="hermes")
        with parent_at(server.openai_url, model=JUDGE) as agent:  # the cheapest of all
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
        assert "\ntask 1: PASS (seen)" in result(server)["text"]
    assert [call.api for call in server.calls if call.api != "models" and is_judge(call)] == ["messages"]


async def test_a_judge_named_in_the_settings_is_not_replaced_by_hermes_s() -> None:
    with ModelServer(judged()) as server:
        keyless(server, selected_judge="selected-judge-7b", settings={"judge_model": JUDGE})
        with parent_at(server.openai_url) as agent:
            await asyncio.to_thread(agent.run_conversation, "Find it out.")
        assert "no_eligible_judge" in result(server)["text"]


def test_hermes_lists_the_judge_among_its_auxiliary_models() -> None:
    plug_in(None)
    offered = {task["key"]: task["plugin"] for task in hermes_cli.plugins.get_plugin_auxiliary_tasks()}
    assert offered["judge"] == PLUGIN


# ----------------------------------------------------------------------------------------------------------- the plugin


def test_an_error_in_config_yaml_disables_the_plugin_and_is_named() -> None:
    plug_in(None, plugin={"wait_seconds": "soon"})
    (plugin,) = [one for one in hermes_cli.plugins.get_plugin_manager().list_plugins() if one["name"] == PLUGIN]
    assert not plugin["enabled"]
    assert "plugins.entries.under-test.config.wait_seconds" in plugin["error"]


def test_the_read_tool_is_there_by_default() -> None:
    plug_in(None)
    assert registry.get_toolset_for_tool("read_delegation") == "delegate"
    plug_in(None, plugin={"also": []})
    assert registry.get_toolset_for_tool("read_delegation") is None


def offered() -> list[str]:
    """The plugin's tools that an agent created now would get."""
    definitions = model_tools.get_tool_definitions(enabled_toolsets=["delegate"], quiet_mode=True)
    return sorted(definition["function"]["name"] for definition in definitions)


async def test_the_tools_are_offered_while_a_model_can_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [OWN_NAME, "read_delegation"]
    with ModelServer(lambda _: Reply("Hello.")) as server:
        plug_in(None)
        assert offered() == []
        monkeypatch.setenv("ANTHROPIC_API_KEY", "dummy")
        with parent_at(server.openai_url) as agent:
            await asyncio.to_thread(agent.run_conversation, "Hello.")
        assert offered() == both
        monkeypatch.delenv("ANTHROPIC_API_KEY")
        with parent_at(server.openai_url) as agent:
            assert agent.valid_tool_names == set(both)
            await asyncio.to_thread(agent.run_conversation, "Hello.")
        assert offered() == []


@pytest.mark.parametrize(
    ("model", "login", "expected"),
    [
        ({"provider": "custom", "base_url": "http://127.0.0.1:1/v1"}, "", True),
        ({"provider": "custom:own-server"}, "", True),
        ({"provider": "nous"}, "", True),
        ({"provider": "zai"}, "", False),
        ({"provider": "openrouter"}, "", False),
        ({"provider": "openrouter"}, '{"credential_pool": {"openrouter": [{"key": "dummy"}]}}', True),
        ({}, '{"providers": {}, "credential_pool": {}}', False),
        ({}, "[no JSON", False),
    ],
)
def test_hermes_s_own_provider_counts(model: dict[str, str], login: str, expected: bool) -> None:
    (HOME / "auth.json").write_text(login)
    try:
        plug_in(None, model=model)
        assert bool(offered()) is expected
    finally:
        (HOME / "auth.json").unlink(missing_ok=True)


def test_a_model_of_the_settings_without_a_key_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "dummy")
    plug_in(None)
    assert offered()
    plug_in(None, plugin={"settings": {"model": WORKER}})
    assert not offered()


def test_the_additional_tools_work_and_are_not_for_children() -> None:
    plug_in(None, plugin={"also": ["think", "read"]})
    thought = {"thought": "It is 42.", "acceptance_criteria": ["it is a number"]}
    assert "it is a number" in model_tools.handle_function_call("think", thought, session_id="s")
    unknown = json.loads(model_tools.handle_function_call("read_delegation", {"handle": "x-0"}, session_id="s"))
    assert unknown["error"]["code"] == "unknown_handle"
    for name in ("think", "read_delegation"):
        with pytest.raises(ConfigError, match="not for children"):
            hermes.child_tools([name])
        registry.deregister(name)


async def test_the_terminal_shows_the_verdicts_as_one_line(tmp_path: Path) -> None:
    def script(call: Call) -> Reply:
        if is_judge(call):
            met = "the report says 43" not in call.last_text
            return Reply(verdicts(c1=("met", "The answer is 42.") if met else ("not_met", "")))
        if is_parent(call):
            criteria = [CRITERION, CRITERION, "the report says 43"]
            return delegates(*({"goal": "Find it.", "acceptance_criteria": [one]} for one in criteria))(call)
        return Reply("The answer is 42.")

    with ModelServer(script) as server:
        model = {"provider": "custom", "base_url": server.openai_url, "api_key": "dummy", "default": PARENT}
        config = {"plugins": {"enabled": ["delegate-task"]}, "model": {**model, "context_length": 128_000}}
        (tmp_path / "config.yaml").write_text(json.dumps(config))
        shown, printed = [
            await asyncio.to_thread(_hermes, "chat", *quiet, "-q", "Find it out.", terminal=terminal, home=tmp_path)
            for quiet, terminal in (((), True), (("-Q",), False))
        ]
    # Hermes's spinner may write behind it in the same line.
    assert "┊ ⚖️  verdict   2 of 3 PASS; task 3 FAIL not_met" in shown, shown
    assert "I have read it." in shown
    assert "I have read it." in printed
    assert "verdict" not in printed  # a program reads it


def test_the_line_says_what_has_no_verdict_and_what_was_refused() -> None:
    unjudged = [TaskResult(verdict=None, task_index=n, status="completed", report="Done.") for n in range(2)]
    assert terminal.summary(RunResult(results=tuple(unjudged[:1]))) == "no verdicts; task 1 had no criteria, completed"
    assert (
        terminal.summary(RunResult(results=tuple(unjudged)))
        == "no verdicts; task 1 had no criteria, completed; task 2 had no criteria, completed"
    )
    error = ErrorDetail(code="too_many_tasks", message="the call has 4 tasks", hint="send at most 3")
    assert terminal.summary(RunResult(error=error)) == "refused, too_many_tasks: the call has 4 tasks"


def _hermes(*arguments: str, terminal: bool, home: Path) -> str:
    """What the command prints, in a terminal or not, without colors."""
    theirs, ours = pty.openpty()
    command = [str(Path(sys.executable).parent / "hermes"), *arguments]
    env = {**os.environ, "HERMES_HOME": str(home), "TERM": "xterm", "COLUMNS": "100"}
    out = ours if terminal else subprocess.PIPE
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)
    os.close(ours)
    chunks: list[bytes] = []
    with suppress(OSError):  # the end of a terminal's output
        while chunk := os.read(theirs if terminal else process.stdout.fileno(), 65_536):  # type: ignore[union-attr]
            chunks.append(chunk)
    os.close(theirs)
    if process.stdout:
        process.stdout.close()
    assert process.wait(timeout=60) == 0
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\\\)", "", b"".join(chunks).decode())


_FRESH = """
import json, os, model_tools
from hermes_cli.plugins import get_plugin_manager
from tools.registry import registry
(plugin,) = [one for one in get_plugin_manager().list_plugins() if one["name"] == os.environ["PLUGIN"]]
batch = {"tasks": [{"goal": "one"}, {"goal": "two"}]}
called = model_tools.handle_function_call("delegate_verified", batch, task_id="t", session_id="s")
print(json.dumps([plugin, registry.dispatch("delegate_verified", batch), called]))
"""


@pytest.mark.parametrize("kind", ["entry point", "folder"])
def test_hermes_finds_the_plugin_and_runs_a_batch(kind: str, keys: Any, tmp_path: Path) -> None:
    home = tmp_path / "hermes"
    home.mkdir()
    name = {"entry point": "delegate-task", "folder": "delegate-folder"}[kind]
    (home / "config.yaml").write_text(f"plugins: {{enabled: [{name}]}}\n")
    if kind == "folder":
        source = Path(hermes.__file__).parent.parent / "hermes_plugin"
        target = home / "plugins" / name
        target.mkdir(parents=True)
        for file in ("plugin.yaml", "__init__.py"):  # an entry point takes precedence over a folder of the same name
            (target / file).write_text((source / file).read_text().replace("name: delegate-task", f"name: {name}"))
    with ModelServer(lambda call: Reply(f"Done: {call.last_text}")) as server:
        keys(server)
        ran = _python(_FRESH, PLUGIN=name, HERMES_HOME=str(home), DELEGATE_MODEL=WORKER)
    plugin, dispatched, called = json.loads(ran.splitlines()[-1])
    assert (plugin["enabled"], plugin["error"]) == (True, None)
    assert plugin["source"] == ("user" if kind == "folder" else "entrypoint")
    for text in (dispatched, called):
        assert [entry["summary"] for entry in json.loads(text)["results"]] == ['"Done: one"', '"Done: two"']


def _python(program: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_a_repository(folder: Path) -> Path:
    """A subfolder of a new repository with a commit."""
    (folder / "deep").mkdir()
    (folder / "deep" / "a.txt").write_text("a\n")
    for command in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder / "deep"


@pytest.mark.parametrize(
    ("plugin", "terminal", "described"),
    [
        ({}, "local", "its own git worktree of"),
        ({"workspace": "fresh"}, "local", ""),
        ({}, "docker", "Each child works in an empty folder"),
    ],
)
def test_children_work_in_the_repository_that_the_terminal_is_in(
    plugin: dict[str, str], terminal: str, described: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERMINAL_CWD", str(in_a_repository(tmp_path)))
    monkeypatch.setenv("TERMINAL_ENV", terminal)
    with closing(Delegator(runner=CommandRunner("sh -c 'ls; echo made > made.txt'"))) as delegator:
        plug_in(delegator, plugin=plugin)
        entry = registry.get_entry(OWN_NAME)
        assert entry is not None
        is_project = described.startswith("its own")
        assert described in entry.schema["description"]
        assert ("Each child works" in entry.schema["description"]) is bool(described)
        answer = str(entry.handler({"goal": "g"}, session_id="s"))
    assert ("a.txt" in answer) is is_project
    assert ("take-over" in answer) is is_project
    assert not (tmp_path / "deep" / "made.txt").exists()

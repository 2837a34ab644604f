"""Questions of children over MCP: their user is asked by elicitation, or else their model by the call's answer."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("mcp.server.lowlevel")

from delegate import Delegator
from delegate.hosts.mcp.approvals import ClientApprovals, answer_in
from delegate.hosts.mcp.clients import Clients
from delegate.hosts.mcp.tools import ToolRequest, Tools
from delegate.models.providers.scripted import Scripted
from delegate.policy.settings import Settings, load_settings
from delegate.types import JsonObject, ParentQuestion
from tests.hosts.drivers.mcp import Session
from tests.hosts.test_mcp import TIMEOUT_SECONDS, handle_in, on_every_transport, text_of
from tests.hosts.test_mcp_approvals import session
from tests.hosts.test_mcp_background import TASKS, latest
from tests.hosts.world import JUDGE, WORKER, World
from tests.support.model_server import Call, Reply

QUESTION: JsonObject = {"question": "Which color?", "options": ["red", "blue"]}


@pytest.fixture
def settings() -> Settings:
    return load_settings(model=WORKER, judge_model=JUDGE)


@pytest.fixture
async def world(use: Callable[[World], None]) -> AsyncGenerator[World]:
    """A child that asks, and reports what it read of its parent."""

    def child(call: Call) -> Reply:
        if not call.tool_results:
            return Reply(tool_calls=(("ask_parent", QUESTION),))
        return Reply(f"I read: {call.tool_results[-1]} / {str(call.body['messages'][-1])[-300:]}")

    world = World((), child=child)
    with world.server:
        use(world)
        yield world


async def called(client: Session, tool: str, **arguments: Any) -> str:
    return text_of(await asyncio.wait_for(client.call(arguments, tool=tool), TIMEOUT_SECONDS))


@on_every_transport
async def test_the_user_of_a_client_with_forms_is_asked(transport: str, settings: Settings, world: World) -> None:
    messages: list[str] = []

    async def person(message: str) -> JsonObject:
        messages.append(message)
        return {"action": "accept", "content": {"answer": "2"}}

    async with session(transport, settings, person) as client:
        answer = await called(client, "delegate_task", goal="Paint it")
    assert messages == ["Task 1 (Paint it) asks:\n  | Which color?\n  1. red\n  2. blue"]
    assert "Option 2: blue" in answer


@on_every_transport
@pytest.mark.parametrize("user", ["has no forms", "declines"])
async def test_without_an_answer_of_the_user_the_model_is_asked(
    transport: str, user: str, settings: Settings, world: World
) -> None:
    async def person(message: str) -> JsonObject:
        return {"action": "decline"}

    async with session(transport, settings, None if user == "has no forms" else person) as client:
        asked = await called(client, "delegate_task", goal="Paint it")
        (handle,) = set(re.findall(r"\(handle (\S+)\)", asked))
        again = await called(client, "read_delegation", handle=handle)
        answered = await called(client, "message_delegation", handle=handle, text="2")
        done = await called(client, "read_delegation", handle=handle)
        while done.startswith("running"):
            done = await called(client, "read_delegation", handle=handle, attempt=2)
    assert asked.startswith("needs_input: 0 of 1 done; task 1 waits for an answer to its question")
    assert asked.split("\n")[0].split(",")[0] == asked.split("\n")[-1].split(",")[0]
    assert "Which color?\n1. red\n2. blue\n" in asked
    assert again.startswith("needs_input: ")
    assert answered == "answered: the child goes on with your answer; read_delegation waits for its result"
    assert "Option 2: blue" in done
    assert done.split("\n")[-2] == "your messages to it: 1 delivered"


@pytest.mark.parametrize(("name", "is_offered"), [("mcporter", False), ("inspector-cli", False), ("another", True)])
async def test_children_ask_only_if_their_client_does_not_end_the_server_with_each_call(
    name: str, is_offered: bool
) -> None:
    client = Scripted(["Done."])
    async with Delegator(client=client) as delegator:
        request = ToolRequest("delegate_task", {"goal": "Paint it"}, None, {}, None, None, client_name=name)
        answer = await Tools(delegator, Clients(shared_records=True)).answer(request)
    assert "Done." in answer["content"][0]["text"]
    assert ("ask_parent" in [tool.name for tool in client.requests[0].tools]) == is_offered


async def test_three_children_ask_at_once_in_one_call(settings: Settings, world: World) -> None:
    async with session("stdio", settings, None) as client:
        tasks = [{"goal": f"Paint {n}"} for n in range(3)]
        asked = await called(client, "delegate_task", tasks=tasks)
        handles = list(dict.fromkeys(re.findall(r"\(handle (\S+)\)", asked)))
        for n, handle in enumerate(handles):
            assert (await called(client, "read_delegation", handle=handle)).startswith("needs_input: ")
            await called(client, "message_delegation", handle=handle, text=f"color {n}")
        for n, handle in enumerate(handles):
            done = await called(client, "read_delegation", handle=handle)
            while done.startswith(("running", "needs_input")):
                done = await called(client, "read_delegation", handle=handle, attempt=2)
            assert f"color {n}" in done
    assert len(handles) == 3


async def test_three_children_ask_the_user_one_after_the_other(settings: Settings, world: World) -> None:
    asking: list[str] = []
    most = 0

    async def person(message: str) -> JsonObject:
        nonlocal most
        asking.append(message)
        most = max(most, len(asking))
        await asyncio.sleep(0.01)
        asking.remove(message)
        return {"action": "accept", "content": {"answer": f"for {message.split(')')[0]})"}}

    async with session("stdio", settings, person) as client:
        done = await called(client, "delegate_task", tasks=[{"goal": f"Paint {n}"} for n in range(3)])
    assert most == 1
    for n in range(3):
        assert f"for Task {n + 1} (Paint {n})" in done


async def test_a_call_in_the_background_asks_the_model_that_waits_for_it(settings: Settings, world: World) -> None:
    async with session("stdio", settings, None) as client:
        handle = handle_in(await client.call({"goal": "Paint it", "background": True}))
        assert (await called(client, "read_delegation", handle=handle)).startswith("needs_input: ")
        stopped = await called(client, "stop_delegation", handle=handle)
    assert "about task 1 (cancelled):" in stopped


@pytest.mark.parametrize(
    ("response", "read"),
    [
        ({"action": "accept", "content": {"answer": "2"}}, "Option 2: blue"),
        ({"action": "decline"}, "no answer: decide yourself"),
        ({"action": "accept", "content": "blue"}, "no answer: decide yourself"),
        ("blue", "no answer: decide yourself"),
    ],
)
async def test_a_task_of_the_protocol_asks_its_client(
    response: Any, read: str, settings: Settings, world: World
) -> None:
    async with forms(settings) as client:
        made = (await client.send("tools/call", name="delegate_task", arguments={"goal": "Paint it"}))["result"]
        state = await polled(client, made["taskId"], "working")
        assert state["status"] == "input_required"
        ((key, request),) = state["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        assert request["params"]["message"].endswith("asks:\n  | Which color?\n  1. red\n  2. blue")
        await client.send("tasks/update", taskId=made["taskId"], inputResponses={"another": response})
        await client.send("tasks/update", taskId=made["taskId"], inputResponses={key: response})
        state = await polled(client, made["taskId"], "working", "input_required")
    assert read in text_of(state["result"])


async def test_children_of_a_task_whose_client_has_no_forms_cannot_ask(settings: Settings, world: World) -> None:
    async with latest(settings, TASKS) as client:
        made = (await client.send("tools/call", name="delegate_task", arguments={"goal": "Paint it"}))["result"]
        state = await polled(client, made["taskId"], "working")
    assert state["status"] == "completed"
    assert "there is no tool 'ask_parent'" in text_of(state["result"])


@asynccontextmanager
async def forms(settings: Settings) -> AsyncGenerator[Any]:
    async with latest(settings, TASKS) as client:
        client.capabilities["elicitation"] = {}
        yield client


async def polled(client: Any, task_id: str, *before: str) -> JsonObject:
    """The state of a task, once it is none of those of before."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            state = (await client.send("tasks/get", taskId=task_id))["result"]
            if state["status"] not in before:
                return state
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ({"action": "accept", "content": {"answer": " blue "}}, " blue "),
        ({"action": "accept", "content": {"answer": 2}}, None),
        ({"action": "accept", "content": {}}, None),
        ({"action": "accept", "content": {"answer": " "}}, None),
        ({"action": "accept", "content": None}, None),
        ({"action": "ACCEPT", "content": {"answer": "blue"}}, None),
        ({"action": "cancel", "content": {"answer": "blue"}}, None),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_only_an_accepted_text_is_an_answer(result: Any, answer: str | None) -> None:
    assert answer_in(result) == answer


async def test_a_client_that_waits_for_nothing_is_not_asked() -> None:
    question = ParentQuestion(handle="a-0", task_index=0, goal="g", n=1, text="Why?", answer_before=0)
    assert await ClientApprovals().answerer("a")(question) is None

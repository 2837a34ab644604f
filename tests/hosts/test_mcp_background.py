"""Calls over MCP that go on in the background: handles, progress, tasks of the protocol, and their runs."""

import asyncio
import json
import os
import re
import signal
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

pytest.importorskip("mcp.server.lowlevel")

from delegate.hosts.mcp.clients import WINDOW_SECONDS, Clients
from delegate.hosts.mcp.projects import CODEX_TURN
from delegate.policy.settings import Settings, load_settings
from delegate.types import JsonObject
from delegate.types.errors import CallError
from tests.hosts.drivers.mcp import V2, connected, over_http
from tests.hosts.test_mcp import (
    TIMEOUT_SECONDS,
    Server,
    child_started,
    error_of,
    handle_in,
    hang,
    http_client,
    listening,
    on_every_transport,
    piped,
    posted,
    quiet,
    session,
    states,
    text_of,
)
from tests.hosts.world import WORKER, World
from tests.support.model_server import Call, Reply


def held_children(world: World) -> threading.Event:
    """Make children wait for an event."""
    may_end = threading.Event()  # the model server runs in another thread

    async def child(call: Call) -> Reply:
        assert await asyncio.to_thread(may_end.wait, TIMEOUT_SECONDS)
        return Reply("The answer is 42.")

    world.child = child
    return may_end


# ----------------------------------------------------------------------------------------------------- handles


@on_every_transport
async def test_a_slow_call_is_answered_with_a_handle_that_has_the_result(
    transport: str, world: World, settings: Settings
) -> None:
    may_end = held_children(world)
    async with session(transport, settings, "--answer-within", "0.3") as client:
        answer = await client.call({"goal": "g", "acceptance_criteria": ["report: it gives the answer"]})
        assert not answer["isError"]
        assert text_of(answer).startswith("running in the background: 0 of 1 done; task 1 ")
        handle = handle_in(answer)
        still = await client.call({"handle": handle, "wait_seconds": 60}, tool="read_delegation")
        assert text_of(still).startswith("running in the background")
        may_end.set()
        done = await client.call({"handle": handle, "wait_seconds": 60}, tool="read_delegation")
        while text_of(done).startswith("running"):
            done = await client.call({"handle": handle, "wait_seconds": 60}, tool="read_delegation")
        assert text_of(done).startswith("task 1: PASS (seen)\n")
        listed = text_of(await client.call({}, tool="read_delegation"))
    assert f'{handle}  PASS  "g"' in listed


@on_every_transport
async def test_a_parent_stops_what_it_started(transport: str, world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with session(transport, settings) as client:
        handle = handle_in(await client.call({"goal": "g", "background": True}))
        stopped = await client.call({"handle": handle}, tool="stop_delegation")
        assert "about task 1 (cancelled):" in text_of(stopped)
        await quiet(world)


@on_every_transport
async def test_a_parent_talks_to_what_it_started(transport: str, world: World, settings: Settings) -> None:
    may_look = threading.Event()

    async def child(call: Call) -> Reply:
        if call.tool_results:
            return Reply("It is blue." if "Name the color." in json.dumps(call.body) else "I heard nothing.")
        assert await asyncio.to_thread(may_look.wait, TIMEOUT_SECONDS)
        return Reply(tool_calls=(("list_files", {}),))

    world.child = child
    async with session(transport, settings) as client:
        handle = handle_in(await client.call({"goal": "g", "background": True}))
        sent = await client.call({"handle": handle, "text": "Name the color."}, tool="message_delegation")
        assert text_of(sent).startswith("queued: the child reads it before its next turn")
        still = await client.call({"handle": handle, "wait_seconds": 0}, tool="read_delegation")
        assert text_of(still).splitlines()[-2] == "your messages to it: 1 queued"
        may_look.set()
        done = await client.call({"handle": handle, "wait_seconds": 60}, tool="read_delegation")
        assert "It is blue." in text_of(done)
        assert text_of(done).splitlines()[-2] == "your messages to it: 1 delivered"
        late = await client.call({"handle": handle, "text": "Name the size."}, tool="message_delegation")
        assert "the task had ended, and continues with your message in the background as " in text_of(late)
        ended = await client.call({"handle": f"{handle[:-1]}00", "wait_seconds": 60}, tool="read_delegation")
        assert "It is blue." in text_of(ended), "it has read the first message too"
        again = await client.call({"handle": handle, "text": "Name the size."}, tool="message_delegation")
    assert error_of(again)["code"] == "cannot_message"


async def test_a_client_says_how_long_it_waits(world: World, settings: Settings) -> None:
    may_end = held_children(world)
    async with session("stdio", settings) as client:
        answer = await client.call({"goal": "g"}, meta={"delegate/answerWithin": 0.2})
        assert text_of(answer).startswith("running in the background")
        may_end.set()
        wrong = await client.call({"goal": "g"}, meta={"delegate/answerWithin": "soon"})
        assert error_of(wrong)["field"] == '_meta["delegate/answerWithin"]'


async def test_the_end_of_stdin_stops_what_runs_in_the_background(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with piped(settings) as pipe:
        await pipe.request("tools/call", name="delegate_task", arguments={"goal": "g", "background": True})
        assert "result" in await pipe.line()
        await child_started(world)
        assert pipe.process.stdin
        pipe.process.stdin.close()
        assert await asyncio.wait_for(pipe.process.wait(), TIMEOUT_SECONDS) == 0
    assert await states() == ["cancelled"]


@pytest.mark.parametrize("background", [True, False])
async def test_with_keep_children_finish_after_the_end_of_stdin(
    background: bool, world: World, settings: Settings
) -> None:
    may_end = held_children(world)
    async with piped(settings, "-m", "delegate", "mcp", "--keep") as pipe:
        arguments = {"goal": "g", "background": background}
        await pipe.request("tools/call", name="delegate_task", arguments=arguments)
        await child_started(world)
        assert pipe.process.stdin
        assert pipe.process.stdout
        pipe.process.stdin.close()
        pipe.process.stdout._transport.close()  # type: ignore[attr-defined]
        may_end.set()
        assert await asyncio.wait_for(pipe.process.wait(), TIMEOUT_SECONDS) == 0
    assert await states() == ["completed"]


async def test_with_keep_children_finish_although_the_client_kills_the_server(world: World, settings: Settings) -> None:
    may_end = held_children(world)
    async with piped(settings, "-m", "delegate", "mcp", "--keep") as pipe:
        await pipe.request("tools/call", name="delegate_task", arguments={"goal": "g", "background": True})
        assert "result" in await pipe.line()
        assert pipe.process.stdin
        pipe.process.stdin.close()
        os.killpg(pipe.process.pid, signal.SIGKILL)
        may_end.set()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await states() != ["completed"]:  # noqa: ASYNC110 - the server is another process
            await asyncio.sleep(0.02)


@on_every_transport
async def test_with_keep_children_finish_after_their_client_has_left(
    transport: str, world: World, settings: Settings
) -> None:
    if transport.startswith("stdio"):
        pytest.skip("the server on stdin ends with its client")
    may_end = held_children(world)
    async with listening(settings, "--keep") as server:
        async with connected(over_http(server.url), latest=transport.endswith("protocol")) as client:
            calling = asyncio.create_task(client.call({"goal": "g", "background": True}))
            await child_started(world)
            await calling
        may_end.set()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while await states() != ["completed"]:  # noqa: ASYNC110 - the server is another process
                await asyncio.sleep(0.02)


async def test_the_end_of_a_session_over_http_stops_what_it_started(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with listening(settings) as server:
        async with connected(over_http(server.url)) as client:
            await client.call({"goal": "g", "background": True})
            await child_started(world)
        await quiet(world)


async def test_handles_in_the_background_are_unknown_to_other_clients(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with (
        listening(settings) as server,
        connected(over_http(server.url)) as one,
        connected(over_http(server.url)) as other,
    ):
        handle = handle_in(await one.call({"goal": "g", "background": True}))
        for tool in ("read_delegation", "stop_delegation", "message_delegation"):
            arguments = {"handle": handle} | ({"text": "Hello."} if tool == "message_delegation" else {})
            assert error_of(await other.call(arguments, tool=tool))["code"] == "unknown_handle"
        assert text_of(await other.call({}, tool="read_delegation")) == "no tasks have been delegated yet"
        assert handle in text_of(await one.call({}, tool="read_delegation"))
        await one.call({"handle": handle}, tool="stop_delegation")


# ----------------------------------------------------------------------------------------------------- progress


async def test_every_line_of_progress_says_what_all_tasks_do(world: World, settings: Settings) -> None:
    received: list[str] = []

    async def on_progress(done: float, of: float | None, message: str | None) -> None:
        received.append(message or "")

    def child(call: Call) -> Reply:
        slow = Reply(tool_calls=(("run_shell", {"command": "sleep 0.7"}),))
        return Reply("The answer is 42.") if call.tool_results else slow

    world.child = child
    settings = settings.model_copy(update={"commands": "allow"})
    async with session("stdio", settings) as client:
        await client.call({"tasks": [{"goal": "A"}, {"goal": "B"}]}, on_progress)
    assert all(re.match(r"[0-2] of 2 done(; task [12] |$)", line) for line in received), received
    assert any(re.search(r"task [12] runs `sleep 0.7`, \d+ s", line) for line in received), received
    assert received[-1] == "2 of 2 done"


async def test_progress_goes_on_while_nothing_happens(
    world: World, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from delegate import Delegator
    from delegate.hosts.mcp import tools

    monkeypatch.setattr(tools, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(tools, "_PAUSE_SECONDS", 0.01)
    seen: list[tuple[float, str]] = []
    enough = asyncio.Event()

    async def report(done: float, total: float, line: str) -> None:
        seen.append((done, line))
        if len(seen) == 12:
            enough.set()

    may_end = held_children(world)
    async with Delegator(settings) as delegator, asyncio.timeout(TIMEOUT_SECONDS):
        server_tools = tools.Tools(delegator, Clients(shared_records=False))
        request = tools.ToolRequest("delegate_task", {"goal": "g"}, None, {}, report, None)
        running = asyncio.create_task(server_tools.answer(request))
        await enough.wait()
        may_end.set()
        await running
    numbers = [done for done, _ in seen]
    assert numbers == sorted(set(numbers))
    assert len({line for _, line in seen}) < len(seen)  # it says the same again, with another number


# ------------------------------------------------------------------------------------------- tasks of the protocol


class Latest:
    """A client of the latest protocol without the SDK, which doesn't know the extension."""

    def __init__(self, http: aiohttp.ClientSession, server: Server, *extensions: str) -> None:
        self._http, self.server = http, server
        self.capabilities: JsonObject = {"extensions": {name: {} for name in extensions}}

    async def send(self, method: str, **params: Any) -> JsonObject:
        prefix, version = "io.modelcontextprotocol/", "2026-07-28"
        meta: JsonObject = {
            f"{prefix}protocolVersion": version,
            f"{prefix}clientCapabilities": self.capabilities,
            f"{prefix}clientInfo": {"name": "a test", "version": "1"},
        }
        headers = {"MCP-Protocol-Version": version, "Mcp-Method": method}
        headers |= {"Mcp-Name": params.get("name") or params["taskId"]} if method != "server/discover" else {}
        async with posted(self._http, self.server, method, {**params, "_meta": meta}, headers) as answer:
            found = re.search(r"\{.*\}", body := await answer.text())
            assert found, body
            return json.loads(found[0])


TASKS = "io.modelcontextprotocol/tasks"


@asynccontextmanager
async def latest(settings: Settings, *extensions: str) -> AsyncGenerator[Latest]:
    if not V2:
        pytest.skip("version 1 of the SDK has no such protocol")
    async with listening(settings) as server, http_client(cookies=True) as http:
        yield Latest(http, server, *extensions)


async def test_a_client_with_tasks_gets_one_and_polls_it(world: World, settings: Settings) -> None:
    may_end = held_children(world)
    async with latest(settings, TASKS) as client:
        about = (await client.send("server/discover"))["result"]
        assert TASKS in about["capabilities"]["extensions"]
        call = {"goal": "g", "acceptance_criteria": ["report: it gives the answer"]}
        made = (await client.send("tools/call", name="delegate_task", arguments=call))["result"]
        assert (made["resultType"], made["status"], made["ttlMs"]) == ("task", "working", None)
        state = (await client.send("tasks/get", taskId=made["taskId"]))["result"]
        assert (state["resultType"], state["status"]) == ("complete", "working")
        assert state["statusMessage"].startswith("0 of 1 done; task 1 ")
        assert (await client.send("tasks/update", taskId=made["taskId"], inputResponses={}))["result"]
        may_end.set()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while state["status"] == "working":
                await asyncio.sleep(0.02)
                state = (await client.send("tasks/get", taskId=made["taskId"]))["result"]
    assert state["status"] == "completed"
    assert text_of(state["result"]).startswith("1 of 1 PASS\n")
    assert state["result"]["isError"] is False


async def test_a_task_is_cancelled_with_its_children(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with latest(settings, TASKS) as client:
        made = (await client.send("tools/call", name="delegate_task", arguments={"goal": "g"}))["result"]
        await child_started(world)
        assert (await client.send("tasks/cancel", taskId=made["taskId"]))["result"]
        await quiet(world)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            state = (await client.send("tasks/get", taskId=made["taskId"]))["result"]
            while state["status"] == "working":
                await asyncio.sleep(0.02)
                state = (await client.send("tasks/get", taskId=made["taskId"]))["result"]
    assert state["status"] == "cancelled"


async def test_calls_that_end_at_once_are_no_tasks(world: World, settings: Settings) -> None:
    async with latest(settings, TASKS) as client:
        refused = (await client.send("tools/call", name="delegate_task", arguments={"goal": ""}))["result"]
        assert error_of(refused)["code"] == "empty"
        listed = (await client.send("tools/call", name="read_delegation", arguments={}))["result"]
        assert text_of(listed) == "no tasks have been delegated yet"


async def test_a_client_without_tasks_gets_none(world: World, settings: Settings) -> None:
    async with latest(settings) as client:
        answer = (await client.send("tools/call", name="delegate_task", arguments={"goal": "g"}))["result"]
        assert text_of(answer).startswith("no verdicts; task 1 had no criteria, completed")
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            assert (await client.send(method, taskId="x"))["error"]["code"] == -32021


async def test_a_task_is_unknown_to_other_clients(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with latest(settings, TASKS) as client, http_client(cookies=True) as http:
        other = Latest(http, client.server, TASKS)
        made = (await client.send("tools/call", name="delegate_task", arguments={"goal": "g"}))["result"]
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            assert (await other.send(method, taskId=made["taskId"]))["error"]["code"] == -32602
            assert (await client.send(method, taskId="x" * 10_000))["error"]["code"] == -32602
        assert (await client.send("tasks/get", taskId=made["taskId"]))["result"]["status"] == "working"


# ------------------------------------------------------------------------------------------------------------- runs


async def test_serial_calls_of_a_client_share_a_ledger(world: World) -> None:
    async with session("stdio", load_settings(model=WORKER, max_children=2)) as client:
        answers = [await client.call({"goal": "g"}) for _ in range(3)]
    assert [answer["isError"] for answer in answers] == [False, False, True]
    assert error_of(answers[2])["code"] == "budget_exceeded"


async def test_the_calls_of_one_turn_of_codex_share_a_ledger(world: World) -> None:
    def turn(id: str) -> JsonObject:
        return {CODEX_TURN: {"turn_id": id, "session_id": "s", "model": "gpt-6-luna"}}

    async with session("stdio", load_settings(max_children=1)) as client:
        answers = [await client.call({"goal": "g"}, meta=turn(id)) for id in ("a", "a", "b")]
        assert [answer["isError"] for answer in answers] == [False, True, False]
        too_strong = await client.call({"goal": "g", "tier": "deep"}, meta=turn("c"))
    assert "child's model: gpt-6-luna" in text_of(answers[0])
    assert error_of(too_strong)


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {CODEX_TURN: "{"},
        {CODEX_TURN: "[" * 100_000},
        {CODEX_TURN: 7},
        {CODEX_TURN: {"turn_id": 7, "model": ["x"]}},
        {CODEX_TURN: {"turn_id": "x" * 1_000, "model": ""}},
    ],
    ids=["none", "half", "deep", "number", "wrong types", "long"],
)
def test_what_is_no_turn_is_the_connection(meta: JsonObject) -> None:
    clients = Clients(shared_records=False)
    assert clients.parent("a", meta) == clients.parent("a", {})
    assert clients.parent("a", meta).run_id != clients.parent("b", meta).run_id


def test_a_turn_is_its_clients_own_whether_it_is_an_object_or_its_text() -> None:
    clients, turn = Clients(shared_records=True), {"turn_id": "1", "model": "gpt-6-luna"}
    one = clients.parent("a", {CODEX_TURN: turn})
    assert one == clients.parent("a", {CODEX_TURN: json.dumps(turn)})
    assert one.model == "gpt-6-luna"
    assert one.run_id != clients.parent("b", {CODEX_TURN: turn}).run_id
    named = clients.parent("a", {CODEX_TURN: turn, "delegate/run": "nightly"})
    assert named.run_id != one.run_id
    assert named.model == "gpt-6-luna"


def test_calls_of_a_client_that_names_no_turn_are_one_run_with_a_window() -> None:
    clients = Clients(shared_records=False)
    first = clients.parent("a", {})
    assert first == clients.parent("a", {}) != clients.parent("b", {})
    assert first.window_seconds == WINDOW_SECONDS
    assert clients.parent("a", {"delegate/run": "nightly"}).window_seconds is None


def test_a_run_name_that_is_none_is_refused() -> None:
    with pytest.raises(CallError):
        Clients(shared_records=False).parent("a", {"delegate/run": ""})

"""What is MCP's own: a client of the SDK at the real command, over stdin and stdout and over HTTP."""

import asyncio
import json
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import jsonschema
import pytest

pytest.importorskip("mcp.server.lowlevel")

from delegate import Delegator
from delegate.settings import Settings, load_settings
from delegate.types import JsonObject
from tests.hosts.drivers.mcp import TOKEN, V2, Session, connected, environment, over_http, over_stdio
from tests.hosts.world import JUDGE, WORKER, World
from tests.support.model_server import Call, Fault, Reply

PATIENCE = 20
"""Seconds until a test gives up."""
WAYS = ["stdio", "http", *(["stdio, latest protocol", "http, latest protocol"] if V2 else [])]
on_every_way = pytest.mark.parametrize("way", WAYS)
INITIALIZE: JsonObject = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "a test", "version": "1"},
}


@dataclass
class Server:
    """The command, listening."""

    url: str
    process: asyncio.subprocess.Process


@asynccontextmanager
async def listening(settings: Settings, *options: str, token: str = TOKEN) -> AsyncGenerator[Server]:
    command = [sys.executable, "-m", "delegate", "mcp", "--http", "--port", "0", *options]
    env = {**os.environ, **environment(settings), "DELEGATE_MCP_TOKEN": token}
    process = await asyncio.create_subprocess_exec(*command, env=env, stderr=asyncio.subprocess.PIPE)
    assert process.stderr
    said = (await asyncio.wait_for(process.stderr.readline(), PATIENCE)).decode()
    found = re.search(r"http://\S+", said)
    assert found, said
    try:
        yield Server(found[0], process)
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), PATIENCE)


@asynccontextmanager
async def session(way: str, settings: Settings) -> AsyncGenerator[Session]:
    latest = way.endswith("latest protocol")
    if way.startswith("stdio"):
        async with connected(over_stdio(settings), latest=latest) as client:
            yield client
    else:
        async with listening(settings) as server, connected(over_http(server.url), latest=latest) as client:
            yield client


@pytest.fixture
def settings() -> Settings:
    return load_settings(model=WORKER, judge_model=JUDGE)


@pytest.fixture
async def world(use: Callable[[World], None]) -> AsyncGenerator[World]:
    """Models that may be told anew what to answer."""
    world = World(())
    with world.server:
        use(world)
        yield world


async def at_work(world: World) -> None:
    await asyncio.wait_for(world.working.wait(), PATIENCE)


async def quiet(world: World) -> None:
    """Until the model server has no call any more."""
    async with asyncio.timeout(PATIENCE):
        while world.server.in_flight:  # noqa: ASYNC110 - the server has a loop of its own
            await asyncio.sleep(0.01)


async def states() -> list[str]:
    """Of all tasks on record."""
    async with Delegator() as delegator:
        return [str(task.status) for run in await delegator.runs() for task in await delegator.tasks(run.run_id)]


def text_of(answer: JsonObject) -> str:
    (block,) = answer["content"]
    return block["text"]


hang = Fault(kind="hang")


# ------------------------------------------------------------------------------------------------------ what it offers


async def test_lists_tools_with_what_they_may_do(world: World, settings: Settings) -> None:
    async with session("stdio", settings) as client:
        tools = {tool["name"]: tool for tool in await client.tools()}
    assert tools["delegate_task"]["annotations"]["destructiveHint"] is True
    assert tools["read_delegation"]["annotations"]["readOnlyHint"] is True
    assert "tasks" in tools["delegate_task"]["inputSchema"]["properties"]
    assert tools["think"]["annotations"]["readOnlyHint"] is True
    assert "outputSchema" not in tools["read_delegation"]


@on_every_way
async def test_reports_fit_the_schema_that_is_listed(way: str, world: World, settings: Settings) -> None:
    async with session(way, settings) as client:
        (schema,) = [tool["outputSchema"] for tool in await client.tools() if tool["name"] == "delegate_task"]
        done = await client.call({"goal": "g", "acceptance_criteria": ["the report gives the answer"]})
        refused = await client.call({"gaol": "g"})
    for answer in (done, refused):
        jsonschema.validate(answer["structuredContent"], schema)
    assert schema["$defs"]["TaskResult"]["properties"]["verdict"]
    assert done["structuredContent"]["results"][0]["verdict"]["verdict"] == "PASS"
    assert (done["isError"], refused["isError"]) == (False, True)
    assert refused["structuredContent"]["error"]["code"] == "unknown_field"


async def test_reads_a_report_that_was_cut(world: World) -> None:
    world.child = lambda call: Reply("long " * 300 + "end")
    async with session("stdio", load_settings(model=WORKER, result_chars=500)) as client:
        answer = await client.call({"goal": "g"})
        handle = answer["structuredContent"]["results"][0]["handle"]
        rest = await client.call({"handle": handle, "offset": 1_400}, tool="read_delegation")
    assert "long end" not in text_of(answer)
    assert "long end" in text_of(rest)


async def test_an_unknown_tool_is_named_with_those_there_are(world: World, settings: Settings) -> None:
    async with session("stdio", settings) as client:
        answer = await client.call({}, tool="delegate_tusk")
    assert answer["isError"]
    assert "delegate_task, read_delegation, think" in text_of(answer)


async def test_a_thought_comes_back_as_a_checklist(world: World, settings: Settings) -> None:
    async with session("stdio", settings) as client:
        answer = await client.call({"thought": "t", "acceptance_criteria": ["out.csv has 40 rows"]}, tool="think")
    assert "out.csv has 40 rows" in text_of(answer)
    assert world.server.calls == []


# ------------------------------------------------------------------------------------------------------------ progress


@on_every_way
async def test_progress_of_every_child_grows_to_its_end(way: str, world: World, settings: Settings) -> None:
    seen: list[tuple[float, float | None, str]] = []

    async def on_progress(done: float, of: float | None, message: str | None) -> None:
        seen.append((done, of, message or ""))

    async with session(way, settings) as client:
        await client.call({"tasks": [{"goal": "A"}, {"goal": "B"}]}, on_progress)
    numbers = [done for done, _, _ in seen]
    assert numbers == sorted(set(numbers))
    assert (numbers[-1], seen[-1][1]) == (2, 2)
    assert all(of is not None and done <= of for done, of, _ in seen)
    said = [message for _, _, message in seen]
    assert "task 0 ended: completed" in said
    assert "task 1 ended: completed" in said


async def test_who_does_not_ask_for_progress_gets_none(world: World, settings: Settings) -> None:
    async with piped(settings) as pipe:
        await pipe.ask("tools/call", name="delegate_task", arguments={"goal": "g"})
        assert list(await pipe.line()) == ["jsonrpc", "id", "result"]


# -------------------------------------------------------------------------------------------------------- how it stops


@on_every_way
async def test_a_cancelled_call_stops_its_children_and_nothing_else(way: str, world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with session(way, settings) as client:
        call = asyncio.create_task(client.call({"tasks": [{"goal": "A"}, {"goal": "B"}]}))
        await at_work(world)
        call.cancel()
        await asyncio.wait([call])
        await quiet(world)
        world.child = lambda call: Reply("The answer is 42.")
        later = await client.call({"goal": "C"})
    assert "The answer is 42." in text_of(later)
    assert sorted(await states()) == ["cancelled", "cancelled", "completed"]


async def test_a_client_hears_no_more_of_a_call_that_it_cancelled(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with piped(settings) as pipe:
        await pipe.ask("tools/call", name="delegate_task", arguments={"goal": "g"}, _meta={"progressToken": "p"})
        await at_work(world)
        await pipe.tell("notifications/cancelled", params={"requestId": 2})
        await quiet(world)
        await pipe.ask("tools/list")
        lines = [await pipe.line()]
        while lines[-1].get("id") != 3:
            lines.append(await pipe.line())
    progress = [line["params"]["message"] for line in lines if line.get("method") == "notifications/progress"]
    assert [message.split()[2] for message in progress] == ["started"]
    assert [line for line in lines if line.get("id") == 2 and "result" in line] == []


async def test_the_end_of_stdin_stops_children(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with piped(settings) as pipe:
        await pipe.ask("tools/call", name="delegate_task", arguments={"goal": "g"})
        await at_work(world)
        assert pipe.process.stdin
        pipe.process.stdin.close()
        assert await asyncio.wait_for(pipe.process.wait(), PATIENCE) == 0
        assert world.server.in_flight == 0
    assert await states() == ["cancelled"]


SLOW_TO_END = """
import asyncio, sys
from delegate import Delegator, Tool
from delegate.hosts import mcp

def say(text):
    print(text, file=sys.stderr, flush=True)

async def work(arguments):
    say("at work")
    try:
        await asyncio.Event().wait()
    finally:
        for _ in range(1_000):
            await asyncio.sleep(0)
        say("tidied up")

async def main():
    tool = Tool("work", "Works.", {"type": "object", "properties": {}}, work)
    async with Delegator(tools=[tool]) as delegator:
        await mcp.serve_stdio(mcp.server(delegator))
        say("served")

asyncio.run(main())
"""


async def test_a_server_ends_after_its_children(world: World, settings: Settings) -> None:
    world.child = lambda call: Reply(tool_calls=(("work", {}),))
    async with piped(settings, "-c", SLOW_TO_END) as pipe:
        await pipe.ask("tools/call", name="delegate_task", arguments={"goal": "g"})
        assert pipe.process.stdin
        assert pipe.process.stderr
        said = [await asyncio.wait_for(pipe.process.stderr.readline(), PATIENCE)]
        pipe.process.stdin.close()
        said += (await asyncio.wait_for(pipe.process.stderr.read(), PATIENCE)).splitlines(keepends=True)
    assert said == [b"at work\n", b"tidied up\n", b"served\n"]


async def test_a_lost_connection_stops_children(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with listening(settings) as server:
        async with web() as http, posted(http, server, "initialize", INITIALIZE) as first:
            of_session = {"Mcp-Session-Id": first.headers["Mcp-Session-Id"]}
            await first.read()
            call = {"name": "delegate_task", "arguments": {"goal": "g"}}
            async with posted(http, server, "tools/call", call, of_session):
                await at_work(world)
        await quiet(world)
        assert server.process.returncode is None
    assert await states() == ["cancelled"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_children_then_the_server(
    number: signal.Signals, world: World, settings: Settings
) -> None:
    world.child = lambda call: hang
    async with piped(settings) as pipe:
        await pipe.ask("tools/call", name="delegate_task", arguments={"goal": "g"})
        await at_work(world)
        pipe.process.send_signal(number)
        assert await asyncio.wait_for(pipe.process.wait(), PATIENCE) == 0
        assert world.server.in_flight == 0
    assert await states() == ["cancelled"]


async def test_over_http_a_signal_lets_the_last_answers_out(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with listening(settings) as server, connected(over_http(server.url)) as client:
        await client.tools()  # or the client asks for their schemas when the answer is there, and the server isn't
        call = asyncio.create_task(client.call({"goal": "g"}))
        await at_work(world)
        server.process.terminate()
        answer = await asyncio.wait_for(call, PATIENCE)
        assert answer["structuredContent"]["results"][0]["status"] == "cancelled"
        assert await asyncio.wait_for(server.process.wait(), PATIENCE) == 0


# ---------------------------------------------------------------------------------------------------- which run it is


@on_every_way
async def test_calls_that_overlap_share_a_ledger(way: str, world: World) -> None:
    refused = threading.Event()  # the model server has a loop of its own

    async def child(call: Call) -> Reply:
        assert await asyncio.to_thread(refused.wait, PATIENCE)
        return Reply("The answer is 42.")

    world.child = child
    async with session(way, load_settings(model=WORKER, max_children=1)) as client:
        first = asyncio.create_task(client.call({"goal": "A"}))
        await at_work(world)
        second = await client.call({"goal": "B"})
        refused.set()
        assert not (await first)["isError"]
    assert second["structuredContent"]["error"]["code"] == "budget_exceeded"


async def test_sessions_have_ledgers_of_their_own(world: World) -> None:
    both = asyncio.Barrier(2)

    async def child(call: Call) -> Reply:
        await asyncio.wait_for(both.wait(), PATIENCE)
        return Reply("The answer is 42.")

    world.child = child
    async with (
        listening(load_settings(model=WORKER, max_children=1)) as server,
        connected(over_http(server.url)) as one,
        connected(over_http(server.url)) as other,
    ):
        answers = await asyncio.gather(one.call({"goal": "A"}), other.call({"goal": "B"}))
    assert [answer["isError"] for answer in answers] == [False, False]


# -------------------------------------------------------------------------------------------------------- who gets in


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer another-token-than-ours"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Host": "rebound.example"}, 421),
        ({"Origin": "http://rebound.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 200),
    ],
    ids=str,
)
async def test_lets_in_who_has_the_token_and_comes_from_here(headers: dict[str, str], status: int) -> None:
    async with (
        listening(load_settings()) as server,
        web() as http,
        posted(http, server, "initialize", INITIALIZE, headers) as answer,
    ):
        assert answer.status == status


async def test_only_the_token_opens_other_paths() -> None:
    async with listening(load_settings()) as server, web() as http:
        for given, status in (({}, 404), ({"Authorization": ""}, 401)):
            async with http.get(server.url.replace("/mcp", "/x"), headers=given) as answer:
                assert answer.status == status


async def test_makes_a_token_where_none_is_given() -> None:
    async with listening(load_settings(), token="") as server, web() as http:
        assert server.process.stderr
        said = (await asyncio.wait_for(server.process.stderr.readline(), PATIENCE)).decode()
        found = re.search(r"Bearer (\S{40,})`", said)
        assert found, said
        for token, status in ((TOKEN, 401), (found[1], 200)):
            headers = {"Authorization": f"Bearer {token}"}
            async with posted(http, server, "initialize", INITIALIZE, headers) as answer:
                assert answer.status == status


async def test_other_machines_get_in_by_the_names_that_were_given() -> None:
    options = ("--host", "0.0.0.0", "--reachable-as", "box.example")
    async with listening(load_settings(), *options) as server, web() as http:
        here = Server(server.url.replace("0.0.0.0", "127.0.0.1"), server.process)
        for host, status in (("box.example", 200), ("box.example:81", 200), ("fox.example", 421)):
            async with posted(http, here, "initialize", INITIALIZE, {"Host": host}) as answer:
                assert answer.status == status


async def test_a_port_in_use_is_one_line(world: World) -> None:
    taken = world.server.openai_url.split(":")[2].split("/")[0]
    command = [sys.executable, "-m", "delegate", "mcp", "--http", "--port", taken]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, said = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 2
    assert said.decode() == f"delegate: can't listen on 127.0.0.1, port {taken}: Address already in use\n"


# ------------------------------------------------------------------------------------------------- whose stdout it is

NOISY = """
import asyncio, subprocess
from delegate import Delegator, Tool
from delegate.hosts import mcp

async def noise(arguments):
    print("noise of Python")
    subprocess.run("echo noise of a process; cat", shell=True)
    return "made"

tool = Tool("make_noise", "Makes noise.", {"type": "object", "properties": {}}, noise)
asyncio.run(mcp.serve_stdio(mcp.server(Delegator(tools=[tool]))))
"""


async def test_stdout_and_stdin_are_the_protocols_alone(world: World, settings: Settings) -> None:
    def child(call: Call) -> Reply:
        return Reply("I made noise.") if call.tool_results else Reply(tool_calls=(("make_noise", {}),))

    world.child = child
    async with piped(settings, "-c", NOISY) as pipe:
        await pipe.ask("tools/call", name="delegate_task", arguments={"goal": "g"})
        answer = await pipe.line()
        assert answer["result"]["structuredContent"]["results"][0]["receipts"]["ok"] == 1
        assert pipe.process.stdin
        assert pipe.process.stdout
        pipe.process.stdin.close()
        assert await asyncio.wait_for(pipe.process.stdout.read(), PATIENCE) == b""


# ------------------------------------------------------------------------------------------------------- by hand: wires


class Pipe:
    """A client of few words, which sees each line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._asked = 0

    async def ask(self, method: str, **params: Any) -> None:
        self._asked += 1
        await self.tell(method, id=self._asked, params=params)

    async def tell(self, method: str, **fields: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **fields}).encode() + b"\n")
        await self.process.stdin.drain()

    async def line(self) -> JsonObject:
        assert self.process.stdout
        return json.loads(await asyncio.wait_for(self.process.stdout.readline(), PATIENCE))


@asynccontextmanager
async def piped(settings: Settings, *arguments: str) -> AsyncGenerator[Pipe]:
    """The command, or another program, after the handshake."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *(arguments or ("-m", "delegate", "mcp"))),
        env={**os.environ, **environment(settings)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1_000_000,
    )
    pipe = Pipe(process)
    try:
        await pipe.ask("initialize", **INITIALIZE)
        assert "result" in await pipe.line()
        await pipe.tell("notifications/initialized")
        yield pipe
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), PATIENCE)


def web() -> aiohttp.ClientSession:
    accepted = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {TOKEN}"}
    return aiohttp.ClientSession(headers=accepted, timeout=aiohttp.ClientTimeout(total=PATIENCE))


def posted(
    http: aiohttp.ClientSession, server: Server, method: str, params: JsonObject, headers: dict[str, str] | None = None
) -> Any:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return http.post(server.url, json=message, headers=headers)

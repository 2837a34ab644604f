"""Features that only MCP has: the real command with a client of the SDK, on stdin and stdout and over HTTP."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import jsonschema
import pytest
from yarl import URL

pytest.importorskip("mcp.server.lowlevel")

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.requests import Request

from delegate import Delegator
from delegate.budget.runs import new_run_id
from delegate.hosts.host_tool import make_delegate_tool, make_message_tool, make_read_tool, make_stop_tool
from delegate.hosts.mcp import definitions
from delegate.hosts.mcp.clients import Clients
from delegate.policy.settings import Settings, load_settings
from delegate.types import JsonObject
from tests.hosts.drivers.mcp import TOKEN, V2, Session, connected, environment, over_http, over_stdio
from tests.hosts.world import WORKER, World
from tests.support.model_server import Call, Fault, Reply

TIMEOUT_SECONDS = 20
"""Seconds after which a test fails."""
TRANSPORTS = ["stdio", "http", *(["stdio, latest protocol", "http, latest protocol"] if V2 else [])]
on_every_transport = pytest.mark.parametrize("transport", TRANSPORTS)
LATEST = [False, *([True] if V2 else [])]
on_every_protocol = pytest.mark.parametrize("latest", LATEST, ids=lambda latest: "latest" if latest else "sessions")
INITIALIZE: JsonObject = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "a test", "version": "1"},
}


@dataclass
class Server:
    """A running server and its address."""

    url: str
    process: asyncio.subprocess.Process


@asynccontextmanager
async def listening(
    settings: Settings, *options: str, token: str = TOKEN, program: tuple[str, ...] = ()
) -> AsyncGenerator[Server]:
    """The command, or another program, which says its address in the first line of stderr."""
    command = [sys.executable, *(program or ("-m", "delegate", "mcp", "--http", "--port", "0", *options))]
    env = {**os.environ, **environment(settings), "DELEGATE_MCP_TOKEN": token}
    process = await asyncio.create_subprocess_exec(*command, env=env, stderr=asyncio.subprocess.PIPE)
    assert process.stderr
    line = (await asyncio.wait_for(process.stderr.readline(), TIMEOUT_SECONDS)).decode()
    found = re.search(r"http://\S+", line)
    assert found, line
    try:
        yield Server(found[0], process)
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)


@asynccontextmanager
async def session(transport: str, settings: Settings, *options: str) -> AsyncGenerator[Session]:
    latest = transport.endswith("latest protocol")
    if transport.startswith("stdio"):
        async with connected(over_stdio(settings, *options), latest=latest) as client:
            yield client
    else:
        async with listening(settings, *options) as server, connected(over_http(server.url), latest=latest) as client:
            yield client


async def child_started(world: World) -> None:
    await asyncio.wait_for(world.working.wait(), TIMEOUT_SECONDS)


async def quiet(world: World) -> None:
    """Wait until the model server has no open call."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while world.server.in_flight:  # noqa: ASYNC110 - the model server runs in another thread
            await asyncio.sleep(0.01)


async def states() -> list[str]:
    """The status of each recorded task."""
    async with Delegator() as delegator:
        return [
            str(task.status)
            for run in await delegator.records.runs()
            for task in await delegator.records.tasks(run.run_id)
        ]


def text_of(answer: JsonObject) -> str:
    (block,) = answer["content"]
    return block["text"]


def error_of(answer: JsonObject) -> JsonObject:
    """The error of a refused call."""
    assert answer["isError"]
    return json.loads(text_of(answer))["error"]


def handle_in(answer: JsonObject) -> str:
    found = re.search(r"handle:? (\w+-\d+)", text_of(answer))
    assert found, answer
    return found[1]


hang = Fault(kind="hang")


# ------------------------------------------------------------------------------------- clients that send raw messages


class Pipe:
    """A client that sends raw messages and reads each line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._requests = 0

    async def request(self, method: str, **params: Any) -> None:
        self._requests += 1
        await self.notify(method, id=self._requests, params=params)

    async def notify(self, method: str, **fields: Any) -> None:
        await self.send(json.dumps({"jsonrpc": "2.0", "method": method, **fields}).encode() + b"\n")

    async def send(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def line(self) -> JsonObject:
        assert self.process.stdout
        return json.loads(await asyncio.wait_for(self.process.stdout.readline(), TIMEOUT_SECONDS))


@asynccontextmanager
async def piped(settings: Settings, *arguments: str) -> AsyncGenerator[Pipe]:
    """A client of the command, or of another program, after the handshake."""
    async with connecting(settings, *arguments) as pipe:
        await pipe.request("initialize", **INITIALIZE)
        assert "result" in await pipe.line()
        await pipe.notify("notifications/initialized")
        yield pipe


@asynccontextmanager
async def connecting(settings: Settings, *arguments: str, **variables: str) -> AsyncGenerator[Pipe]:
    """A client of the command, or of another program, that has sent nothing yet."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *(arguments or ("-m", "delegate", "mcp"))),
        env={**os.environ, **environment(settings), **variables},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1_000_000,
        start_new_session=True,
    )
    try:
        yield Pipe(process)
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)


# --------------------------------------------------------------------------------------------------- tools and schemas


async def test_tools_are_listed_with_annotations(world: World, settings: Settings) -> None:
    async with session("stdio", settings) as client:
        tools = {tool["name"]: tool for tool in await client.tools()}
    assert tools["delegate_task"]["annotations"]["destructiveHint"] is True
    assert tools["read_delegation"]["annotations"]["readOnlyHint"] is True
    assert "tasks" in tools["delegate_task"]["inputSchema"]["properties"]
    assert tools["think"]["annotations"]["readOnlyHint"] is True
    assert "outputSchema" not in tools["read_delegation"]


@on_every_transport
async def test_structured_results_match_the_listed_schema(transport: str, world: World, settings: Settings) -> None:
    async with session(transport, settings, "--structured") as client:
        (schema,) = [tool["outputSchema"] for tool in await client.tools() if tool["name"] == "delegate_task"]
        done = await client.call({"goal": "g", "acceptance_criteria": ["report: it gives the answer"]})
        refused = await client.call({"gaol": "g"})
        running = await client.call({"goal": "g", "background": True})
    for answer in (done, refused, running):
        jsonschema.validate(answer["structuredContent"], schema)
    (result,) = done["structuredContent"]["results"]
    assert (result["verdict"], result["code"], result["handle"]) == ("PASS", "met", handle_in(done))
    assert refused["structuredContent"]["error"]["code"] == "unknown_field"
    assert running["structuredContent"]["results"][0]["status"] == "running"


@on_every_transport
async def test_by_default_a_result_is_its_text_alone(transport: str, world: World, settings: Settings) -> None:
    async with session(transport, settings) as client:
        assert not any("outputSchema" in tool for tool in await client.tools())
        done = await client.call({"goal": "g", "acceptance_criteria": ["report: it gives the answer"]})
        refused = await client.call({"gaol": "g"})
    assert set(done) | set(refused) <= {"content", "isError", "resultType", "_meta"}
    first, *_, last = text_of(done).splitlines()
    assert first == last == "1 of 1 PASS"
    assert error_of(refused)["code"] == "unknown_field"


@pytest.mark.parametrize(
    "settings",
    [
        load_settings(),
        load_settings(tool_name="hand_over", max_steps=7, timeout_seconds=90, max_cost_usd=1.5, max_children=5),
        load_settings(max_children=0, max_depth=3),
    ],
    ids=["defaults", "limits", "no tasks left"],
)
def test_the_settings_alone_say_what_a_server_lists(settings: Settings) -> None:
    delegator = Delegator(settings)
    made = (partial(make_delegate_tool, background=True), make_read_tool, make_stop_tool, make_message_tool)
    host_tools = [make(delegator) for make in made]
    for listed, host_tool in zip(definitions.listed(settings), host_tools, strict=False):
        assert listed["name"] == host_tool.name
        # What is left of a run changes, and clients read the list once.
        assert listed["description"] == re.sub(r"; [^;]* left\.", ".", host_tool.description)
        assert listed["inputSchema"] == host_tool.parameters


async def test_a_parameter_of_the_clients_own_is_ignored(world: World, settings: Settings) -> None:
    async with connected(over_stdio(settings)) as session:
        answer = await session.call({"goal": "Find the answer.", "wait_for_previous": False})
    assert not answer["isError"]
    assert len(world.of("child")) == 1


async def test_the_error_about_an_unknown_tool_names_the_tools(world: World, settings: Settings) -> None:
    async with session("stdio", settings) as client:
        answer = await client.call({}, tool="delegate_tusk")
    assert answer["isError"]
    assert "delegate_task, read_delegation, stop_delegation, message_delegation, think" in text_of(answer)


# ----------------------------------------------------------------------------------------------- the user's project


def in_a_repository(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.txt").write_text("a\n")
    identity = ("-c", "user.name=u", "-c", "user.email=u@example.com")
    for args in (("init", "--quiet"), ("add", "."), (*identity, "commit", "--quiet", "-m", "first")):
        subprocess.run(["git", *args], cwd=folder, check=True)
    (folder / "uncommitted.txt").write_text("b\n")
    return folder


LISTING_CHILD = ("--runner", "sh -c 'date > made.txt; ls'")
"""A program that is the child: it makes a file and lists all."""


@on_every_protocol
async def test_children_work_in_the_project_that_a_root_names(latest: bool, tmp_path: Path) -> None:
    project = in_a_repository(tmp_path / "my project")
    roots = [f"file://{quote(str(project))}"]
    async with connected(over_stdio(None, *LISTING_CHILD), latest=latest, roots=roots) as client:
        (tool,) = [tool for tool in await client.tools() if tool["name"] == "delegate_task"]
        assert "git worktree or copy of the client's project" in tool["description"]
        answer = text_of(await client.call({"goal": "g"}))
    assert "a.txt\nmade.txt\nuncommitted.txt" in answer
    assert "- to take the changes over: " in answer
    assert " take-over " in answer
    assert sorted(path.name for path in project.iterdir()) == [".git", "a.txt", "uncommitted.txt"]


@pytest.mark.slow
async def test_from_a_subfolder_of_a_large_repository_the_server_ends_at_once_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(30_000):
        folder = tmp_path / "large" / f"p{n // 300}"
        if n % 300 == 0:
            folder.mkdir(parents=True)
        (folder / f"{n}.txt").write_text(f"{n}\n")
    identity = ("-c", "user.name=u", "-c", "user.email=u@example.com")
    for args in (("init", "--quiet"), ("add", "."), (*identity, "commit", "--quiet", "-m", "first")):
        subprocess.run(["git", *args], cwd=tmp_path / "large", check=True)
    monkeypatch.chdir(tmp_path / "large" / "p7")
    begun = tmp_path / "begun"
    runner = f"sh -c 'echo x > made.txt; touch {begun}; sleep 600'"
    async with piped(load_settings(), "-m", "delegate", "mcp", "--runner", runner) as pipe:
        await pipe.request("tools/call", name="delegate_task", arguments={"goal": "g"})
        async with asyncio.timeout(300):
            while not begun.exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.05)
        assert pipe.process.stdin
        pipe.process.stdin.close()
        started = time.monotonic()
        await asyncio.wait_for(pipe.process.wait(), 60)
        assert time.monotonic() - started < 2
    listed = subprocess.run(
        ["git", "worktree", "list"], cwd=tmp_path / "large", capture_output=True, text=True, check=True
    )
    assert len(listed.stdout.splitlines()) == 1
    async with Delegator() as delegator:
        (run,) = await delegator.records.runs()
        record = await delegator.records.read(f"{run.run_id}-0")
    assert record
    assert (Path(record["workspace"]) / "p7" / "made.txt").read_text() == "x\n"
    assert record["result"]["take_over"]


async def test_the_operator_may_keep_children_out_of_the_project(tmp_path: Path) -> None:
    project = in_a_repository(tmp_path / "project")
    options = (*LISTING_CHILD, "--workspace", "fresh")
    async with connected(over_stdio(None, *options), roots=[project.as_uri()]) as client:
        (tool,) = [tool for tool in await client.tools() if tool["name"] == "delegate_task"]
        assert "works in an empty folder" in tool["description"]
        answer = text_of(await client.call({"goal": "g"}))
    assert "a.txt" not in answer
    assert "made.txt" in answer


async def test_the_operator_may_share_a_folder(tmp_path: Path) -> None:
    project = in_a_repository(tmp_path / "project")
    options = (*LISTING_CHILD, "--workspace", f"shared:{project}")
    async with connected(over_stdio(None, *options), roots=["file:///"]) as client:
        (tool,) = [tool for tool in await client.tools() if tool["name"] == "delegate_task"]
        assert f"work in {project} itself" in tool["description"]
        await client.call({"goal": "g"})
    assert (project / "made.txt").exists()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--workspace", "home"), "is not a workspace"),
        (("--workspace", "shared:/no/such"), "is not a folder"),
        (("--workspace", "copy", "--http"), "--workspace"),
        (("--runner", "no-such-program -p"), "no-such-program"),
        (("--runner-output", "json"), "--runner"),
    ],
    ids=str,
)
async def test_options_that_make_no_sense_are_an_error_of_the_command(options: tuple[str, ...], word: str) -> None:
    async with connecting(load_settings(), "-m", "delegate", "mcp", *options) as pipe:
        assert pipe.process.stdin
        pipe.process.stdin.close()
        stdout, stderr = await asyncio.wait_for(pipe.process.communicate(), TIMEOUT_SECONDS)
    assert (pipe.process.returncode, stdout) == (2, b"")
    assert word in stderr.decode()


# ------------------------------------------------------------------------------------------------------------ progress


@on_every_transport
async def test_progress_increases_until_every_child_has_ended(transport: str, world: World, settings: Settings) -> None:
    received: list[tuple[float, float | None, str]] = []

    async def on_progress(done: float, of: float | None, message: str | None) -> None:
        received.append((done, of, message or ""))

    async with session(transport, settings) as client:
        await client.call({"tasks": [{"goal": "A"}, {"goal": "B"}]}, on_progress)
    numbers = [done for done, _, _ in received]
    assert numbers == sorted(set(numbers))
    assert (numbers[-1], received[-1][1]) == (2, 2)
    assert all(of is not None and done <= of for done, of, _ in received)
    assert received[-1][2] == "2 of 2 done"


async def test_a_client_that_requests_no_progress_gets_none(world: World, settings: Settings) -> None:
    async with piped(settings) as pipe:
        await pipe.request("tools/call", name="delegate_task", arguments={"goal": "g"})
        assert list(await pipe.line()) == ["jsonrpc", "id", "result"]


# ------------------------------------------------------------------------------------------------------- interruptions


@on_every_transport
async def test_a_cancelled_call_stops_only_its_own_children(transport: str, world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with session(transport, settings) as client:
        call = asyncio.create_task(client.call({"tasks": [{"goal": "A"}, {"goal": "B"}]}))
        await child_started(world)
        call.cancel()
        await asyncio.wait([call])
        await quiet(world)
        world.child = lambda call: Reply("The answer is 42.")
        later = await client.call({"goal": "C"})
    assert "The answer is 42." in text_of(later)
    assert sorted(await states()) == ["cancelled", "cancelled", "completed"]


async def test_a_client_gets_no_messages_of_a_call_that_it_cancelled(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with piped(settings) as pipe:
        await pipe.request("tools/call", name="delegate_task", arguments={"goal": "g"}, _meta={"progressToken": "p"})
        await child_started(world)
        await pipe.notify("notifications/cancelled", params={"requestId": 2})
        await quiet(world)
        await pipe.request("tools/list")
        lines = [await pipe.line()]
        while lines[-1].get("id") != 3:
            lines.append(await pipe.line())
    progress = [line["params"]["message"] for line in lines if line.get("method") == "notifications/progress"]
    assert progress
    assert all(message.startswith("0 of 1 done; ") for message in progress)
    assert [line for line in lines if line.get("id") == 2 and "result" in line] == []


async def test_the_end_of_stdin_stops_children_and_is_reported(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with piped(settings) as pipe:
        await pipe.request("tools/call", name="delegate_task", arguments={"goal": "g"})
        await child_started(world)
        assert pipe.process.stdin
        pipe.process.stdin.close()
        _, stderr = await asyncio.wait_for(pipe.process.communicate(), TIMEOUT_SECONDS)
        assert stderr == b"delegate: the client closed stdin; 1 unanswered call was stopped\n"
        assert pipe.process.returncode == 0
        assert world.server.in_flight == 0
    assert await states() == ["cancelled"]


async def test_an_end_of_stdin_at_which_nothing_is_lost_is_silent(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with piped(settings) as pipe:
        await pipe.request("tools/call", name="think", arguments={"thought": "t"})
        assert "result" in await pipe.line()
        await pipe.request("tools/call", name="delegate_task", arguments={"goal": "g"})
        await child_started(world)
        await pipe.notify("notifications/cancelled")
        await pipe.notify("notifications/cancelled", params={"requestId": [3]})
        await pipe.notify("notifications/cancelled", params={"requestId": 3})
        await quiet(world)
        assert pipe.process.stdin
        pipe.process.stdin.close()
        _, stderr = await asyncio.wait_for(pipe.process.communicate(), TIMEOUT_SECONDS)
    assert b"stopped" not in stderr
    assert pipe.process.returncode == 0


async def test_a_client_that_reads_no_more_ends_the_server(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with piped(settings) as pipe:
        await pipe.request("tools/call", name="delegate_task", arguments={"goal": "g"})
        await child_started(world)
        process: Any = pipe.process
        process._transport.get_pipe_transport(1).close()
        await pipe.request("ping")
        assert pipe.process.stderr
        stderr = await asyncio.wait_for(pipe.process.stderr.read(), TIMEOUT_SECONDS)
        assert stderr == b"delegate: the client has disconnected; 1 unanswered call was stopped\n"
        assert await asyncio.wait_for(pipe.process.wait(), TIMEOUT_SECONDS) == 0
        assert world.server.in_flight == 0
    assert await states() == ["cancelled"]


SLOW_TO_END = """
import asyncio, sys
from delegate import Delegator, Tool
from delegate.hosts import mcp

def log(text):
    print(text, file=sys.stderr, flush=True)

async def work(arguments):
    log("started")
    try:
        await asyncio.Event().wait()
    finally:
        for _ in range(1_000):
            await asyncio.sleep(0)
        log("ended")

async def main():
    tool = Tool("work", "Work.", {"type": "object", "properties": {}}, work)
    async with Delegator(tools=[tool]) as delegator:
        await mcp.serve_stdio(mcp.server(delegator))
        log("served")

asyncio.run(main())
"""


async def test_a_server_ends_after_its_children(world: World, settings: Settings) -> None:
    world.child = lambda call: Reply(tool_calls=(("work", {}),))
    async with piped(settings, "-c", SLOW_TO_END) as pipe:
        await pipe.request("tools/call", name="delegate_task", arguments={"goal": "g"})
        assert pipe.process.stdin
        assert pipe.process.stderr
        lines = [await asyncio.wait_for(pipe.process.stderr.readline(), TIMEOUT_SECONDS)]
        pipe.process.stdin.close()
        lines += (await asyncio.wait_for(pipe.process.stderr.read(), TIMEOUT_SECONDS)).splitlines(keepends=True)
    assert [line.split()[-1] for line in lines] == [b"started", b"ended", b"stopped", b"served"]


async def test_a_lost_connection_stops_children(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with listening(settings) as server:
        async with http_client() as http, posted(http, server, "initialize", INITIALIZE) as first:
            session_header = {"Mcp-Session-Id": first.headers["Mcp-Session-Id"]}
            await first.read()
            call = {"name": "delegate_task", "arguments": {"goal": "g"}}
            async with posted(http, server, "tools/call", call, session_header):
                await child_started(world)
        await quiet(world)
        assert server.process.returncode is None
    assert await states() == ["cancelled"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_children_then_the_server(
    number: signal.Signals, world: World, settings: Settings
) -> None:
    world.child = lambda call: hang
    async with piped(settings) as pipe:
        await pipe.request("tools/call", name="delegate_task", arguments={"goal": "g"})
        await child_started(world)
        pipe.process.send_signal(number)
        assert await asyncio.wait_for(pipe.process.wait(), TIMEOUT_SECONDS) == 0
        assert world.server.in_flight == 0
    assert await states() == ["cancelled"]


async def test_a_signal_over_http_lets_open_calls_return_their_results(world: World, settings: Settings) -> None:
    world.child = lambda call: hang
    async with listening(settings) as server, connected(over_http(server.url)) as client:
        await client.tools()  # otherwise the client requests their schemas after the answer, when the server has ended
        call = asyncio.create_task(client.call({"goal": "g"}))
        await child_started(world)
        server.process.terminate()
        answer = await asyncio.wait_for(call, TIMEOUT_SECONDS)
        assert "about task 1 (cancelled):" in text_of(answer)
        assert await asyncio.wait_for(server.process.wait(), TIMEOUT_SECONDS) == 0


SLOW_OVER_HTTP = """
import asyncio, os, signal, sys
from delegate import Cancellation, Delegator, Tool
from delegate.hosts import mcp

async def work(arguments):
    print("started", file=sys.stderr, flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(1)  # longer than the server lets event streams go on after its end

async def main():
    tool = Tool("work", "Work.", {"type": "object", "properties": {}}, work)
    cancellation, listener = Cancellation(), mcp.listen("127.0.0.1", 0)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, cancellation.cancel)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}{mcp.PATH}", file=sys.stderr, flush=True)
    async with Delegator(tools=[tool]) as delegator:
        token = os.environ["DELEGATE_MCP_TOKEN"]
        await mcp.serve_http(mcp.server(delegator), listener, token=token, cancellation=cancellation)

asyncio.run(main())
"""


@on_every_protocol
async def test_a_signal_over_http_cuts_no_answer_of_a_call_that_takes_time_to_end(
    latest: bool, world: World, settings: Settings
) -> None:
    world.child = lambda call: Reply(tool_calls=(("work", {}),))
    async with (
        listening(settings, program=("-c", SLOW_OVER_HTTP)) as server,
        connected(over_http(server.url), latest=latest) as client,
    ):
        await client.tools()
        call = asyncio.create_task(client.call({"goal": "g"}))
        assert server.process.stderr
        assert await asyncio.wait_for(server.process.stderr.readline(), TIMEOUT_SECONDS) == b"started\n"
        server.process.terminate()
        answer = await asyncio.wait_for(call, TIMEOUT_SECONDS)
        assert "cancelled" in text_of(answer)
        assert await asyncio.wait_for(server.process.wait(), TIMEOUT_SECONDS) == 0


IMPATIENT = """
import asyncio, os, sys
from delegate import Delegator
from delegate._util import slow_clients
from delegate.hosts import mcp

slow_clients.REQUEST_SECONDS, slow_clients.MAX_WAITING = float(sys.argv[1]), int(sys.argv[2])

async def main():
    listener = mcp.listen("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}{mcp.PATH}", file=sys.stderr, flush=True)
    async with Delegator() as delegator:
        await mcp.serve_http(mcp.server(delegator), listener, token=os.environ["DELEGATE_MCP_TOKEN"])

asyncio.run(main())
"""


async def sent_slowly(url: URL, beginning: bytes, stack: AsyncExitStack) -> asyncio.StreamReader:
    """A connection on which only the beginning of a request is sent."""
    reader, writer = await asyncio.open_connection(url.host, url.port)
    stack.callback(writer.close)
    writer.write(beginning)
    return reader


async def dropped(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionResetError):
        await asyncio.wait_for(reader.read(), TIMEOUT_SECONDS)


async def test_clients_that_send_no_whole_request_over_http_are_dropped(world: World, settings: Settings) -> None:
    """A call that takes longer than a request may goes on."""
    may_end = threading.Event()  # the model server runs in another thread

    async def child(call: Call) -> Reply:
        assert await asyncio.to_thread(may_end.wait, TIMEOUT_SECONDS)
        return Reply("The answer is 42.")

    world.child = child
    start = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
    async with (
        listening(settings, program=("-c", IMPATIENT, "0.5", "100")) as server,
        connected(over_http(server.url)) as client,
        AsyncExitStack() as stack,
    ):
        await client.tools()
        call = asyncio.create_task(client.call({"goal": "g"}))
        await child_started(world)
        for rest in (b"", start, start + b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{"):
            await dropped(await sent_slowly(URL(server.url), rest, stack))
        may_end.set()
        assert not (await asyncio.wait_for(call, TIMEOUT_SECONDS))["isError"]


async def test_only_so_many_clients_wait_over_http(settings: Settings) -> None:
    async with listening(settings, program=("-c", IMPATIENT, "60", "3")) as server, AsyncExitStack() as stack:
        readers = [await sent_slowly(URL(server.url), b"POST", stack) for _ in range(4)]
        reading = [asyncio.create_task(dropped(reader)) for reader in readers]
        done, waiting = await asyncio.wait(reading, timeout=TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(waiting)) == (1, 3)
        for task in waiting:
            task.cancel()


# ------------------------------------------------------------------------------------------------------------- ledgers


@on_every_transport
async def test_overlapping_calls_share_a_ledger(transport: str, world: World) -> None:
    refused = threading.Event()  # the model server runs in another thread

    async def child(call: Call) -> Reply:
        assert await asyncio.to_thread(refused.wait, TIMEOUT_SECONDS)
        return Reply("The answer is 42.")

    world.child = child
    async with session(transport, load_settings(model=WORKER, max_children=1)) as client:
        first = asyncio.create_task(client.call({"goal": "A"}))
        await child_started(world)
        second = await client.call({"goal": "B"})
        refused.set()
        assert not (await first)["isError"]
    assert error_of(second)["code"] == "budget_exceeded"


@on_every_protocol
async def test_each_client_has_its_own_ledger(latest: bool, world: World) -> None:
    both = asyncio.Barrier(2)

    async def child(call: Call) -> Reply:
        await asyncio.wait_for(both.wait(), TIMEOUT_SECONDS)
        return Reply("The answer is 42.")

    world.child = child
    async with two_clients(load_settings(model=WORKER, max_children=1), latest=latest) as (one, other):
        answers = await asyncio.gather(one.call({"goal": "A"}), other.call({"goal": "B"}))
    assert [answer["isError"] for answer in answers] == [False, False]


# ------------------------------------------------------------------------------------------ several clients over HTTP


@asynccontextmanager
async def two_clients(settings: Settings, *options: str, latest: bool) -> AsyncGenerator[tuple[Session, Session]]:
    """Two clients with the same token at one server."""
    async with (
        listening(settings, *options) as server,
        connected(over_http(server.url), latest=latest) as one,
        connected(over_http(server.url), latest=latest) as other,
    ):
        yield one, other


async def handle_of(client: Session) -> str:
    return handle_in(await client.call({"goal": "g"}))


async def read(client: Session, handle: str) -> str:
    return text_of(await client.call({"handle": handle}, tool="read_delegation"))


@on_every_protocol
async def test_a_handle_is_unknown_to_other_clients(latest: bool, world: World, settings: Settings) -> None:
    async with two_clients(settings, latest=latest) as (one, other):
        handle, of_other = await handle_of(one), await handle_of(other)
        assert "The answer is 42." in await read(one, handle)
        assert "The answer is 42." in await read(other, of_other)
        unknown = await read(other, "0" * 20 + "-0")
        assert json.loads(unknown)["error"]["code"] == "unknown_handle"
        for guess in (handle, f" {handle} ", handle.rpartition("-")[0], f"{of_other}/../{handle}"):
            assert await read(other, guess) == unknown
        past_the_end = await other.call({"handle": handle, "offset": 10**6}, tool="read_delegation")
        assert text_of(past_the_end) == unknown


@on_every_protocol
async def test_with_shared_records_a_client_reads_handles_of_others(
    latest: bool, world: World, settings: Settings
) -> None:
    async with Delegator(settings, client=None) as delegator:
        before = (await delegator.call({"goal": "g"})).results[0].handle
    async with two_clients(settings, "--shared-records", latest=latest) as (one, other):
        assert "The answer is 42." in await read(other, await handle_of(one))
        assert "The answer is 42." in await read(other, str(before))


async def test_the_starter_of_a_server_on_stdin_reads_earlier_reports(world: World, settings: Settings) -> None:
    async with session("stdio", settings) as client:
        handle = await handle_of(client)
    async with session("stdio", settings) as later:
        assert "The answer is 42." in await read(later, handle)


async def test_a_client_over_http_reads_no_reports_of_other_programs(world: World, settings: Settings) -> None:
    async with session("stdio", settings) as client:
        handle = await handle_of(client)
    async with session("http", settings) as remote:
        assert json.loads(await read(remote, handle))["error"]["code"] == "unknown_handle"


def test_handles_have_80_random_bits() -> None:
    run_ids = {new_run_id() for _ in range(1_000)}
    assert len(run_ids) == 1_000
    assert {len(run_id) for run_id in run_ids} == {20}


async def test_a_request_without_session_and_cookie_is_a_client_of_its_own(world: World, settings: Settings) -> None:
    """Such as one of the latest protocol from a client that keeps no cookies."""
    if not V2:
        pytest.skip("version 1 of the SDK has no protocol without sessions")
    short_cookie = {"Cookie": "delegate-client=1"}
    async with listening(settings) as server, http_client() as http:
        for sent in ({}, short_cookie):
            done = await called(http, server, "delegate_task", {"goal": "g"}, sent)
            handle = handle_in(done)
            answer = await called(http, server, "read_delegation", {"handle": handle}, sent)
            assert json.loads(text_of(answer))["error"]["code"] == "unknown_handle"


def test_authenticated_principals_are_different_clients() -> None:
    """A program may serve the tools behind the SDK's own authentication; stateless requests have nothing else."""

    def request(client_id: str, subject: str, **headers: str) -> Request:
        user = AuthenticatedUser(AccessToken(token="t", client_id=client_id, scopes=[], subject=subject))
        sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        return Request({"type": "http", "user": user, "headers": sent})

    identify = Clients(shared_records=False).identify
    one = identify(request("editor", "ann"))
    assert one == identify(request("editor", "ann"))
    others = [request("editor", "bob"), request("agent", "ann"), request("editor", "ann", mcp_session_id="s")]
    assert len({one, *map(identify, others)}) == 4
    assert identify(request("editor", "bob", mcp_session_id="s")) != identify(others[2])


@on_every_protocol
async def test_a_run_of_the_same_name_is_another_one_for_each_client(latest: bool, world: World) -> None:
    settings = load_settings(model=WORKER, max_children=1)
    async with two_clients(settings, latest=latest) as (one, other):
        answers = [await client.call({"goal": "g"}, meta={"delegate/run": "nightly"}) for client in (one, other, one)]
        assert [answer["isError"] for answer in answers] == [False, False, True]
        assert error_of(answers[2])["code"] == "budget_exceeded"
        assert not (await one.call({"goal": "g"}, meta={"delegate/run": "another"}))["isError"]
        assert not (await one.call({"goal": "g"}))["isError"]


@on_every_protocol
async def test_with_shared_records_clients_share_a_run_that_they_name(latest: bool, world: World) -> None:
    settings = load_settings(model=WORKER, max_children=1)
    async with two_clients(settings, "--shared-records", latest=latest) as (one, other):
        assert not (await one.call({"goal": "g"}, meta={"delegate/run": "nightly"}))["isError"]
        assert not (await other.call({"goal": "g"}))["isError"]
        refused = await other.call({"goal": "g"}, meta={"delegate/run": "nightly"})
        assert error_of(refused)["code"] == "budget_exceeded"


@pytest.mark.parametrize("name", ["", 7, ["nightly"], "x" * 201], ids=str)
async def test_a_run_name_that_is_none_is_a_clear_error(name: object, world: World, settings: Settings) -> None:
    async with session("http", settings) as client:
        answer = await client.call({"goal": "g"}, meta={"delegate/run": name})
    assert answer["isError"]
    assert error_of(answer)["field"] == '_meta["delegate/run"]'


# -------------------------------------------------------------------------------------------------------------- access


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer another-token-of-the-tests"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Host": "rebound.example"}, 421),
        ({"Origin": "http://rebound.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 200),
    ],
    ids=str,
)
async def test_only_local_requests_with_the_token_are_accepted(headers: dict[str, str], status: int) -> None:
    async with (
        listening(load_settings()) as server,
        http_client() as http,
        posted(http, server, "initialize", INITIALIZE, headers) as answer,
    ):
        assert answer.status == status


async def test_other_paths_require_the_token_too() -> None:
    async with listening(load_settings()) as server, http_client() as http:
        for given, status in (({}, 404), ({"Authorization": ""}, 401)):
            async with http.get(server.url.replace("/mcp", "/x"), headers=given) as answer:
                assert answer.status == status


async def test_a_token_is_created_if_none_is_given() -> None:
    async with listening(load_settings(), token="") as server, http_client() as http:
        assert server.process.stderr
        line = (await asyncio.wait_for(server.process.stderr.readline(), TIMEOUT_SECONDS)).decode()
        found = re.search(r"Bearer (\S{40,})`", line)
        assert found, line
        for token, status in ((TOKEN, 401), (found[1], 200)):
            headers = {"Authorization": f"Bearer {token}"}
            async with posted(http, server, "initialize", INITIALIZE, headers) as answer:
                assert answer.status == status


async def test_requests_to_an_allowed_host_name_are_accepted() -> None:
    options = ("--host", "0.0.0.0", "--reachable-as", "box.example")
    async with listening(load_settings(), *options) as server, http_client() as http:
        local = Server(server.url.replace("0.0.0.0", "127.0.0.1"), server.process)
        for host, status in (("box.example", 200), ("box.example:81", 200), ("fox.example", 421)):
            async with posted(http, local, "initialize", INITIALIZE, {"Host": host}) as answer:
                assert answer.status == status


async def test_a_port_in_use_is_a_one_line_error(world: World) -> None:
    taken = world.server.openai_url.split(":")[2].split("/")[0]
    command = [sys.executable, "-m", "delegate", "mcp", "--http", "--port", taken]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, stderr = await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)
    assert process.returncode == 2
    why = "Address already in use; choose another --port or --host"
    assert stderr.decode() == f"delegate: can't listen on 127.0.0.1, port {taken}: {why}\n"


# ---------------------------------------------------------------------------------------- before the SDK is loaded

HELD_BACK = """
import sys

class Gate:
    def find_spec(self, name, path=None, target=None):
        if name == "mcp":
            sys.meta_path.remove(self)
            open({gate!r}).read()

sys.meta_path.insert(0, Gate())
"""
"""Lets the import of the SDK wait until something has opened the pipe for writing."""
THE_SDK_ALONE = """
import asyncio
from delegate import Delegator
from delegate.hosts import mcp
from delegate.hosts.workspaces import WorkspacePolicy
asyncio.run(mcp.serve_stdio(mcp.server(Delegator(), workspaces=WorkspacePolicy("auto"))))
"""
META: JsonObject = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"roots": {}, "elicitation": {"form": {}}},
    "io.modelcontextprotocol/clientInfo": INITIALIZE["clientInfo"],
}


def message(id: object, method: str, **params: Any) -> JsonObject:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def handshake(id: object = 1, **params: Any) -> JsonObject:
    return message(id, "initialize", **{**INITIALIZE, **params})


LISTING: JsonObject = {"jsonrpc": "2.0", "id": "list", "method": "tools/list"}
OPENINGS: dict[str, list[JsonObject]] = {
    version: [handshake(protocolVersion=version), LISTING, message(7, "ping")]
    for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
}
OPENINGS["details"] = [
    handshake(
        0,
        capabilities={"roots": {"listChanged": True}, "elicitation": {"form": {}}, "experimental": {"x": {"y": 7}}},
        clientInfo={"name": "a", "title": "A", "version": "1"},
        _meta={"progressToken": 0},
    ),
    message(1, "tools/list", _meta={"progressToken": 1, "x-vendor": ["anything"]}),
]
if V2:
    OPENINGS["latest"] = [message("1", "server/discover", _meta=META), message(1, "tools/list", _meta=META)]
UNUSUAL: dict[str, list[JsonObject]] = {
    "an unknown version": [handshake(protocolVersion="2099-01-01"), LISTING],
    "the latest version": [handshake(protocolVersion="2026-07-28"), LISTING],
    "no version": [handshake(protocolVersion=None), handshake(2), LISTING],
    "two handshakes": [handshake(), handshake(2), LISTING],
    "half of the latest": [message(1, "server/discover", _meta={**META, next(iter(META)): 7}), LISTING],
    "unknown methods": [handshake(), message(2, "resources/list"), message(3, "server/discover")],
}


@dataclass
class Gate:
    """Holds back the import of the SDK in a server until it is opened."""

    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        return {"PYTHONPATH": os.pathsep.join((str(self.folder), os.environ.get("PYTHONPATH", "")))}

    async def open(self) -> None:
        await asyncio.wait_for(asyncio.to_thread((self.folder / "gate").write_text, "open"), TIMEOUT_SECONDS)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "sitecustomize.py").write_text(HELD_BACK.format(gate=str(tmp_path / "gate")))
    return Gate(tmp_path)


async def answers(pipe: Pipe, requests: list[JsonObject]) -> list[JsonObject]:
    """The answers to the requests, which are sent one after the other."""
    received: list[JsonObject] = []
    for request in requests:
        await pipe.send(json.dumps(request).encode() + b"\n")
        received.append(await pipe.line())
    return received


@pytest.mark.parametrize("opening", OPENINGS)
async def test_first_requests_are_answered_before_the_sdk_is_loaded(
    opening: str, gate: Gate, world: World, settings: Settings
) -> None:
    requests = OPENINGS[opening]
    meta = {"_meta": META} if opening == "latest" else {}
    think = message(8, "tools/call", name="think", arguments={"thought": "t"}, **meta)
    async with connecting(settings, "-c", THE_SDK_ALONE) as pipe:
        expected = await answers(pipe, requests)
    assert all("result" in answer for answer in expected)
    async with connecting(settings, **gate.variables) as pipe:
        assert await answers(pipe, requests) == expected
        await gate.open()
        (answer,) = await answers(pipe, [think])  # the SDK doesn't repeat what was answered
        assert answer["id"] == 8
        assert text_of(answer["result"]) == "Noted."
        assert await answers(pipe, requests[1:]) == expected[1:]  # now by the SDK


@pytest.mark.parametrize("opening", UNUSUAL)
async def test_unusual_first_requests_are_left_to_the_sdk(opening: str, gate: Gate, settings: Settings) -> None:
    requests = UNUSUAL[opening]

    async def received(pipe: Pipe) -> list[JsonObject]:
        return sorted([await pipe.line() for _ in requests], key=lambda answer: str(answer["id"]))

    sent = b"".join(json.dumps(request).encode() + b"\n" for request in requests)
    async with connecting(settings, "-c", THE_SDK_ALONE) as pipe:
        await pipe.send(sent)
        expected = await received(pipe)
    async with connecting(settings, **gate.variables) as pipe:
        await pipe.send(sent)
        await gate.open()
        assert await received(pipe) == expected


async def test_unreadable_lines_before_the_sdk_is_loaded_are_answered_later(gate: Gate, settings: Settings) -> None:
    async with connecting(settings, **gate.variables) as pipe:
        await answers(pipe, [handshake()])
        for line in (b"garbage", THINK[:-1], THINK.replace(b"HERE", rb"\ud800")):
            await pipe.send(line + b"\n")
        assert (await answers(pipe, [message(2, "ping")]))[0]["id"] == 2
        await gate.open()
        refused = [await pipe.line() for _ in range(3)]
        assert [(answer["id"], answer["error"]["code"]) for answer in refused] == [
            (None, -32700),
            (None, -32700),
            (7, -32700),
        ]
        assert "result" in (await answers(pipe, [message(3, "tools/list")]))[0]


async def test_a_client_that_leaves_before_the_sdk_is_loaded_ends_the_server(gate: Gate, settings: Settings) -> None:
    async with connecting(settings, **gate.variables) as pipe:
        await answers(pipe, [handshake()])
        assert pipe.process.stdin
        pipe.process.stdin.close()
        await gate.open()
        assert await asyncio.wait_for(pipe.process.communicate(), TIMEOUT_SECONDS) == (b"", b"")
        assert pipe.process.returncode == 0


@pytest.mark.parametrize(
    ("toml", "word"),
    [
        ("model = ", "can't be read as TOML"),
        ("max_steps = 0", "max_steps"),
        ('tool_name = "a b"', "tool's name"),
        ('[judge_accuracy]\n"no-such-model" = 0.5', "no-such-model"),
    ],
)
async def test_wrong_settings_are_one_error_of_a_server_that_answers(toml: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(toml)
    async with connecting(load_settings(), DELEGATE_CONFIG=str(tmp_path / "own.toml")) as pipe:
        await pipe.send(json.dumps(handshake()).encode() + b"\n")
        assert pipe.process.stdin
        pipe.process.stdin.close()
        stdout, stderr = await asyncio.wait_for(pipe.process.communicate(), TIMEOUT_SECONDS)
    assert pipe.process.returncode == 2
    assert "result" in json.loads(stdout)
    assert stderr.count(b"\n") == 1
    assert word in stderr.decode()


# ---------------------------------------------------------------------------------------------------- stdin and stdout

NOISY = """
import asyncio, subprocess
from delegate import Delegator, Tool
from delegate.hosts import mcp

async def noise(arguments):
    print("noise of Python")
    subprocess.run("echo noise of a process; cat", shell=True)
    return "made"

tool = Tool("make_noise", "Make noise.", {"type": "object", "properties": {}}, noise)
asyncio.run(mcp.serve_stdio(mcp.server(Delegator(tools=[tool]))))
"""


async def test_only_the_protocol_uses_stdin_and_stdout(world: World, settings: Settings) -> None:
    def child(call: Call) -> Reply:
        return Reply("I made noise.") if call.tool_results else Reply(tool_calls=(("make_noise", {}),))

    world.child = child
    async with piped(settings, "-c", NOISY) as pipe:
        await pipe.request("tools/call", name="delegate_task", arguments={"goal": "g"})
        answer = await pipe.line()
        assert "recorded tool calls: 1" in answer["result"]["content"][0]["text"]
        assert pipe.process.stdin
        assert pipe.process.stdout
        pipe.process.stdin.close()
        assert await asyncio.wait_for(pipe.process.stdout.read(), TIMEOUT_SECONDS) == b""


# ------------------------------------------------------------------------------------------------ bad bytes on stdin

THINK = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"think","arguments":{"thought":"HERE"}}}'


@pytest.mark.parametrize(
    ("line", "id", "code", "word"),
    [
        (b"garbage", None, -32700, "JSON"),
        (b"\xff\xfe\x00\x80", None, -32700, "JSON"),
        (b"[" * 100_000, None, -32700, "recursion"),
        (THINK[:-1], None, -32700, "EOF"),
        (THINK.replace(b"HERE", rb"\ud800"), 7, -32700, "surrogate|pairs"),
        (THINK.replace(b"HERE", rb"\udc00\ud800"), 7, -32700, "surrogate|pairs"),
        (THINK.replace(b"7", rb'"\ud800"'), "\ud800", -32700, "surrogate|pairs"),
        (b"[1, 2]", None, -32600, "object"),
        (THINK.replace(b'"jsonrpc":"2.0",', b""), 7, -32600, "jsonrpc"),
        (THINK.replace(b'"id":7', b'"id":[7]'), None, -32600, "id"),
        (b'{"jsonrpc":"2.0","id":7,"result":7}', None, -32600, "JSON-RPC"),
    ],
    ids=lambda value: str(value[:60]) if isinstance(value, bytes) else None,
)
async def test_an_unreadable_line_is_answered_and_the_server_lives(
    line: bytes, id: str | int | None, code: int, word: str, settings: Settings
) -> None:
    async with piped(settings) as pipe:
        await pipe.send(line + b"\n")
        answer = await pipe.line()
        assert (answer["id"], answer["error"]["code"]) == (id, code)
        assert re.search(word, answer["error"]["message"])
        await pipe.request("ping")
        assert (await pipe.line())["result"] == {}


async def test_bytes_that_are_not_utf_8_are_replaced(settings: Settings) -> None:
    async with piped(settings) as pipe:
        await pipe.send(THINK.replace(b"HERE", b"\xff \xed\xa0\x80") + b"\n")
        assert "result" in await pipe.line()


async def test_blank_lines_are_ignored(settings: Settings) -> None:
    async with piped(settings) as pipe:
        await pipe.send(b"\n \r\n")
        await pipe.request("ping")
        assert (await pipe.line())["result"] == {}


async def test_a_message_that_arrives_in_pieces_is_read(settings: Settings) -> None:
    async with piped(settings) as pipe:
        for part in (THINK[:20], THINK[20:50], THINK[50:] + b"\n" + THINK[:30], THINK[30:] + b"\n"):
            await pipe.send(part)
        assert [(await pipe.line())["id"] for _ in range(2)] == [7, 7]


async def test_the_end_of_stdin_within_a_message_is_reported(settings: Settings) -> None:
    async with piped(settings) as pipe:
        await pipe.send(THINK[:40])
        assert pipe.process.stdin
        assert pipe.process.stderr
        pipe.process.stdin.close()
        assert (await pipe.line())["error"]["code"] == -32700
        assert await asyncio.wait_for(pipe.process.wait(), TIMEOUT_SECONDS) == 0
        assert b"a message on stdin was refused" in await pipe.process.stderr.read()


@on_every_transport
async def test_half_a_surrogate_pair_in_a_report_reaches_the_client(
    transport: str, world: World, settings: Settings
) -> None:
    world.child = lambda call: Reply("half \ud83d of a pair")
    async with session(transport, settings) as client:
        assert "half" in text_of(await client.call({"goal": "g"}))
        assert await client.tools()


def http_client(*, cookies: bool = False) -> aiohttp.ClientSession:
    """A client that sends the cookies it gets, or none."""
    jar = aiohttp.CookieJar(unsafe=True) if cookies else aiohttp.DummyCookieJar()
    accepted = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {TOKEN}"}
    return aiohttp.ClientSession(headers=accepted, timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS), cookie_jar=jar)


def posted(
    http: aiohttp.ClientSession, server: Server, method: str, params: JsonObject, headers: dict[str, str] | None = None
) -> Any:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return http.post(server.url, json=message, headers=headers)


async def called(http: aiohttp.ClientSession, server: Server, tool: str, arguments: JsonObject, headers: Any) -> Any:
    """One call of the latest protocol."""
    prefix, version = "io.modelcontextprotocol/", "2026-07-28"
    meta: JsonObject = {f"{prefix}protocolVersion": version, f"{prefix}clientCapabilities": {}}
    meta[f"{prefix}clientInfo"] = INITIALIZE["clientInfo"]
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    more = {"MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": tool}
    async with posted(http, server, "tools/call", params, more | headers) as answer:
        body = await answer.text()
        found = re.search(r"\{.*\}", body)
        assert found, body
        return json.loads(found[0])["result"]

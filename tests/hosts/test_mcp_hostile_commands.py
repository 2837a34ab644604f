"""A command that uses up the machine is ended, and meanwhile the host answers everybody else."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp.server.lowlevel")

import aiohttp
from sse_starlette.sse import AppStatus

from delegate import Delegator, Settings, Task
from delegate._util.cancellation import Cancellation
from delegate.hosts import mcp
from delegate.sandbox.commands import bubblewrap
from delegate.sandbox.commands.commands import Commands
from delegate.sandbox.processes.limits import ProcessLimits
from delegate.testing import Scripted
from delegate.types.ports import ChatReply, ChatRequest

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks in /proc"),
    pytest.mark.slow,
]
BEAT_SECONDS, STALL_SECONDS, TIMEOUT_SECONDS = 0.05, 1.0, 60
DISK_FILES = 200_000
PYTHON = Path(sys.executable).resolve()
LIMITS = ProcessLimits(
    memory_bytes=400_000_000,
    total_memory_bytes=800_000_000,
    processes=200,
    threads=1_000,
    disk_reserve_bytes=50_000_000,
    inode_reserve=90_000,
)
_MEMORY = f"{PYTHON} -S -c 'import time; held = bytearray(b\"x\" * 100_000_000); time.sleep(30)' &"
_THREADS = """
import threading, time
while True:
    threading.Thread(target=time.sleep, args=(30,)).start()
"""
_FILES = """
import os
for n in range(10**6):
    os.close(os.open(f'{n % 100}/{n}', os.O_CREAT))
"""
_BODY = 'f() { [ $EPOCHSECONDS -lt $end ] || exit; bash -c "$c" & bash -c "$c" & sleep 15; }; f'
BOMB = f"export end=$((EPOCHSECONDS + 10)) c='{_BODY}'; eval \"$c\"; wait"
"""It goes off within ten seconds at most."""
COMMANDS: Mapping[str, str] = {
    "a fork bomb": BOMB,
    "threads without end": f'{PYTHON} -S -c "{_THREADS}"',
    "a sparse file": "truncate -s 100G sparse && echo made it; truncate -s 900M fits; exit 7",
    "a million files": f'mkdir -p $(seq 0 99); {PYTHON} -S -c "{_FILES}"',
    "much memory": "\n".join([_MEMORY] * 40) + "\nwait",
    "much output": "timeout 3 yes & timeout 3 yes >&2 & wait",
}

REASONS: Mapping[str, str] = {
    "a fork bomb": "more than 200 processes",
    "threads without end": "more than 1,000 threads",
    "a sparse file": "File size limit exceeded",
    "a million files": "the disk of the workspace was almost full",
    "much memory": "used more than 0.8 GB of memory",
    "much output": "bytes are cut",
}


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    """A small disk in memory, which needs the rights of root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = f"size=1g,nr_inodes={DISK_FILES}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False).returncode:
        pytest.skip("no disk can be mounted")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(params=["off", "landlock", "bubblewrap"])
def sandboxed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The setting `sandbox`."""
    if request.param == "bubblewrap" and bubblewrap.installed() is None:
        pytest.skip("bubblewrap is not installed")
    if request.param == "landlock":
        monkeypatch.setattr(bubblewrap, "installed", lambda: None)
    return "off" if request.param == "off" else "require"


@pytest.mark.parametrize("what", COMMANDS)
async def test_the_host_goes_on_while_a_command(
    what: str, sandboxed: str, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delegate.delegator.facade.Commands", partial(Commands, limits=LIMITS))
    settings = Settings(home=disk / "home", sandbox=sandboxed, commands="allow")  # type: ignore[arg-type]
    async with (
        Delegator(settings, client=Scripted(Children(COMMANDS[what]))) as delegator,
        serving(delegator) as list_tools,
    ):
        beats, answers = Beats(), list[float]()
        async with beats.running(), asyncio.TaskGroup() as group:
            running = group.create_task(delegator.run(Task(goal="hostile"), Task(goal="friendly")))
            while not running.done():
                started = time.monotonic()
                await list_tools()
                answers.append(time.monotonic() - started)
                await asyncio.wait([running], timeout=0.1)
    result = running.result()
    hostile, friendly = result.results
    assert REASONS[what] in hostile.report
    assert friendly.status == "completed"
    assert beats.longest < STALL_SECONDS
    assert max(answers) < STALL_SECONDS
    assert not left(str(disk)), "processes of the command"


def left(folder: str) -> list[str]:
    """The processes that run in the folder."""
    found = list[str]()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            found += [pid] if os.readlink(f"/proc/{pid}/cwd").startswith(folder) else []
    return found


class Children:
    """A model whose one child runs a command, while the other takes turns."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __call__(self, request: ChatRequest) -> ChatReply | str:
        said = [message for message in request.messages if message.role == "tool"]
        if "hostile" in str(request.messages):
            if not said:
                return Scripted.call("run_shell", command=self._command, timeout_seconds=20)
            return f"It ended: {said[0].tool_replies[0].text}"
        if len(said) < 20:
            return Scripted.call("write_file", path=f"{len(said)}.txt", content="done")
        return "I wrote 20 files."


class Beats:
    """The longest time in which a callback that is due every 50 ms isn't called."""

    longest = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        loop = asyncio.get_running_loop()

        def beat(due: float) -> None:
            nonlocal timer
            self.longest = max(self.longest, loop.time() - due)
            timer = loop.call_later(BEAT_SECONDS, beat, loop.time() + BEAT_SECONDS)

        timer = loop.call_soon(beat, loop.time())
        try:
            yield
        finally:
            timer.cancel()


@asynccontextmanager
async def serving(delegator: Delegator) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """Serve the tools of a delegator over HTTP, and give a function that lists them."""
    AppStatus.should_exit = False  # the end of an earlier server in this process sets it for good
    cancellation, listener = Cancellation(), mcp.listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}{mcp.PATH}"
    headers = {"Authorization": "Bearer t", "Accept": "application/json, text/event-stream"}
    server = asyncio.create_task(mcp.serve_http(mcp.server(delegator), listener, token="t", cancellation=cancellation))
    async with aiohttp.ClientSession() as http:

        async def request(method: str, **params: Any) -> str:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            async with http.post(url, json=body, headers=headers) as response:
                headers.update(
                    {"Mcp-Session-Id": response.headers.get("Mcp-Session-Id", headers.get("Mcp-Session-Id", ""))}
                )
                return await response.text()

        async def list_tools() -> None:
            assert "delegate_task" in await request("tools/list")

        try:
            client = {"name": "a test", "version": "1"}
            await request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
            yield list_tools
        finally:
            cancellation.cancel()
            await asyncio.wait_for(server, TIMEOUT_SECONDS)
            async with asyncio.timeout(TIMEOUT_SECONDS):  # a task of the SDK's looks twice a second whether to end
                while any("_shutdown_watcher" in repr(task) for task in asyncio.all_tasks()):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

"""Servers that are killed while a parent talks to its children: what it does, and what must hold afterwards.

The child acts, asks, acts and reports. Each act is a command that appends the next number to a file: the last number
that the child finds in its conversation, and one. A parent that talks sends messages all the time, which are answers,
instructions, or continue what has ended; one that doesn't leaves the question open.
"""

import asyncio
import json
import os
import random
import re
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol

from delegate import CallError, Delegator
from delegate._util.processes import is_alive
from delegate.records.mailbox import continuation_of
from delegate.types import JsonObject
from tests.cli.command import openai_at
from tests.killed.lost import owner, until
from tests.support import warm
from tests.support.model_server import Call, ModelServer, Reply

TOKEN = "a-token-of-the-tests"


class Server(Protocol):
    """A server in a process of its own. What can't be answered any more raises OSError."""

    process: "subprocess.Popen[str]"

    def __init__(self, env: dict[str, str]) -> None: ...
    def call(self) -> str:
        """Delegate a task in the background. Returns its handle."""
        ...

    def message(self, handle: str, text: str) -> str: ...
    def read(self, handle: str) -> str: ...


class Http:
    """`delegate serve`."""

    def __init__(self, env: dict[str, str]) -> None:
        command = [*warm.delegate(), "serve", "--port", "0"]
        self.process = subprocess.Popen(command, env={**env, "DELEGATE_SERVE_TOKEN": TOKEN}, stderr=-1, text=True)
        assert self.process.stderr
        self._url = self.process.stderr.readline().split()[-1]

    def call(self) -> str:
        return json.loads(self._ask("/v1/calls", {"call": {"goal": "Act."}, "asks": True}))["handles"][0]

    def message(self, handle: str, text: str) -> str:
        return self._ask(f"/v1/tasks/{handle}/messages", {"text": text, "asks": True})

    def read(self, handle: str) -> str:
        return self._ask(f"/v1/tasks/{handle}")

    def _ask(self, path: str, body: JsonObject | None = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Authorization": f"Bearer {TOKEN}"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.read().decode()


class Mcp:
    """`delegate mcp` on stdin and stdout."""

    def __init__(self, env: dict[str, str]) -> None:
        self.process = subprocess.Popen([*warm.delegate(), "mcp"], env=env, stdin=-1, stdout=-1, text=True)
        self._last = 0
        client = {"name": "a test", "version": "1"}
        self._ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        self._send({"method": "notifications/initialized"})

    def call(self) -> str:
        answer = self._tool("delegate_task", goal="Act.", background=True)
        return re.findall(r"[0-9a-f]{12,32}-\d+", answer)[0]

    def message(self, handle: str, text: str) -> str:
        return self._tool("message_delegation", handle=handle, text=text)

    def read(self, handle: str) -> str:
        return self._tool("read_delegation", handle=handle, wait_seconds=0)

    def _tool(self, name: str, **arguments: Any) -> str:
        return self._ask("tools/call", {"name": name, "arguments": arguments})["content"][0]["text"]

    def _ask(self, method: str, params: JsonObject) -> Any:
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        assert self.process.stdout
        for line in self.process.stdout:
            if (message := json.loads(line)).get("id") == self._last:
                return message["result"]
        raise ConnectionError("the server has ended")

    def _send(self, message: JsonObject) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()


@dataclass
class Scene:
    """A home folder, its children's model, and what a parent knows when its server has been killed."""

    folder: Path
    seed: int
    handles: list[str] = field(default_factory=list[str])
    texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The messages that were accepted, by handle."""
    read: list[str] = field(default_factory=list[str])
    """What children were sent by their parent."""
    ends: bool = False
    """Whether children report at once."""

    @property
    def acts(self) -> list[str]:
        log = self.folder / "acts"
        return log.read_text().split() if log.exists() else []

    def child(self, call: Call) -> Reply:
        conversation = call.raw.decode()
        last = max(map(int, re.findall(r"act-(\d+)", conversation)), default=0)
        self.read.append(conversation)
        if self.ends:
            assert last >= len(self.acts), "what was done is known to the child"
        if self.ends or len(call.tool_results) > 2:
            return Reply("I am done.")
        if len(call.tool_results) == 1:
            return Reply(tool_calls=(("ask_parent", {"question": "Shall I go on?"}),))
        command = f"echo act-{last + 1} >> {self.folder / 'acts'}"
        return Reply(tool_calls=(("run_shell", {"command": command}),))


def play(kind: type[Server], folder: Path, seed: int, setenv: Callable[[str, str], None]) -> None:
    """Kill a server at a random moment, and check what it leaves. `setenv` sets a variable of this process."""
    moments, scene, home = random.Random(seed), Scene(folder, seed), folder / "home"
    with ModelServer(scene.child) as models:
        env = {**os.environ, **openai_at(models), "DELEGATE_HOME": str(home), "DELEGATE_MODEL": "gpt-6.1-terra"}
        env |= {"DELEGATE_COMMANDS": "allow", "DELEGATE_SANDBOX": "off"}
        server = kind(env)
        timer = threading.Timer(moments.uniform(0, 1.2), server.process.kill)
        timer.start()
        with suppress(OSError, ValueError, HTTPException):
            talk(server, scene, is_silent=seed % 3 == 0)
        timer.join()
        end(server)
        if not scene.handles:
            return
        until(lambda: not is_alive(owner(home)))
        for name, value in openai_at(models).items():
            setenv(name, value)
        again = kind(env)
        try:
            asyncio.run(check(again, scene, home))
        finally:
            again.process.kill()
            end(again)


def end(server: Server) -> None:
    """Wait until a killed server is gone."""
    server.process.wait()
    for stream in (server.process.stdin, server.process.stdout, server.process.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def talk(server: Server, scene: Scene, *, is_silent: bool) -> None:
    """Delegate, send messages, and read, until the server is killed."""
    handle = server.call()
    scene.handles.append(handle)
    scene.texts[handle] = []
    while True:
        server.read(handle)
        text = f"[message {len(scene.texts[handle])} to {handle}]"
        answer = "" if is_silent else server.message(handle, text)
        again = continuation_of(handle)
        if again in answer:
            handle = again
            scene.handles.append(handle)
            scene.texts[handle] = [text]
        elif "queued" in answer or "answered" in answer:
            scene.texts[handle].append(text)


async def check(server: Server, scene: Scene, home: Path) -> None:
    """Every handle answers, no message is both never read and read, and what is resumed does nothing twice."""
    read = "\n".join(scene.read)
    scene.ends = True
    async with Delegator(home=home, model="gpt-6.1-terra", commands="allow", sandbox="off") as delegator:
        for handle in scene.handles:
            answer = await asyncio.to_thread(server.read, handle)
            assert "I am done." in answer or "was lost before it returned a result" in answer, answer
            messages = await delegator.background.messages(handle)
            texts = [one.text for one in messages]
            # The last one may have been stored without an answer to its sender.
            assert texts[: len(scene.texts[handle])] == scene.texts[handle]
            assert not [one.text for one in messages if one.state == "never_read" and one.text in read]
            assert {one.text for one in messages if one.text in read} <= {
                one.text for one in messages if one.state == "delivered"
            }
            record = await delegator.records.read(handle)
            assert record
            if record["state"] == "ended":
                continue
            assert record["state"] == "outcome_unknown"
            refused = await asyncio.to_thread(server.message, handle, "Too late.")
            assert "its process was lost" in refused
            try:
                result = await delegator.resume(handle)
            except CallError as error:
                if "its child hadn't started" in error.message:
                    continue
                raise
            assert result.results[0].status == "completed"
            assert "I am done." in await asyncio.to_thread(server.read, handle)
        assert len(set(scene.acts)) == len(scene.acts), "nothing is done twice"

"""What a client sees of a server that can't start, and how long a server lets each client wait."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp.server.lowlevel")

from delegate.delegator.background import MAX_LISTED
from delegate.hosts.mcp import definitions
from delegate.hosts.mcp.clients import Clients
from delegate.hosts.workspaces import WorkspacePolicy
from delegate.policy.settings import Settings
from delegate.types import JsonObject
from tests.contract.test_dialects import tokens
from tests.hosts.drivers.mcp import connected, over_stdio
from tests.hosts.world import JUDGE, WORKER, World

NAMES = [tool["name"] for tool in definitions.listed(Settings())]


class Client:
    """A client of the command on stdin and stdout, which sends its messages as they are."""

    def __init__(self, *options: str, name: str = "a test", **env: str) -> None:
        command = [sys.executable, "-m", "delegate", "mcp", *options]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env={**os.environ, **env}, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
        self.ask("initialize", hello)
        self.send({"method": "notifications/initialized"})

    def send(self, message: JsonObject) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: JsonObject) -> Any:
        assert self.process.stdout
        self.send({"id": method, "method": method, "params": params})
        return json.loads(self.process.stdout.readline())["result"]

    def call(self, tool: str = "delegate_task", **arguments: Any) -> JsonObject:
        return self.ask("tools/call", {"name": tool, "arguments": arguments})

    def end(self) -> tuple[int, str]:
        """The exit code, and what stood on stderr."""
        _, told = self.process.communicate(timeout=20)
        return self.process.returncode, told


def error_in(answer: JsonObject) -> JsonObject:
    return json.loads(answer["content"][0]["text"])["error"]


# ------------------------------------------------------------------------------------------ servers that can't start


@pytest.mark.parametrize(
    ("file", "options", "env", "told"),
    [
        ('commands = "allow"', (), {}, "then run `delegate trust "),
        ("commands = [", (), {}, "delegate.toml can't be read as TOML"),
        ("", ("--answr-within", "5"), {}, "did you mean --answer-within?"),
        ("", ("--answer-within", "soon"), {}, "Invalid value for '--answer-within'"),
        ("", ("--workspace", "cloud"), {}, "'cloud' is not a workspace"),
        ("", ("--runner", "no-such-program"), {}, "install it, or give its path"),
        ("", (), {"DELEGATE_MAX_DEPHT": "2"}, "did you mean DELEGATE_MAX_DEPTH?"),
        ("", (), {"DELEGATE_PARENT": "1:fast:/nowhere"}, "set DELEGATE_PARENT to nothing"),
    ],
    ids=["untrusted", "broken", "unknown option", "bad value", "bad mode", "no runner", "bad variable", "lost run"],
)
def test_a_server_that_cannot_start_lists_its_tools_and_says_why(
    file: str, options: tuple[str, ...], env: dict[str, str], told: str
) -> None:
    Path("delegate.toml").write_text(file)
    client = Client(*options, **env)
    assert [tool["name"] for tool in client.ask("tools/list", {})["tools"]] == NAMES
    for tool in NAMES:
        answer = client.call(tool, goal="Say hello.", handle="ab-0", thought="-")
        assert answer["isError"]
        error = error_in(answer)
        assert error["code"] == "config_error"
        assert told in error["message"]
        assert "restart this MCP server" in error["hint"]
    assert told in client.end()[1]


def test_without_a_client_the_same_is_an_error_of_the_command() -> None:
    command = [sys.executable, "-m", "delegate", "mcp", "--answr-within", "5"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1


# ------------------------------------------------------------------------------------------------ the first request


def test_all_tools_together_cost_at_most_900_tokens() -> None:
    listed = definitions.listed(Settings(), workspaces=WorkspacePolicy("auto"))
    assert sum(tokens({key: tool[key] for key in ("name", "description", "inputSchema")}) for tool in listed) <= 900
    assert all(tool["_meta"] == {"anthropic/alwaysLoad": True} for tool in listed)


def test_merges_are_offered_only_where_a_setting_allows_them() -> None:
    names = [tool["name"] for tool in definitions.listed(Settings())]
    allowed = definitions.listed(Settings(merge_tool=True))
    assert [tool["name"] for tool in allowed] == [*names, "merge_delegation"]
    assert allowed[-1]["annotations"]["destructiveHint"]
    assert tokens({key: allowed[-1][key] for key in ("name", "description", "inputSchema")}) <= 150


async def test_clients_that_defer_tools_are_told_to_load_these(settings: Settings) -> None:
    async with connected(over_stdio(settings)) as client:
        assert [tool["_meta"]["anthropic/alwaysLoad"] for tool in await client.tools()] == [True] * len(NAMES)


# ------------------------------------------------------------------------------------------- how long a client waits


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("claude-code", 3_540), ("codex-mcp-client", 285), ("qwen-cli-mcp-client-delegate", 585), ("", 45), ("mcp", 45)],
)
def test_each_client_waits_as_long_as_it_is_known_to(name: str, seconds: float) -> None:
    assert Clients.patience(name) == seconds


@pytest.mark.usefixtures("use")
async def test_the_time_that_a_client_waits_begins_with_its_request(world: World, settings: Settings) -> None:
    # Loading takes longer than this, so that the time is over when the call is read.
    client = Client("--answer-within", "0.2", DELEGATE_MODEL=WORKER, DELEGATE_JUDGE_MODEL=JUDGE)
    answer = client.call(goal="Never end.")["content"][0]["text"]
    assert "running in the background" in answer
    assert "If you end your turn now, they may be stopped" in answer
    client.end()


async def test_with_keep_a_parent_is_told_that_its_tasks_go_on(world: World, settings: Settings) -> None:
    async with connected(over_stdio(settings, "--keep")) as client:
        answer = await client.call({"goal": "Say hello.", "background": True})
        assert "They go on if your session ends" in answer["content"][0]["text"]
        handle = answer["content"][0]["text"].partition("(handle ")[2].partition(")")[0]
        done = await client.call({"handle": handle}, tool="read_delegation")  # waits, although nothing says how long
        assert "running in the background" not in done["content"][0]["text"]


# ------------------------------------------------------------------------------------------------------------ limits


def test_a_refused_call_names_limit_setting_and_time(settings: Settings) -> None:
    client = Client("--runner", "true", DELEGATE_MAX_CHILDREN="1")
    error = error_in(client.call(tasks=[{"goal": "one"}, {"goal": "two"}]))
    assert "the limit children: 0 of 1 spent" in error["message"]
    assert "(setting max_children)" in error["message"]
    assert "or call again in" not in error["hint"]  # two tasks never fit
    client.call(goal="one")
    assert "call again in 60 minutes" in error_in(client.call(goal="two"))["hint"]
    client.end()


def test_to_agents_that_end_with_errors_a_refusal_is_a_usual_result() -> None:
    for name, is_error in (("fastmcp", False), ("another", True)):
        client = Client(name=name)
        answer = client.call(goal="")
        assert answer["isError"] is is_error
        assert error_in(answer)["code"] == "empty"
        client.end()


def test_after_a_restart_the_tasks_on_record_are_listed() -> None:
    first = Client("--runner", "true")
    for n in range(2):
        first.call(goal=f"Task number {n}.")
    first.end()
    second = Client("--runner", "true")
    listed = second.call("read_delegation")["content"][0]["text"]
    assert listed.index("Task number 1.") < listed.index("Task number 0.")
    assert MAX_LISTED > 2
    second.end()

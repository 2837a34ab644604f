"""Keys that expire are asked for again, by a function or a program, and remembered requests get the new one."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Task
from delegate.cli.doctor import probe
from delegate.models.connections import find_endpoints
from delegate.models.overrides import DeclaredEndpoint, DeclaredModel
from delegate.models.providers import Endpoint, KeyCommand, connect
from delegate.policy.settings import Settings, override
from delegate.types.errors import ConfigError, ProviderError
from delegate.types.ports import ChatClient, ChatRequest, Message
from tests.models.providers.conftest import WIRES, Wire
from tests.support.model_server import Call, Fault, ModelServer, Reply

ASK = ChatRequest("test-model", "Be short.", [Message("user", "Say hello.")], 100)
MODELS = (DeclaredModel(id="m", tier="standard"),)


def key_of(call: Call) -> str:
    sent = [call.headers.get(name, "") for name in ("authorization", "x-api-key", "x-goog-api-key")]
    return "".join(sent).removeprefix("Bearer ")


def asking(wire: Wire, server: ModelServer, ask: Callable[[], Any]) -> ChatClient:
    return connect(replace(wire.endpoint(wire.url(server), ""), ask_key=ask), timeout_seconds=10)


def numbered(*expires: float) -> Callable[[], tuple[str, float | None]]:
    """Returns `key-1`, `key-2`, … which are valid for these numbers of seconds, and then for ever."""
    numbers, left = count(1), iter(expires)
    return lambda: (f"key-{next(numbers)}", next((time.time() + seconds for seconds in left), None))


def accepting(*keys: str) -> Callable[[Call], Reply | Fault]:
    return lambda call: Reply("hello") if key_of(call) in keys else Fault(401)


async def test_a_refused_key_is_asked_for_again_and_the_call_repeated(wire: Wire) -> None:
    valid = ["key-1"]
    with ModelServer(lambda call: accepting(*valid)(call)) as server:
        client = asking(wire, server, numbered())
        await client.complete(ASK)
        await client.complete(ASK)  # by the remembered request
        valid[:] = ["key-2"]
        for _ in range(2):
            assert (await client.complete(ASK)).text == "hello"
        await client.aclose()
    assert [key_of(call) for call in server.calls] == ["key-1", "key-1", "key-1", "key-2", "key-2"]


async def test_a_key_is_asked_for_again_before_it_expires(wire: Wire) -> None:
    with ModelServer([Reply("hello")] * 4) as server:
        client = asking(wire, server, numbered(30, 30, 3_600))  # a minute before its end, it counts as expired
        for _ in range(4):
            await client.complete(ASK)
        await client.aclose()
    assert [key_of(call) for call in server.calls] == ["key-1", "key-2", "key-3", "key-3"]


async def test_calls_at_once_ask_for_one_key(wire: Wire) -> None:
    with ModelServer(accepting("key-2")) as server:
        client = asking(wire, server, numbered())
        replies = await asyncio.gather(*(client.complete(ASK) for _ in range(5)))
        await client.aclose()
    assert [reply.text for reply in replies] == ["hello"] * 5
    assert {key_of(call) for call in server.calls} == {"key-1", "key-2"}


async def test_a_key_that_stays_the_same_is_refused_once(wire: Wire) -> None:
    with ModelServer(accepting("other")) as server:
        client = asking(wire, server, lambda: "key-that-is-refused")
        with pytest.raises(ProviderError) as caught:
            await client.complete(ASK)
        await client.aclose()
    assert (caught.value.fault, caught.value.status, len(server.calls)) == ("auth", 401, 1)


async def test_the_function_may_be_async_and_say_a_date() -> None:
    asked = 0

    async def ask() -> tuple[str, datetime]:
        nonlocal asked
        asked += 1
        return "key-1", datetime.now(UTC) + timedelta(hours=1)

    with ModelServer([Reply("hello")] * 2) as server:
        client = asking(WIRES["chat"], server, ask)
        await client.complete(ASK)
        await client.complete(ASK)
        await client.aclose()
    assert asked == 1


async def test_a_key_that_cannot_be_had_fails_the_call_before_it_is_sent() -> None:
    def ask() -> str:
        raise RuntimeError("the vault is sealed")

    with ModelServer([Reply("hello")]) as server:
        client = asking(WIRES["messages"], server, ask)
        with pytest.raises(ProviderError, match="the vault is sealed") as caught:
            await client.complete(ASK)
        await client.aclose()
    assert (caught.value.fault, caught.value.outcome, server.calls) == ("auth", "not_sent", [])


async def test_a_header_of_the_environment_gets_the_new_key_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer ambient")
    with ModelServer(accepting("key-2")) as server:
        client = asking(WIRES["chat"], server, numbered())
        assert (await client.complete(ASK)).text == "hello"
        await client.aclose()
    assert [key_of(call) for call in server.calls] == ["key-1", "key-2"]


# ----------------------------------------------------------------------------------------------------------- programs


def program(folder: Path, text: str, status: int = 0) -> tuple[str, ...]:
    """A command that prints this, and on which line of its log it stands."""
    file = folder / "key.py"
    log = folder / "log"
    file.write_text(
        f"import os, sys\nopen({str(log)!r}, 'a').write(os.getcwd() + '\\n')\n"
        f"print({text!r}); sys.stderr.write('sealed'); sys.exit({status})"
    )
    return (sys.executable, str(file))


def declared(server: ModelServer, **fields: Any) -> DeclaredEndpoint:
    return DeclaredEndpoint(name="house", base_url=server.openai_url, models=MODELS, **fields)


@pytest.mark.parametrize(
    "printed",
    [
        "key-1\n",
        json.dumps({"key": "key-1"}),
        json.dumps({"accessToken": "key-1", "expiresOn": "2026-01-01 00:00:00.000000", "expires_on": 4_000_000_000}),
        json.dumps({"token": "key-1", "Expiration": "2096-01-01T00:00:00Z"}),
    ],
)
async def test_a_child_runs_on_the_key_that_a_program_prints(printed: str, tmp_path: Path, home: Path) -> None:
    with ModelServer([Reply("done"), Reply("done")]) as server:
        endpoint = declared(server, key_command=program(tmp_path, printed))
        async with Delegator(endpoints=(endpoint,), model="m") as delegator:
            run = await delegator.run(Task(goal="do it"), Task(goal="do it"))
    assert [result.status for result in run.results] == ["completed"] * 2
    assert {key_of(call) for call in server.calls} == {"key-1"}
    [folder] = (tmp_path / "log").read_text().split()
    assert Path(folder) == Path.home(), "not in a workspace"


async def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    with ModelServer([]) as server:
        endpoint = declared(server, key_command=program(tmp_path, "", status=3))
        async with Delegator(endpoints=(endpoint,), model="m") as delegator:
            result = await delegator.run(Task(goal="do it"))
    error = result.results[0].error
    assert error
    assert (error.code, server.calls) == ("auth", [])
    assert "ended with status 3: sealed" in error.message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"key_command": "./key.sh --json"}, "give its name, or its absolute path"),
        ({"key_command": "tools/key"}, "give its name, or its absolute path"),
        ({"key_command": ""}, "begins with no program"),
        ({"key_command": "a", "key_env": "A_KEY"}, "two sources, key_env and key_command"),
        ({"api_key": "sk-123"}, "name its variable in key_env"),
        (
            {"key_command": "a", "platform": "bedrock", "protocol": "anthropic", "region": "x"},
            "key_command isn't used on bedrock",
        ),
    ],
)
def test_a_source_that_cannot_be_is_refused(fields: dict[str, Any], words: str) -> None:
    endpoint = {"name": "house", "base_url": "http://x/v1", "models": [{"id": "m", "tier": "fast"}], **fields}
    with pytest.raises(ConfigError, match=words):
        override(Settings(), endpoints=(endpoint,))


def test_a_command_in_one_line_is_split_as_a_shell_does() -> None:
    given = {"name": "h", "base_url": "http://x", "models": MODELS, "key_command": "vault read 'my key'"}
    endpoint = DeclaredEndpoint.model_validate(given)
    [found] = find_endpoints([endpoint], {}).values()
    assert found.ask_key == KeyCommand(("vault", "read", "my key"))
    assert found.key_from == "the endpoint h's key_command"


async def test_doctor_asks_for_the_key_too(tmp_path: Path) -> None:
    with ModelServer([]) as server:
        endpoint = Endpoint("openai", server.openai_url, "", ask_key=lambda: "key-1")
        assert (await probe.ask(endpoint)).models == ("test-model",)
        broken = replace(endpoint, ask_key=KeyCommand(program(tmp_path, "", status=3)), key_from="key_command")
        served = await probe.ask(broken)
    assert key_of(server.calls[0]) == "key-1"
    assert ("sealed" in (served.fault or ""), served.fix) == (True, "correct key_command")

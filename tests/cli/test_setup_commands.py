"""`delegate doctor`, `delegate tool` and the command itself."""

import asyncio
import json
import subprocess
import sys
import tomllib
from typing import Literal

import pytest

from delegate.cli.commands.tool import tool
from delegate.cli.doctor.diagnostics import toml_lines
from delegate.cli.doctor.probe import ask, ask_local
from delegate.contract import DIALECTS
from delegate.models.providers import Endpoint
from delegate.policy.settings import Settings
from tests.cli.command import delegate, openai_at
from tests.support.model_server import ModelServer

Provider = Literal["openai", "anthropic", "google"]


def test_an_address_without_a_key_is_one_line_that_says_so() -> None:
    with ModelServer([], models=["gpt-6-luna"]) as server:
        done = delegate("doctor", OPENAI_BASE_URL=server.openai_url, ANTHROPIC_BASE_URL=server.anthropic_url)
    said = " ".join(done.stdout.split())
    assert "keys: OPENAI_BASE_URL is set: the models of its provider are called there, without a key" in said
    assert "keys: ANTHROPIC_BASE_URL is set, but without a key" in said
    assert "set ANTHROPIC_API_KEY" in said
    assert "none set" not in said


def test_doctor_finds_a_server_that_answers_and_never_prints_a_key() -> None:
    with ModelServer([], models=["gpt-6-luna", "gpt-6.1-terra"]) as server:
        done = delegate("doctor", "--format", "json", **openai_at(server))
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert document["can_call"] is True
    notes = {(check["subject"], check["status"]) for check in document["checks"]}
    assert {("keys", "ok"), ("endpoint", "ok"), ("model", "ok"), ("judge", "ok")} <= notes
    assert "OPENAI_API_KEY" in done.stdout
    assert "1234" not in done.stdout


def test_the_tool_is_printed_in_the_requested_dialect() -> None:
    done = delegate("tool", "--dialect", "anthropic", "--variant", "full")
    assert done.returncode == 0
    assert set(json.loads(done.stdout)) == {"name", "description", "input_schema"}


def test_help_names_every_dialect() -> None:
    described = tool.__annotations__["dialect"].__metadata__[0].help
    assert all(dialect in described for dialect in DIALECTS)


def test_listing_the_commands_loads_none_of_them_and_no_heavy_module() -> None:
    heavy = ("pydantic", "aiohttp", "openai", "anthropic", "google.genai", "rich.live", "yaml")
    code = "import sys; from delegate.cli.app import app; app(['-h'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert "  calibrate  Print how often" in done.stdout
    loaded = done.stdout.splitlines()[-1].split()
    assert [name for name in loaded if name in heavy or name.startswith("delegate.cli.commands.")] == []


async def test_a_key_does_not_follow_a_redirect() -> None:
    with ModelServer([]) as other:

        async def send_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            location = f"location: {other.openai_url}/models"
            writer.write(f"HTTP/1.1 307 -\r\n{location}\r\ncontent-length: 0\r\n\r\n".encode())
            writer.close()

        async with await asyncio.start_server(send_on, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            served = await ask(Endpoint("openai", f"http://127.0.0.1:{port}/v1", "sk-secret"))
        assert served.fault == "answers with HTTP 307"
        assert other.calls == []


@pytest.mark.parametrize("protocol", ["openai", "anthropic", "google"])
async def test_each_provider_is_queried_with_its_own_key_header(
    protocol: Literal["openai", "anthropic", "google"],
) -> None:
    with ModelServer([], models=["a", "b"]) as server:
        base = server.openai_url if protocol == "openai" else server.url
        served = await ask(Endpoint(protocol, base, "sk-secret"))
        (call,) = server.calls
    assert served.models == ("a", "b")
    header = {"openai": "authorization", "anthropic": "x-api-key", "google": "x-goog-api-key"}[protocol]
    assert call.headers[header].removeprefix("Bearer ") == "sk-secret"


async def test_local_servers_are_found_and_the_lines_to_add_are_valid_settings() -> None:
    with ModelServer([], models=["llama", 'odd "name"']) as server:
        port = int(server.url.rpartition(":")[2])
        found = await ask_local({"ollama": port, "nobody": 9})
    assert list(found) == ["ollama"]
    settings = Settings.model_validate(tomllib.loads(toml_lines(found)))
    (endpoint,) = settings.endpoints
    assert endpoint.base_url == server.openai_url
    assert [model.id for model in endpoint.models] == ["llama", 'odd "name"']
    assert endpoint.models[0].input_price == 0

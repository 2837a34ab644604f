"""What a client learns of an endpoint's models is kept for the next process, and never in the way."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Task
from delegate.models.overrides import DeclaredEndpoint, DeclaredModel
from delegate.models.providers import Endpoint, connect
from delegate.models.providers._profile import KEPT_SECONDS, MAX_PROFILES, Profile, ProfileStore
from delegate.testing import Scripted
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatClient, ChatRequest, Message
from tests.models.providers.conftest import KEY, WIRES, Opener
from tests.support import warm
from tests.support.model_server import Call, Fault, ModelServer, Reply

SCHEMA: dict[str, Any] = {"type": "object", "required": ["ok"]}
ASK = ChatRequest("m", "", [Message("user", "Is it?")], 100, reply_schema=SCHEMA)
NOW = 1_800_000_000.0

OpenAt = Callable[[ModelServer, ProfileStore], ChatClient]


@pytest.fixture
async def open_at() -> AsyncIterator[OpenAt]:
    """Opens chat clients that keep what they learn in a store."""
    clients: list[ChatClient] = []

    def open_client(server: ModelServer, store: ProfileStore) -> ChatClient:
        clients.append(connect(Endpoint("openai", server.openai_url, KEY), timeout_seconds=10, profiles=store))
        return clients[-1]

    yield open_client
    for client in clients:
        await client.aclose()


def without_schemas(call: Call) -> Reply | Fault:
    if call.body.get("response_format", {}).get("type") == "json_schema":
        return Fault(400, {"error": {"message": "This response_format type is unavailable now"}})
    return Reply('{"ok": true}')


async def test_the_next_process_asks_at_once_as_the_last_one_learned(open_at: OpenAt, tmp_path: Path) -> None:
    file = tmp_path / "new" / "endpoints.json"
    with ModelServer(without_schemas) as server:
        for _ in range(2):
            await open_at(server, ProfileStore(file)).complete(ASK)
        asked = [call.body["response_format"]["type"] for call in server.calls]
    assert asked == ["json_schema", "json_object", "json_object"]
    stored = file.read_text()
    assert "json_object" in stored
    assert KEY not in stored
    assert "127.0.0.1" in stored
    assert file.stat().st_mode & 0o077 == 0
    assert os.listdir(file.parent) == ["endpoints.json"]


async def test_a_delegator_keeps_profiles_in_its_home_and_one_with_a_client_has_none(tmp_path: Path) -> None:
    models = (DeclaredModel(id="m", tier="standard"),)
    with ModelServer(without_schemas) as server:
        endpoint = DeclaredEndpoint(name="house", base_url=server.openai_url, models=models)
        async with Delegator(endpoints=(endpoint,), model="m", home=tmp_path / "a") as delegator:
            await delegator.run(Task(goal="Say ok."))
    async with Delegator(client=Scripted(["ok"]), home=tmp_path / "b") as delegator:
        await delegator.run(Task(goal="Say ok."))
    assert (tmp_path / "a" / "endpoints.json").exists()
    assert not (tmp_path / "b" / "endpoints.json").exists()


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "null",
        '{"a": 1}',
        '{"k": {"host": "a", "model": "m", "since": 1e300, "profile": {}}}',
        "[" * 100_000,
        "\ud800".encode("utf-16", "surrogatepass").decode("latin-1"),
    ],
)
async def test_a_damaged_file_is_ignored_and_replaced(damage: str, open_at: OpenAt, tmp_path: Path) -> None:
    file = tmp_path / "endpoints.json"
    file.write_text(damage)
    with ModelServer(without_schemas) as server:
        await open_at(server, ProfileStore(file)).complete(ASK)
    assert [one["profile"]["replies"] for one in json.loads(file.read_text()).values()] == ["json_object"]


def edited(file: Path, **learned: object) -> None:
    [(key, entry)] = json.loads(file.read_text()).items()
    file.write_text(json.dumps({key: {**entry, "profile": learned}}))


@pytest.mark.parametrize(
    ("learned", "known"),
    [
        ({"efforts": ["low", "default"], "streams": False}, Profile(efforts=("low", "default"), streams=False)),
        ({"efforts": ["ultra"], "streams": False}, Profile()),
        ({"replies": "xml"}, Profile()),
        ({"streams": False, "novel": 7}, Profile()),
    ],
)
async def test_a_file_of_another_version_is_ignored(
    learned: dict[str, Any], known: Profile, open_at: OpenAt, tmp_path: Path
) -> None:
    file = tmp_path / "endpoints.json"
    with ModelServer(without_schemas) as server:
        await open_at(server, ProfileStore(file)).complete(ASK)
        edited(file, **learned)
        assert ProfileStore(file).at(Endpoint("openai", server.openai_url, "another key")).of("m") == known


async def test_a_server_that_was_upgraded_is_tried_anew_after_some_days(open_at: OpenAt, tmp_path: Path) -> None:
    file, now = tmp_path / "endpoints.json", [NOW]
    with ModelServer(without_schemas) as server:
        client = open_at(server, ProfileStore(file, clock=lambda: now[0]))
        await client.complete(ASK)
        now[0] += KEPT_SECONDS
        await client.complete(ASK)  # in the same process
        later = [NOW + 2 * KEPT_SECONDS, NOW - KEPT_SECONDS]  # or with a clock that was wrong
        for at in later:
            await open_at(server, ProfileStore(file, clock=lambda at=at: at)).complete(ASK)
        asked = [call.body["response_format"]["type"] for call in server.calls]
    assert asked == ["json_schema", "json_object"] * 4


async def test_a_server_that_refuses_what_another_one_needed_is_learned_anew(open_at: OpenAt, tmp_path: Path) -> None:
    """As where another server listens at the address now."""
    file = tmp_path / "endpoints.json"

    def older(call: Call) -> Reply | Fault:
        unknown = "max_completion_tokens" in call.body
        return (
            Fault(422, {"detail": "Extra inputs are not permitted: max_completion_tokens"}) if unknown else Reply("ok")
        )

    with ModelServer(older) as server:
        await open_at(server, ProfileStore(file)).complete(replace(ASK, reply_schema=None))
        edited(file, limit="max_completion_tokens")
        client = open_at(server, ProfileStore(file))
        await client.complete(replace(ASK, reply_schema=None))
        asked = [sorted(call.body.keys() & {"max_tokens", "max_completion_tokens"}) for call in server.calls]
    assert asked == [["max_tokens"], ["max_completion_tokens"], ["max_tokens"]]


async def test_a_request_that_is_wrong_is_sent_once_more_at_most(open_at: OpenAt, tmp_path: Path) -> None:
    file, is_wrong = tmp_path / "endpoints.json", [False]

    def script(call: Call) -> Reply | Fault:
        return Fault(400, {"error": {"message": "no"}}) if is_wrong[0] else without_schemas(call)

    with ModelServer(script) as server:
        await open_at(server, ProfileStore(file)).complete(ASK)
        stored, is_wrong[0] = file.read_text(), True
        client = open_at(server, ProfileStore(file))
        for _ in range(3):
            with pytest.raises(ProviderError):
                await client.complete(ASK)
    asked = [call.body["response_format"]["type"] for call in server.calls]
    assert asked == ["json_schema", "json_object", "json_object", *["json_schema"] * 3]
    assert file.read_text() == stored


async def test_what_no_call_has_confirmed_is_not_kept(open_at: OpenAt, tmp_path: Path) -> None:
    file = tmp_path / "endpoints.json"
    with ModelServer(lambda call: Fault(400, {"error": {"message": "bad response_format"}})) as server:
        client = open_at(server, ProfileStore(file))
        with pytest.raises(ProviderError):
            await client.complete(ASK)
        assert len(server.calls) == 3
    assert not file.exists()


async def test_a_home_that_cannot_be_written_costs_nothing(open_at: OpenAt, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with ModelServer(without_schemas) as server:
        client = open_at(server, ProfileStore(blocked / "endpoints.json"))
        for _ in range(2):
            assert (await client.complete(ASK)).text == '{"ok": true}'
    assert len(server.calls) == 3


async def test_the_file_is_read_once_and_not_before_a_call(open_at: OpenAt, tmp_path: Path) -> None:
    file = tmp_path / "endpoints.json"
    with ModelServer(lambda call: Reply("ok")) as server:
        client = open_at(server, ProfileStore(file))
        await client.complete(replace(ASK, reply_schema=None))
        file.unlink()
        os.mkfifo(file)  # reading it would wait forever
        for _ in range(3):
            await client.complete(replace(ASK, reply_schema=None))
        await open_at(server, ProfileStore(file)).complete(replace(ASK, reply_schema=None))  # replaces what is no file
    assert file.is_file()


WRITER = """
import asyncio, sys
from pathlib import Path
from delegate.models.providers import Endpoint, profile_store

async def main(path, name):
    for n in range(20):
        profiles = profile_store(Path(path)).at(Endpoint("openai", "http://127.0.0.1:9/v1", "key"))
        profiles.learn(f"{name}-{n}", streams=False)
        await profiles.confirm(f"{name}-{n}")

asyncio.run(main(*sys.argv[1:]))
"""


def test_processes_that_write_at_once_leave_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "home" / "endpoints.json"
    writers = [subprocess.Popen([*warm.python(), "-c", WRITER, str(file.parent), name]) for name in "ab"]
    while any(writer.poll() is None for writer in writers):
        with suppress(FileNotFoundError):
            json.loads(file.read_bytes())
    assert [writer.returncode for writer in writers] == [0, 0]
    names = {one["model"] for one in json.loads(file.read_bytes()).values()}
    assert names & {"a-19", "b-19"}
    assert os.listdir(file.parent) == ["endpoints.json"]


def test_one_process_keeps_what_another_has_learned_of_the_same_model(tmp_path: Path) -> None:
    endpoint = Endpoint("openai", "http://127.0.0.1:9/v1", "key")
    stores = [ProfileStore(tmp_path / "endpoints.json") for _ in range(2)]
    first, second = (store.at(endpoint) for store in stores)
    assert first.of("m") == second.of("m") == Profile()
    first.learn("m", replies="prompt")
    stores[0].save()
    second.learn("m", efforts=("low",))
    stores[1].save()
    assert ProfileStore(tmp_path / "endpoints.json").at(endpoint).of("m") == Profile("prompt", ("low",))


def test_the_oldest_profiles_are_dropped(tmp_path: Path) -> None:
    now = [NOW]
    store = ProfileStore(tmp_path / "endpoints.json", clock=lambda: now[0])
    profiles = store.at(Endpoint("openai", "http://127.0.0.1:9/v1", "key"))
    for n in range(MAX_PROFILES + 5):
        now[0] += 1
        profiles.learn(f"m{n}", streams=True)
    store.save()
    kept = [one["model"] for one in json.loads((tmp_path / "endpoints.json").read_text()).values()]
    assert kept == [f"m{n}" for n in range(5, MAX_PROFILES + 5)]


def test_endpoints_and_protocols_have_profiles_of_their_own(tmp_path: Path) -> None:
    store = ProfileStore()
    store.at(Endpoint("openai", "http://a/v1", "k")).learn("m", streams=False)
    for other in (Endpoint("openai", "http://b/v1", "k"), Endpoint("anthropic", "http://a/v1", "k")):
        assert store.at(other).of("m") == Profile()
    assert store.at(Endpoint("openai", "http://a/v1/", "another key")).of("m") == Profile(streams=False)


# ------------------------------------------------------------------------------------------------------- the lessons

PLAIN = replace(ASK, reply_schema=None)
REFUSALS: list[tuple[str, str, list[str | None]]] = [
    # what is asked for, what the server writes, what is sent
    (
        "none",
        "Unsupported value: 'reasoning_effort' does not support 'none' with this model. Supported values are:"
        " 'minimal', 'low', 'medium', and 'high'.",
        ["none", "minimal"],
    ),
    (
        "xhigh",
        "1 validation error: {'type': 'literal_error', 'loc': ('body', 'reasoning_effort'), 'msg': \"Input should be"
        " 'low', 'medium' or 'high'\", 'input': 'xhigh'}",
        ["xhigh", "high"],
    ),
    ("max", 'invalid reasoning value: \'max\' (must be "high", "medium", "low", or "none")', ["max", "high"]),
    ("low", "`reasoning_effort` must be one of `none` or `default`", ["low", None]),
    ("minimal", "`reasoning_effort` must be one of `none` or `default`", ["minimal", "none"]),
    ("high", "Model grok-4-1-fast does not support parameter reasoningEffort.", ["high", None]),
    ("low", "property 'reasoning_effort' is unsupported, did you mean 'reasoning_format'?", ["low", None]),
    ("low", '"llama3.2" does not support thinking', ["low", None]),
    ("none", 'think value "none" is not supported for this model', ["none", "low"]),
    ("medium", 'think value "medium" is not supported for this model', ["medium", "low"]),
    (
        "low",
        "litellm.UnsupportedParamsError: ollama does not support parameters: ['reasoning_effort']. Fallbacks=None",
        ["low", None],
    ),
]


@pytest.mark.parametrize(("effort", "text", "sent"), REFUSALS)
async def test_an_effort_that_a_model_does_not_know_becomes_the_nearest(
    effort: Any, text: str, sent: list[str | None], opened: Opener
) -> None:
    def script(call: Call) -> Reply | Fault:
        accepted = call.body.get("reasoning_effort") == sent[-1]
        return Reply("ok") if accepted else Fault(400, {"error": {"message": text, "type": "invalid_request_error"}})

    with ModelServer(script) as server:
        client = opened(WIRES["chat"], server)
        for _ in range(2):
            assert (await client.complete(replace(PLAIN, effort=effort))).text == "ok"
        assert [call.body.get("reasoning_effort") for call in server.calls] == [*sent, sent[-1]]


@pytest.mark.parametrize(
    ("wire", "text", "sent"),
    [
        (
            "responses",
            "Unsupported value: 'max' is not supported with the 'm' model. Supported values are: 'low'.",
            "low",
        ),
        ("responses", "Unsupported parameter: 'reasoning.effort' is not supported with this model.", None),
        ("messages", "output_config.effort: Input should be 'low', 'medium' or 'high'", "high"),
        ("messages", "This model does not support the effort parameter.", None),
        ("generate", "Thinking level HIGH is not supported for this model. Use LOW.", "LOW"),
        ("generate", "Thinking level is not supported for this model.", None),
    ],
)
async def test_efforts_are_learned_in_every_api(wire: str, text: str, sent: str | None, opened: Opener) -> None:
    def effort_of(call: Call) -> Any:
        body = call.body
        found = {**body.get("reasoning", {}), **body.get("output_config", {})}.get("effort")
        return found or body.get("generationConfig", {}).get("thinkingConfig", {}).get("thinkingLevel")

    def script(call: Call) -> Reply | Fault:
        error = {"message": text, "type": "invalid_request_error", "status": "INVALID_ARGUMENT", "code": 400}
        return Reply("ok") if effort_of(call) == sent else Fault(400, {"error": error})

    with ModelServer(script) as server:
        client = opened(WIRES[wire], server)
        for _ in range(2):
            assert (await client.complete(replace(PLAIN, effort="max"))).text == "ok"
    assert len(server.calls) == 3


@pytest.mark.parametrize("wire", ["messages", "generate", "responses"])
async def test_a_schema_that_is_refused_is_said_in_words_in_every_api(wire: str, opened: Opener) -> None:
    texts = {
        "messages": "output_config.format: Extra inputs are not permitted",
        "generate": "JSON mode is not enabled for models/gemma-4",
        "responses": "Unsupported parameter: text.format",
    }

    def script(call: Call) -> Reply | Fault:
        return Fault(400, {"error": {"message": texts[wire]}}) if call.wants_json else Reply('{"ok": true}')

    with ModelServer(script) as server:
        client = opened(WIRES[wire], server)
        for _ in range(2):
            await client.complete(replace(ASK, system="Be short."))
        assert [call.wants_json for call in server.calls] == [True, False, False]
        assert json.dumps(SCHEMA, separators=(",", ":")) in server.calls[1].system
        assert server.calls[1].system.startswith("Be short.\n\n")


@pytest.mark.parametrize("wire", list(WIRES))
async def test_a_server_that_ignores_schemas_is_told_in_words_the_next_time(wire: str, opened: Opener) -> None:
    with ModelServer([Reply("Yes, it is."), Reply('```json\n{"ok": true}\n```'), Reply("Yes.")]) as server:
        client = opened(WIRES[wire], server)
        for request in (ASK, ASK, PLAIN):
            await client.complete(request)
    assert [call.wants_json for call in server.calls] == [True, False, False]
    assert ["JSON Schema" in call.system for call in server.calls] == [False, True, False]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (500, "failed to parse grammar"),
        (400, "Failed to generate JSON. Please adjust your prompt. See 'failed_generation' for more details."),
        (400, "This model does not support response format `json_schema`."),
        (422, "response_format: response_format.type `json_schema` is unavailable now at line 1 column 12440"),
        (400, "json mode cannot be combined with tool/function calling"),
        (400, "The provided JSON schema contains features not supported by xgrammar."),
        (400, "litellm.UnsupportedParamsError: x does not support parameters: ['response_format'], for model=y."),
    ],
)
async def test_every_refusal_of_a_schema_is_understood(status: int, text: str, opened: Opener) -> None:
    def script(call: Call) -> Reply | Fault:
        refused = "response_format" in call.body
        return Fault(status, {"error": {"message": text}}) if refused else Reply('{"ok": true}')

    with ModelServer(script) as server:
        assert (await opened(WIRES["chat"], server).complete(ASK)).text == '{"ok": true}'
    assert len(server.calls) <= 3


@pytest.mark.parametrize(
    "text",
    [
        "reasoning_effort response_format json_schema prompt_cache reasoning max_completion_tokens v1/responses",
        "reasoning_effort must be one of low, high; use v1/responses; the responses operation does not work",
        "reasoning_effort: none minimal low medium high xhigh max default",
    ],
)
async def test_a_server_that_refuses_everything_is_asked_a_few_times_only(text: str, opened: Opener) -> None:
    with ModelServer(lambda call: Fault(400, {"error": {"message": text}})) as server:
        client = opened(WIRES["chat"], server)
        with pytest.raises(ProviderError):
            await client.complete(replace(ASK, effort="max"))
    assert len(server.calls) <= 10


@pytest.mark.parametrize("status", [400, 500])
async def test_a_failure_is_not_asked_again_because_another_call_has_learned(status: int, opened: Opener) -> None:
    def script(call: Call) -> Reply | Fault:
        return Fault(status, delay=0.05) if call.last_text == "fail" else Reply("ok")

    with ModelServer(script) as server:
        client = opened(WIRES["chat"], server)
        failing = asyncio.create_task(client.complete(replace(PLAIN, messages=[Message("user", "fail")])))
        await asyncio.to_thread(server.wait_for_calls, 1)
        await client.complete(PLAIN)  # which shows that replies say why they ended
        with pytest.raises(ProviderError, match=str(status)):
            await failing
    assert len(server.calls) == 2


async def test_a_server_that_refuses_streams_is_asked_without_by_the_next_process(
    open_at: OpenAt, tmp_path: Path
) -> None:
    def script(call: Call) -> Reply | Fault:
        refused = Fault(400, {"error": {"message": "stream isn't supported for this model"}})
        return refused if call.streams else Reply("ok")

    with ModelServer(script) as server:
        for _ in range(2):
            await open_at(server, ProfileStore(tmp_path / "endpoints.json")).complete(PLAIN)
    assert [call.streams for call in server.calls] == [True, False, False]

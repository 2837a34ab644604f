"""`delegate doctor --endpoint` measures a server with a few calls, and keeps what it has learned."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delegate.cli.doctor.endpoint import MAX_CALLS, MAX_REFUSALS
from tests.cli.command import delegate
from tests.support.model_server import Call, Fault, ModelServer, Reply

SETTINGS = """
[[endpoints]]
name = "house"
base_url = "{url}"
{more}

[[endpoints.models]]
id = "local-model"
tier = "standard"
context_tokens = 32768
effort = true

[[endpoints]]
name = "closed"
base_url = "{url}"
key_env = "CLOSED_KEY"
models = [{{ id = "closed-model", tier = "fast" }}]
"""


def declare(url: str, more: str = "") -> None:
    folder = Path(os.environ["XDG_CONFIG_HOME"], "delegate")
    folder.mkdir(parents=True)
    (folder / "delegate.toml").write_text(SETTINGS.format(url=url, more=more))


def good(call: Call) -> Reply:
    """A model that does what it is asked."""
    if call.wants_json or "JSON" in call.last_text:
        return Reply('{"greater": 7}')
    if call.tool_names:
        return Reply("In the 15th.") if call.tool_results else Reply(tool_calls=(("look_up", {"word": "delegate"}),))
    return Reply("ready")


def context(path: str, body: object) -> Callable[[Call], Fault]:
    return lambda call: Fault(200, body) if call.path == path else Fault(404, {"error": "no"})  # type: ignore[arg-type]


def measured(*arguments: str) -> tuple[int, dict[str, Any], dict[str, tuple[str, str, str]]]:
    done = delegate("doctor", "--endpoint", "house", *arguments, "--json")
    document = json.loads(done.stdout)
    checks = {one["subject"]: (one["status"], one["text"], one["fix"]) for one in document["checks"]}
    return done.returncode, document, checks


def test_a_good_server_is_measured_and_its_profile_is_kept() -> None:
    with ModelServer(good, models=({"id": "local-model", "max_model_len": 32768},)) as server:
        declare(server.openai_url)
        done = delegate("doctor", "--endpoint", "house")
        posts = [call for call in server.calls if call.method == "POST"]
    assert done.returncode == 0, done.stdout
    assert f"at most {MAX_CALLS} calls of up to 1,024 output tokens" in done.stderr
    assert len(posts) == MAX_CALLS - 1
    assert all(call.max_output_tokens == 1024 for call in posts)
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "✓ text",
        "✓ JSON",
        "✓ tools",
        "✓ effort",
        "✓ context",
        "✓ streaming",
        "✓ ends",
    ]
    (kept,) = json.loads(Path(os.environ["DELEGATE_HOME"], "endpoints.json").read_text()).values()
    assert kept["profile"] == {"replies": "json_schema", "streams": True, "finish_reason": True}


def test_a_server_that_lacks_much_is_told_apart_with_few_calls() -> None:
    def script(call: Call) -> Reply | Fault:
        if "response_format" in call.body:
            return Fault(400, {"error": {"message": "This response_format type is unavailable now"}})
        if call.body.get("reasoning_effort") not in (None, "low"):
            return Fault(400, {"error": {"message": "reasoning_effort must be one of low, medium"}})
        if call.body.get("stream"):
            return Fault(400, {"error": {"message": "stream isn't supported"}})
        return Reply("I can't.") if call.tool_names else good(call)

    with ModelServer(script) as server:
        declare(server.openai_url)
        code, document, checks = measured()
        posts = [call for call in server.calls if call.method == "POST"]
    assert code == 1
    assert len(posts) <= MAX_CALLS + MAX_REFUSALS
    assert checks["JSON"][:2] == ("ok", "asked for in words; its models can judge")
    assert checks["tools"][0] == "problem"
    assert "tools = false" in checks["tools"][2]
    assert checks["effort"][:2] == ("ok", "it takes the efforts low, medium")
    assert checks["streaming"][:2] == ("note", "no: replies come whole")
    assert document["profile"] == {
        "replies": "prompt",
        "efforts": ["low", "medium"],
        "streams": False,
        "finish_reason": True,
    }
    assert (document["endpoint"], document["model"], document["can_call"]) == ("house", "local-model", False)


def test_a_schema_that_is_ignored_is_asked_for_in_words() -> None:
    def script(call: Call) -> Reply | Fault:
        return Reply("Seven is greater.") if call.wants_json else good(call)

    with ModelServer(script) as server:
        declare(server.openai_url)
        code, document, checks = measured()
    assert code == 0
    assert checks["JSON"][1] == "asked for in words; its models can judge"
    assert document["profile"]["replies"] == "prompt"


def test_a_model_that_never_writes_json_cannot_judge() -> None:
    with ModelServer(lambda call: Reply("Seven.") if "greater" in call.last_text else good(call)) as server:
        declare(server.openai_url)
        code, _, checks = measured()
    assert code == 1
    assert checks["JSON"][0] == "problem"
    assert "structured_output = false" in checks["JSON"][2]


def test_the_lines_to_add_declare_the_context_that_the_server_tells() -> None:
    props = context("/props", {"default_generation_settings": {"n_ctx": 8192}})
    with ModelServer(good, models=("local-model",), others=props) as server:
        told = delegate("doctor", OPENAI_BASE_URL=server.openai_url).stdout
    assert 'id = "local-model", tier = "standard", context_tokens = 8192, input_price = 0' in told
    with ModelServer(good, models=("local-model",)) as server:
        silent = delegate("doctor", OPENAI_BASE_URL=server.openai_url).stdout
    assert 'id = "local-model", tier = "standard", input_price = 0' in silent


OLLAMA = {"models": [{"name": "local-model:latest", "model": "local-model:latest", "context_length": 4096}]}
LM_STUDIO = {"data": [{"id": "local-model", "max_context_length": 131072, "loaded_context_length": 4096}]}
SHOWN = {"parameters": 'num_ctx                        4096\nstop                           "<end>"'}


@pytest.mark.parametrize(
    ("path", "body", "fix"),
    [
        ("/api/ps", OLLAMA, "OLLAMA_CONTEXT_LENGTH"),
        ("/props", {"default_generation_settings": {"n_ctx": 4096}}, "--ctx-size"),
        ("/api/v0/models", LM_STUDIO, "LM Studio"),
        ("/api/show", SHOWN, "num_ctx"),
        ("/v1/models", None, "--max-model-len"),
    ],
)
def test_a_context_that_is_shorter_than_declared_is_a_problem_with_a_fix(path: str, body: object, fix: str) -> None:
    listed = {"id": "local-model", **({} if body else {"max_model_len": 4096})}
    with ModelServer(good, models=(listed,), others=context(path, body)) as server:
        declare(server.openai_url)
        code, _, checks = measured()
    status, text, advice = checks["context"]
    assert (code, status) == (1, "problem")
    assert "the server takes 4,096 tokens" in text
    assert "declared: 32,768 tokens" in text
    assert fix in advice
    assert "context_tokens = 4096" in advice


@pytest.mark.parametrize(
    "answer",
    [
        Fault(404, {}),
        Fault(200, "<html>"),
        Fault(200, "[1]"),
        Fault(200, {"models": [7, {"name": "local-model", "context_length": "much"}]}),
        Fault(302, headers={"location": "http://127.0.0.1:9/"}),
    ],
)
def test_a_server_that_says_nothing_of_its_context_is_no_problem(answer: Fault) -> None:
    with ModelServer(good, others=lambda call: answer) as server:
        declare(server.openai_url)
        code, _, checks = measured()
    assert (code, checks["context"][0]) == (0, "note")


def test_a_server_that_is_down_is_one_problem() -> None:
    declare("http://127.0.0.1:9/v1")
    code, document, checks = measured()
    assert (code, list(checks), document["profile"]) == (1, ["text"], {})
    assert "can't connect to http://127.0.0.1:9/v1" in checks["text"][1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--endpoint", "hause"), "there is no endpoint 'hause' (known endpoints: house"),
        (("--endpoint", "closed"), "the endpoint 'closed' has no key (set CLOSED_KEY)"),
        (
            ("--endpoint", "house", "--model", "gpt-6-luna"),
            "no model 'gpt-6-luna' (models declared there: local-model)",
        ),
        (("--model", "local-model"), "it needs --endpoint"),
    ],
)
def test_a_wrong_name_is_one_error_that_lists_the_known_ones(arguments: tuple[str, ...], said: str) -> None:
    declare("http://127.0.0.1:9/v1")
    done = delegate("doctor", *arguments)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert done.stdout == ""


@pytest.mark.parametrize("protocol", ["anthropic", "google"])
def test_servers_of_other_protocols_are_measured_too(protocol: str) -> None:
    with ModelServer(good) as server:
        declare(server.url, f'protocol = "{protocol}"')
        code, document, checks = measured()
    assert code == 0, checks
    assert document["profile"]["streams"] is True

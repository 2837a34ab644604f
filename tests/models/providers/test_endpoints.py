"""The bodies of many servers in `tests/data/endpoints/`, through the client."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delegate.cli.doctor.probe import paths
from delegate.cli.doctor.served_context import served_context
from delegate.types.ports import ChatRequest, Message, ToolReply
from tests.models.providers.conftest import WIRES, Opener
from tests.support.model_server import Call, Fault, ModelServer

FOLDER = Path(__file__).resolve().parents[2] / "data" / "endpoints"
SERVERS: dict[str, dict[str, Any]] = {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}
SCHEMA: dict[str, Any] = {"type": "object", "required": ["color"]}
THOUGHT = "The user asks for"


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SERVERS[request.param]


def ask(server: dict[str, Any]) -> ChatRequest:
    return ChatRequest(server["model"], "", [Message("user", "What color is the sky?")], 200)


async def test_replies_of_every_server_are_read(server: dict[str, Any], opened: Opener) -> None:
    replies = server["replies"]
    with ModelServer([Fault(200, body) for body in replies.values()]) as local:
        client = opened(WIRES["chat"], local)
        read = {name: await client.complete(ask(server)) for name in replies}

    for name in {"text", "thoughts", "unparsed_thoughts"} & replies.keys():
        assert (read[name].text.strip(), read[name].stop, read[name].tool_calls) == ("The sky is blue.", "end", ()), (
            name
        )
    assert json.loads(read["json"].text) == {"color": "blue"}
    (call,) = read["tool_call"].tool_calls
    assert (read["tool_call"].stop, call.name, call.arguments) == ("tool_calls", "look_up", {"city": "Oslo"})
    assert all(reply.usage.input_tokens > 10 and reply.model_served == server["model"] for reply in read.values())


async def test_a_conversation_goes_on_with_every_server(server: dict[str, Any], opened: Opener) -> None:
    thoughtful = {**server["replies"]["thoughts"]}
    message = thoughtful["choices"][0]["message"]
    call = server["replies"]["tool_call"]["choices"][0]["message"]["tool_calls"]
    thoughtful["choices"] = [
        {**thoughtful["choices"][0], "message": {**message, "tool_calls": call}, "finish_reason": "tool_calls"}
    ]
    with ModelServer([Fault(200, thoughtful), Fault(200, server["replies"]["text"])]) as local:
        client = opened(WIRES["chat"], local)
        first = await client.complete(ask(server))
        assert THOUGHT not in first.text
        said = Message("assistant", first.text, first.tool_calls, native=first.native)
        results = Message("tool", tool_replies=(ToolReply(first.tool_calls[0].id, "look_up", "blue"),))
        await client.complete(replace(ask(server), messages=[*ask(server).messages, said, results]))
    sent = local.calls[1].body["messages"][1]
    assert THOUGHT in json.dumps(sent)
    assert sent["tool_calls"][0]["function"] == {"name": "look_up", "arguments": '{"city":"Oslo"}'}


ERRORS = [(name, n) for name, server in SERVERS.items() for n in range(len(server["errors"]))]


@pytest.mark.parametrize(("name", "n"), ERRORS)
async def test_what_every_server_refuses_is_asked_for_in_another_way(name: str, n: int, opened: Opener) -> None:
    server, error = SERVERS[name], SERVERS[name]["errors"][n]
    about_effort = error["refuses"] == "effort"

    def refused(call: Call) -> bool:
        format = call.body.get("response_format", {}).get("type")
        refused_format = format is not None and error["refuses"] in ("format", format)
        return call.body.get("reasoning_effort") != error["then"] if about_effort else refused_format

    def script(call: Call) -> Fault:
        body = server["replies"]["text" if about_effort else "json"]
        return Fault(error["status"], error["body"]) if refused(call) else Fault(200, body)

    request = replace(ask(server), **({"effort": error["sent"]} if about_effort else {"reply_schema": SCHEMA}))
    with ModelServer(script) as local:
        client = opened(WIRES["chat"], local)
        for _ in range(2):
            assert (await client.complete(request)).stop == "end"
    assert len(local.calls) <= 4


@pytest.mark.parametrize("name", [name for name, server in SERVERS.items() if "context" in server])
async def test_the_context_that_a_server_serves_is_found(name: str) -> None:
    server, told = SERVERS[name], SERVERS[name]["context"]
    listed = told.get("entry", {"id": server["model"]})

    def others(call: Call) -> Fault:
        return Fault(200, told["body"]) if call.path == told["path"] else Fault(404, {})

    with ModelServer([], models=(listed,), others=others) as local:
        endpoint = WIRES["chat"].endpoint(local.openai_url)
        listing, _, headers = paths(endpoint, "key")
        served = await served_context(endpoint, listing, headers, server["model"])
    assert served is not None
    assert served.tokens == told["tokens"]


def test_every_stream_is_the_reply_in_pieces(server: dict[str, Any]) -> None:
    events = [json.loads(line.removeprefix("data: ")) for line in server["stream"] if line.startswith("data: {")]
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "The sky is blue."
    assert server["stream"][-1] == "data: [DONE]"

"""Servers that take no reply schema are asked for JSON in words, and thoughts are taken out of texts."""

import json
from dataclasses import replace
from typing import Any

from delegate import Delegator, Task
from delegate.models.overrides import DeclaredEndpoint, DeclaredModel
from delegate.types.ports import ChatRequest, Message, ToolReply
from tests.models.providers.conftest import WIRES, Opener
from tests.support.model_server import Call, Fault, ModelServer, Reply

SCHEMA: dict[str, Any] = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}
ASK = ChatRequest("m", "Be short.", [Message("user", "Is it?")], 100, reply_schema=SCHEMA)


async def test_a_judge_without_schemas_is_a_judge() -> None:
    answer = {"answers": [{"id": "c1", "evidence": "the sky is blue today", "reason": "It says so.", "verdict": "met"}]}

    def script(call: Call) -> Reply | Fault:
        if "response_format" in call.body:
            error = {"message": "This response_format type is unavailable now", "type": "invalid_request_error"}
            return Fault(400, body={"error": error})
        is_judge = "JSON Schema" in call.system
        return (
            Reply(f"<think>hm</think>\n{json.dumps(answer)}") if is_judge else Reply("I found the sky is blue today.")
        )

    models = (
        DeclaredModel(id="worker", tier="standard", family="a"),
        DeclaredModel(id="judge", tier="standard", family="b"),
    )
    with ModelServer(script) as server:
        endpoint = DeclaredEndpoint(name="house", base_url=server.openai_url, models=models)
        async with Delegator(endpoints=(endpoint,), model="worker", judge_model="judge") as delegator:
            task = Task(goal="Say the color of the sky.", acceptance_criteria=["report: It names the sky's color."])
            result = await delegator.run(task)
    verdict = result.results[0].verdict
    assert verdict is not None
    assert (verdict.code, verdict.verdict) == ("met", "PASS"), verdict


async def test_thoughts_before_a_text_are_taken_out_and_sent_back(opened: Opener) -> None:
    written = "<think>hm\n</think>\n\nhello"
    with ModelServer([Reply(written, tool_calls=(("a", {}),)), Reply("done")]) as server:
        client = opened(WIRES["chat"], server)
        reply = await client.complete(replace(ASK, reply_schema=None))
        said = Message("assistant", reply.text, reply.tool_calls, native=reply.native)
        results = Message("tool", tool_replies=(ToolReply(reply.tool_calls[0].id, "a", "ok"),))
        await client.complete(replace(ASK, reply_schema=None, messages=[*ASK.messages, said, results]))
    assert reply.text == "hello"
    assert server.calls[1].body["messages"][2]["content"] == written

"""Reads what a client sent to its model, in four APIs, and writes the model's calls of tools.

Clients of one API differ in how they pass on the tools of an MCP server. Codex puts them into a namespace, or leaves
them to a search or to JavaScript, depending on the model.
"""
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# What clients send is JSON of any form.

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.support.model_server import Call, Fault, Reply
from tests.support.streams import stream
from tests.support.wire_formats import Responses

Json = dict[str, Any]
How = Literal["function", "search", "code"]
"""How a model calls a tool: directly, after it has found it with the client's search, or from JavaScript."""


@dataclass(frozen=True)
class Listed:
    """A tool in a request."""

    name: str
    description: str
    schema: Json
    namespace: str = ""


@dataclass(frozen=True)
class Answered:
    """A call of a tool in the conversation, and its result as the model reads it."""

    tool: str
    text: str


def listed(call: Call) -> list[Listed]:
    """All tools that a request offers to its model, also those that a search has found."""
    return list(_listed(call.body))


def answered(call: Call) -> list[Answered]:
    """The calls in the conversation that have a result, in order."""
    body = call.body
    if call.api == "chat":
        return list(_chat(body["messages"]))
    if call.api == "messages":
        return list(_messages(body["messages"]))
    if call.api == "responses":
        return list(_responses(body["input"]))
    return [
        Answered(part["functionResponse"]["name"], json.dumps(part["functionResponse"]["response"], ensure_ascii=False))
        for content in body["contents"]
        for part in content["parts"]
        if "functionResponse" in part
    ]


def _listed(body: Json) -> Iterator[Listed]:
    for tool in body.get("tools") or ():
        yield from _tools_in(tool)
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        if item.get("type") in {"additional_tools", "tool_search_output"}:
            for tool in item["tools"]:
                yield from _tools_in(tool)


def _tools_in(tool: Json, namespace: str = "") -> Iterator[Listed]:
    for inner in tool.get("tools") or ():
        yield from _tools_in(inner, tool.get("name", ""))
    for function in tool.get("functionDeclarations") or ():
        schema = function.get("parametersJsonSchema") or function.get("parameters") or {}
        yield Listed(function["name"], function.get("description", ""), schema)
    inner = tool.get("function") or tool
    if tool.get("type") != "namespace" and (name := inner.get("name") or tool.get("type")):
        schema = inner.get("parameters") or inner.get("input_schema") or {}
        yield Listed(name, inner.get("description", ""), schema, namespace)


def _chat(messages: Sequence[Json]) -> Iterator[Answered]:
    names: dict[str, str] = {}
    for message in messages:
        names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
        if message["role"] == "tool":
            yield Answered(names.get(message["tool_call_id"], ""), text_of(message["content"]))


def _messages(messages: Sequence[Json]) -> Iterator[Answered]:
    names: dict[str, str] = {}
    for message in messages:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                names[block["id"]] = block["name"]
            elif block["type"] == "tool_result":
                yield Answered(names.get(block["tool_use_id"], ""), text_of(block.get("content")))


def _responses(items: Sequence[Json] | str) -> Iterator[Answered]:
    names: dict[str, str] = {}
    for item in items if not isinstance(items, str) else ():
        if item.get("type") in {"function_call", "custom_tool_call"}:
            names[item["call_id"]] = item["name"]
        elif item.get("type") in {"function_call_output", "custom_tool_call_output"}:
            yield Answered(names.get(item["call_id"], ""), text_of(item["output"]))


def text_of(content: Any) -> str:
    """The text of a result: of a string, or of a list of blocks. Other values are shown as JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(block) for block in content)
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        return content["text"]
    return json.dumps(content, ensure_ascii=False)


def calling(call: Call, tool: Listed, calls: Sequence[Json], how: How) -> Reply | Fault:
    """The model's reply that calls a tool once with each of these arguments."""
    if how == "code":
        name = f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name
        made = [f"tools.{name}({json.dumps(arguments)})" for arguments in calls]
        script = f"const all = await Promise.allSettled([{', '.join(made)}]);\nfor (const one of all) "
        script += "text(one.status === 'fulfilled' ? one.value : String(one.reason));"
        return _items(call, [{"type": "custom_tool_call", "name": "exec", "namespace": "functions", "input": script}])
    if tool.namespace:
        head = {"type": "function_call", "name": tool.name, "namespace": tool.namespace}
        return _items(call, [{**head, "arguments": json.dumps(arguments)} for arguments in calls])
    return Reply(tool_calls=tuple((tool.name, arguments) for arguments in calls))


def searching(call: Call, search: Listed, name: str = "delegate_task") -> Reply | Fault:
    """The model's reply that looks for a tool, with the client's own search."""
    if search.name == "tool_search" and call.api == "responses":
        query: Json = {"query": "delegate a task to a child agent", "limit": 8}
        return _items(call, [{"type": "tool_search_call", "execution": "client", "arguments": query}])
    return Reply(tool_calls=((search.name, {"query": name}),))


def waiting(call: Call, cell: str) -> Fault:
    """The model's reply that waits for a script of Codex's code mode."""
    arguments = json.dumps({"cell_id": cell, "yield_time_ms": 60_000})
    head = {"type": "function_call", "name": "wait", "namespace": "functions"}
    return _items(call, [{**head, "arguments": arguments}])


_numbers = iter(range(1, 1_000_000))


def _items(call: Call, items: Sequence[Json]) -> Fault:
    """A streamed reply of the Responses API with these output items, which get their ids."""
    number = next(_numbers)
    wire = Responses().render(Reply(), call.model, number)
    wire["output"] = [
        {"id": f"it_{number}_{n}", "call_id": f"call_{number}_{n}", "status": "completed", **item}
        for n, item in enumerate(items)
    ]
    return Fault(200, stream("responses", wire), {"content-type": "text/event-stream"})

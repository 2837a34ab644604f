"""An agent's loop of one's own: a model with Chat Completions, and tools that a client calls."""

import asyncio
import json
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

Json = dict[str, Any]


async def converse(url: str, prompt: str, tools: Sequence[Json], call: Callable[[str, Json], Awaitable[str]]) -> None:
    """Ask the model until it calls no more tools. The calls of one turn are made at once."""
    listed = [
        {"type": "function", "function": {key: tool.get(key) for key in ("name", "description", "parameters")}}
        for tool in tools
    ]
    messages: list[Json] = [{"role": "user", "content": prompt}]
    while True:
        body = {"model": "test-model", "messages": messages, "tools": listed}
        reply = (await asyncio.to_thread(_post, f"{url}/chat/completions", body))["choices"][0]["message"]
        messages.append(reply)
        calls = reply.get("tool_calls") or []
        if not calls:
            print(reply["content"])
            return
        made = [call(one["function"]["name"], json.loads(one["function"]["arguments"])) for one in calls]
        for one, text in zip(calls, await asyncio.gather(*made), strict=True):
            messages.append({"role": "tool", "tool_call_id": one["id"], "content": text})


def _post(url: str, body: Json) -> Json:
    headers = {"content-type": "application/json", "authorization": "Bearer test"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)

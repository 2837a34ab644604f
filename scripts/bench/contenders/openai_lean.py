"""The leanest public use of the OpenAI SDK: its aiohttp backend, and `client.post` with a body that it doesn't read."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_type_hints

from openai import APIResponseValidationError, AsyncOpenAI, DefaultAioHttpClient

from scripts.bench.workload import Json, Workload, use_tool

_RESPONSE: Any = get_type_hints(APIResponseValidationError.__init__)["response"]
"""The response class of the HTTP library, which differs between versions of the SDK."""


class OpenAILean:
    """The tool loop and the judge call, written by hand. Requests and replies are JSON, without the SDK's models."""

    def __init__(self, client: AsyncOpenAI, work: Workload, folder: Path) -> None:
        self._client = client
        self._work = work
        self._folder = folder

    async def delegate(self, count: int) -> None:
        await asyncio.gather(*(self._delegation(self._folder / str(n)) for n in range(count)))

    async def converse(self, messages: int) -> None:
        await self._ask(self._work.conversation[:messages], tools=self._work.tools)

    async def _delegation(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        messages = self._work.child_messages()
        while calls := (message := await self._ask(messages, tools=self._work.tools)).get("tool_calls"):
            messages.append(message)
            for call in calls:
                text = use_tool(folder, call["function"]["name"], json.loads(call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        judged = await self._ask(self._work.judge_messages(), response_format=self._work.response_format)
        self._work.check(message["content"], json.loads(judged["content"]))

    async def _ask(self, messages: list[Json], **asked: Any) -> Json:
        body = json.dumps({"model": self._work.model, "messages": messages, **asked}).encode()
        response = await self._client.post("/chat/completions", content=body, cast_to=_RESPONSE)
        return json.loads(response.content)["choices"][0]["message"]


@asynccontextmanager
async def open_contender(url: str, work: Workload, folder: Path) -> AsyncGenerator[OpenAILean]:
    """Open one client for all calls."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="dummy", http_client=DefaultAioHttpClient()) as client:
        yield OpenAILean(client, work, folder)

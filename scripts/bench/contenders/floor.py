"""The lower bound: the same HTTP calls with only aiohttp and orjson."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from scripts.bench.workload import Json, Workload, use_tool


class Floor:
    """Sends requests and reads replies as plain dicts."""

    def __init__(self, session: aiohttp.ClientSession, url: str, work: Workload, folder: Path) -> None:
        self._session = session
        self._url = f"{url}/v1/chat/completions"
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
                text = use_tool(folder, call["function"]["name"], orjson.loads(call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        judged = await self._ask(self._work.judge_messages(), response_format=self._work.response_format)
        self._work.check(message["content"], orjson.loads(judged["content"]))

    async def _ask(self, messages: list[Json], **asked: Any) -> Json:
        body = orjson.dumps({"model": self._work.model, "messages": messages, **asked})
        headers = {"authorization": "Bearer dummy", "content-type": "application/json"}
        async with self._session.post(self._url, data=body, headers=headers) as response:
            response.raise_for_status()
            return orjson.loads(await response.read())["choices"][0]["message"]


@asynccontextmanager
async def open_contender(url: str, work: Workload, folder: Path) -> AsyncGenerator[Floor]:
    """Open one session for all calls, with no limit on connections."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield Floor(session, url, work, folder)

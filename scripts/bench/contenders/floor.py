"""The lower bound: the same HTTP calls with only aiohttp and orjson."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from scripts.bench.contenders.contender import JsonLoop
from scripts.bench.workload import Json, Workload


class Floor(JsonLoop):
    """Sends requests and reads replies as plain dicts."""

    def __init__(self, session: aiohttp.ClientSession, url: str, work: Workload, folder: Path) -> None:
        super().__init__(work, folder, orjson.loads)
        self._session = session
        self._url = f"{url}/v1/chat/completions"

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

"""The leanest public use of the OpenAI SDK: its aiohttp backend, and `client.post` with a body that it doesn't read."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_type_hints

from openai import APIResponseValidationError, AsyncOpenAI, DefaultAioHttpClient

from scripts.bench.contenders.contender import JsonLoop, Use, tools_for_files
from scripts.bench.workload import Json, Workload

_RESPONSE: Any = get_type_hints(APIResponseValidationError.__init__)["response"]
"""The response class of the HTTP library, which differs between versions of the SDK."""


class OpenAILean(JsonLoop):
    """Sends requests and reads replies as plain dicts, without the SDK's models."""

    def __init__(self, client: AsyncOpenAI, work: Workload, folder: Path, tools: Callable[[Path], Use]) -> None:
        super().__init__(work, folder, json.loads, tools)
        self._client = client

    async def _ask(self, messages: list[Json], **asked: Any) -> Json:
        body = json.dumps({"model": self._work.model, "messages": messages, **asked}).encode()
        response = await self._client.post("/chat/completions", content=body, cast_to=_RESPONSE)
        return json.loads(response.content)["choices"][0]["message"]


@asynccontextmanager
async def open_contender(
    url: str, work: Workload, folder: Path, tools: Callable[[Path], Use] = tools_for_files
) -> AsyncGenerator[OpenAILean]:
    """Open one client for all calls."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="dummy", http_client=DefaultAioHttpClient()) as client:
        yield OpenAILean(client, work, folder, tools)

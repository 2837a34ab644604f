"""The bare OpenAI SDK, used as in its documentation: `AsyncOpenAI().chat.completions.create(...)`."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessage

from scripts.bench.contenders.contender import HandWritten
from scripts.bench.workload import Workload, use_tool


class OpenAISdk(HandWritten):
    """Requests and replies are the SDK's models."""

    def __init__(self, client: AsyncOpenAI, work: Workload, folder: Path) -> None:
        super().__init__(work, folder)
        self._client = client

    async def _delegation(self, folder: Path) -> None:
        folder.mkdir()
        messages: list[Any] = [*self._work.child_messages()]
        while calls := (message := await self._ask(messages, tools=self._work.tools)).tool_calls:
            messages.append(message)
            for call in calls:
                assert call.type == "function"
                text = use_tool(folder, call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        judged = await self._ask(self._work.judge_messages(), response_format=self._work.response_format)
        self._work.check(message.content or "", json.loads(judged.content or ""))

    async def _ask(self, messages: list[Any], **asked: Any) -> ChatCompletionMessage:
        create: Any = self._client.chat.completions.create  # its overloads can't be resolved with **asked
        reply: ChatCompletion = await create(model=self._work.model, messages=messages, **asked)
        return reply.choices[0].message


@asynccontextmanager
async def open_contender(url: str, work: Workload, folder: Path) -> AsyncGenerator[OpenAISdk]:
    """Open one client for all calls, with its default settings."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="dummy") as client:
        yield OpenAISdk(client, work, folder)

"""pydantic-ai, used as in its documentation: an agent with two tools, and a judge with an output type."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from pydantic_ai import Agent, NativeOutput, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from scripts.bench.contenders.contender import HandWritten
from scripts.bench.contenders.judgment import Judgment
from scripts.bench.workload import Json, Workload, use_tool


class PydanticAI(HandWritten):
    """A new agent for each child, whose tools know its folder, and one judge for all."""

    def __init__(self, model: OpenAIChatModel, work: Workload, folder: Path) -> None:
        super().__init__(work, folder)
        self._model = model
        self._judge = Agent(model, instructions=work.judge_system, output_type=NativeOutput(Judgment))

    async def _delegation(self, folder: Path) -> None:
        folder.mkdir()
        tools = [_tool(tool["function"], folder) for tool in self._work.tools]
        child = Agent(self._model, instructions=self._work.child_system, tools=tools)
        report = (await child.run(self._work.child_user)).output
        judged = (await self._judge.run(self._work.judge_user)).output
        self._work.check(report, judged.model_dump())

    async def _ask(self, messages: list[Any], **asked: Any) -> Any:
        raise NotImplementedError


def _tool(spec: Json, folder: Path) -> Tool[None]:
    def call(**args: Any) -> str:
        return use_tool(folder, spec["name"], args)

    return Tool.from_schema(call, spec["name"], spec["description"], spec["parameters"])


@asynccontextmanager
async def open_contender(url: str, work: Workload, folder: Path) -> AsyncGenerator[PydanticAI]:
    """Open one client for all agents, with its default settings."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="dummy") as client:
        yield PydanticAI(OpenAIChatModel(work.model, provider=OpenAIProvider(openai_client=client)), work, folder)

"""openai-agents, used as in its documentation: an agent with two function tools, and a judge with an output type."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agents import Agent, FunctionTool, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

from scripts.bench.contenders.contender import HandWritten
from scripts.bench.contenders.judgment import Judgment
from scripts.bench.workload import Json, Workload, use_tool


class OpenAIAgents(HandWritten):
    """A new agent for each child, whose tools know its folder, and one judge for all."""

    def __init__(self, model: OpenAIChatCompletionsModel, work: Workload, folder: Path) -> None:
        super().__init__(work, folder)
        self._model = model
        self._judge = Agent("judge", instructions=work.judge_system, model=model, output_type=Judgment)

    async def _delegation(self, folder: Path) -> None:
        folder.mkdir()
        tools: list[Any] = [_tool(tool["function"], folder) for tool in self._work.tools]
        child = Agent("child", instructions=self._work.child_system, model=self._model, tools=tools)
        report = (await Runner.run(child, self._work.child_user)).final_output
        judged = (await Runner.run(self._judge, self._work.judge_user)).final_output
        self._work.check(report, judged.model_dump())

    async def _ask(self, messages: list[Any], **asked: Any) -> Any:
        raise NotImplementedError


def _tool(spec: Json, folder: Path) -> FunctionTool:
    async def call(_: Any, args: str) -> str:
        return use_tool(folder, spec["name"], json.loads(args))

    return FunctionTool(spec["name"], spec["description"], spec["parameters"], call, strict_json_schema=False)


@asynccontextmanager
async def open_contender(url: str, work: Workload, folder: Path) -> AsyncGenerator[OpenAIAgents]:
    """Open one client for all agents, with its default settings, without tracing."""
    set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="dummy") as client:
        yield OpenAIAgents(OpenAIChatCompletionsModel(work.model, client), work, folder)

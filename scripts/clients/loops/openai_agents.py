"""An agent of the OpenAI Agents SDK."""

import asyncio
import json
import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI


async def main(url: str, env: str, prompt: str) -> None:
    """Connect, and run the agent."""
    set_tracing_disabled(True)
    params = {"command": "delegate", "args": ["mcp"], "env": {**os.environ, **json.loads(env)}}
    # Without a timeout of its own, the SDK waits for 5 seconds.
    async with MCPServerStdio(params, client_session_timeout_seconds=3_600) as server:
        model = OpenAIChatCompletionsModel("test-model", AsyncOpenAI(base_url=url, api_key="test"))
        agent = Agent(name="lead", model=model, mcp_servers=[server])
        print((await Runner.run(agent, prompt, max_turns=80)).final_output)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

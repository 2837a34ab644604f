"""An agent of Pydantic AI."""

import asyncio
import json
import os
import sys

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def main(url: str, env: str, prompt: str) -> None:
    """Connect, and run the agent."""
    transport = StdioTransport("delegate", ["mcp"], env={**os.environ, **json.loads(env)})
    server = MCPToolset(transport, init_timeout=30, read_timeout=3_600)
    model = OpenAIChatModel("test-model", provider=OpenAIProvider(base_url=url, api_key="test"))
    agent = Agent(model, toolsets=[server])
    async with agent:
        print((await agent.run(prompt)).output)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

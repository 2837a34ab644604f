"""An agent of LangChain, with langchain-mcp-adapters."""

import asyncio
import json
import os
import sys

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI


async def main(url: str, env: str, prompt: str) -> None:
    """Connect, and run the agent."""
    server = {"transport": "stdio", "command": "delegate", "args": ["mcp"], "env": {**os.environ, **json.loads(env)}}
    client = MultiServerMCPClient({"delegate": server})
    async with client.session("delegate") as session:  # `client.get_tools()` would start a server for each call
        agent = create_agent(
            ChatOpenAI(model="test-model", base_url=url, api_key="test"), await load_mcp_tools(session)
        )
        state = await agent.ainvoke({"messages": [("user", prompt)]}, {"recursion_limit": 200})
        print(state["messages"][-1].content)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""The MCP SDK's client, of version 1 or 2."""

import asyncio
import json
import sys
from typing import Any

import mcp
from chat import converse
from mcp.client.stdio import StdioServerParameters, stdio_client


async def main(url: str, env: str, prompt: str) -> None:
    """Connect, and let the model call."""
    import os

    server = StdioServerParameters(command="delegate", args=["mcp"], env={**os.environ, **json.loads(env)})
    transport = stdio_client(server)
    if hasattr(mcp, "Client"):
        async with mcp.Client(transport, elicitation_callback=_answer) as client:
            await _talk(client, url, prompt)
    else:
        async with transport as (read, write), mcp.ClientSession(read, write, elicitation_callback=_answer) as session:
            await session.initialize()
            await _talk(session, url, prompt)


async def _answer(context: Any, params: Any) -> mcp.types.ElicitResult:
    """What the user answers to each form."""
    return mcp.types.ElicitResult(action="accept", content={"answer": "2"})


async def _talk(client: Any, url: str, prompt: str) -> None:
    async def call(name: str, arguments: dict[str, Any]) -> str:
        result = await client.call_tool(name, arguments)
        return "\n".join(block.text for block in result.content)

    tools = [one.model_dump(by_alias=True) for one in (await client.list_tools()).tools]
    await converse(url, prompt, [{**tool, "parameters": tool["inputSchema"]} for tool in tools], call)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

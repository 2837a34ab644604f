"""The client of FastMCP."""

import asyncio
import json
import os
import sys
from typing import Any

from chat import converse
from fastmcp import Client


async def main(url: str, env: str, prompt: str) -> None:
    """Connect, and let the model call."""
    server = {"command": "delegate", "args": ["mcp"], "env": {**os.environ, **json.loads(env)}}
    async with Client({"mcpServers": {"delegate": server}}, elicitation_handler=_answer) as client:

        async def call(name: str, arguments: dict[str, Any]) -> str:
            result = await client.call_tool(name, arguments, raise_on_error=False)
            return "\n".join(block.text for block in result.content)

        tools = [tool.model_dump(by_alias=True) for tool in await client.list_tools()]
        await converse(url, prompt, [{**tool, "parameters": tool["inputSchema"]} for tool in tools], call)


async def _answer(message: str, form: Any, params: Any, context: Any) -> dict[str, str]:
    """What the user answers to each form."""
    return {"answer": "2"}


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""Programs that make one call of MCP and end: mcporter and the MCP Inspector's `--cli`."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from chat import converse


async def main(url: str, program: str, prompt: str, project: str) -> None:
    """List the tools with the program, and let the model call them with it."""
    inspector = Path(program).name == "mcp-inspector"
    if inspector:
        head = [program, "--cli", "--config", f"{project}/mcp.json", "--server", "delegate"]
    else:
        head = [program, "--config", f"{project}/config/mcporter.json"]

    async def run(*arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *head, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        return (await process.communicate())[0].decode()

    async def call(name: str, arguments: dict[str, Any]) -> str:
        if not inspector:
            return await run("call", f"delegate.{name}", "--args", json.dumps(arguments), "--timeout", "3600000")
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
        given = [part for key, text in texts.items() for part in ("--tool-arg", f"{key}={text}")]
        return await run("--method", "tools/call", "--tool-name", name, *given)

    if inspector:
        tools = json.loads(await run("--method", "tools/list"))["tools"]
    else:
        tools = json.loads(await run("list", "delegate", "--schema", "--json", "--timeout", "30000"))["tools"]
    await converse(url, prompt, [{**tool, "parameters": tool.get("inputSchema")} for tool in tools], call)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""Claude Agent SDK: the Claude Code that the SDK includes, with the tool on a server in this process.

It gets its own home directory, and a proxy that doesn't exist, so that it can connect only to the model server.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, McpSdkServerConfig, ResultMessage
from claude_agent_sdk import tool as sdk_tool

from delegate import Delegator, Parent, Tool
from delegate.hosts import claude_agent_sdk
from delegate.hosts.host_tool import ToolAnswer
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario, errors_in_messages, own_tool, own_tools
from tests.hosts.world import NAMES, PARENT, NativeTool, World

_NOWHERE = "http://127.0.0.1:9"


def options(model_url: str, server: McpSdkServerConfig, *names: str, model: str = PARENT) -> ClaudeAgentOptions:
    """An agent with these tools of the server and no others."""
    here = Path.cwd()
    return ClaudeAgentOptions(
        model=model,
        system_prompt="You delegate.",
        cwd=here,
        tools=[],
        mcp_servers={"delegate": server},
        strict_mcp_config=True,
        allowed_tools=[f"mcp__delegate__{name}" for name in names or ("delegate_task",)],
        setting_sources=[],
        stderr=lambda line: None,
        env={
            "ANTHROPIC_BASE_URL": model_url,
            "ANTHROPIC_API_KEY": "dummy",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
            "HOME": str(here),
            "CLAUDE_CONFIG_DIR": str(here / "claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "HTTP_PROXY": _NOWHERE,
            "HTTPS_PROXY": _NOWHERE,
            "NO_PROXY": "127.0.0.1",
        },
    )


class ClaudeAgentSDK:
    name = "claude_agent_sdk"
    package = "claude-agent-sdk"
    side_by_side = False
    gaps: Mapping[Scenario, str] = {
        "progress_seen": "the SDK drops the notifications of servers in its own process, so Claude Code gets none",
        "usage_counted": "Claude Code counts only the tokens of its own model calls",
        "one_ledger_per_run": "the SDK tells a tool nothing about the run: calls share a ledger only if they overlap",
        "parent_tools_only": "a tool isn't told which tools the parent has: children get all that were converted",
        "approval_denied": "Claude Code asks for permission itself: a tool of a server in this process never does",
    }
    refusal = "'b' is a required property"

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        answers: list[ToolAnswer] = []
        parent, url = Parent(model=world.parent), world.server.anthropic_url
        more = [self.native_tool(world, name) for name in world.native]
        if world.own != "delegate":
            more.append(own_tool(claude_agent_sdk, world, delegator))
        server = claude_agent_sdk.server(delegator, parent=parent, on_answer=answers.append, tools=more)
        ends: list[ResultMessage] = []
        async with ClaudeSDKClient(options(url, server, NAMES[world.own], model=world.parent)) as client:
            await client.query("Find it out.")
            stopping = asyncio.create_task(_interrupt(client, cancel)) if cancel else None
            ends += [message async for message in client.receive_response() if isinstance(message, ResultMessage)]
            if stopping:
                await stopping
        (used,) = (end.usage or {} for end in ends)
        return Outcome(
            usage=(used["input_tokens"], used["output_tokens"]),
            structured=[answer.structured for answer in answers if answer.structured],
            errors=errors_in_messages(world),
        )

    def native_tool(self, world: World, name: NativeTool) -> Any:
        function = world.functions[name]

        async def handler(arguments: JsonObject) -> JsonObject:
            return {"content": [{"type": "text", "text": function(**arguments)}]}

        hints = {argument: kind for argument, kind in function.__annotations__.items() if argument != "return"}
        return sdk_tool(name, str(function.__doc__), hints)(handler)

    def own_tools(self, delegator: Delegator) -> list[Any]:
        return own_tools(claude_agent_sdk, delegator)

    def child_tools(self, tools: Sequence[Any]) -> Sequence[Tool]:
        return claude_agent_sdk.child_tools(tools)


async def _interrupt(client: ClaudeSDKClient, cancel: asyncio.Event) -> None:
    await cancel.wait()
    await client.interrupt()


async def invoke(tool: Any, arguments: JsonObject) -> object:
    """Call the tool like the SDK's server does."""
    return await tool.handler(arguments)


DRIVER = ClaudeAgentSDK()

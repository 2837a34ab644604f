"""Claude Agent SDK: Claude Code itself, as the SDK brings it, with the tool on a server in this process.

It gets a home of its own, and a proxy that isn't there, so that it reaches nothing but the model server.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, McpSdkServerConfig, ResultMessage

from delegate import Delegator
from delegate.hosts import claude_agent_sdk
from delegate.hosts.host_tool import ToolAnswer
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario
from tests.hosts.world import PARENT, World

_NOWHERE = "http://127.0.0.1:9"


def options(model_url: str, server: McpSdkServerConfig, *names: str) -> ClaudeAgentOptions:
    """An agent that has this server's tools and no others."""
    here = Path.cwd()
    return ClaudeAgentOptions(
        model=PARENT,
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
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": PARENT,
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
        "progress_seen": "Claude Code gets no notifications from servers in the SDK's process: the SDK drops them",
        "usage_counted": "Claude Code counts the tokens of its own model calls, and takes no others",
    }

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        answers: list[ToolAnswer] = []
        server = claude_agent_sdk.server(delegator, on_answer=answers.append)
        ends: list[ResultMessage] = []
        async with ClaudeSDKClient(options(world.server.anthropic_url, server)) as client:
            await client.query("Find it out.")
            stopping = asyncio.create_task(_interrupt(client, cancel)) if cancel else None
            ends += [told async for told in client.receive_response() if isinstance(told, ResultMessage)]
            if stopping:
                await stopping
        (used,) = (end.usage or {} for end in ends)
        return Outcome(
            usage=(used["input_tokens"], used["output_tokens"]),
            structured=[answer.structured for answer in answers if answer.structured],
        )


async def _interrupt(client: ClaudeSDKClient, cancel: asyncio.Event) -> None:
    await cancel.wait()
    await client.interrupt()


async def invoke(tool: Any, arguments: JsonObject) -> object:
    """Call the tool as the SDK's server does."""
    return await tool.handler(arguments)


DRIVER = ClaudeAgentSDK()

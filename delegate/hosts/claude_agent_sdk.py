"""Claude Agent SDK: an in-process MCP server with the tool.

    from claude_agent_sdk import ClaudeAgentOptions, query
    from delegate import Parent
    from delegate.hosts import claude_agent_sdk

    server = claude_agent_sdk.server(model="claude-haiku-5-5", parent=Parent(model="claude-sonnet-5-5"))
    options = ClaudeAgentOptions(mcp_servers={"delegate": server}, allowed_tools=["mcp__delegate__delegate_task"])
    async for message in query(prompt="…", options=options): ...

An interrupt of the client stops the children. The SDK gives a tool nothing but its arguments, so name the parent's
model here. Each call has a ledger of its own, which it shares with overlapping calls of the same session, unless
`Parent(run_id=…)` is given. Claude Code makes the calls of a turn one after the other, so put tasks that should run in
parallel into one call. It drops progress, passes on nothing but text, and counts only its own tokens: use
`Delegator(on_event=…)` for progress, and `on_answer` for the report and the tokens of each call.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NotRequired, Required, cast, get_args, get_origin, get_type_hints

import anyio
import jsonschema
from claude_agent_sdk import McpSdkServerConfig, SdkMcpTool, ToolAnnotations, create_sdk_mcp_server
from pydantic import Field, create_model

from delegate.delegator import Delegator
from delegate.errors import ToolError
from delegate.hosts.host_tool import (
    HostTool,
    Invocation,
    ToolAnswer,
    make_delegate_tool,
    make_read_tool,
    make_think_tool,
)
from delegate.ports import Tool, ToolOutput
from delegate.types import JsonObject, Parent

OnAnswer = Callable[[ToolAnswer], None]
AnyTool = SdkMcpTool[Any]


def server(
    delegator: Delegator | None = None,
    *,
    parent: Parent | None = None,
    on_answer: OnAnswer | None = None,
    tools: Sequence[AnyTool] = (),
    **options: Any,
) -> McpSdkServerConfig:
    """A server with the tool, for `ClaudeAgentOptions(mcp_servers={"delegate": …})`.

    `tools` are further ones for the same server, such as `read_tool`. `options` are settings, where no delegator is
    given; see `delegate_tool`.

    Raises:
        ConfigError: the settings are wrong.
    """
    own = tool(delegator, parent=parent, on_answer=on_answer, **options)
    offered = [own, *tools]
    config = create_sdk_mcp_server("delegate", tools=offered)
    for one in offered:
        if isinstance(one, _OwnTool):
            # The server has its own copy for the model by now. From this one it would check arguments, and refuse with
            # its words what we refuse with ours.
            cast("JsonObject", one.input_schema).clear()
    return config


def tool(
    delegator: Delegator | None = None,
    *,
    parent: Parent | None = None,
    on_answer: OnAnswer | None = None,
    **options: Any,
) -> AnyTool:
    """The tool alone, for a server that you make with `create_sdk_mcp_server`.

    There the SDK checks arguments by the schema before we see them, and words the refusal; `server` doesn't.

    Raises:
        ConfigError: the settings are wrong.
    """
    return _sdk_tool(make_delegate_tool(delegator, parent=parent, **options), on_answer)


def read_tool(delegator: Delegator) -> AnyTool:
    """The second tool, which reads a report that was cut."""
    return _sdk_tool(make_read_tool(delegator))


def think_tool(delegator: Delegator) -> AnyTool:
    """`think`, with which a parent holds a thought against its criteria."""
    return _sdk_tool(make_think_tool(delegator))


class _OwnTool(SdkMcpTool[Any]):
    """Never a child's: what a child may delegate is decided by the depth."""


def _sdk_tool(host_tool: HostTool, on_answer: OnAnswer | None = None) -> AnyTool:
    async def handler(arguments: JsonObject) -> JsonObject:
        answer = await host_tool.call(arguments, Invocation(session=anyio.get_current_task().parent_id))
        if on_answer is not None:
            on_answer(answer)
        return {"content": [{"type": "text", "text": answer.text}], "is_error": answer.is_error}

    # Three reports and what stands around them, which Claude Code would otherwise put in a file if they are long.
    annotations = ToolAnnotations(maxResultSizeChars=4 * host_tool.delegator.settings.result_chars)
    return _OwnTool(host_tool.name, host_tool.description, dict(host_tool.parameters), handler, annotations)


# ------------------------------------------------------------------------------------------------ tools for children


def child_tools(tools: Sequence[AnyTool]) -> list[Tool]:
    """Tools of SDK servers, for `Delegator(tools=…)`; delegate's own are left out.

    Claude Code's own tools and those of other MCP servers are out of reach: it doesn't let the SDK call them.
    """
    return [_child_tool(one) for one in tools if not isinstance(one, _OwnTool)]


def _child_tool(tool: AnyTool) -> Tool:
    schema = _schema(tool.input_schema)

    async def call(arguments: Mapping[str, Any]) -> ToolOutput:
        try:
            jsonschema.validate(dict(arguments), schema)
        except jsonschema.ValidationError as error:
            raise ToolError(f"the arguments of {tool.name} don't fit its schema: {error.message}") from None
        said = await tool.handler(dict(arguments))
        return ToolOutput(_text(said.get("content", [])), "error" if said.get("is_error") else "ok")

    return Tool(tool.name, tool.description, schema, call)


def _schema(given: type[Any] | dict[str, Any]) -> JsonObject:
    """The JSON schema behind each of the forms in which the SDK takes one."""
    if isinstance(given, dict) and isinstance(given.get("type"), str) and "properties" in given:
        return given
    hints = given if isinstance(given, dict) else get_type_hints(given, include_extras=True)
    optional: frozenset[str] = getattr(given, "__optional_keys__", frozenset())
    fields: dict[str, Any] = {name: _field(hint, name in optional) for name, hint in hints.items()}
    return create_model("Arguments", **fields).model_json_schema()


def _field(hint: Any, optional: bool) -> tuple[Any, Any]:
    hint = get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint
    described = next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, str)), None)
    return hint, Field(None if optional else ..., description=described)


def _text(content: Sequence[JsonObject]) -> str:
    """What there is of text; another block is named."""
    return "\n".join(str(block["text"]) if block["type"] == "text" else f"[{block['type']}]" for block in content)

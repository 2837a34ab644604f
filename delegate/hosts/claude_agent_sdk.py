"""Adapter for the Claude Agent SDK: an in-process MCP server with the tool.

    from claude_agent_sdk import ClaudeAgentOptions, query
    from delegate import Parent
    from delegate.hosts import claude_agent_sdk

    server = claude_agent_sdk.server(model="claude-haiku-5-5", parent=Parent(model="claude-sonnet-5-5"))
    options = ClaudeAgentOptions(mcp_servers={"delegate": server}, allowed_tools=["mcp__delegate__delegate_task"])
    async for message in query(prompt="…", options=options): ...

Children work in a git worktree of the repository that this process works in (`cwd` names another folder), or else in an
empty folder; `workspace` changes that. Interrupting the client stops the children. The SDK passes nothing but the
arguments to a tool, so pass the parent's model here. Overlapping calls of one session share a ledger; other calls have
one of their own each, unless `Parent(run_id=…)` is given. Claude Code makes the calls of one turn one after the other:
send tasks that should run in parallel in one call.

Claude Code drops progress notifications, keeps only a result's text, and counts only its own tokens. Use
`Delegator(on_event=…)` for progress and `on_answer` for the result and token usage of each call.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, Required, Unpack, cast, get_args, get_origin, get_type_hints

import anyio
import jsonschema
from claude_agent_sdk import McpSdkServerConfig, SdkMcpTool, ToolAnnotations, create_sdk_mcp_server
from pydantic import Field, create_model

from delegate.delegator import Delegator
from delegate.hosts.declarations import declared
from delegate.hosts.host_tool import HostTool, Invocation, ToolAnswer, make_delegate_tool, small_tools, text_of
from delegate.policy.settings import SettingsOptions
from delegate.types import JsonObject, Parent
from delegate.types.errors import ToolError
from delegate.types.ports import Tool, ToolOutput

__all__ = ["child_tools", "follow_up_tools", "read_tool", "server", "think_tool", "tool"]

OnAnswer = Callable[[ToolAnswer], None]
AnyTool = SdkMcpTool[Any]


def server(
    delegator: Delegator | None = None,
    *,
    parent: Parent | None = None,
    on_answer: OnAnswer | None = None,
    tools: Sequence[AnyTool] = (),
    workspace: str = "auto",
    cwd: Path | None = None,
    **options: Unpack[SettingsOptions],
) -> McpSdkServerConfig:
    """Create a server with delegate_task, for `ClaudeAgentOptions(mcp_servers={"delegate": …})`.

    `tools` are more tools for the same server, such as `read_tool`. Without a delegator, one is created from `options`
    (settings). `workspace` is where children work, as in `delegate mcp --workspace`: by default in a git worktree of
    the repository that the parent works in, or else in an empty folder. `cwd` is the folder that it works in, if it
    isn't this process's: the `cwd` of `ClaudeAgentOptions`.

    Raises:
        ConfigError: the settings or the workspace are wrong.
    """
    first = tool(delegator, parent=parent, on_answer=on_answer, workspace=workspace, cwd=cwd, **options)
    all_tools = [first, *tools]
    config = create_sdk_mcp_server("delegate", tools=all_tools)
    for one in all_tools:
        if isinstance(one, _DelegateTool):
            # The server has copied the schema for the model. It would validate arguments by this one, and refuse them
            # before delegate can explain what is wrong.
            cast("JsonObject", one.input_schema).clear()
    return config


def tool(
    delegator: Delegator | None = None,
    *,
    parent: Parent | None = None,
    on_answer: OnAnswer | None = None,
    workspace: str = "auto",
    cwd: Path | None = None,
    **options: Unpack[SettingsOptions],
) -> AnyTool:
    """Create delegate_task alone, for a server that you create with `create_sdk_mcp_server`.

    In such a server the SDK validates arguments by the schema and words the error itself; with `server`, delegate does.

    Raises:
        ConfigError: the settings or the workspace are wrong.
    """
    works_in = Path.cwd if cwd is None else lambda: cwd
    made = make_delegate_tool(delegator, parent=parent, workspace=workspace, cwd=works_in, **options)
    return _sdk_tool(made, on_answer)


class _DelegateTool(SdkMcpTool[Any]):
    """A tool of delegate's own. `child_tools` omits it: the depth limit decides whether a child may delegate."""


def _sdk_tool(host_tool: HostTool, on_answer: OnAnswer | None = None) -> AnyTool:
    async def handler(arguments: JsonObject) -> JsonObject:
        answer = await host_tool.call(arguments, Invocation(session=anyio.get_current_task().parent_id))
        if on_answer is not None:
            on_answer(answer)
        return {"content": [{"type": "text", "text": answer.text}], "is_error": answer.is_error}

    # Room for three reports and the text around them: Claude Code saves longer results to a file.
    annotations = ToolAnnotations(maxResultSizeChars=4 * host_tool.delegator.settings.result_chars)
    return _DelegateTool(host_tool.name, host_tool.description, dict(host_tool.parameters), handler, annotations)


read_tool, think_tool, follow_up_tools = small_tools(_sdk_tool)


# ------------------------------------------------------------------------------------------------ tools for children


def child_tools(tools: Sequence[AnyTool]) -> list[Tool]:
    """Convert tools of SDK servers for `Delegator(tools=…)`. Delegate's own tools are omitted.

    Claude Code's own tools and those of other MCP servers aren't available: the SDK can't call them.
    """
    return [_child_tool(one) for one in tools if not isinstance(one, _DelegateTool)]


def _child_tool(tool: AnyTool) -> Tool:
    schema = _schema(tool.input_schema)

    async def call(arguments: Mapping[str, Any]) -> ToolOutput:
        try:
            jsonschema.validate(dict(arguments), schema)
        except jsonschema.ValidationError as error:
            raise ToolError(f"the arguments of {tool.name} don't match its schema: {error.message}") from None
        result = await tool.handler(dict(arguments))
        return ToolOutput(text_of(result.get("content", [])), "error" if result.get("is_error") else "ok")

    return declared(Tool(tool.name, tool.description, schema, call), tool.annotations)


def _schema(given: type[Any] | dict[str, Any]) -> JsonObject:
    """The JSON Schema of a tool's input, from any of the forms that the SDK accepts."""
    if isinstance(given, dict) and isinstance(given.get("type"), str) and "properties" in given:
        return given
    hints = given if isinstance(given, dict) else get_type_hints(given, include_extras=True)
    optional: frozenset[str] = getattr(given, "__optional_keys__", frozenset())
    fields: dict[str, Any] = {name: _field(hint, name in optional) for name, hint in hints.items()}
    return create_model("Arguments", **fields).model_json_schema()


def _field(hint: Any, optional: bool) -> tuple[Any, Any]:
    hint = get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint
    description = next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, str)), None)
    return hint, Field(None if optional else ..., description=description)

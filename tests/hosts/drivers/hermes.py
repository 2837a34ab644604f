"""Hermes Agent: an `AIAgent` with tools from Hermes's registry, where its plugin manager registered delegate's."""
# ruff: noqa: E402
# Hermes has no types of its own.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

# Hermes reads and writes there, even while it is imported.
HOME = Path(tempfile.mkdtemp(prefix="dlg-hermes"))
atexit.register(shutil.rmtree, HOME, True)
os.environ["HERMES_HOME"] = str(HOME)

import model_tools
import yaml
from hermes_cli.plugins import discover_plugins
from hermes_state import SessionDB
from run_agent import AIAgent
from tools.registry import registry

from delegate import Delegator, Tool
from delegate.hosts import hermes
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario
from tests.hosts.world import PARENT, NativeTool, World

PLUGIN = "under-test"
_TOOLSETS: dict[NativeTool, str] = {"multiply": "native-multiply", "send_money": "native-send", "erase": "native-erase"}
_MODULE = f"from {__name__} import register_current as register\n"
_current: list[Delegator | None] = [None]
_worlds: list[World] = []
"""The world of the running scenario, last."""


def register_current(ctx: Any) -> None:
    """The `register` of the plugin in the plugin directory."""
    hermes.register(ctx, _current[0])


def plug_in(delegator: Delegator | None, *, plugin: JsonObject | None = None, grant: bool = False, **more: Any) -> None:
    """Let Hermes discover and load the plugin, with `plugin` and `more` in config.yaml. `grant` allows the override."""
    _current[0] = delegator
    folder = HOME / "plugins" / PLUGIN
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plugin.yaml").write_text(f"name: {PLUGIN}\nversion: '1'\n")
    (folder / "__init__.py").write_text(_MODULE)
    entry = {"allow_tool_override": grant, "config": plugin or {}}
    model = {"context_length": 128_000, **more.pop("model", {})}  # otherwise Hermes looks it up on the network
    plugins = {"enabled": [PLUGIN], "entries": {PLUGIN: entry}}
    (HOME / "config.yaml").write_text(yaml.safe_dump({"plugins": plugins, **more, "model": model}))
    ours = ("delegate_task", "read_delegation", "message_delegation", "merge_delegation", "think")
    for name in (hermes.OWN_NAME, *ours):
        if registry.get_toolset_for_tool(name) == "delegate":
            registry.deregister(name)
    discover_plugins(force=True)


class Parent(AIAgent):
    """Records the activity that Hermes shows."""

    activity: list[str]
    tools: list[Any]
    valid_tool_names: set[str]

    def _touch_activity(self, desc: str) -> None:
        self.activity = [*getattr(self, "activity", []), desc]
        super()._touch_activity(desc)


@contextmanager
def parent_at(url: str, *toolsets: str, model: str = PARENT, **more: Any) -> Generator[Parent]:
    """An agent whose model is at `url`, with these toolsets and delegate's."""
    agent = Parent(
        base_url=url,
        api_key="dummy",
        provider="custom",
        api_mode="chat_completions",
        model=model,
        max_iterations=5,
        enabled_toolsets=["delegate", *toolsets],
        quiet_mode=True,
        skip_context_files=True,
        skip_memory=True,
        **more,
    )
    try:
        yield agent
    finally:
        agent.close()


class Hermes:
    name = "hermes"
    package = "hermes-agent"
    side_by_side = False
    gaps: Mapping[Scenario, str] = {
        "result_kept": "Hermes keeps only the text, whose `results` have the fields of Hermes's own delegate_task",
        "own_tools_omitted": "Hermes's tools are given by name, and a name of delegate's own is refused with an error",
        "approval_denied": "Hermes's tools ask for approval while they run, and on a child's thread the answer is no",
    }
    refusal = "KeyError"

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        world.tool = hermes.OWN_NAME if world.own == "delegate" else ""
        plug_in(delegator, plugin={"also": ["read", "think", "message"]})
        errors: list[bool] = []

        def on_progress(event: str, *_: Any, is_error: bool = False, **__: Any) -> None:
            if event == "tool.completed":
                errors.append(is_error)

        database = SessionDB(HOME / "state.db")
        toolsets = [_TOOLSETS[name] for name in world.native]
        options: JsonObject = {"model": world.parent, "session_db": database, "tool_progress_callback": on_progress}
        with closing(database), parent_at(world.server.openai_url, *toolsets, **options) as agent:
            running = asyncio.create_task(asyncio.to_thread(agent.run_conversation, "Find it out."))
            if cancel is not None:
                await cancel.wait()
                agent.interrupt("stop")
            session = (await running)["session_id"]
            usage = tokens_of(session, database)
            results = [_text(text) if world.own == "delegate" else text for text in world.results]
            return Outcome(progress=agent.activity, usage=usage, errors=errors, results=results)

    def native_tool(self, world: World, name: NativeTool) -> Any:
        _worlds[:] = [world]
        return name

    def own_tools(self, delegator: Delegator) -> list[Any]:
        return [hermes.OWN_NAME, "read_delegation", "think", "message_delegation"]

    def child_tools(self, tools: Sequence[Any]) -> Sequence[Tool]:
        return hermes.child_tools(tools)


def _register_native_tool(name: NativeTool, *parameters: str) -> None:
    def handler(args: JsonObject, **_: Any) -> str:
        return _worlds[-1].functions[name](*(args[parameter] for parameter in parameters))

    properties: JsonObject = {parameter: {} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    definition = {"name": name, "description": f"The tool {name}.", "parameters": schema}
    registry.register(name=name, toolset=_TOOLSETS[name], schema=definition, handler=handler)


_register_native_tool("multiply", "a", "b")
_register_native_tool("send_money", "to")
_register_native_tool("erase", "path")


def tokens_of(session: str, database: Any) -> tuple[int, int]:
    """The sums of Hermes's insights: the agent's own tokens, and the others recorded for its session."""
    sums = "SELECT COALESCE(SUM(input_tokens), 0), COALESCE(SUM(output_tokens), 0) FROM session_model_usage"
    with database._lock:
        read, written = database._conn.execute(f"{sums} WHERE session_id = ?", (session,)).fetchone()
    return read, written


def _text(result: str) -> str:
    """The text in a result that the parent's model read; for a refused call, the whole result."""
    body: JsonObject = json.loads(result)
    return body.get("text", result)


async def invoke(tool_object: str, arguments: dict[str, Any]) -> object:
    """Call the registered tool of that name like Hermes's loop does: through its hooks, middleware and registry."""
    return await asyncio.to_thread(model_tools.handle_function_call, tool_object, arguments, "task", "call", "session")


DRIVER = Hermes()

"""Hermes Agent: an `AIAgent` whose tools come from Hermes's own registry, into which its plugin manager put ours."""
# ruff: noqa: E402
# Hermes has no types of its own.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

# Hermes reads and writes there, also when it is imported.
HOME = Path(tempfile.mkdtemp(prefix="dlg-hermes"))
atexit.register(shutil.rmtree, HOME, True)
os.environ["HERMES_HOME"] = str(HOME)

import model_tools
import yaml
from hermes_cli.plugins import discover_plugins
from hermes_state import SessionDB
from run_agent import AIAgent
from tools.registry import registry

from delegate import Delegator
from delegate.hosts import hermes
from delegate.types import JsonObject
from tests.hosts.driving import Outcome, Scenario
from tests.hosts.world import PARENT, World

PLUGIN = "under-test"
_MODULE = f"from {__name__} import register_current as register\n"
_current: list[Delegator | None] = [None]


def register_current(ctx: Any) -> None:
    """What the plugin's folder names as its `register`."""
    hermes.register(ctx, _current[0])


def plug_in(delegator: Delegator | None, *, plugin: JsonObject | None = None, grant: bool = False, **more: Any) -> None:
    """Let Hermes find and load the plugin, with `plugin` and `more` in config.yaml; with `grant`, it may override."""
    _current[0] = delegator
    folder = HOME / "plugins" / PLUGIN
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plugin.yaml").write_text(f"name: {PLUGIN}\nversion: '1'\n")
    (folder / "__init__.py").write_text(_MODULE)
    entry = {"allow_tool_override": grant, "config": plugin or {}}
    model = {"context_length": 128_000, **more.pop("model", {})}  # else Hermes asks the world for it
    plugins = {"enabled": [PLUGIN], "entries": {PLUGIN: entry}}
    (HOME / "config.yaml").write_text(yaml.safe_dump({"plugins": plugins, **more, "model": model}))
    for name in (hermes.OWN_NAME, "delegate_task"):
        if registry.get_toolset_for_tool(name) == "delegate":
            registry.deregister(name)
    discover_plugins(force=True)


class Parent(AIAgent):
    """Keeps what Hermes shows as its activity."""

    activity: list[str]
    tools: list[Any]

    def _touch_activity(self, desc: str) -> None:
        self.activity = [*getattr(self, "activity", []), desc]
        super()._touch_activity(desc)


@contextmanager
def parent_at(url: str, *toolsets: str, model: str = PARENT, **more: Any) -> Generator[Parent]:
    """An agent whose model is at `url`, with these toolsets and ours."""
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
    gaps: Mapping[Scenario, str] = {}

    async def turn(self, delegator: Delegator, world: World, *, cancel: asyncio.Event | None = None) -> Outcome:
        world.tool = hermes.OWN_NAME
        plug_in(delegator)
        database = SessionDB(HOME / "state.db")
        with closing(database), parent_at(world.server.openai_url, session_db=database) as agent:
            running = asyncio.create_task(asyncio.to_thread(agent.run_conversation, "Find it out."))
            if cancel is not None:
                await cancel.wait()
                agent.interrupt("stop")
            session = (await running)["session_id"]
            usage = _tokens(session, database)
            return Outcome(progress=agent.activity, usage=usage, results=[_read(text) for text in world.results])


def _tokens(session: str, database: Any) -> tuple[int, int]:
    """What Hermes's insights sum up: the agent's own tokens, and those counted under its session."""
    sums = "SELECT COALESCE(SUM(input_tokens), 0), COALESCE(SUM(output_tokens), 0) FROM session_model_usage"
    with database._lock:
        read, written = database._conn.execute(f"{sums} WHERE session_id = ?", (session,)).fetchone()
    return read, written


def _read(result: str) -> str:
    """The report in a result as the parent's model read it; a refusal is its own text."""
    body: JsonObject = json.loads(result)
    return body.get("report", result)


async def invoke(tool_object: str, arguments: dict[str, Any]) -> object:
    """Call the registered tool of that name as Hermes's loop does: through its hooks, middleware and registry."""
    return await asyncio.to_thread(model_tools.handle_function_call, tool_object, arguments, "task", "call", "session")


DRIVER = Hermes()

"""Registers the tools and hooks of the plugin with Hermes."""

import asyncio
import atexit
import logging
from collections.abc import Callable, Mapping
from typing import Any

from delegate.delegator import Delegator
from delegate.hosts.hermes import judge
from delegate.hosts.hermes.calls import Handler, delegate_handler, simple_handler
from delegate.hosts.hermes.options import Options, options_of
from delegate.hosts.hermes.override import HERMES_NAME, override_delegate_task
from delegate.hosts.hermes.runner import OWN_TOOLSET, HermesChildren
from delegate.hosts.hermes.sessions import sessions
from delegate.hosts.hermes.tools import child_tools
from delegate.hosts.host_tool import HostTool, make_delegate_tool, make_read_tool, make_think_tool
from delegate.settings import load_settings
from delegate.types import JsonObject, Parent

OWN_NAME = "delegate_verified"
"""The tool's name, since Hermes has its own `delegate_task`."""
CLOSE_SECONDS = 2.0
"""How long connections may take to close when Hermes exits."""
_MAKE_TOOL: Mapping[str, Callable[[Delegator], HostTool]] = {"read": make_read_tool, "think": make_think_tool}
_EMOJI = "⚖️"

_log = logging.getLogger(__name__)


def register(ctx: Any, delegator: Delegator | None = None, *, parent: Parent | None = None) -> None:
    """Register the plugin's tools. Hermes calls this when it loads the plugin.

    A plugin of your own can pass a `delegator`, which replaces what config.yaml says about children, judges and
    settings. `parent` is what is known about every session, such as the tier of a model that isn't in the catalog.

    Raises:
        ConfigError: config.yaml or the settings are wrong. Hermes then disables the plugin and shows the error.
    """
    options = options_of(_plugin_name(ctx))
    selected = judge.selected_model() if delegator is None else None
    used = delegator or _configured_delegator(options, selected)
    judge.register_auxiliary_task(ctx)
    _register_hooks(
        ctx, track_tools=delegator is not None or options.children == "hermes" or options.child_tools is not None
    )
    host_tool = make_delegate_tool(used, parent=parent)
    handler = delegate_handler(
        host_tool,
        wait_seconds=options.wait_seconds,
        judged_by_hermes=selected is not None and options.children == "hermes",
    )
    name = _register_delegate_tool(ctx, host_tool, handler, options)
    for kind in dict.fromkeys(options.also):
        additional = _MAKE_TOOL[kind](used)
        ctx.register_tool(**_registry_entry(additional, simple_handler(additional), additional.name))
    _log.info("the tool %s delegates work and verifies it", name)


def _configured_delegator(options: Options, selected: judge.SelectedModel | None) -> Delegator:
    """A delegator with the children and judges of config.yaml. It is closed when the process exits."""
    settings: JsonObject = {"tool_name": OWN_NAME, **options.settings}
    if options.children == "hermes":
        client = judge.AuxiliaryJudge() if selected else None
        delegator = Delegator(
            runner=HermesChildren(), client=client, **(selected.pin(settings) if selected else settings)
        )
    else:
        tools = None if options.child_tools is None else child_tools(options.child_tools)
        delegator = Delegator(tools=tools, **_with_judge(selected, settings))
    atexit.register(lambda: delegator.wait_for(asyncio.wait_for(delegator.connections.aclose(), CLOSE_SECONDS)))
    return delegator


def _with_judge(selected: judge.SelectedModel | None, settings: JsonObject) -> JsonObject:
    """The settings with the judge selected in Hermes, unless they name one. Delegate itself calls this judge."""
    if selected is None or load_settings(**settings).judge_model is not None:
        return settings
    if selected.entry is not None:
        _log.warning(
            "auxiliary.judge: %s isn't in delegate's catalog, so it isn't used; set `children: hermes` to use it",
            selected.model,
        )
        return settings
    return {**settings, "judge_model": selected.model}


def _register_hooks(ctx: Any, *, track_tools: bool) -> None:
    """Track the sessions that call. Tools are tracked only if needed, since Hermes then copies every request."""
    ctx.register_hook("pre_llm_call", sessions.on_turn_start)
    ctx.register_hook("subagent_start", sessions.on_subagent_start)
    if track_tools and hasattr(ctx, "register_middleware"):
        ctx.register_middleware("llm_request", sessions.on_llm_request)


def _register_delegate_tool(ctx: Any, host_tool: HostTool, handler: Handler, options: Options) -> str:
    """Register under Hermes's own name if `takeover` is set and possible, and otherwise under ours; return the name."""
    if options.takeover and override_delegate_task(ctx, _registry_entry(host_tool, handler, HERMES_NAME)):
        return HERMES_NAME
    name = OWN_NAME if host_tool.name == HERMES_NAME else host_tool.name
    ctx.register_tool(**_registry_entry(host_tool, handler, name))
    return name


def _registry_entry(host_tool: HostTool, handler: Handler, name: str) -> JsonObject:
    """The arguments of `register_tool`."""
    return {
        "name": name,
        "toolset": OWN_TOOLSET,
        "schema": {"name": name, "description": host_tool.description, "parameters": host_tool.parameters},
        "handler": handler,
        "description": host_tool.description,
        "emoji": _EMOJI,
    }


def _plugin_name(ctx: Any) -> str:
    """The plugin's name in config.yaml."""
    manifest = getattr(ctx, "manifest", None)
    return str(getattr(manifest, "key", "") or getattr(manifest, "name", "") or "delegate-task")

"""Registers the tool with Hermes, and listens to the hooks that it needs."""

import asyncio
import atexit
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from delegate.delegator import Delegator
from delegate.hosts.hermes import judge
from delegate.hosts.hermes.calls import Handler, delegating, small
from delegate.hosts.hermes.options import Options, options_of
from delegate.hosts.hermes.runner import OWN_TOOLSET, HermesChildren
from delegate.hosts.hermes.sessions import sessions
from delegate.hosts.hermes.takeover import NAME, take_over
from delegate.hosts.hermes.tools import child_tools
from delegate.hosts.host_tool import HostTool, make_delegate_tool, make_read_tool, make_think_tool
from delegate.settings import load_settings
from delegate.types import JsonObject, Parent

OWN_NAME = "delegate_verified"
"""The tool's name: Hermes has a `delegate_task` of its own."""
CLOSE_SECONDS = 2.0
"""How long the end of Hermes may wait for connections to be closed."""
_BESIDE: Mapping[str, Callable[[Delegator], HostTool]] = {"read": make_read_tool, "think": make_think_tool}
_EMOJI = "⚖️"

_log = logging.getLogger(__name__)


def register(ctx: Any, delegator: Delegator | None = None, *, parent: Parent | None = None) -> None:
    """What Hermes calls when it loads the plugin.

    `delegator` is for a plugin of one's own, in place of what config.yaml says of children, judges and settings;
    `parent` is what is known of every session that calls, such as the tier of a model that isn't in the catalog.

    Raises:
        ConfigError: config.yaml or the settings are wrong; Hermes then switches the plugin off, and shows why.
    """
    options = options_of(_name(ctx))
    picked = judge.picked() if delegator is None else None
    used = delegator or _made(options, picked)
    judge.offer_to_pick(ctx)
    _listen(ctx, to_tools=delegator is not None or options.children == "hermes" or options.child_tools is not None)
    answer = delegating(
        make_delegate_tool(used, parent=parent),
        wait_seconds=options.wait_seconds,
        judged_by_hermes=picked is not None and options.children == "hermes",
    )
    name = _put_delegation(ctx, make_delegate_tool(used, parent=parent), answer, options)
    for kind in dict.fromkeys(options.also):
        beside = _BESIDE[kind](used)
        _put(ctx, beside, small(beside))
    _log.info("delegated work is verified by the tool %s", name)


def _made(options: Options, picked: judge.Picked | None) -> Delegator:
    """A delegator as config.yaml wants it, for as long as the process lives."""
    delegator = _delegator(options, picked)
    atexit.register(lambda: delegator.wait_for(asyncio.wait_for(delegator.connections.aclose(), CLOSE_SECONDS)))
    return delegator


def _delegator(options: Options, picked: judge.Picked | None) -> Delegator:
    """With the children and judges that are wanted."""
    settings: JsonObject = {"tool_name": OWN_NAME, **options.settings}
    if options.children == "hermes":
        client = judge.AuxiliaryJudge() if picked else None
        return Delegator(runner=HermesChildren(), client=client, **(picked.pinned(settings) if picked else settings))
    tools = None if options.child_tools is None else child_tools(options.child_tools)
    return Delegator(tools=tools, **_judged(picked, settings))


def _judged(picked: judge.Picked | None, settings: JsonObject) -> JsonObject:
    """Settings for judges that we call ourselves: the one picked in Hermes, unless the settings name one."""
    if picked is None or load_settings(**settings).judge_model is not None:
        return settings
    if picked.entry is not None:
        _log.warning("auxiliary.judge: %s isn't in our catalog; it judges only with children: hermes", picked.model)
        return settings
    return {**settings, "judge_model": picked.model}


def _listen(ctx: Any, *, to_tools: bool) -> None:
    """Learn who calls. A parent's tools are looked at only where its children may get them: Hermes copies every
    request for that.
    """
    ctx.register_hook("pre_llm_call", sessions.turn_begins)
    ctx.register_hook("subagent_start", sessions.subagent_begins)
    if to_tools and hasattr(ctx, "register_middleware"):
        ctx.register_middleware("llm_request", sessions.request_goes_out)


def _put_delegation(ctx: Any, host_tool: HostTool, answer: Handler, options: Options) -> str:
    """Under Hermes's own name where that is wanted and can be had, else under ours. Gives the name."""
    if options.takeover and take_over(ctx, _entry(host_tool, answer, NAME)):
        return NAME
    mine = replace(host_tool, name=OWN_NAME) if host_tool.name == NAME else host_tool
    _put(ctx, mine, answer)
    return mine.name


def _put(ctx: Any, host_tool: HostTool, answer: Handler) -> None:
    ctx.register_tool(**_entry(host_tool, answer, host_tool.name))


def _entry(host_tool: HostTool, answer: Handler, name: str) -> JsonObject:
    """The tool, as Hermes's registry takes one."""
    return {
        "name": name,
        "toolset": OWN_TOOLSET,
        "schema": {"name": name, "description": host_tool.description, "parameters": host_tool.parameters},
        "handler": answer,
        "description": host_tool.description,
        "emoji": _EMOJI,
    }


def _name(ctx: Any) -> str:
    """Under which config.yaml knows the plugin."""
    manifest = getattr(ctx, "manifest", None)
    return str(getattr(manifest, "key", "") or getattr(manifest, "name", "") or "delegate-task")

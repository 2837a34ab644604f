"""Registers the tools and hooks of the plugin with Hermes."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from delegate.delegator import Delegator
from delegate.hosts.hermes import models
from delegate.hosts.hermes.calls import Handler, delegate_handler, simple_handler
from delegate.hosts.hermes.compat import hermes_attribute, terminal_folder, toolset_of
from delegate.hosts.hermes.delegators import OWN_NAME, ConfiguredDelegators, DelegatorSource, GivenDelegator
from delegate.hosts.hermes.options import Options, options_of
from delegate.hosts.hermes.runner import OWN_TOOLSET
from delegate.hosts.hermes.sessions import sessions
from delegate.hosts.host_tool import (
    HostTool,
    make_delegate_tool,
    make_merge_tool,
    make_message_tool,
    make_read_tool,
    make_think_tool,
)
from delegate.types import JsonObject, Parent

_MAKE_TOOL: Mapping[str, Callable[[Delegator], HostTool]] = {
    "read": make_read_tool, "think": make_think_tool, "message": make_message_tool, "merge": make_merge_tool,
}  # fmt: skip
HERMES_NAME = "delegate_task"
_MIDDLEWARE = "tool_execution"

_log = logging.getLogger(__name__)


def register(ctx: Any, delegator: Delegator | None = None, *, parent: Parent | None = None) -> None:
    """Register the plugin's tools. Hermes calls this when it loads the plugin.

    A plugin of your own can pass a `delegator`, which replaces what config.yaml says about children, judges and
    settings. `parent` is what is known about every session, such as the tier of a model that isn't in the catalog.

    Raises:
        ConfigError: config.yaml or the settings are wrong. Hermes then disables the plugin and shows the error.
    """
    manifest = getattr(ctx, "manifest", None)
    name = str(getattr(manifest, "key", "") or getattr(manifest, "name", "") or "delegate-task")
    options = options_of(name)
    if delegator is None:
        source: DelegatorSource = ConfiguredDelegators(options, parent)
    else:
        source = GivenDelegator(
            make_delegate_tool(delegator, parent=parent, workspace=options.workspace, cwd=terminal_folder)
        )
    models.register_judge(ctx)
    tools = PluginTools(ctx, source, options)
    tools.register()

    def on_turn_start(**details: Any) -> None:
        sessions.on_turn_start(**details)
        tools.refresh()

    ctx.register_hook("pre_llm_call", on_turn_start)
    ctx.register_hook("subagent_start", sessions.on_subagent_start)
    # Tools are tracked only if needed, since Hermes then copies every request.
    track_tools = delegator is not None or options.children == "hermes" or options.child_tools is not None
    if track_tools and hasattr(ctx, "register_middleware"):
        ctx.register_middleware("llm_request", sessions.on_llm_request)


class PluginTools:
    """The plugin's tools in Hermes's registry, which offers them while children have a model."""

    def __init__(self, ctx: Any, source: DelegatorSource, options: Options) -> None:
        self._ctx = ctx
        self._source = source
        self._options = options
        self._check = partial(_is_usable, source)
        self._offered = _is_usable(source)
        self._entries: list[JsonObject] = []

    def register(self) -> None:
        """Register the delegate tool, under Hermes's own name if `takeover` is set and possible, and the others."""
        host_tool = self._source.tool()
        handler = delegate_handler(self._source, wait_seconds=self._options.wait_seconds)
        entry = self._entry(host_tool, handler, HERMES_NAME)
        if not (self._options.takeover and override_delegate_task(self._ctx, entry)):
            entry = self._entry(host_tool, handler, OWN_NAME if host_tool.name == HERMES_NAME else host_tool.name)
            self._ctx.register_tool(**entry)
        self._entries.append(entry)
        for kind in dict.fromkeys(self._options.also):
            make = _MAKE_TOOL[kind]
            additional = make(host_tool.delegator)
            self._entries.append(self._entry(additional, simple_handler(self._source, make), additional.name))
            self._ctx.register_tool(**self._entries[-1])
        _log.info("the tool %s delegates work and verifies it", entry["name"])
        if not self._offered:
            _log.warning(
                "%s isn't offered: no model can be called; set a key such as OPENAI_API_KEY, or run `hermes model`",
                entry["name"],
            )

    def refresh(self) -> None:
        """Register the tools again once a key has appeared or disappeared.

        Hermes remembers lists of tools, and for a while what a check said; both end with a new registration.
        """
        offered = _is_usable(self._source)
        if offered != self._offered:
            self._offered, self._check = offered, partial(_is_usable, self._source)
            for entry in self._entries:
                self._ctx.register_tool(**{**entry, "check_fn": self._check})

    def _entry(self, host_tool: HostTool, handler: Handler, name: str) -> JsonObject:
        """The arguments of `register_tool`."""
        return {
            "name": name,
            "toolset": OWN_TOOLSET,
            "schema": {"name": name, "description": host_tool.description, "parameters": host_tool.parameters},
            "handler": handler,
            "check_fn": self._check,
            "description": host_tool.description,
            "emoji": "⚖️",
        }


def _is_usable(source: DelegatorSource) -> bool:
    """Whether Hermes should offer the tools. Hermes calls it often, and drops a tool whose check raises."""
    try:
        return source.is_usable()
    except Exception:
        _log.warning("could not find out whether a model can be called", exc_info=True)
        return False


# ------------------------------------------------------------------------------------------------------- takeover


def override_delegate_task(ctx: Any, entry: JsonObject) -> bool:
    """Register the tool in place of `delegate_task`. `entry` has the arguments of `register_tool`.

    Hermes's loop handles calls of that name itself, whatever tool is registered. Overriding the tool alone would change
    the schema, but Hermes would silently drop the fields that it doesn't know. Middleware alone would answer calls
    whose schema has no criteria. So both are installed, or neither.

    Returns False if Hermes doesn't allow it. Then `delegate_task` is unchanged, and the reason is logged.
    """
    supported = hermes_attribute("hermes_cli.middleware", "VALID_MIDDLEWARE") or ()
    if not hasattr(ctx, "register_middleware") or _MIDDLEWARE not in supported:
        _log.warning("%s stays Hermes's own: this version has no %s middleware", HERMES_NAME, _MIDDLEWARE)
        return False
    is_accepted = False

    def answer(*, tool_name: str = "", args: Any = None, next_call: Callable[..., Any], **keywords: Any) -> Any:
        """Answer a call of `delegate_task` without raising; pass on every other call."""
        if is_accepted and tool_name == HERMES_NAME:
            return entry["handler"](args, session_id=keywords.get("session_id"), task_id=keywords.get("task_id"))
        return next_call()

    try:
        ctx.register_middleware(_MIDDLEWARE, answer)
        ctx.register_tool(**entry, override=True)
    except Exception as error:
        _log.warning("%s stays Hermes's own: %s", HERMES_NAME, error)
        return False
    is_accepted = toolset_of(HERMES_NAME) == entry["toolset"]
    if not is_accepted:
        _log.warning("%s stays Hermes's own: its registry did not accept the override", HERMES_NAME)
    return is_accepted

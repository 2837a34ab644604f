"""Creates the plugin's delegator, and another one when the access to models changes.

A key that is in the environment comes first. Without one for children in delegate's own loop, or without one for any
judge, Hermes makes those calls with its own provider, on the parent's model.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from delegate.delegator import Delegator
from delegate.hosts.hermes import models
from delegate.hosts.hermes.compat import terminal_folder
from delegate.hosts.hermes.models import HermesClient, hermes_model
from delegate.hosts.hermes.options import Options
from delegate.hosts.hermes.runner import HermesChildren, child_tools
from delegate.hosts.host_tool import HostTool, make_delegate_tool
from delegate.models.catalog import Model
from delegate.models.connections import find_endpoints
from delegate.models.overrides import effective_catalog
from delegate.models.providers import Endpoint
from delegate.models.routing import EndpointKey, JudgeRequest, choose_judge
from delegate.policy.settings import SettingsOptions, load_settings
from delegate.types import JsonObject, Parent

OWN_NAME = "delegate_verified"
"""The tool's name, since Hermes has its own `delegate_task`."""
CLOSE_SECONDS = 2.0
"""How long connections may take to close when Hermes exits."""
_USUAL_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class Access:
    """How models are called, now."""

    endpoints: frozenset[tuple[EndpointKey, Endpoint]]
    """The endpoints that have a key, or need none."""
    child: Model | None = None
    """The model of children in delegate's own loop, if Hermes calls it."""
    judge: Model | None = None
    """A judge that Hermes calls."""
    only_judge: str | None = None
    """The judge that the user selected in Hermes."""


@dataclass(frozen=True, slots=True)
class GivenDelegator:
    """The delegator of a plugin that calls `register` itself. It never changes."""

    host_tool: HostTool

    def tool(self, model: str = "") -> HostTool:
        return self.host_tool

    def is_usable(self) -> bool:
        return True

    def judged_by_hermes(self, model: str) -> bool:
        return False


class ConfiguredDelegators:
    """The delegators of config.yaml: one for each way to access models. They are closed when the process exits."""

    def __init__(self, options: Options, parent: Parent | None) -> None:
        """Raises ConfigError if the settings are wrong."""
        self._options = options
        self._own = options.children == "own"
        self._parent = parent or Parent()
        given: JsonObject = {"tool_name": OWN_NAME, **options.settings}
        self._settings = settings = load_settings(**given)
        self._catalog = effective_catalog(settings.models, settings.endpoints, settings.judge_accuracy)
        self._lock = threading.Lock()
        self._tools: dict[Access, HostTool] = {}

    def tool(self, model: str = "") -> HostTool:
        """The tool for a session on that model. Raises ConfigError if it can't be created."""
        access = self._access(model)
        with self._lock:
            if access not in self._tools:
                self._tools[access] = make_delegate_tool(
                    self._create(access), parent=self._parent, workspace=self._options.workspace, cwd=terminal_folder
                )
            return self._tools[access]

    def is_usable(self) -> bool:
        """Whether children have a model: by a key, or by Hermes's provider. It makes no request."""
        if self._own and self._has_child_key(find_endpoints(self._settings.endpoints, os.environ)):
            return True
        needs_key = self._own and self._settings.model is not None
        return not needs_key and models.has_provider()

    def judged_by_hermes(self, model: str) -> bool:
        """Whether Hermes calls the judges of a session on that model, and so counts their tokens itself."""
        return self._access(model).judge is not None

    def _access(self, model: str) -> Access:
        endpoints = find_endpoints(self._settings.endpoints, os.environ)
        main = model or models.main_model()
        # An unknown one has the tier that also limits the parent's children.
        tier = self._parent.tier or self._settings.parent_tier or "standard"
        parents = hermes_model(main, self._catalog.find(main), tier) if main else None
        needs_child = self._own and self._settings.model is None and not self._has_child_key(endpoints)
        child, found = parents if needs_child else None, frozenset(endpoints.items())
        if self._settings.judge_model is not None:
            return Access(found, child)
        if selected := models.selected_judge():
            known = self._catalog.find(selected)
            has_key = self._own and known is not None and (known.provider, known.endpoint) in endpoints
            # The user chose it, so one that the catalog doesn't know has the lowest tier: no ceiling excludes it.
            judge = None if has_key else hermes_model(selected, known, "fast")
            return Access(found, child, judge, judge.id if judge else selected)
        return Access(found, child, None if self._has_judge_key(endpoints) else parents)

    def _has_child_key(self, endpoints: Mapping[EndpointKey, Endpoint]) -> bool:
        only = self._settings.model and self._catalog.find(self._settings.model)
        wanted = (only,) if only else self._catalog.models
        return any(model.tools and (model.provider, model.endpoint) in endpoints for model in wanted)

    def _has_judge_key(self, endpoints: Mapping[EndpointKey, Endpoint]) -> bool:
        """Whether a model with a key could judge a short text."""
        request = JudgeRequest(
            worker=None,
            evidence_tokens=_USUAL_TOKENS,
            reply_tokens=_USUAL_TOKENS,
            on=date.today(),
            available=frozenset(endpoints),
            min_accuracy=self._settings.min_judge_accuracy,
        )
        return choose_judge(self._catalog, request).chosen is not None

    def _create(self, access: Access) -> Delegator:
        tools, client = self._options.child_tools, HermesClient()
        # The selected judge may be the parent's model, which has one entry: the child's.
        called = {model.id: model for model in (access.judge, access.child) if model is not None}
        pinned: SettingsOptions = {}
        if access.child is not None:
            pinned["model"] = access.child.id
        if access.only_judge is not None:
            pinned["judge_model"] = access.only_judge
        delegator = Delegator(
            self._settings,
            host_models=dict.fromkeys(called.values(), client),
            runner=None if self._own else HermesChildren(),
            tools=child_tools(tools) if self._own and tools is not None else None,
            **pinned,
        )
        atexit.register(lambda: delegator.wait_for(asyncio.wait_for(delegator.connections.aclose(), CLOSE_SECONDS)))
        return delegator


DelegatorSource = ConfiguredDelegators | GivenDelegator
"""Gives the tool that answers a call, and says whether any call can be answered."""

"""The tools of one child: what it is offered, and what may be called on its work when it has ended."""

import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from delegate.budget.runs import RunContext
from delegate.child.job import Waiting
from delegate.child.toolbox import toolbox
from delegate.engine.scope import CallScope
from delegate.engine.task_events import TaskEvents
from delegate.models.connections import Connection
from delegate.records.recorder import Recorder
from delegate.sandbox.filesystem.media import readable_types
from delegate.sandbox.workspace.folder import Folder
from delegate.types import ProbeCriterion, Task
from delegate.types.ports import Tool

if TYPE_CHECKING:
    from delegate.child.permissions import Permissions
    from delegate.policy.roles import Role
    from delegate.policy.rules import Policy


@dataclass
class ChildTools:
    """The tools of one child, which works in `folder`."""

    call: CallScope
    task: Task
    connection: Connection | None
    folder: Folder
    offered: tuple[Tool, ...] | None = None
    """The child's tools, if its runner gives it exactly those of the job."""
    permissions: "Permissions | None" = None
    """What the child may do, if anything could be refused."""

    def offer(
        self, context: RunContext, recorder: Recorder, events: TaskEvents, waiting: Waiting, seconds: float
    ) -> tuple[Tool, ...]:
        """The child's tools. If the policy could refuse one of their calls, they ask it.

        `seconds` is how long the child may take from now on; what is `waiting` isn't its own time.
        """
        tools = self._permitted(context, recorder, events, waiting, seconds)
        tools = tools if self.call.scratch is None else (*tools, self.call.scratch.tool(events.index))
        context.tools = frozenset(tool.name for tool in tools)
        self.offered = tools if self.call.services.uses_job_tools else None
        return tools

    def guarded(self, tool: Tool) -> Tool:
        """A tool of the runner's own, asking for permission as those that are offered do."""
        return tool if self.permissions is None else self.permissions.guarded(tool)

    def of_probes(self) -> tuple[Tool, ...]:
        """The read-only tools that the caller may have called after the run."""
        if not any(isinstance(criterion, ProbeCriterion) for criterion in self.task.criteria):
            return ()
        names = self.call.services.probe_tools(self.task, self.call.context)
        return tuple(tool for tool in self._all if tool.read_only and tool.name in names)

    def of_judge(self) -> tuple[Tool, ...]:
        """The child's own tools with which a judge may look how things are: unguarded, since it only reads.

        The files of a workspace are looked at in another way, so of the toolbox only what reaches out is left.
        """
        services = self.call.services
        if not services.settings.judge_looks or self.offered is None:
            return ()
        names = {tool.name for tool in self.offered}
        tools = [tool for tool in self._all if tool.name in names]
        if services.host_tools is None:
            tools = [tool for tool in tools if tool.effects == frozenset(("network",))]
        if self._policy.restricts:  # what reaches out may need an approval
            tools = [tool for tool in tools if tool.read_only]
        return tuple(tools)

    def _permitted(
        self, context: RunContext, recorder: Recorder, events: TaskEvents, waiting: Waiting, seconds: float
    ) -> tuple[Tool, ...]:
        if not (self._policy.restricts or self.call.services.settings.commands == "ask" or self.task.steps):
            return self._available(context, recorder, waiting)
        from delegate.child.permissions import Asker, Permissions  # loaded only where anything could be refused
        from delegate.child.steps import Steps

        end = time.monotonic() + seconds
        steps = Steps(lambda: recorder.receipts, events.notify) if self.task.steps else None
        asker = Asker(
            on_approval=self.call.context.on_approval or self.call.services.on_approval,
            run_id=context.run.id,
            handle=events.handle,
            task_index=events.index,
            goal=self.task.goal,
            workspace=str(self.folder.root),
            notify=events.notify,
            waiting=waiting,
            waiting_for_check=events.reporting_wait,
            while_waiting=context.permit.released if context.permit else nullcontext,
        )
        self.permissions = permissions = Permissions(
            self._policy, asker, ledger=context.ledger, seconds_left=lambda: end - time.monotonic(), steps=steps
        )
        tools = tuple(map(permissions.guarded, self._available(context, recorder, waiting)))
        return tools if steps is None else (*tools, *steps.offered(tools))

    def _available(self, context: RunContext, recorder: Recorder, waiting: Waiting) -> tuple[Tool, ...]:
        """The tools that the task names, except those that its parent doesn't have."""
        services, role = self.call.services, self._role
        tools = self._all
        # It spends what the child may spend, so neither a judge nor a probe calls it.
        if services.settings.web_search == "provider" and services.host_tools is None:
            from delegate.child.web_search import search_tools  # loaded only where it is used

            tools += search_tools(self.connection, self.call.ceiling, context.ledger, recorder, waiting)
        # A child of a child in a role has no role, so it would be free of the role's policy.
        if context.depth < context.run.settings.max_depth and (role is None or role.policy is None):
            tools = (*tools, services.child_delegate_tool())
            self.folder.expect_writers()  # the child's own children may work in it
        selections = [names for names in (self.task.tools, self.call.context.tools) if names is not None]
        chosen = tuple(tool for tool in tools if all(tool.name in names for names in selections))
        if role is None:
            return chosen
        return tuple(
            tool for tool in chosen if tool.name not in role.without_tools and (tool.read_only or not role.read_only)
        )

    @property
    def _role(self) -> "Role | None":
        roles = self.call.services.settings.roles
        return roles[self.task.role] if self.task.role is not None else None  # it was admitted

    @property
    def _policy(self) -> "Policy":
        return self.call.services.settings.policy.narrowed(self._role.policy if self._role else None)

    @cached_property
    def _all(self) -> tuple[Tool, ...]:
        services, model = self.call.services, self.connection.model if self.connection else None
        readable = frozenset[str]() if model is None else readable_types(images=model.images, pdfs=model.pdfs)
        servers = self.call.server_tools
        if servers:
            from delegate.child.mcp_servers import for_model  # only where it is needed

            servers = for_model(servers, readable)
        if services.host_tools is not None:
            return (*services.host_tools, *servers)
        built_in = toolbox(
            self.folder,
            services.commands,
            fetch_hosts=services.settings.fetch_hosts,
            attachments=readable,
            approve=self.permissions.command_approval() if self.permissions else None,
        )
        return (*built_in, *servers)

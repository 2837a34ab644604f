"""How a call is made, what the tasks of one delegator share, and what the tasks of one call share."""

import asyncio
import threading
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from delegate._util.cancellation import Cancellation
from delegate.budget.runs import Run, RunContext
from delegate.child.job import ChildRunner
from delegate.child.toolbox import toolbox_definitions, toolbox_specs
from delegate.engine.consumers import Consumer
from delegate.judging.reading.reader import CallReading
from delegate.judging.reading.statements import Template, ToolInfo
from delegate.judging.verdict import Judging
from delegate.models.connections import Connections
from delegate.policy.settings import Settings
from delegate.records.history import Records
from delegate.sandbox.commands.commands import Commands
from delegate.sandbox.workspace.write_locks import WriteLocks
from delegate.types import Author, Task, Tier
from delegate.types.events import ChildText, Event
from delegate.types.ports import SEARCH_WEB, Tool

if TYPE_CHECKING:
    from delegate.child.mcp_servers import McpServers
    from delegate.child.scratch import Scratch
    from delegate.engine.resume import Resumed
    from delegate.policy.approvals import OnApproval


RunnerAttribute = Literal[
    "makes_claims", "reads_record", "records_some_tools", "records_tools", "takes_messages", "uses_job_tools"
]


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    runner: ChildRunner
    judging: Judging
    connections: Connections
    commands: Commands
    records: Records
    child_delegate_tool: Callable[[], Tool]
    """Creates the tool with which a child can delegate, if the depth allows it."""
    host_tools: tuple[Tool, ...] | None
    write_locks: MutableMapping[Run, WriteLocks]
    """The writers of the files in shared folders, per run."""
    servers: "McpServers | None" = None
    on_approval: "OnApproval | None" = None
    streams_text: bool = False
    """Whether consumers get a child's text while its model writes it."""

    def runner_has(self, attribute: RunnerAttribute) -> bool:
        """Whether an attribute of the runner is true. A runner may be without: see `ChildRunner`."""
        return bool(getattr(self.runner, attribute, False))

    @property
    def uses_job_tools(self) -> bool:
        """Whether the runner gives its child exactly the tools of the job. Others have tools of their own."""
        return self.runner_has("uses_job_tools")

    @property
    def knows_tools(self) -> bool:
        """Whether children get the tools that are known here, perhaps besides others."""
        return self.host_tools is not None or self.uses_job_tools or getattr(self.runner, "gives_job_tools", False)

    def known_tools(self, asked: Sequence[str] = ()) -> tuple[str, ...]:
        """The tools that there are. Any of `asked` may be a server's, which isn't known before the server runs."""
        names = [tool.name for tool in (toolbox_specs() if self.host_tools is None else self.host_tools)]
        search = (SEARCH_WEB,) if self.settings.web_search == "provider" and self.host_tools is None else ()
        of_servers = self.servers.names(asked) if self.servers else ()
        return (*names, *search, self.settings.tool_name, *of_servers)

    def tools_to_read(self, server_tools: Sequence[Tool]) -> list[ToolInfo]:
        """What is known of the children's tools before they start. Those of a runner with tools of its own aren't."""
        if self.host_tools is not None:
            return list(map(ToolInfo.of, (*self.host_tools, *server_tools)))
        if not self.uses_job_tools:
            return []
        tools = list(map(ToolInfo.of, (*toolbox_definitions(self.commands), *server_tools)))
        if self.settings.web_search == "provider":
            tools.append(ToolInfo(SEARCH_WEB, "Search the web.", "acts"))
        return tools

    def probe_tools(self, task: Task, context: RunContext) -> dict[str, bool]:
        """The names of the tools that a caller may have called for it, and whether each is read-only."""
        own = toolbox_definitions() if self.host_tools is None else self.host_tools
        tools = {tool.name: tool.read_only for tool in own}
        if self.servers is not None and self.uses_job_tools:
            tools |= self.servers.probe_tools(task)
        return {name: only for name, only in tools.items() if context.tools is None or name in context.tools}


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Who makes a call, and how, besides its tasks."""

    author: Author
    context: RunContext
    first_index: int = 0
    """The number of the first task."""
    is_run: bool = True
    """False for the items of a batch, which is one run: the call's beginning and end are no events then."""
    cancellation: Cancellation | None = None
    resumed: "Resumed | None" = None
    """Where the record of the only task ends, from which it goes on."""
    template: Template | None = None
    handle: str | None = None
    """The handle of the only task's record, if it is known before."""
    scratch: bool = False
    """Whether the children share a folder of texts."""


@dataclass(frozen=True, slots=True)
class CallScope:
    services: Services
    context: RunContext
    author: Author
    ceiling: Tier
    """The caller's tier, which neither a child's model nor a judge may exceed."""
    cancellation: Cancellation
    reading: CallReading
    """How the criteria of the tasks are read, by their handles."""
    consumers: tuple[Consumer[Event], ...] = ()
    server_tools: tuple[Tool, ...] = ()
    scratch: "Scratch | None" = None
    """Texts that its children share, if it asks for that."""
    unfinished: set[str] = field(default_factory=set[str])
    """The handles of the tasks that have no result yet."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    thread: int = field(default_factory=threading.get_ident)
    """The thread of the loop, where consumers are called."""

    def consumers_of(self, kind: Callable[..., Event]) -> list[Consumer[Event]]:
        """Those who receive events of this class."""
        if kind is ChildText and not self.services.streams_text:
            return []
        return [consumer for consumer in self.consumers if consumer.kinds is None or kind in consumer.kinds]

    def deliver(self, event: Event) -> None:
        """Deliver an event, on the loop of the call. Safe to call from any thread."""
        if threading.get_ident() != self.thread:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self.deliver, event)
            return
        for consumer in self.consumers_of(type(event)):
            consumer(event)

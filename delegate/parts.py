"""What a delegator is made of, and how its parts are put together."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from delegate._util.redaction import declare
from delegate.batch.journal import Journal
from delegate.budget.runs import RunRegistry
from delegate.child.job import ChildRunner
from delegate.child.loop import AgentLoop
from delegate.engine.admission import Calls
from delegate.engine.executor import Executor
from delegate.judging import Bench, Judging
from delegate.models import connections
from delegate.models.catalog import Catalog
from delegate.models.connections import Connections
from delegate.models.overrides import catalog_in_force
from delegate.ports import ChatClient, EventSink, Tool
from delegate.records.history import Records
from delegate.sandbox.commands import Commands
from delegate.sandbox.workspace import discard
from delegate.settings import Settings


@dataclass(frozen=True, slots=True)
class Parts:
    """All that the calls of one delegator share."""

    settings: Settings
    catalog: Catalog
    connections: Connections
    runs: RunRegistry
    judging: Judging
    calls: Calls
    records: Records
    journal: Journal

    async def aclose(self) -> None:
        """Close connections and files."""
        await self.connections.aclose()
        await self.records.aclose()
        await self.journal.aclose()


def assemble(
    settings: Settings,
    *,
    client: ChatClient | None,
    runner: ChildRunner | None,
    tools: tuple[Tool, ...] | None,
    delegation: Callable[[], Tool],
    on_event: EventSink | None,
) -> Parts:
    """The parts, of what an operator or a host may replace; see `Delegator` for what stands in for None.

    `delegation` makes the tool as a child gets it. Raises ConfigError.
    """
    catalog, home = catalog_in_force(settings), settings.home
    reached = connections.all_through(client, catalog) if client else connections.connect(settings, os.environ, catalog)
    declare(endpoint.key_env for endpoint in settings.endpoints if endpoint.key_env)
    records = Records(home, keep_days=settings.keep_days, keep_mb=settings.keep_mb, discard=discard)
    commands = Commands(sandbox=settings.sandbox, commands=settings.commands, hidden=(home,))
    judging = Judging(_bench(settings, catalog, reached), commands, settings.gate)
    executor = Executor(
        settings=settings,
        runner=runner or AgentLoop(),
        judging=judging,
        commands=commands,
        records=records,
        delegation=delegation,
        host_tools=tools,
    )
    return Parts(
        settings=settings,
        catalog=catalog,
        connections=reached,
        runs=RunRegistry(settings, catalog),
        judging=judging,
        calls=Calls(settings, catalog, reached, executor, on_event),
        records=records,
        journal=Journal(home, keep_days=settings.keep_days),
    )


def _bench(settings: Settings, catalog: Catalog, reached: Connections) -> Bench:
    """Who may judge."""
    return Bench(
        catalog=catalog,
        available=reached.available,
        connect=reached.open,
        pinned=settings.judge_model,
        min_accuracy=settings.min_judge_accuracy,
        escalate=settings.escalate,
    )

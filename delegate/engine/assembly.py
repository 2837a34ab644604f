"""Builds what executes the calls of one delegator. To import it takes as long as all else, so it is loaded late."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from delegate._util.redaction import logger
from delegate.child.job import ChildRunner
from delegate.child.loop import AgentLoop
from delegate.engine.admission import Admission
from delegate.engine.consumers import as_consumer
from delegate.engine.executor import Executor
from delegate.engine.scope import Services
from delegate.engine.task_run import TaskRun
from delegate.judging.judge.session import JudgePool
from delegate.judging.looks.look import LookLimits
from delegate.judging.reading.reader import Reader
from delegate.judging.verdict import Judging
from delegate.models.catalog import Catalog
from delegate.models.connections import Connections
from delegate.policy.settings import Settings
from delegate.records.history import Records
from delegate.sandbox.commands.commands import Commands
from delegate.types.errors import DelegateError
from delegate.types.events import EventSink
from delegate.types.ports import Tool

if TYPE_CHECKING:
    from delegate.child.mcp_servers import McpServers
    from delegate.judging.calibration.detector import Detector
    from delegate.judging.calibration.limits import JudgeLimits
    from delegate.policy.approvals import OnApproval

_log = logger(__name__)


def assemble(
    settings: Settings,
    catalog: Catalog,
    connections: Connections,
    records: Records,
    *,
    runner: ChildRunner | None,
    host_tools: tuple[Tool, ...] | None,
    servers: "McpServers | None",
    child_delegate_tool: Callable[[], Tool],
    judge_limits: "JudgeLimits | None",
    running: dict[str, TaskRun],
    on_event: EventSink | None,
    on_approval: "OnApproval | None",
    streams_text: bool,
) -> Admission:
    """Build what admits, executes and judges. `running` will have the tasks that run, by their handles."""
    commands = Commands(
        sandbox=settings.sandbox, commands=settings.commands, network=settings.network, hidden=(settings.home,)
    )
    judges = JudgePool(
        catalog=catalog,
        available=connections.available,
        connect=connections.open,
        pinned=settings.judge_model,
        min_accuracy=settings.min_judge_accuracy,
        escalate=settings.escalate,
        false_pass=judge_limits.table if judge_limits else None,
        page_tokens=settings.judge_page_tokens,
        looks=LookLimits(settings.judge_looks, settings.judge_turns),
        criteria_per_call=settings.criteria_per_call,
    )
    detector = cache(partial(_detector_in, settings.home))
    judging = Judging(judges, commands, Reader(judges, records), settings.gate, settings.min_level, detector)
    services = Services(
        settings=settings,
        runner=AgentLoop() if runner is None else runner,
        judging=judging,
        connections=connections,
        commands=commands,
        records=records,
        child_delegate_tool=child_delegate_tool,
        host_tools=host_tools,
        servers=servers,
        write_locks=WeakKeyDictionary(),
        on_approval=on_approval,
        streams_text=streams_text,
    )
    return Admission(settings, catalog, connections, Executor(services, running), as_consumer(on_event))


def _detector_in(home: Path) -> "Detector | None":
    """The detector that was fitted to this project's rulings, if there is one. One that can't be used is none."""
    if not (home / "detector.json").exists():
        return None
    from delegate.judging.calibration import detector

    try:
        return detector.load(home)
    except DelegateError as error:
        _log.warning("%s", error)
        return None

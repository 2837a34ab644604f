"""Lets `delegate` join the run of the child that started it: its limits, its depth and its ledger.

    child's program, DELEGATE_PARENT=1:standard:HOME/runs/RUN.json ──▶ `delegate mcp`, at depth 1 of that run

The file has the limits of the run, and what each of its processes has spent and reserved counts in all of them. What a
process had reserved when it was killed stays used up. This is no security boundary: a program that sets the variable
to nothing starts a run of its own.
"""

import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from pydantic import TypeAdapter

from delegate._util.fencing import one_line
from delegate._util.redaction import logger
from delegate.budget.ledger import Ledger
from delegate.budget.runs import Run, RunContext, current_context, use_context
from delegate.budget.shared import SharedAmounts
from delegate.policy.settings import Settings
from delegate.types import Tier
from delegate.types.errors import ConfigError

_log = logger(__name__)

PARENT = "DELEGATE_PARENT"
"""The variable that names depth, tier and run of the child that a program belongs to: `DEPTH:TIER:FILE`."""
_LIMITS = {"max_concurrent", "max_children", "max_depth", "max_run_model_calls", "max_run_tokens", "max_cost_usd"}
_ANCESTORS = 64
"""How many processes above this one are searched: some clients pass few variables on to their servers."""
_KEPT_SECONDS = 30 * 86_400
"""How old the file of a run is that was killed, when it is removed."""
_sharing = threading.Lock()


def child_environment() -> dict[str, str]:
    """The variables that tell a program of the current child which run it is part of. Empty outside of a child."""
    context = current_context()
    if context is None or not context.depth or sys.platform == "win32":
        return {}
    run = context.run
    path = run.settings.home.absolute() / "runs" / f"{run.id}.json"
    try:
        with _sharing:
            if run.shared is None:
                _share(run, path)
    except OSError as error:  # a program that can't read the file refuses to delegate
        _log.warning("%s can't be written, so that no program below this run can delegate: %s", path, error)
    return {PARENT: f"{context.depth}:{context.tier or ''}:{path}", "DELEGATE_HOME": str(run.settings.home.absolute())}


def joined(environ: Mapping[str, str]) -> AbstractContextManager[None]:
    """Make all calls inside the block part of the run of the child that started this process, if one did.

    Raises:
        ConfigError: There is such a child, but its run can't be joined.
    """
    if not (mark := _mark(environ)):
        return nullcontext()
    try:
        depth, tier, file = mark.split(":", 2)
        state = json.loads(Path(file).read_bytes())
        left = None if state["ends_at"] is None else max(0.001, state["ends_at"] - time.time())
        home = Path(file).parent.parent
        settings = Settings.model_validate({**state["limits"], "run_timeout_seconds": left, "home": home})
        context_depth = max(1, int(depth))
        known_tier = TypeAdapter[Tier | None](Tier | None).validate_python(tier or None)
        run = Run(settings, id=Path(file).stem, concurrent=settings.max_concurrent if state["batch"] else None)
        run.limit_calls_of_models()
    except (OSError, ValueError, TypeError, LookupError, ConfigError) as error:
        raise ConfigError(
            f"{PARENT} says that a child of delegate started this process, but its run can't be joined: "
            f"{one_line(str(error), 200)}; set {PARENT} to nothing for a run of its own"
        ) from None
    run.shared = SharedAmounts(run.ledger, Path(file))
    ledger = Ledger({"children": settings.max_children}, parent=run.ledger)
    return use_context(RunContext(run, ledger, context_depth, known_tier))


def _mark(environ: Mapping[str, str]) -> str:
    """The value of the variable, here or in the nearest process above this one that has it."""
    if PARENT in environ:
        return environ[PARENT]
    pid = os.getppid()
    with suppress(OSError, ValueError, IndexError):  # not Linux, or another user's process
        for _ in range(_ANCESTORS):
            for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if variable.startswith(f"{PARENT}=".encode()):
                    return os.fsdecode(variable.partition(b"=")[2])
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return ""


def _share(run: Run, path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):
        for old in path.parent.iterdir():
            if time.time() - old.stat().st_mtime > _KEPT_SECONDS:
                old.unlink()
    left = run.seconds_left()
    default = run.ledger.limits["cost_usd"] if "cost_usd" in run.ledger.defaults else None
    state = {
        "limits": {**run.settings.model_dump(include=_LIMITS), "default_max_cost_usd": default},
        "batch": "children" not in run.ledger.limits,
        "ends_at": None if left is None else time.time() + left,
        "tasks": run.next_number(),
        "amounts": {},
    }
    path.write_text(json.dumps(state))
    run.shared = SharedAmounts(run.ledger, path)
    process = os.getpid()  # and not one that is forked from it
    weakref.finalize(run, lambda: path.unlink(missing_ok=True) if os.getpid() == process else None)

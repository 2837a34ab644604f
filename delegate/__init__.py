"""One tool, `delegate_task`, with which an agent delegates work to child agents and gets a verdict based on evidence.

    from delegate import Delegator, Task

    async with Delegator() as delegator:
        result = await delegator.run(Task(goal="…", acceptance_criteria=["…"]))
        result.results[0].verdict

Start reading at `schemas/delegate_task.json` (what a parent model sees), then `types/`, then `engine/executor.py`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delegate._util.cancellation import Cancellation
    from delegate.child.job import ChildRunner, Job, workspace
    from delegate.delegator import Delegator
    from delegate.delegator.background import Delegation
    from delegate.policy.settings import Settings
    from delegate.types import ChildRun, Parent, Receipt, RunResult, Task, TaskResult, Verdict
    from delegate.types.errors import CallError, ConfigError, DelegateError, ToolError
    from delegate.types.events import Event
    from delegate.types.ports import Tool

__all__ = [
    "CallError",
    "Cancellation",
    "ChildRun",
    "ChildRunner",
    "ConfigError",
    "DelegateError",
    "Delegation",
    "Delegator",
    "Event",
    "Job",
    "Parent",
    "Receipt",
    "RunResult",
    "Settings",
    "Task",
    "TaskResult",
    "Tool",
    "ToolError",
    "Verdict",
    "workspace",
]

_MODULES = {
    "delegate._util.cancellation": ("Cancellation",),
    "delegate.child.job": ("ChildRunner", "Job", "workspace"),
    "delegate.delegator": ("Delegator",),
    "delegate.delegator.background": ("Delegation",),
    "delegate.types.errors": ("CallError", "ConfigError", "DelegateError", "ToolError"),
    "delegate.types.events": ("Event",),
    "delegate.types.ports": ("Tool",),
    "delegate.policy.settings": ("Settings",),
    "delegate.types": ("ChildRun", "Parent", "Receipt", "RunResult", "Task", "TaskResult", "Verdict"),
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, which keeps `import delegate` fast."""
    for module, names in _MODULES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module 'delegate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

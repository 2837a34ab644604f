"""Maps an exception that ended a child to a status and an `ErrorDetail`."""

import asyncio
from typing import TYPE_CHECKING

from delegate._util.cancellation import Cancellation, Deadline
from delegate.types import ErrorDetail, RunResult, RunStatus
from delegate.types.errors import BudgetExceeded, CallError, ProviderError, TierExceeded, WorkspaceTooLarge

if TYPE_CHECKING:
    from delegate.engine.deadline import ChildDeadline

MappedError = tuple[RunStatus, ErrorDetail]

_CANCELLED: MappedError = "cancelled", ErrorDetail(code="cancelled", message="cancelled before it finished")
_SETTINGS = {
    "cost_usd": "max_cost_usd (of the task or in the settings)",
    "model_calls": "max_run_model_calls",
    "tokens": "max_tokens or max_run_tokens",
}


def before_start(error: BaseException, limit: Deadline, cancellation: Cancellation) -> MappedError:
    """Map an exception raised before the child got its permit and its workspace. `limit` is its deadline."""
    if isinstance(error, asyncio.CancelledError) or (limit.expired() and cancellation.cancelled):
        return _CANCELLED
    if limit.expired():
        return "budget_exceeded", ErrorDetail(code="budget_exceeded", message="the time was up before it could start")
    if isinstance(error, BudgetExceeded):
        return _budget_exceeded(error)
    if isinstance(error, CallError):
        return "failed", error_detail(error)
    return "failed", ErrorDetail(code="workspace", message=str(error))


def while_running(error: BaseException, limit: "ChildDeadline", cancellation: Cancellation) -> MappedError:
    """Map an exception raised while the child was running. `limit` is its deadline.

    The code `crashed` is used for any other exception, which points to a bug in the runner.
    """
    match error:
        case asyncio.CancelledError():
            return _CANCELLED
        case BudgetExceeded():
            return _budget_exceeded(error)
        case TierExceeded():
            return "failed", ErrorDetail(code="tier_above_parent", message=str(error))
        case WorkspaceTooLarge():
            return "failed", too_large(error)
        case ProviderError():
            return "failed", ErrorDetail(code=error.fault, message=str(error))
        case _ if limit.expired() and cancellation.cancelled:
            return _CANCELLED
        case _ if limit.expired():
            return "timeout", ErrorDetail(code="timeout", message=f"ran longer than {limit.allowed}")
        case _:
            return "failed", ErrorDetail(code="crashed", message=f"{type(error).__name__}: {error}")


def too_large(error: WorkspaceTooLarge) -> ErrorDetail:
    return ErrorDetail(code="workspace_too_large", message=str(error), hint="raise max_workspace_mb to allow more")


def error_detail(error: CallError) -> ErrorDetail:
    """Return a refused call's error as data."""
    return ErrorDetail(code=error.code, message=error.message, field=error.field, hint=error.hint)


def _budget_exceeded(error: BudgetExceeded) -> MappedError:
    hint = f"raise {error.setting or _SETTINGS.get(error.limit, error.limit)} to allow more"
    return "budget_exceeded", ErrorDetail(code="budget_exceeded", message=str(error), hint=hint)


def refusal(error: CallError) -> RunResult:
    return RunResult(error=error_detail(error))

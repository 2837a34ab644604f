"""How an error that ended a child reads in its result: a status, and what is said beside it."""

import asyncio

from delegate._util.cancellation import Cancellation, Deadline
from delegate.errors import BudgetExceeded, CallError, ProviderError, TierExceeded
from delegate.types import ErrorDetail, RunStatus

MappedError = tuple[RunStatus, ErrorDetail]

_CANCELLED: MappedError = "cancelled", ErrorDetail(code="cancelled", message="stopped from outside before it ended")
_TOO_LATE: MappedError = (
    "budget_exceeded",
    ErrorDetail(code="budget_exceeded", message="the time was up before it could begin"),
)
_SETTINGS = {
    "cost_usd": "max_cost_usd (of the task or in the settings)",
    "model_calls": "max_run_model_calls",
    "tokens": "max_tokens or max_run_tokens",
}
"""What an operator sets for a limit of the ledger."""


def before_start(error: BaseException, limit: Deadline, cancellation: Cancellation) -> MappedError:
    """Of a child that didn't get a place or a workspace within `limit`, which is one of `cancellation`."""
    if isinstance(error, asyncio.CancelledError) or (limit.expired() and cancellation.cancelled):
        return _CANCELLED
    if limit.expired():
        return _TOO_LATE
    if isinstance(error, BudgetExceeded):
        return _spent_up(error)
    if isinstance(error, CallError):
        return "failed", error_detail(error)
    return "failed", ErrorDetail(code="workspace", message=str(error))


def while_running(error: BaseException, limit: Deadline, cancellation: Cancellation, *, allowed: str) -> MappedError:
    """Of a child that was at work within `limit`, which is one of `cancellation`; `allowed` is its time in words.

    The code `crashed` says that nothing better is known: there is a fault in the runner.
    """
    match error:
        case asyncio.CancelledError():
            return _CANCELLED
        case BudgetExceeded():
            return _spent_up(error)
        case TierExceeded():
            return "failed", ErrorDetail(code="tier_above_parent", message=str(error))
        case ProviderError():
            return "failed", ErrorDetail(code=error.fault, message=str(error))
        case _ if limit.expired() and cancellation.cancelled:
            return _CANCELLED
        case _ if limit.expired():
            return "timeout", ErrorDetail(code="timeout", message=f"ran longer than {allowed}")
        case _:
            return "failed", ErrorDetail(code="crashed", message=f"{type(error).__name__}: {error}")


def error_detail(error: CallError) -> ErrorDetail:
    """A refusal as the parent reads it."""
    return ErrorDetail(code=error.code, message=error.message, field=error.field, hint=error.hint)


def _spent_up(error: BudgetExceeded) -> MappedError:
    hint = f"raise {_SETTINGS.get(error.limit, error.limit)} to allow more"
    return "budget_exceeded", ErrorDetail(code="budget_exceeded", message=str(error), hint=hint)

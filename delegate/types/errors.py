"""The exceptions of delegate.

    DelegateError
    ├── CallError          a call can't be executed as written; names the field and how to fix it
    ├── ConfigError        the settings, delegate.toml or the catalog are invalid
    ├── ProviderError      a model call failed, after the rate limiter's retries
    │   └── ThinkingRefused    the provider wants the same request without earlier thinking
    ├── BudgetExceeded     the next step would exceed a limit of the ledger; nothing was spent on it
    ├── TierExceeded       a provider served a child a model above its parent's tier
    └── ToolError          a child's tool call failed; the message is returned to the child's model
        └── ToolDenied     a rule forbids the tool call

A host only has to handle `ConfigError`, and only while it sets up a `Delegator`. What a parent model or a child does
never raises: errors are returned in `RunResult.error` or in a `TaskResult`.
"""

from collections.abc import Mapping
from typing import Literal

from delegate.types.codes import CallErrorCode, ProviderFault
from delegate.types.money import usd

Outcome = Literal[
    "not_sent",  # no connection was made
    "rejected",  # a complete error response: the provider refused the request
    "errored",  # a complete error response: the provider failed
    "broken_off",  # the connection, or an answer that had begun, ended early
    "left_waiting",  # the caller stopped waiting; the provider may go on
    "answered",  # a complete response that isn't an error, whether or not it can be read
]
"""How far one attempt at a model call got. Error responses aren't billed; after the last three, output may be."""

_OUTCOMES: Mapping[ProviderFault, Outcome] = {
    "auth": "rejected",
    "bad_request": "rejected",
    "context_overflow": "rejected",
    "rate_limited": "rejected",
    "overloaded": "errored",
    "server_error": "errored",
    "connection": "broken_off",
    "timeout": "left_waiting",
    "bad_reply": "answered",
    "exhausted": "rejected",
}


def _outcome(fault: ProviderFault, status: int | None) -> Outcome:
    """How far a call got that failed so: a status other than a success is that of a complete error response."""
    implied = _OUTCOMES[fault]
    if status is None or status < 300:
        return implied
    return "rejected" if implied == "rejected" or status < 400 else "errored"


class DelegateError(Exception):
    """Base class of all exceptions in delegate."""


class CallError(DelegateError):
    """A call can't be executed as written. Nothing was run and nothing was spent.

    `code` is a stable reason code, `field` is a path such as `tasks[1].goal`, and `hint` says how to fix the call.
    """

    def __init__(self, code: CallErrorCode, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.code: CallErrorCode = code
        self.message = message
        self.field = field
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # which a traceback shows


class ConfigError(DelegateError):
    """The settings, `delegate.toml` or the catalog are invalid. The message names the field and how to fix it."""


class ProviderError(DelegateError):
    """A model call failed.

    `fault` is the kind of failure, `status` the HTTP status if there was a response, and `retry_after` the wait in
    seconds that the provider asked for. `final` is whether the server says not to repeat the call.

    `outcome` is how far the call got, which decides whether it is repeated and what it is charged with. By default it
    is what fault and status imply.
    """

    def __init__(
        self,
        fault: ProviderFault,
        message: str,
        *,
        provider: str,
        status: int | None = None,
        retry_after: float | None = None,
        outcome: Outcome | None = None,
        final: bool = False,
    ) -> None:
        super().__init__(message)
        self.fault: ProviderFault = fault
        self.provider = provider
        self.status = status
        self.retry_after = retry_after
        self.outcome: Outcome = outcome or _outcome(fault, status)
        self.final = final


class ThinkingRefused(ProviderError):
    """The provider refused thinking that a request sent back: it was made behind other messages, tools or instructions.

    The same messages are accepted without it.
    """


_LIMIT_SETTINGS = {
    "children": " (setting max_children)",
    "model_calls": " (setting max_run_model_calls)",
    "tokens": " (setting max_run_tokens or max_tokens)",
    "cost_usd": " (setting max_cost_usd)",
}


class BudgetExceeded(DelegateError):
    """The next step would exceed a limit of the ledger. `limit` is its name; all amounts are in the limit's unit.

    `frees_in` is in seconds: when there is room again by itself; None if that isn't known, or there never is. `setting`
    is where the limit comes from, if not from the usual setting.
    """

    def __init__(
        self,
        limit: str,
        *,
        allowed: float,
        spent: float,
        reserved: float = 0,
        needed: float = 0,
        frees_in: float | None = None,
        setting: str | None = None,
    ) -> None:
        left = max(0.0, allowed - spent - reserved)
        amounts = (spent, allowed, reserved, left, needed)
        sums = [usd(one, "exact") if limit.endswith("_usd") else f"{one:.10g}" for one in amounts]
        text = "the next step exceeds the limit {}: {} of {} spent, {} reserved, {} left, {} needed"
        named = f" (setting {setting})" if setting else _LIMIT_SETTINGS.get(limit, "")
        super().__init__(text.format(limit, *sums) + named)
        self.setting = setting
        self.limit = limit
        self.allowed = allowed
        self.spent = spent
        self.reserved = reserved
        self.left = left
        self.needed = needed
        self.frees_in = frees_in


class TierExceeded(DelegateError):
    """A provider served a child a model above its parent's tier. What the child spent until then is still charged."""


class WorkspaceTooLarge(DelegateError):
    """A child added more to its workspace than it may. What is in the workspace stays there."""


class ToolError(DelegateError):
    """A child's tool call failed. The message is returned to the child's model."""


class ToolDenied(ToolError):
    """A rule forbids the tool call: a path outside the workspace, the setting `commands`, or a blocked address."""

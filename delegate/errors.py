"""Every error that delegate raises, in one tree.

    DelegateError
    ├── CallError          the parent's call can't be executed as written; says which field, and the mend
    ├── ConfigError        settings, delegate.toml or the catalog are wrong
    ├── ProviderError      a model call failed after the SDK's own retries
    ├── BudgetExceeded     a limit of the ledger refused the next step; nothing was spent on it
    ├── TierExceeded       a provider served a child a model above its parent's tier
    └── ToolError          a child's tool call failed; the text goes back to the child's model
        └── ToolDenied     ... because a rule forbids it

Only `ConfigError` reaches a host as an exception, and only while it sets delegate up. Whatever a parent
model or a child does becomes a value: `Report.error` or a `TaskResult`.
"""

from typing import Literal

ProviderFault = Literal[
    "auth",  # 401, 402, 403: the key is wrong, may not use the model, or its account is empty
    "bad_request",  # 400, 404, 422: the request can never succeed as it is
    "rate_limited",  # 429
    "overloaded",  # 503, 529
    "server_error",  # other 5xx
    "connection",  # no answer came back at all
    "timeout",  # ours or the SDK's
    "bad_reply",  # an answer came, but not in the provider's own format
    "exhausted",  # a scripted client has no reply left
]


class DelegateError(Exception):
    """Base of every error below."""


class CallError(DelegateError):
    """The call can't be executed as written. Nothing was run and nothing was spent.

    `code` is stable, `field` is a path such as `tasks[1].goal`, `hint` says how to mend the call.
    """

    def __init__(self, code: str, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.hint = hint


class ConfigError(DelegateError):
    """Settings, `delegate.toml` or the catalog can't be used. The text names the place and the mend."""


class ProviderError(DelegateError):
    """A model call failed. `fault` says how; `status` is the HTTP status where there was one."""

    def __init__(
        self,
        fault: ProviderFault,
        message: str,
        *,
        provider: str,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.fault: ProviderFault = fault
        self.provider = provider
        self.status = status
        self.retry_after = retry_after


class BudgetExceeded(DelegateError):
    """The ledger refused the next step: `limit` names which limit, in its own unit."""

    def __init__(self, limit: str, *, allowed: float, spent: float, reserved: float = 0, needed: float = 0) -> None:
        left = max(0.0, allowed - spent - reserved)
        sums = [f"{_amount(limit, sum)}" for sum in (spent, allowed, reserved, left, needed)]
        super().__init__(
            "no room under the limit {}: {} of {} spent, {} reserved, {} left, {} needed".format(limit, *sums)
        )
        self.limit = limit
        self.allowed = allowed
        self.spent = spent
        self.reserved = reserved
        self.left = left
        self.needed = needed


def _amount(limit: str, amount: float) -> str:
    """Money to a millionth of a dollar, everything else as it is."""
    return f"${amount:.6f}".rstrip("0").rstrip(".") if limit.endswith("_usd") else f"{amount:.10g}"


class TierExceeded(DelegateError):
    """A provider served a child a model above its parent's tier. What was spent until then is on its bill."""


class ToolError(DelegateError):
    """A child's tool call failed. The text is what the child's model reads."""


class ToolDenied(ToolError):
    """A rule forbids this tool call (confinement, `commands`, a blocked address)."""

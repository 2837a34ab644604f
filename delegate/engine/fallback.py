"""Gives a task to another model of its tier, where the first one fails before its child has done anything.

Nothing is repeated and nothing costs twice: it happens only where the provider refused or failed, after the retries of
the rate limiter, and where no tool was called that could change anything. A model that was named is never replaced.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date

from delegate._util.redaction import redactor
from delegate.budget.ledger import Ledger
from delegate.models.connections import Connection, Connections
from delegate.models.routing import usual_child_usd
from delegate.records.recorder import encodable
from delegate.types import ErrorDetail, FailedModel, Receipt
from delegate.types.errors import ConfigError, ProviderError
from delegate.types.ports import Tool

MAX_MODELS = 3
MESSAGE_CHARS = 500


@dataclass(slots=True)
class Fallback:
    """The models that can take the place of one that fails, and those that have failed."""

    connections: Connections
    ledger: Ledger
    failed: list[FailedModel] = field(default_factory=list[FailedModel])

    async def next(self, failed: Connection, error: ProviderError) -> Connection | None:
        """A connection to the next model that the limits leave room for. None if there is none, or it wouldn't help."""
        if not _is_for_good(error) or len(self.failed) == MAX_MODELS - 1:
            return None
        for n, model in enumerate(failed.others, 1):
            left, cost = self.ledger.left("cost_usd"), usual_child_usd(model, date.today())
            is_there_too = (model.provider, model.endpoint) == (failed.model.provider, failed.model.endpoint)
            is_too_costly = left is not None and cost is not None and cost > left
            if is_too_costly or (is_there_too and error.outcome == "not_sent"):
                continue
            with suppress(ConfigError):  # its SDK isn't installed
                other = await self.connections.open(model)
                message = redactor.text(encodable(str(error)))[:MESSAGE_CHARS]
                detail = ErrorDetail(code=error.fault, message=message)
                self.failed.append(FailedModel(model=failed.model.id, error=detail))
                return replace(other, others=failed.others[n:])
        return None


def has_done_nothing(receipts: Sequence[Receipt], tools: Collection[Tool]) -> bool:
    """Whether all tool calls were of tools that change nothing."""
    harmless = {tool.name for tool in tools if tool.read_only or tool.effects == frozenset()}
    return all(receipt.tool in harmless for receipt in receipts)


def _is_for_good(error: ProviderError) -> bool:
    """Whether the provider certainly did nothing, and another model may do better with the same request."""
    if error.outcome not in ("not_sent", "rejected", "errored"):
        return False
    if error.fault == "bad_request":
        return error.status in (404, 410)  # the model is gone
    return error.fault in ("auth", "rate_limited", "overloaded", "server_error", "connection")

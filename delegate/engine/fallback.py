"""Gives a task to another model of its tier, where the first one fails before its child has done anything.

Nothing is repeated and nothing costs twice: it happens only where the provider refused or failed, after the retries of
the rate limiter, and where no tool was called that could change anything. A model that was named is never replaced.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date

from delegate._util.redaction import redactor
from delegate.budget.ledger import Ledger
from delegate.models.catalog import Model
from delegate.models.connections import Connection, Connections
from delegate.models.routing import usual_child_usd
from delegate.records.recorder import encodable
from delegate.types import ErrorDetail, FailedModel, Receipt
from delegate.types.errors import ConfigError, ProviderError
from delegate.types.ports import Tool

MAX_MODELS = 3
MESSAGE_CHARS = 500


async def next_connection(
    failed: Connection, error: ProviderError, connections: Connections, ledger: Ledger
) -> Connection | None:
    """A connection to the next model that the limits leave room for. None if there is none, or it wouldn't help."""
    for n, model in enumerate(failed.others if _is_for_good(error) else (), 1):
        left, cost = ledger.left("cost_usd"), usual_child_usd(model, date.today())
        is_there_too = (model.provider, model.endpoint) == (failed.model.provider, failed.model.endpoint)
        is_too_costly = left is not None and cost is not None and cost > left
        if is_too_costly or (is_there_too and error.outcome == "not_sent"):
            continue
        with suppress(ConfigError):  # its SDK isn't installed
            return replace(await connections.open(model), others=failed.others[n:])
    return None


def failed_model(model: Model, error: ProviderError) -> FailedModel:
    """What is said of a model that failed."""
    message = redactor.text(encodable(str(error)))[:MESSAGE_CHARS]
    return FailedModel(model=model.id, error=ErrorDetail(code=error.fault, message=message))


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

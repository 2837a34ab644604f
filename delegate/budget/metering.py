"""Makes one model call within the budget: reserves an estimate before it and settles the actual usage after it.

Children and judges both make their model calls here, so this is the only place that refuses a call and the only one
that waits for a provider's rate limit.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from delegate.budget.costs import Charge
from delegate.budget.ledger import Amounts, Ledger
from delegate.models.catalog import Model, cost_usd, tokens_of
from delegate.models.connections import Connection
from delegate.ports import ChatReply, ChatRequest, ToolCall
from delegate.types import Provenance, Usage

PATIENCE_SECONDS = 300.0
"""Seconds that a call waits for a rate limit by default."""


@dataclass(frozen=True, slots=True)
class MeteredReply:
    """A reply, its charge, and the catalog's entry for the model that served it (None if there is no entry)."""

    reply: ChatReply
    charge: Charge
    served: Model | None
    substituted: bool
    """Whether another model than the requested one served the reply."""


async def complete(
    connection: Connection,
    request: ChatRequest,
    *,
    input_tokens: int,
    ledger: Ledger,
    patience: float = PATIENCE_SECONDS,
) -> MeteredReply:
    """Make the call. `input_tokens` is its estimated length in the model's own tokens; `patience` is the number of
    seconds that it may wait for a rate limit.

    Raises BudgetExceeded before anything is sent, and ProviderError as the client does. A failed call costs nothing.
    """
    async for attempt in connection.limiter.attempts(patience=patience):
        # Reserved after the wait for the rate limit, so that waiting calls reserve nothing.
        with attempt, ledger.reserve(*_estimate(connection.model, request, input_tokens)) as reservation:
            reply = await connection.client.complete(request)
            metered = _metered(connection, reply, input_tokens)
            reservation.settle(_amounts(metered.charge))
            attempt.accepted(reply.quota)
            return metered
    raise AssertionError("attempts end with a reply or an error")


def _estimate(model: Model, request: ChatRequest, input_tokens: int) -> tuple[Amounts, Amounts]:
    """The sure amounts of a call, and the possible amounts of its output."""
    price, output = model.price(date.today(), input_tokens), request.max_output_tokens
    input_usd = price.usd(written=input_tokens) if price else 0  # an upper bound: all of it written to the cache
    return (
        {"model_calls": 1, "tokens": input_tokens, "cost_usd": input_usd},
        {"tokens": output, "cost_usd": price.usd(output=output) if price else 0},
    )


def _amounts(charge: Charge) -> Amounts:
    return {"model_calls": 1, "tokens": charge.usage.total_tokens, "cost_usd": charge.known_usd}


def _metered(connection: Connection, reply: ChatReply, input_tokens: int) -> MeteredReply:
    """Price the reply by the model that served it. Usage that the provider didn't report is estimated."""
    asked = connection.model
    served = connection.catalog.served(asked, reply.model_served)
    counted = reply.usage.total_tokens > 0
    usage = reply.usage if counted else _estimated_usage(asked, reply, input_tokens)
    cost = cost_usd(served or asked, usage, date.today())
    priced = served is not None and (served.provider, served.endpoint) == (asked.provider, asked.endpoint)
    sure: Provenance = "observed" if counted and priced else "estimated"
    charge = Charge(usage, cost, cost or 0, "unknown" if cost is None else sure)
    return MeteredReply(reply, charge, served, served is not asked)


def _estimated_usage(model: Model, reply: ChatReply, input_tokens: int) -> Usage:
    written = tokens_of(reply.text) + _tool_call_tokens(reply.tool_calls)
    return Usage(model_calls=1, input_tokens=input_tokens, output_tokens=model.tokens(written))


def request_tokens(model: Model, request: ChatRequest) -> int:
    """The estimated length of a request (texts, tool calls, tool definitions) in the model's own tokens."""
    texts = tokens_of(request.system) + sum(
        tokens_of(message.text)
        + _tool_call_tokens(message.tool_calls)
        + sum(tokens_of(reply.text) for reply in message.tool_replies)
        for message in request.messages
    )
    definitions = sum(tokens_of(tool.description) + tokens_of(json.dumps(tool.parameters)) for tool in request.tools)
    return model.tokens(texts + definitions)


def _tool_call_tokens(calls: Sequence[ToolCall]) -> int:
    return sum(tokens_of(call.raw_arguments or json.dumps(call.arguments)) for call in calls)

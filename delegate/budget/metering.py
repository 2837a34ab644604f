"""One model call within the ledger: reserved from an estimate before it, settled from what was really used after it.

Children and judges both spend through here, so that there is one place where a call can be refused, and one where it
waits for its provider's rate limit.
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
"""How long a call waits for a rate limit where nothing else can be done."""


@dataclass(frozen=True, slots=True)
class MeteredReply:
    """A reply, what it cost, and which model of the catalog really gave it (None: one that isn't there)."""

    reply: ChatReply
    charge: Charge
    served: Model | None
    substituted: bool
    """It isn't the model that was asked for."""


async def complete(
    connection: Connection,
    request: ChatRequest,
    *,
    input_tokens: int,
    ledger: Ledger,
    patience: float = PATIENCE_SECONDS,
) -> MeteredReply:
    """Make the call; `input_tokens` is its length, estimated in the model's own tokens, and `patience` how many seconds
    it may wait for a rate limit.

    Raises BudgetExceeded before anything is sent, ProviderError as the client does; a call that fails costs nothing.
    """
    async for attempt in connection.limiter.attempts(patience=patience):
        # Reserved when the call's turn has come, so that a call that waits holds no money.
        with attempt, ledger.reserve(*_estimate(connection.model, request, input_tokens)) as reservation:
            reply = await connection.client.complete(request)
            metered = _metered(connection, reply, input_tokens)
            reservation.settle(_spent(metered.charge))
            attempt.accepted(reply.quota)
            return metered
    raise AssertionError("attempts end with a reply or an error")


def _estimate(model: Model, request: ChatRequest, input_tokens: int) -> tuple[Amounts, Amounts]:
    """What the call surely takes, and what its output may take on top."""
    price, output = model.price(date.today(), input_tokens), request.max_output_tokens
    read = price.usd(written=input_tokens) if price else 0  # the dearest way to tell it
    return (
        {"model_calls": 1, "tokens": input_tokens, "cost_usd": read},
        {"tokens": output, "cost_usd": price.usd(output=output) if price else 0},
    )


def _spent(charge: Charge) -> Amounts:
    return {"model_calls": 1, "tokens": charge.usage.total_tokens, "cost_usd": charge.known_usd}


def _metered(connection: Connection, reply: ChatReply, input_tokens: int) -> MeteredReply:
    """Price the reply by the model that was really served; what the provider didn't count is estimated."""
    asked = connection.model
    served = connection.catalog.served(asked, reply.model_served)
    counted = reply.usage.total_tokens > 0
    usage = reply.usage if counted else _guess(asked, reply, input_tokens)
    cost = cost_usd(served or asked, usage, date.today())
    priced = served is not None and (served.provider, served.endpoint) == (asked.provider, asked.endpoint)
    sure: Provenance = "observed" if counted and priced else "estimated"
    charge = Charge(usage, cost, cost or 0, "unknown" if cost is None else sure)
    return MeteredReply(reply, charge, served, served is not asked)


def _guess(model: Model, reply: ChatReply, input_tokens: int) -> Usage:
    written = tokens_of(reply.text) + _written(reply.tool_calls)
    return Usage(model_calls=1, input_tokens=input_tokens, output_tokens=model.tokens(written))


def request_tokens(model: Model, request: ChatRequest) -> int:
    """How long a request is, estimated in the model's own tokens: its texts, tool calls and tool definitions."""
    told = tokens_of(request.system) + sum(
        tokens_of(message.text)
        + _written(message.tool_calls)
        + sum(tokens_of(reply.text) for reply in message.tool_replies)
        for message in request.messages
    )
    offered = sum(tokens_of(tool.description) + tokens_of(json.dumps(tool.parameters)) for tool in request.tools)
    return model.tokens(told + offered)


def _written(calls: Sequence[ToolCall]) -> int:
    return sum(tokens_of(call.raw_arguments or json.dumps(call.arguments)) for call in calls)

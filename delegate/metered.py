"""One model call within the ledger: reserved from an estimate before it, settled from what was really used after it.

Children and judges both spend through here, so that there is one place where a call can be refused.
"""

from datetime import date
from typing import NamedTuple

from delegate.catalog import Model, cost_usd
from delegate.ledger import Ledger
from delegate.ports import ChatClient, ChatReply, ChatRequest
from delegate.types import Usage


class Metered(NamedTuple):
    """A reply and its price; None where the model's price is unknown."""

    reply: ChatReply
    cost_usd: float | None


async def complete(
    client: ChatClient, model: Model, request: ChatRequest, *, input_tokens: int, ledger: Ledger
) -> Metered:
    """Make the call; `input_tokens` is its estimated length.

    Raises BudgetExceeded before anything is sent, ProviderError as the client does; a call that fails costs nothing.
    """
    today = date.today()
    estimate = cost_usd(model, Usage(input_tokens=input_tokens), today) or 0
    reservation = ledger.reserve({"model_calls": 1, "tokens": input_tokens, "cost_usd": estimate})
    try:
        reply = await client.complete(request)
    except BaseException:
        reservation.settle()
        raise
    cost = cost_usd(model, reply.usage, today)
    reservation.settle({"model_calls": 1, "tokens": reply.usage.total_tokens, "cost_usd": cost or 0})
    return Metered(reply, cost)

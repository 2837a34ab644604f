"""What the searches cost that a provider makes for a reply: reserved before, charged as made, and never too low."""

from dataclasses import replace
from typing import Any

import pytest

from delegate.budget import metering
from delegate.budget.costs import Charge
from delegate.budget.ledger import Ledger
from delegate.models.catalog import Catalog, Model, Price
from delegate.models.connections import Connection
from delegate.models.providers import Endpoint, connect
from delegate.models.ratelimit import RateLimiter
from delegate.types.errors import BudgetExceeded, ProviderError
from delegate.types.ports import ChatRequest, Message
from tests.support.model_server import Fault, ModelServer, Reply
from tests.support.searches import messages

MODEL = Model(
    id="m",
    provider="anthropic",
    family="claude",
    tier="standard",
    context_tokens=100_000,
    max_output_tokens=32_000,
    structured_output=True,
    tools=True,
    prices=(Price(input=10, output=100),),
    search_usd=0.01,
)
REQUEST = ChatRequest("m", "", [Message("user", "x")], max_output_tokens=1_000, web_searches=3)
RESERVED_USD = 3 * 0.01 + (3 * metering.SEARCH_TOKENS + 1_000) * 10 / 1e6
"""Without its output."""


async def charged(
    answer: Any, *, request: ChatRequest = REQUEST, limit: float = 5, model: Model = MODEL
) -> tuple[Charge, Ledger, int]:
    """The charge of one call, whether or not it got a reply, and how many requests were sent."""
    lost: list[Charge] = []
    ledger = Ledger({"cost_usd": limit, "tokens": 10**6})
    with ModelServer([answer]) as server:
        client = connect(Endpoint("anthropic", server.anthropic_url, "dummy"), timeout_seconds=None)
        link = Connection(model, client, RateLimiter(), Catalog([model]))
        try:
            call = await metering.complete(
                link, request, input_tokens=1_000, ledger=ledger, patience=0, on_lost=lost.append
            )
            charge = call.charge
        except ProviderError:
            charge = lost[0]
        finally:
            await client.aclose()
    return charge, ledger, len(server.calls)


@pytest.mark.parametrize("made", [1, 3])
async def test_each_search_that_was_made_is_charged(made: int) -> None:
    wire = messages()
    wire["content"] = [*wire["content"][:2] * made, *wire["content"][2:]]
    wire["usage"]["server_tool_use"]["web_search_requests"] = made
    charge, ledger, _ = await charged(Fault(200, wire))
    assert charge.cost_usd == pytest.approx(made * 0.01 + (9_000 * 10 + 100 * 100) / 1e6)
    assert charge.provenance == "observed"
    assert ledger.spent["cost_usd"] == charge.cost_usd
    assert ledger.left("cost_usd") == pytest.approx(5 - ledger.spent["cost_usd"])


async def test_without_searches_nothing_is_charged_or_reserved_for_them() -> None:
    request = replace(REQUEST, web_searches=0)
    charge, _, sent = await charged(Reply("hello"), request=request, limit=0.2)
    assert (charge.cost_usd, sent) == (pytest.approx((10 * 10 + 5 * 100) / 1e6), 1)


@pytest.mark.parametrize(("short_usd", "is_sent"), [(0.0, True), (0.001, False)])
async def test_a_limit_that_leaves_no_room_for_all_searches_refuses_before_they_are_made(
    short_usd: float, is_sent: bool
) -> None:
    least_output_usd = 500 * 100 / 1e6
    limit = RESERVED_USD + least_output_usd - short_usd
    if is_sent:
        charge, _, sent = await charged(Fault(200, messages()), limit=limit)
        assert (sent, charge.cost_usd is not None and charge.cost_usd <= limit) == (1, True)
        return
    with pytest.raises(BudgetExceeded) as refused:
        await charged(Fault(200, messages()), limit=limit)
    assert refused.value.limit == "cost_usd"


async def test_a_search_whose_reply_is_lost_is_charged_as_if_all_were_made() -> None:
    charge, _, _ = await charged(Fault(200, messages(), kind="truncate"))
    assert charge.provenance == "estimated"
    assert charge.cost_usd is not None
    assert charge.cost_usd >= RESERVED_USD


@pytest.mark.parametrize("kind", ["status", "truncate"])
async def test_of_a_model_without_a_price_only_its_searches_are_known(kind: Any) -> None:
    model = MODEL.model_copy(update={"prices": ()})
    charge, ledger, _ = await charged(Fault(200, messages(), kind=kind), model=model)
    assert (charge.cost_usd, charge.provenance) == (None, "unknown")
    known = 0.01 if kind == "status" else 0.03
    assert (charge.known_usd, ledger.spent["cost_usd"]) == (known, known)

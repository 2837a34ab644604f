"""What a reply costs that broke off while it was streamed: what came of it, not the most that it could have been."""

import asyncio
from typing import Literal

import pytest

from delegate._util.tokens import tokens_of
from delegate.budget import metering
from delegate.budget.costs import Charge
from delegate.budget.ledger import Ledger
from delegate.models.catalog import Catalog, Model, Price
from delegate.models.connections import Connection
from delegate.models.providers import Endpoint, connect
from delegate.models.ratelimit import RateLimiter
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatRequest, Incoming, Message
from tests.support.model_server import ModelServer, Pieces, Reply
from tests.support.streams import events
from tests.support.wire_formats import FORMATS

MODEL = Model(
    id="m",
    provider="anthropic",
    family="claude",
    tier="standard",
    context_tokens=100_000,
    max_output_tokens=32_000,
    structured_output=True,
    tools=True,
    prices=(Price(input=10, output=100, cached_input=1, cache_write=12.5),),
)
WORDS = "All seven orders of this week were checked and three of them were refunded in full. " * 10
BEGINNING = events(
    "messages", FORMATS["messages"].render(Reply(WORDS, input_tokens=900, cached_tokens=400), "m", 1), chars=20
)[:20]


async def broken(ending: Literal["stall", "close"], *, pieces: list[bytes] = BEGINNING) -> tuple[Charge, Incoming]:
    """The charge of a call whose reply begins so and then breaks off, or stops until the caller gives up."""
    lost: list[Charge] = []
    incoming = Incoming()
    with ModelServer([Pieces(pieces, ending=ending)] * 9) as server:
        client = connect(Endpoint("anthropic", server.anthropic_url, "dummy"), timeout_seconds=None)
        link = Connection(MODEL, client, RateLimiter(), Catalog([MODEL]))
        request = ChatRequest("m", "", [Message("user", "x")], max_output_tokens=32_000)
        call = asyncio.create_task(
            metering.complete(
                link, request, input_tokens=1_000, ledger=Ledger({}), patience=0, on_lost=lost.append, incoming=incoming
            )
        )
        if ending == "stall":
            async with asyncio.timeout(10):
                while incoming.begun_at is None:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.005)
            call.cancel()
        with pytest.raises((ProviderError, asyncio.CancelledError)):
            await call
        await client.aclose()
    assert len(lost) == 1
    return lost[0], incoming


@pytest.mark.parametrize("ending", ["stall", "close"])
async def test_a_reply_that_breaks_off_costs_what_came_of_it(ending: Literal["stall", "close"]) -> None:
    charge, incoming = await broken(ending)
    reply = incoming.so_far()
    assert reply is not None
    assert WORDS.startswith(reply.text)
    written = MODEL.tokens(tokens_of(reply.text))
    # The server was silent for some milliseconds before, in which a model might have thought.
    assert written < charge.usage.output_tokens < written + 3_000
    assert (charge.usage.input_tokens, charge.usage.cached_tokens) == (900, 400), "as the server has reported it"
    assert charge.provenance == "estimated"
    assert charge.cost_usd == pytest.approx((500 * 10 + 400 * 1 + charge.usage.output_tokens * 100) / 1e6, rel=0.2)


async def test_a_reply_of_which_nothing_came_may_have_been_as_long_as_allowed() -> None:
    charge, _ = await broken("close", pieces=[b": processing\n\n"])
    assert charge.usage.input_tokens == 1_000
    assert charge.usage.output_tokens < 3_000 * 5

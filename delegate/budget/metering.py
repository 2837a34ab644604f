"""Makes one model call within the budget: reserves an estimate before it and settles the actual usage after it.

Children and judges both make their model calls here, so this is the only place that refuses a call and the only one
that waits: for a provider's rate limit, before a repeated call, and for others' reservations.

The output of a request is limited to what the limits still buy, so that no reply can cost more than there is.

What a failed attempt is charged with follows from how far it got, its `Outcome`. Error responses are free. What may
have been processed is charged as `estimated`, and never too low: the whole input, and the output that a model could
have written. A provider that is left waiting (a timeout, a cancel) may write all that the request allows; one that
breaks off, or whose answer can't be read, has written at most what fits in the time until then. Of a reply that was
being streamed, what came is known, and no more is written once its connection is closed: it is charged with that, and
with the reasoning that may have been written in silence before it.

Searches of the web that a provider makes for a reply cost a price each, and what they find is input. Both are reserved
for as many as the request allows, the input by an estimate.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache

from delegate._util.cancellation import contained
from delegate._util.tokens import tokens_of
from delegate.budget.costs import Charge
from delegate.budget.ledger import Amounts, Ledger, Output
from delegate.models.catalog import Model, cost_usd
from delegate.models.connections import Connection
from delegate.telemetry import operations
from delegate.types import JsonObject, Usage
from delegate.types.errors import Outcome, ProviderError
from delegate.types.events import OnWait
from delegate.types.ports import ChatReply, ChatRequest, Incoming, ToolCall, ToolSpec

PATIENCE_SECONDS = 300.0
"""Seconds that a call waits for a rate limit, or between repeated calls, by default."""
_LONG_CHARS = 10_000
TOKENS_PER_SECOND = 3_000
"""More than any model writes."""
SEARCH_TOKENS = 20_000
"""Estimated input that one web search of a provider adds: its results, in each of the model's turns that follow."""


@dataclass(frozen=True, slots=True)
class MeteredReply:
    """A reply, its charge, and the catalog's entry for the model that served it (None if there is no entry)."""

    reply: ChatReply
    charge: Charge
    served: Model | None
    substituted: bool
    """Whether another model than the requested one served the reply."""
    seconds: float = 0
    """How long the call took, without waits before it."""


async def complete(
    connection: Connection,
    request: ChatRequest,
    *,
    input_tokens: int,
    ledger: Ledger,
    patience: float = PATIENCE_SECONDS,
    on_wait: OnWait = nullcontext,
    on_lost: Callable[[Charge], None] = lambda _: None,
    incoming: Incoming | None = None,
) -> MeteredReply:
    """Make the call.

    Args:
        connection: The model and its client.
        request: The request.
        input_tokens: Its estimated length in the model's own tokens.
        ledger: Its limits, which may lower that of its output. While only others' reservations stand in the way, the
            call waits.
        patience: The number of seconds that it may wait for a rate limit or to be repeated.
        on_wait: Returns a context manager that is entered for each wait. It gets the reason.
        on_lost: Receives the charge of each attempt that was sent and got no reply, also if the call is cancelled.
        incoming: Is kept up to date with what comes of the reply.

    Raises BudgetExceeded before anything is sent, also if the limits don't buy the input and `LEAST_OUTPUT` tokens, and
    ProviderError as the client does.
    """
    incoming = incoming or Incoming()
    input_tokens += request.web_searches * SEARCH_TOKENS
    async for attempt in connection.limiter.attempts(patience=patience, on_wait=on_wait):
        today = date.today()
        # Reserved after the wait for the rate limit, so that calls that wait for it reserve nothing.
        with (
            attempt,
            await ledger.reserve_when_free(
                *_estimate(connection.model, request, input_tokens, today), on_wait=on_wait
            ) as reservation,
        ):
            most = min(request.max_output_tokens, reservation.output_tokens)
            limited_request = replace(request, max_output_tokens=most, incoming=incoming)
            incoming.begin()
            start = time.monotonic()
            try:
                with operations.chat(connection, limited_request) as operation:
                    reply = await contained(connection.client.complete(limited_request))
                    seconds = time.monotonic() - start
                    if most < request.max_output_tokens:
                        reply = replace(reply, output_limit=most)
                    metered = _metered(connection, limited_request, reply, input_tokens, today, seconds)
                    charge = metered.charge
                    operation.replied(reply, charge.usage, charge.cost_usd, charge.provenance)
            except BaseException as error:
                if charge := _lost(error, connection.model, limited_request, input_tokens, start, incoming):
                    reservation.settle(_amounts(charge))
                    on_lost(charge)
                raise
            reservation.settle(_amounts(metered.charge))
            attempt.accepted(reply.quota)
            incoming.end()
            return metered
    raise AssertionError("attempts end with a reply or an error")


def _lost(
    error: BaseException, model: Model, request: ChatRequest, input_tokens: int, start: float, incoming: Incoming
) -> Charge | None:
    """The charge of a call that ended with this error; None if it can't have cost anything.

    `start` is the time when the request was sent.
    """
    most = request.max_output_tokens
    outcome: Outcome = "not_sent"
    if isinstance(error, ProviderError):
        outcome = error.outcome
    elif isinstance(error, (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)):
        outcome = "left_waiting"  # a call whose waiting task was cancelled goes on at the provider
    if outcome in ("not_sent", "rejected", "errored"):
        return None
    partial = incoming.so_far() if outcome != "answered" else None
    seconds = (time.monotonic() if incoming.begun_at is None else incoming.begun_at) - start
    unseen = most if outcome == "left_waiting" and partial is None else int(seconds * TOKENS_PER_SECOND)
    if partial is None:
        usage = Usage(model_calls=1, input_tokens=input_tokens, output_tokens=min(most, unseen))
    else:
        reported, estimate = partial.usage, _estimated_usage(model, partial, input_tokens)
        output = min(most, max(reported.output_tokens, estimate.output_tokens) + unseen)
        is_reported = reported.input_tokens > 0 and _is_possible(reported, 2 * reported.input_tokens, most)
        usage = (reported if is_reported else estimate).model_copy(update={"output_tokens": output})
    price, searches_usd = model.price(date.today(), usage.input_tokens), _search_usd(model, request.web_searches)
    if price is None:
        return Charge(usage, None, searches_usd, "unknown")
    # An estimated input may have been written to the provider's cache.
    cost = cost_usd(model, usage, date.today()) if usage.cached_tokens or usage.cache_write_tokens else None
    cost = price.usd(written=usage.input_tokens, output=usage.output_tokens) if cost is None else cost
    cost += searches_usd
    return Charge(usage, cost, cost, "estimated")


def _estimate(model: Model, request: ChatRequest, input_tokens: int, today: date) -> tuple[Amounts, Output]:
    """What a call takes in any case, and its output."""
    price = model.price(today, input_tokens)
    input_usd = price.usd(written=input_tokens) if price else 0  # an upper bound: all of it written to the cache
    input_usd += _search_usd(model, request.web_searches)
    each: Amounts = {"tokens": 1, "cost_usd": price.usd(output=1) if price else 0}
    sure: Amounts = {"model_calls": 1, "tokens": input_tokens, "cost_usd": input_usd}
    return sure, Output(request.max_output_tokens, each)


def _search_usd(model: Model, searches: int) -> float:
    return searches * (model.search_usd or 0)


def _amounts(charge: Charge) -> Amounts:
    return {"model_calls": 1, "tokens": charge.usage.total_tokens, "cost_usd": charge.known_usd}


def _metered(
    connection: Connection, request: ChatRequest, reply: ChatReply, input_tokens: int, today: date, seconds: float
) -> MeteredReply:
    """Price the reply by the model that served it, or as the one that was asked if the other's price is unknown.

    Usage that the provider didn't report is estimated, and impossible numbers are replaced.
    """
    model = connection.model
    served = connection.catalog.served(model, reply.model_served)
    is_counted = reply.usage.total_tokens > 0
    usage = reply.usage if is_counted else _estimated_usage(model, reply, input_tokens)
    # Twice the length that the catalog states, which may be less than what a provider allows.
    most_input = 2 * max(model.context_tokens, served.context_tokens if served else 0, input_tokens)
    if not _is_possible(usage, most_input, request.max_output_tokens):
        estimate = _estimated_usage(model, reply, input_tokens)
        usage = _corrected(usage, estimate, most_input, request.max_output_tokens)
    is_known = served is not None and (served.provider, served.endpoint) == (model.provider, model.endpoint)
    cost = cost_usd(served, usage, today) if served else None
    if cost is None:
        is_known, cost = is_known and served is model, cost_usd(model, usage, today)
    # At the price of the one that was asked: searches are the provider's, whichever of its models reads them.
    searches_usd = _search_usd(model, reply.web_search.count if reply.web_search else 0)
    if cost is None:
        return MeteredReply(reply, Charge(usage, None, searches_usd, "unknown"), served, served is not model, seconds)
    cost += searches_usd
    observed = is_counted and is_known and usage is reply.usage
    charge = Charge(usage, cost, cost, "observed" if observed else "estimated")
    return MeteredReply(reply, charge, served, served is not model, seconds)


def _is_possible(usage: Usage, most_input: int, most_output: int) -> bool:
    return (
        0 <= usage.input_tokens <= most_input
        and 0 <= usage.output_tokens <= most_output
        and min(usage.cached_tokens, usage.cache_write_tokens, usage.reasoning_tokens) >= 0
        and usage.cached_tokens + usage.cache_write_tokens <= usage.input_tokens
    )


def _corrected(usage: Usage, estimate: Usage, most_input: int, most_output: int) -> Usage:
    """The same usage with impossible numbers replaced, so that a wrong report neither refills a budget nor uses it up:
    negative ones by the estimate, others by the most that is possible.
    """
    input_tokens = estimate.input_tokens if usage.input_tokens < 0 else min(usage.input_tokens, most_input)
    output_tokens = estimate.output_tokens if usage.output_tokens < 0 else usage.output_tokens
    cached = min(max(usage.cached_tokens, 0), input_tokens)
    return Usage(
        model_calls=1,
        input_tokens=input_tokens,
        cached_tokens=cached,
        cache_write_tokens=min(max(usage.cache_write_tokens, 0), input_tokens - cached),
        output_tokens=min(output_tokens, most_output),
        reasoning_tokens=max(usage.reasoning_tokens, 0),
    )


def _estimated_usage(model: Model, reply: ChatReply, input_tokens: int) -> Usage:
    tokens = tokens_of(reply.text) + _tool_call_tokens(reply.tool_calls)
    return Usage(model_calls=1, input_tokens=input_tokens, output_tokens=model.tokens(tokens))


def request_tokens(model: Model, request: ChatRequest) -> int:
    """The estimated length of a request (texts, tool calls, tool definitions) in the model's own tokens."""
    texts = tokens_of(request.system) + sum(
        tokens_of(message.text)
        + _tool_call_tokens(message.tool_calls)
        + sum(tokens_of(reply.text) for reply in message.tool_replies)
        for message in request.messages
    )
    return model.tokens(texts + sum(map(definition_tokens, request.tools)))


@lru_cache(256)
def definition_tokens(tool: ToolSpec) -> int:
    """The estimated length of a tool's definition."""
    return tokens_of(tool.description) + tokens_of(json.dumps(tool.parameters))


def _tool_call_tokens(calls: Sequence[ToolCall]) -> int:
    tokens = 0
    for call in calls:
        if call.raw_arguments:
            tokens += tokens_of(call.raw_arguments)
            continue
        rest: JsonObject = {}
        for name, value in (call.arguments or {}).items():
            if isinstance(value, str) and len(value) > _LONG_CHARS:
                tokens += tokens_of(value)  # not encoded as JSON, which makes it a little longer
            else:
                rest[name] = value
        tokens += tokens_of(json.dumps(rest))
    return tokens

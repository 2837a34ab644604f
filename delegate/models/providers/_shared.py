"""What the providers have in common: JSON in and out, faults by HTTP status, errors worded, one deadline per call."""

import asyncio
import json
import math
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from email.utils import mktime_tz, parsedate_tz
from http import HTTPStatus
from typing import Any, Never, TypeVar, cast

import aiohttp
from pydantic_core import PydanticSerializationError
from pydantic_core import to_json as encode

from delegate.errors import ProviderError, ProviderFault
from delegate.ports import ChatReply, Message, Quota
from delegate.types import JsonObject

T = TypeVar("T")

# Of a long conversation aiohttp warns that its bytes are sent at once; where a host turns warnings into errors, that
# would end the child.
warnings.filterwarnings("ignore", message="Sending a large body directly", category=ResourceWarning)

REFUSALS = (429, 503, 529)
"""Statuses of a model that has too much to do. SDKs don't retry these: `models.ratelimit` does, for all callers."""

MAX_RETRY_AFTER = 30.0
"""Seconds. A server that asks for a longer wait isn't asked again by the SDK: Anthropic's would sleep for all of it."""

MAX_REPLY_BYTES = 16 << 20
"""Many times what a model can write in one reply. To read the JSON of much more would hold up the event loop."""

DEEPEST = 64
"""Levels of a tool call's arguments. What writes them down again fails at some hundreds."""

SHAPE_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What reading a reply raises when it isn't in the provider's format."""


# ------------------------------------------------------------------------------------------------------------- JSON


def _no_constant(name: str) -> Never:
    raise ValueError(f"{name} isn't JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)
_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def to_json(value: Any) -> str:
    """Compact JSON."""
    return _ENCODER.encode(value)


def to_bytes(body: JsonObject) -> bytes:
    """A request body. Lone surrogates (odd file names in tool output) become `?`: no API accepts them."""
    try:
        return encode(body)  # takes a quarter of the time, and refuses lone surrogates
    except PydanticSerializationError:
        return _ENCODER.encode(body).encode("utf-8", "replace")


def json_object(text: str | bytes) -> JsonObject | None:
    """The JSON object that `text` is, or None."""
    try:
        value = _DECODER.decode(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, RecursionError):
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def arguments(text: str) -> JsonObject | None:
    """A tool call's arguments. Nothing at all counts as no arguments: several servers write it so."""
    return usable(json_object(text)) if text.strip() else {}


def usable(given: JsonObject | None) -> JsonObject | None:
    """Arguments that a tool can be called with; None where they nest deeper than anyone would write them."""
    return given if given is not None and _is_shallow(given, DEEPEST) else None


def _is_shallow(value: object, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return True
    parts = cast("dict[str, object]", value).values() if isinstance(value, dict) else cast("list[object]", value)
    return levels > 0 and all(_is_shallow(part, levels - 1) for part in parts)


def reply_object(data: str | bytes, provider: str) -> JsonObject:
    """A reply's body. Raises `ProviderError("bad_reply")` where it isn't a JSON object, or too long to be read."""
    if len(data) > MAX_REPLY_BYTES:
        text = f"{provider}: the reply has {len(data):,} bytes; at most {MAX_REPLY_BYTES:,} are read"
        raise ProviderError("bad_reply", text, provider=provider)
    body = json_object(data)
    if body is None:
        raise ProviderError("bad_reply", f"{provider}: the reply isn't a JSON object", provider=provider)
    return body


def read_reply(
    read: Callable[[JsonObject], ChatReply], body: JsonObject, quota: Quota | None, *, provider: str
) -> ChatReply:
    """What `read` makes of a reply's body. Raises `ProviderError("bad_reply")` where the body has another form."""
    try:
        reply = read(body)
    except SHAPE_ERRORS as error:
        text = f"{provider}: the reply has an unknown form ({type(error).__name__}: {error})"
        raise ProviderError("bad_reply", text[:300], provider=provider) from error
    return reply if quota is None else replace(reply, quota=quota)


def dig(value: Any, *names: str) -> Any:
    """What lies at the end of `names`, or None as soon as one of them is missing."""
    for name in names:
        value = cast("JsonObject", value).get(name) if isinstance(value, dict) else None
    return value


def native_of(message: Message, protocol: str) -> Any:
    """The provider's own form of this turn, if it came from the same API."""
    return message.native["items"] if dig(message.native, "protocol") == protocol else None


# ----------------------------------------------------------------------------------------------------------- errors


def fault_of(status: int) -> ProviderFault:
    """What an HTTP status other than 200 means."""
    known: dict[int, ProviderFault] = {
        401: "auth",
        402: "auth",
        403: "auth",
        408: "timeout",
        429: "rate_limited",
        503: "overloaded",
        529: "overloaded",
    }
    if status in known:
        return known[status]
    if status >= 500:
        return "server_error"
    return "bad_request" if status >= 400 else "bad_reply"


def status_error(
    provider: str, status: int, body: object, headers: Mapping[str, str], *, fault: ProviderFault | None = None
) -> ProviderError:
    """The error for an answer with `status`. `body` is the parsed body, or its text."""
    return ProviderError(
        fault or fault_of(status),
        f"{provider}: HTTP {status}: {_words(status, body, headers)}",
        provider=provider,
        status=status,
        retry_after=retry_after(headers),
    )


def _words(status: int, body: object, headers: Mapping[str, str]) -> str:
    if 300 <= status < 400:
        return (
            f"redirected to {headers.get('location', '?')[:200]}; not followed, so that the key stays at its endpoint"
        )
    for names in (("error", "message"), ("message",), ("error",), ("detail",)):
        said = dig(body, *names)
        if isinstance(said, str) and said and not said.lstrip().startswith("<"):
            return " ".join(said.split())[:300]
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def transport_error(provider: str, error: BaseException, *, slow: bool = False) -> ProviderError:
    """The error for a call that brought no whole answer: never connected, broken off, or too slow.

    `slow` is the SDK's own opinion. It is believed only where nothing lies below, because the aiohttp backends
    report broken connections as timeouts too.
    """
    chain = list(_causes(error))
    fault: ProviderFault = "connection"
    if any(isinstance(cause, aiohttp.ClientPayloadError | aiohttp.ClientResponseError) for cause in chain):
        fault = "bad_reply"
    elif any(isinstance(cause, TimeoutError) for cause in chain) or (slow and len(chain) == 1):
        fault = "timeout"
    # aiohttp writes "400, message:" before what is wrong with a body, whatever the server's status was.
    said = str(getattr(chain[-1], "message", "") or chain[-1])
    said = " ".join(said.split())[:200] or type(chain[-1]).__name__
    return ProviderError(fault, f"{provider}: {said}", provider=provider)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def without_key(error: ProviderError, key: str) -> ProviderError:
    """The same error, its text free of the key. Some servers quote the key that they refuse."""
    if len(key) >= 8 and key in str(error):
        error.args = (str(error).replace(key, "***"),)
    return error


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds the server asks to wait, whichever way it says so."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    date = parsedate_tz(headers.get("retry-after", ""))
    try:
        return max(mktime_tz(date) - time.time(), 0.0) if date else None
    except (ValueError, OverflowError):
        return None


# --------------------------------------------------------------------------------------------------------- deadline


async def within(seconds: float, provider: str, call: Awaitable[T]) -> T:
    """Await `call`, SDK retries and all, for at most `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError:
        raise ProviderError("timeout", f"{provider}: no answer within {seconds:g} s", provider=provider) from None

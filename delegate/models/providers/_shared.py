"""Helpers that all providers share: JSON, mapping of HTTP statuses to faults, error messages, and timeouts."""

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

# aiohttp warns that the bytes of a long conversation are sent at once. If a host turns warnings into errors, that would
# stop the child.
warnings.filterwarnings("ignore", message="Sending a large body directly", category=ResourceWarning)

REJECTION_STATUSES = (429, 503, 529)
"""Statuses of rate-limited and overloaded models. The SDKs don't retry these: `models.ratelimit` does."""

MAX_RETRY_AFTER = 30.0
"""Seconds. With a longer `Retry-After`, the SDK doesn't retry: Anthropic's SDK would sleep for all of it."""

MAX_REPLY_BYTES = 16 << 20
"""Many times what a model can write in one reply. Parsing much more JSON would block the event loop."""

MAX_DEPTH = 64
"""The maximum nesting of a tool call's arguments. Serializing them fails at a few hundred levels."""

SHAPE_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""The exceptions from reading a reply that isn't in the provider's format."""


# ------------------------------------------------------------------------------------------------------------- JSON


def _reject_constant(name: str) -> Never:
    raise ValueError(f"{name} isn't JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)
_DECODER = json.JSONDecoder(parse_constant=_reject_constant)


def to_json(value: Any) -> str:
    """Compact JSON."""
    return _ENCODER.encode(value)


def to_bytes(body: JsonObject) -> bytes:
    """Encode a request body. Lone surrogates (from file names in tool output) become `?`, since no API accepts them."""
    try:
        return encode(body)  # four times as fast, but rejects lone surrogates
    except PydanticSerializationError:
        return _ENCODER.encode(body).encode("utf-8", "replace")


def parse_object(text: str | bytes) -> JsonObject | None:
    """Parse a JSON object; None if `text` isn't one."""
    try:
        value = _DECODER.decode(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, RecursionError):
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def parse_arguments(text: str) -> JsonObject | None:
    """Parse a tool call's arguments. An empty text means no arguments: several servers send that."""
    return valid_arguments(parse_object(text)) if text.strip() else {}


def valid_arguments(given: JsonObject | None) -> JsonObject | None:
    """The arguments; None if they aren't an object or are nested too deeply."""
    return given if given is not None and _is_within_depth(given, MAX_DEPTH) else None


def _is_within_depth(value: object, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return True
    parts = cast("dict[str, object]", value).values() if isinstance(value, dict) else cast("list[object]", value)
    return levels > 0 and all(_is_within_depth(part, levels - 1) for part in parts)


def parse_body(data: str | bytes, provider: str) -> JsonObject:
    """Parse the body of a reply. Raises `ProviderError("bad_reply")` if it isn't a JSON object or is too long."""
    if len(data) > MAX_REPLY_BYTES:
        text = f"{provider}: the reply has {len(data):,} bytes; at most {MAX_REPLY_BYTES:,} are read"
        raise ProviderError("bad_reply", text, provider=provider)
    body = parse_object(data)
    if body is None:
        raise ProviderError("bad_reply", f"{provider}: the reply isn't a JSON object", provider=provider)
    return body


def read_reply(
    read: Callable[[JsonObject], ChatReply], body: JsonObject, quota: Quota | None, *, provider: str
) -> ChatReply:
    """Convert the body of a reply with `read`. Raises `ProviderError("bad_reply")` if it has an unknown format."""
    try:
        reply = read(body)
    except SHAPE_ERRORS as error:
        text = f"{provider}: the reply has an unknown format ({type(error).__name__}: {error})"
        raise ProviderError("bad_reply", text[:300], provider=provider) from error
    return reply if quota is None else replace(reply, quota=quota)


def dig(value: Any, *names: str) -> Any:
    """The value at the path `names`; None if any part of the path is missing."""
    for name in names:
        value = cast("JsonObject", value).get(name) if isinstance(value, dict) else None
    return value


def native_content(message: Message, protocol: str) -> Any:
    """The provider's native form of this message, if it came from the same API."""
    return message.native["items"] if dig(message.native, "protocol") == protocol else None


# ----------------------------------------------------------------------------------------------------------- errors


def fault_of(status: int) -> ProviderFault:
    """The fault for an HTTP status other than 200."""
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
    """The error for a response with `status`. `body` is the parsed body or its text."""
    return ProviderError(
        fault or fault_of(status),
        f"{provider}: HTTP {status}: {_message(status, body, headers)}",
        provider=provider,
        status=status,
        retry_after=retry_after(headers),
    )


def _message(status: int, body: object, headers: Mapping[str, str]) -> str:
    if 300 <= status < 400:
        return (
            f"redirected to {headers.get('location', '?')[:200]}; not followed, so that the key stays at its endpoint"
        )
    for names in (("error", "message"), ("message",), ("error",), ("detail",)):
        text = dig(body, *names)
        if isinstance(text, str) and text and not text.lstrip().startswith("<"):
            return " ".join(text.split())[:300]
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def transport_error(provider: str, error: BaseException, *, slow: bool = False) -> ProviderError:
    """The error for a call without a complete response: not connected, disconnected, or timed out.

    `slow` is whether the SDK reported a timeout. It only counts if the error has no cause, because the aiohttp backends
    also report broken connections as timeouts.
    """
    chain = list(_causes(error))
    fault: ProviderFault = "connection"
    if any(isinstance(cause, aiohttp.ClientPayloadError | aiohttp.ClientResponseError) for cause in chain):
        fault = "bad_reply"
    elif any(isinstance(cause, TimeoutError) for cause in chain) or (slow and len(chain) == 1):
        fault = "timeout"
    # aiohttp puts "400, message:" before a problem with the body, whatever the status of the response was.
    text = str(getattr(chain[-1], "message", "") or chain[-1])
    text = " ".join(text.split())[:200] or type(chain[-1]).__name__
    return ProviderError(fault, f"{provider}: {text}", provider=provider)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def without_key(error: ProviderError, key: str) -> ProviderError:
    """The same error with the key removed from its text. Some servers quote the key that they reject."""
    if len(key) >= 8 and key in str(error):
        error.args = (str(error).replace(key, "***"),)
    return error


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that the server asks to wait, in any of the usual headers."""
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
    """Await `call`, including the SDK's retries, for at most `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError:
        raise ProviderError("timeout", f"{provider}: no answer within {seconds:g} s", provider=provider) from None

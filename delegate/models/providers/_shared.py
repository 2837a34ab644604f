"""Helpers that all providers share: JSON, tool calls, and timeouts."""

import json
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from importlib import import_module
from secrets import token_hex
from typing import Any, TypeVar, cast

from pydantic_core import from_json

from delegate._util.documents import refuse_constant, strict
from delegate._util.encoding import json_bytes
from delegate.types import JsonObject
from delegate.types.errors import ProviderError
from delegate.types.ports import Attachment, ChatReply, Message, Quota, ToolCall, ToolSpec

# aiohttp warns that the bytes of a long conversation are sent at once. If a host turns warnings into errors, that would
# stop the child.
warnings.filterwarnings("ignore", message="Sending a large body directly", category=ResourceWarning)

MAX_REPLY_BYTES = 16 << 20
"""Many times what a model can write in one reply. Parsing much more JSON would block the event loop."""

NOT_JSON = "the reply isn't a JSON object"
"""The text of the error for a page, which a server that isn't a model API sends."""

KEPT_BYTES = 2_000
"""Longer messages and tools are encoded for each request: keeping their JSON would take too much memory."""

MAX_DEPTH = 64
"""The maximum nesting of a tool call's arguments. Serializing them fails at a few hundred levels."""

SHAPE_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""The exceptions from reading a reply that isn't in the provider's format."""


class BuiltInClient:
    """A client of this package. A cancel ends its calls, which a host's client may ignore."""


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)
_DECODER = json.JSONDecoder(parse_constant=refuse_constant)


def to_json(value: Any) -> str:
    """Compact JSON."""
    return _ENCODER.encode(value)


def body_with(body: JsonObject, **encoded: bytes) -> bytes:
    """Encode a request body with more fields, which are encoded already."""
    parts = [json_bytes(body)[:-1]]
    for name, value in encoded.items():
        parts += [b',"%b":' % name.encode(), value]
    return b"".join([*parts, b"}"])


M = TypeVar("M", Message, ToolSpec)


def encode_all(
    messages: Iterable[M], api: str, items_of: Callable[[M], Iterable[JsonObject]], *first: JsonObject
) -> bytes:
    """The JSON array of the items `first` and of those that each message or tool becomes in an API."""
    parts = [json_bytes(item) for item in first]
    for message in messages:
        part = message.encoded.get(api)
        if part is None:
            part = json_bytes([*items_of(message)])[1:-1]
            if len(part) <= KEPT_BYTES:
                message.encoded[api] = part
        if part:
            parts.append(part)
    return b"[%b]" % b",".join(parts)


def parse_object(text: str | bytes) -> JsonObject | None:
    """Parse a JSON object; None if `text` isn't one."""
    try:
        value = from_json(text, allow_inf_nan=False)  # twice as fast, but rejects lone surrogates and deep nesting
    except ValueError:
        try:
            value = _DECODER.decode(text.decode() if isinstance(text, bytes) else text)
        except (ValueError, RecursionError):
            return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def parse_arguments(text: str) -> JsonObject | None:
    """Parse a tool call's arguments. An empty text means no arguments: several servers send that."""
    with suppress(ValueError, RecursionError):
        return valid_arguments(strict.decode(text) if text.strip() else {})
    return None


def valid_arguments(arguments: object) -> JsonObject | None:
    """The arguments; None if they aren't an object or are nested too deeply."""
    is_valid = isinstance(arguments, dict) and _is_within_depth(cast("object", arguments), MAX_DEPTH)
    return cast("JsonObject", arguments) if is_valid else None


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
        raise ProviderError("bad_reply", f"{provider}: {NOT_JSON}", provider=provider)
    return body


ReadReply = Callable[[JsonObject], ChatReply]
"""Converts the body of a reply. May raise `SHAPE_ERRORS`."""


def read_reply(read: ReadReply, body: JsonObject, quota: Quota | None, *, provider: str) -> ChatReply:
    """Convert the body of a reply with `read`. Raises `ProviderError("bad_reply")` if it has an unknown format."""
    try:
        reply = read(body)
    except SHAPE_ERRORS as error:
        raise unknown_format(provider, error) from error
    return reply if quota is None else replace(reply, quota=quota)


def unknown_format(provider: str, error: Exception) -> ProviderError:
    """The error for one of `SHAPE_ERRORS`."""
    text = f"{provider}: the reply has an unknown format ({type(error).__name__}: {error})"
    return ProviderError("bad_reply", text[:300], provider=provider)


def dig(value: Any, *names: str) -> Any:
    """The value at the path `names`; None if any part of the path is missing."""
    for name in names:
        value = cast("JsonObject", value).get(name) if isinstance(value, dict) else None
    return value


_NOTHING = nullcontext()


def untraced(*methods: object) -> AbstractContextManager[None]:
    """Ask instrumentations that have wrapped an SDK's method to emit no span inside the block.

    Bodies go past the SDKs' parameters and results, so such a span would show neither messages nor tokens. The call has
    a span with them (see `delegate.telemetry`). Spans of the HTTP client are suppressed with it.
    """
    if not any(hasattr(method, "__wrapped__") for method in methods):
        return _NOTHING
    try:
        utils: Any = import_module("opentelemetry.instrumentation.utils")
    except ImportError:  # they are wrapped by something else
        return _NOTHING
    return utils.suppress_instrumentation()


def native_content(message: Message, protocol: str) -> Any:
    """The provider's native form of this message, if it came from the same API."""
    return message.native["items"] if dig(message.native, "protocol") == protocol else None


LOCAL_ID = "local-"
"""The prefix of IDs that are generated for calls that came without one, or with the ID of another one."""
NO_NAME = "unnamed"
"""The name of a call that came without one. There is no such tool, which is what the model is told."""


def with_ids(items: Iterable[JsonObject], id_name: str = "id", kind: str | None = None) -> list[JsonObject]:
    """The items of a turn, of which each call has an ID that no earlier one has, and a name.

    `kind` is the type of the items that are calls; None if all of them are.
    """
    ids: list[str] = []
    complete: list[JsonObject] = []
    for item in items:
        if kind is None or item["type"] == kind:
            id, name = item.get(id_name), item.get("name")
            ids.append(id if isinstance(id, str) and id and id not in ids else f"{LOCAL_ID}{token_hex(6)}")
            item = {**item, id_name: ids[-1], "name": name if isinstance(name, str) and name else NO_NAME}
        complete.append(item)
    return complete


def parsed_call(id: str, name: str, arguments: object) -> ToolCall:
    """A call whose arguments come as an object, or as what some servers send in place of one."""
    if isinstance(arguments, dict):
        return ToolCall(id, name, valid_arguments(cast("object", arguments)))
    return ToolCall(id, name, None, arguments if isinstance(arguments, str) else to_json(arguments))


def base64_of(attachment: Attachment) -> str:
    """The data of an attachment as text."""
    return b64encode(attachment.data).decode()


def data_url(attachment: Attachment) -> str:
    """The data of an attachment as a URL."""
    return f"data:{attachment.media_type};base64,{base64_of(attachment)}"


def file_name(attachment: Attachment) -> str:
    """The name of a PDF, which OpenAI requires."""
    return attachment.name or "document.pdf"


CALL_SECONDS, SLOWEST_RATE = 180.0, 30.0
"""The default limit of a call in seconds, and the tokens per second with which a longer reply may be written."""


def call_seconds(limit: float | None, max_output_tokens: int) -> float:
    """The timeout of one call: `limit`, or what a reply of that length may take."""
    return max(CALL_SECONDS, max_output_tokens / SLOWEST_RATE) if limit is None else limit

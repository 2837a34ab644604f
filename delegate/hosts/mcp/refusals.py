"""Decides whether a line from a client is a message, and how to answer one that isn't."""

import json
from typing import Any, cast

from pydantic import ValidationError

from delegate.hosts.mcp.sdk import is_notification_in
from delegate.types import JsonObject

_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
"""Codes of JSON-RPC."""


def refusal(text: str) -> JsonObject | None:
    """The JSON-RPC error that answers the line if the SDK can't read it, else None.

    It has the id of the request if that can be told, so that its sender stops waiting for a result.
    """
    try:
        is_notification = is_notification_in(text)
    except ValidationError as error:
        return _unreadable(text, error)
    if is_notification and '"id"' in text and "id" in _fields(text):  # a notification to the SDK, which answers none
        return _error(_INVALID_REQUEST, "the id of a request must be a text or a whole number", None)
    return None


def _unreadable(text: str, error: ValidationError) -> JsonObject:
    """The answer to a line that isn't a message."""
    first = error.errors(include_url=False, include_input=False)[0]
    is_json = first["type"] != "json_invalid"
    fields = _fields(text)
    id = fields.get("id") if "method" in fields else None
    id = id if isinstance(id, str | int) and not isinstance(id, bool) else None
    if is_json:
        where = ".".join(str(part) for part in first["loc"])
        return _error(_INVALID_REQUEST, f"this is no JSON-RPC message: {where}: {first['msg']}", id)
    reason = first["msg"].removeprefix("Invalid JSON: ")
    hint = "; \\ud800 to \\udfff are valid in pairs only" if "hex escape" in reason else ""
    return _error(_PARSE_ERROR, f"this is no valid JSON: {reason}{hint}", id)


def _fields(text: str) -> dict[str, Any]:
    """The members of the object that the line is, or nothing."""
    try:
        value = json.loads(text)  # accepts more than the SDK does, such as half of a surrogate pair
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _error(code: int, message: str, id: str | int | None) -> JsonObject:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}

"""Decides whether a line from a client is a message, and how to answer one that isn't."""

import json
import re
from typing import Any, cast

from pydantic import ValidationError

from delegate.hosts.mcp.sdk import is_notification_in
from delegate.types import JsonObject

MAX_BYTES = 16 * 1024 * 1024
"""The maximum length of a line."""
_END_BYTES = 1_000
"""How much is kept of both ends of a line that is too long."""
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
"""Codes of JSON-RPC."""
_ID = rb'"id"\s*:\s*(-?(?:0|[1-9]\d{0,17})|"[ !#-\[\]-~]{1,200}")\s*'
# Only what is certain to be a member of the outermost object: after members that are short texts, or before its end.
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*,\s*)*' + _ID + rb"[,}]")
_ID_LAST = re.compile(rb",\s*" + _ID + rb"\}\s*$")


class Line:
    """A line while it is read. Of one that is too long, only both ends are kept."""

    def __init__(self) -> None:
        self._start, self._end = bytearray(), b""
        self._length = 0

    def add(self, part: bytes) -> None:
        """Append to the line."""
        self._length += len(part)
        if self._length <= MAX_BYTES:
            self._start += part
        else:
            self._end = (self._end or bytes(self._start[-_END_BYTES:])) + part
            self._end = self._end[-_END_BYTES:]
            del self._start[_END_BYTES:]

    @property
    def is_blank(self) -> bool:
        """Whether it contains nothing but white space."""
        return self._length <= MAX_BYTES and not self._start.strip()

    @property
    def text(self) -> str:
        """The line, in which bytes that aren't UTF-8 are replaced."""
        return self._start.decode("utf-8", "replace")

    def refusal(self) -> JsonObject | None:
        """The JSON-RPC error that answers the line if the SDK can't read it, else None.

        It has the id of the request if that can be told, so that its sender stops waiting for a result.
        """
        if self._length > MAX_BYTES:
            found = _ID_FIRST.match(self._start) or _ID_LAST.search(self._end)
            message = f"the message has {self._length:,} bytes, and the limit is {MAX_BYTES:,}; send less"
            return _error(_INVALID_REQUEST, message, json.loads(found[1]) if found else None)
        text = self.text
        try:
            is_notification = is_notification_in(text)
        except ValidationError as error:
            return _unreadable(text, error)
        if (
            is_notification and '"id"' in text and "id" in _fields(text)
        ):  # a notification to the SDK, which answers none
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

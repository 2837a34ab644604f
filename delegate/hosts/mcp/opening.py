"""Answers a client's first requests while the SDK is loaded: `initialize`, `server/discover`, `tools/list` and `ping`.

Clients wait half a second for the first answer, and load the tools without this server otherwise. The SDK alone takes
longer. It gets the same requests later, so that its state is right, and its answers to them are dropped. Therefore only
what the SDK certainly answers in the same way is answered here, and everything else waits for it.
"""

import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal, cast

from delegate._util.redaction import logger
from delegate.hosts.mcp.definitions import INSTRUCTIONS, NAME, TASKS_EXTENSION, server_version
from delegate.hosts.mcp.lines import Line
from delegate.types import JsonObject

_log = logger(__name__)

_MAX_BYTES = 100_000
"""The maximum length of a request that is answered here."""
_HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Versions of the protocol that begin with `initialize`, which both versions of the SDK echo. Others, it negotiates."""
_LATEST = "2026-07-28"
"""The version without a handshake: each request says in its `_meta` which version it is of, and who sends it."""
_META = "io.modelcontextprotocol/"
_ENVELOPE = frozenset({f"{_META}protocolVersion", f"{_META}clientCapabilities", f"{_META}clientInfo"})
_CAPABILITIES: JsonObject = {"tools": {"listChanged": False}}
"""What the SDK says of a server whose only handlers are those of tools."""
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
"""An escaped half of a surrogate pair. Of these, the SDK refuses what Python accepts."""


class Opening:
    """The conversation with the client until the SDK continues it. May be used in several threads."""

    def __init__(self, tools: Sequence[JsonObject]) -> None:
        self._tools = tools
        self._sdk = int(version("mcp").partition(".")[0])
        self._server = {"name": NAME, "version": server_version()}
        self._lock = threading.Lock()
        self._protocol: Literal["unknown", "handshake", "latest", "left to the SDK"] = "unknown"
        """Decided by the first request, as it is for the SDK."""
        self._answered: set[tuple[type, str | int]] = set()
        """The ids of requests that were answered here, and not yet by the SDK."""

    def answer(self, line: Line) -> str | None:
        """The answer to a line, as a line. None if it is to wait for the SDK, as after `end`."""
        with self._lock:
            if self._protocol == "left to the SDK" or line.is_blank:
                return None
            request = _request_in(line)
            result = self._result(request) if request else None
            if request is None or result is None:
                self._protocol = "left to the SDK" if self._protocol == "unknown" else self._protocol
                return None
            if self._protocol == "unknown":
                self._protocol = "handshake" if request.method == "initialize" else "latest"
            self._answered.add((type(request.id), request.id))
            answer = {"jsonrpc": "2.0", "id": request.id, "result": result}
            return json.dumps(answer, ensure_ascii=False, separators=(",", ":")) + "\n"

    def end(self) -> None:
        """Answer nothing more, because the SDK does."""
        with self._lock:
            self._protocol = "left to the SDK"

    def has_answered(self, text: str) -> bool:
        """Whether a message of the SDK is its answer to a request that was answered here."""
        with self._lock:
            if not self._answered:
                return False
            message = json.loads(text)
            key = (type(message.get("id")), message.get("id"))
            if "method" in message or key not in self._answered:
                return False
            self._answered.remove(key)
        if "error" in message:
            _log.warning("request %r of the client was answered, but the SDK refuses it: %s", key[1], message["error"])
        return True

    def _result(self, request: "_Request") -> JsonObject | None:
        if self._protocol == "handshake":
            return self._after_handshake(request.method, request.params)
        if self._protocol == "unknown" and request.method == "initialize":
            return self._initialize(request.params)
        return self._without_handshake(request.method, request.params)

    def _initialize(self, params: JsonObject) -> JsonObject | None:
        requested = params.get("protocolVersion")
        is_usual = (
            params.keys() <= {"protocolVersion", "capabilities", "clientInfo", "_meta"}
            and requested in _HANDSHAKE_VERSIONS
            and _are_capabilities(params.get("capabilities"))
            and _is_implementation(params.get("clientInfo"))
            and _is_meta(params.get("_meta"))
        )
        if not is_usual:
            return None
        capabilities = _CAPABILITIES if self._sdk > 1 else {"experimental": {}, **_CAPABILITIES}
        return {
            "protocolVersion": requested,
            "capabilities": capabilities,
            "serverInfo": self._server,
            "instructions": INSTRUCTIONS,
        }

    def _after_handshake(self, method: str, params: JsonObject) -> JsonObject | None:
        if not params.keys() <= {"_meta"} or not _is_meta(params.get("_meta")):
            return None
        return {"ping": {}, "tools/list": {"tools": self._tools}}.get(method)

    def _without_handshake(self, method: str, params: JsonObject) -> JsonObject | None:
        meta = params.get("_meta")
        is_usual = (
            self._sdk > 1
            and params.keys() == {"_meta"}
            and isinstance(meta, dict)
            and meta.get(f"{_META}protocolVersion") == _LATEST
            and _are_capabilities(meta.get(f"{_META}clientCapabilities"))
            and _is_implementation(meta.get(f"{_META}clientInfo"))
            and _is_meta({name: value for name, value in meta.items() if name not in _ENVELOPE})
        )
        shared = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        shared["_meta"] = {f"{_META}serverInfo": self._server}
        if is_usual and method == "server/discover":
            capabilities = _CAPABILITIES | {"extensions": {TASKS_EXTENSION: {}}}
            about = {"supportedVersions": [_LATEST], "capabilities": capabilities, "instructions": INSTRUCTIONS}
            return about | shared
        return {"tools": self._tools, **shared} if is_usual and method == "tools/list" else None


@dataclass(frozen=True, slots=True)
class _Request:
    id: str | int
    method: str
    params: JsonObject


def _request_in(line: Line) -> _Request | None:
    """The request that the line is; None if it is none, or if the SDK might read it in another way."""
    if line.length > _MAX_BYTES or _HALF_PAIR.search(line.text):
        return None
    try:
        message = json.loads(line.text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not message.keys() <= {"jsonrpc", "id", "method", "params"}:
        return None
    fields = cast("JsonObject", message)
    id, method, params = fields.get("id"), fields.get("method"), fields.get("params", {})
    is_usual = fields.get("jsonrpc") == "2.0" and _is_id(id) and isinstance(method, str) and isinstance(params, dict)
    return _Request(cast("str | int", id), cast("str", method), cast("JsonObject", params)) if is_usual else None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _is_id(value: object) -> bool:
    return isinstance(value, str) or (type(value) is int and abs(value) < 2**53)


def _is_meta(value: object) -> bool:
    """Whether it is the `_meta` of a request of a protocol with a handshake, or None."""
    if not isinstance(value, dict):
        return value is None
    meta = cast("JsonObject", value)
    token = meta.get("progressToken", "")
    return _is_id(token) and not any(name.startswith(_META) for name in meta)


def _is_implementation(value: object) -> bool:
    """Whether it describes a client. Icons are left to the SDK."""
    if not isinstance(value, dict):
        return False
    fields = cast("JsonObject", value)
    return {"name", "version"} <= fields.keys() and all(isinstance(one, str) for one in fields.values())


def _are_capabilities(value: object) -> bool:
    """Whether each capability is an object. Of these, all members are objects or flags, unless any are allowed."""
    if not isinstance(value, dict):
        return False
    return all(
        isinstance(capability, dict)
        and all(_is_member(member, anything=name == "experimental") for member in capability.values())
        for name, capability in cast("JsonObject", value).items()
    )


def _is_member(value: object, *, anything: bool) -> bool:
    if not isinstance(value, dict):
        return isinstance(value, bool) and not anything
    return anything or all(_is_member(member, anything=False) for member in cast("JsonObject", value).values())

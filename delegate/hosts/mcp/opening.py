"""Answers a client's first requests while the SDK is loaded: `initialize`, `server/discover`, `tools/list` and `ping`.

Clients wait half a second for the first answer, and load the tools without this server otherwise. The SDK alone takes
longer. It gets the same requests later, so that its state is right, and its answers to them are dropped. What isn't one
of these requests in a known version of the protocol waits for it.
"""

import json
import threading
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Literal, cast

from delegate._util.redaction import logger
from delegate.hosts.mcp.definitions import INSTRUCTIONS, NAME, TASKS_EXTENSION
from delegate.types import JsonObject

_log = logger(__name__)

_HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Versions of the protocol that begin with `initialize`, which both versions of the SDK echo. Others, it negotiates."""
_LATEST = "2026-07-28"
"""The version without a handshake: each request says in its `_meta` which version it is of, and who sends it."""
_META = "io.modelcontextprotocol/"
_CAPABILITIES: JsonObject = {"tools": {"listChanged": False}}
"""What the SDK says of a server whose only handlers are those of tools."""


class Opening:
    """The conversation with the client until the SDK continues it. May be used in several threads."""

    def __init__(self, tools: Sequence[JsonObject]) -> None:
        self._tools = tools
        self._sdk = int(version("mcp").partition(".")[0])
        self._server = {"name": NAME, "version": version("delegate-task")}
        self._lock = threading.Lock()
        self._protocol: Literal["unknown", "handshake", "latest", "left to the SDK"] = "unknown"
        """Decided by the first request, as it is for the SDK."""
        self._answered: set[str] = set()
        """The ids, as JSON, of requests that were answered here, and not yet by the SDK."""

    def answer(self, line: str) -> str | None:
        """The answer to a line, as a line. None if it is to wait for the SDK, as after `end`."""
        with self._lock:
            if self._protocol == "left to the SDK" or not line.strip():
                return None
            message = object_in(line)
            id, method, params = message.get("id"), message.get("method"), message.get("params", {})
            result = None
            if isinstance(id, str | int) and isinstance(method, str) and isinstance(params, dict):
                result = self._result(method, cast("JsonObject", params))
            if self._protocol == "unknown":
                began = "handshake" if method == "initialize" else "latest"
                self._protocol = "left to the SDK" if result is None else began
            if result is None:
                return None
            self._answered.add(json.dumps(id))
            answer = {"jsonrpc": "2.0", "id": id, "result": result}
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
            message = object_in(text)
            id = json.dumps(message.get("id"))
            if "method" in message or id not in self._answered:
                return False
            self._answered.remove(id)
        if "error" in message:
            _log.warning("request %s of the client was answered, but the SDK refuses it: %s", id, message["error"])
        return True

    def _result(self, method: str, params: JsonObject) -> JsonObject | None:
        if self._protocol == "handshake":
            return {"ping": {}, "tools/list": {"tools": self._tools}}.get(method)
        if self._protocol == "unknown" and method == "initialize":
            requested = params.get("protocolVersion")
            capabilities: JsonObject = _CAPABILITIES if self._sdk > 1 else {"experimental": {}, **_CAPABILITIES}
            about = {"serverInfo": self._server, "instructions": INSTRUCTIONS}
            answer: JsonObject = {"protocolVersion": requested, "capabilities": capabilities, **about}
            return answer if requested in _HANDSHAKE_VERSIONS else None
        meta = params.get("_meta")
        if self._sdk == 1 or not isinstance(meta, dict):
            return None
        if cast("JsonObject", meta).get(f"{_META}protocolVersion") != _LATEST:
            return None
        shared: JsonObject = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        shared["_meta"] = {f"{_META}serverInfo": self._server}
        if method == "server/discover":
            capabilities = _CAPABILITIES | {"extensions": {TASKS_EXTENSION: {}}}
            about = {"supportedVersions": [_LATEST], "capabilities": capabilities, "instructions": INSTRUCTIONS}
            return about | shared
        return {"tools": self._tools, **shared} if method == "tools/list" else None


def object_in(text: str) -> dict[str, Any]:
    """The members of the JSON object that the text is, or nothing."""
    try:
        value = json.loads(text)  # accepts more than the SDK does, such as half of a surrogate pair
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}

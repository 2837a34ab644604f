"""What can be said about a run: from the messages between client and server, and from the requests to the model."""
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# What clients send is JSON of any form.

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scripts.clients.fakes import verdicts_in

Json = dict[str, Any]


@dataclass(frozen=True)
class Message:
    """One message between client and server."""

    at: float
    server: int
    """The server's process: a client may start several."""
    sender: Literal["client", "server", "start", "end", "client closed"]
    body: Json

    @property
    def method(self) -> str:
        return self.body.get("method", "")


def messages(log: Path) -> list[Message]:
    """The messages in a tap's log."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    entries = [json.loads(line) for line in lines]
    return [Message(one["at"], one["server"], one["from"], _parsed(one["message"])) for one in entries]


def _parsed(message: Any) -> Json:
    try:
        parsed = json.loads(message) if isinstance(message, str) else None
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {}


def of_client(log: Sequence[Message], method: str) -> list[Message]:
    """The client's messages with this method."""
    return [one for one in log if one.sender == "client" and one.method == method]


def handshake(log: Sequence[Message]) -> Json:
    """What the client says about itself, and how long the server took to answer."""
    asked = of_client(log, "initialize")
    if not asked:
        return {}
    params, answers = (
        asked[0].body["params"],
        {
            one.server: one.at
            for one in reversed(log)
            if one.sender == "server" and "protocolVersion" in one.body.get("result", {})
        },
    )
    return {
        "client": {key: params["clientInfo"].get(key) for key in ("name", "version")},
        "protocol": params["protocolVersion"],
        "capabilities": sorted(params["capabilities"]),
        "initialize_seconds": max(
            (round(answers[one.server] - one.at, 2) for one in asked if one.server in answers), default=None
        ),
        "servers_started": sum(one.sender == "start" for one in log),
    }


def listed_schema(log: Sequence[Message], tool: str) -> Json | None:
    """The tool's schema as the server listed it."""
    for one in log:
        if one.sender == "server" and isinstance(result := one.body.get("result"), dict):
            for listed in result.get("tools") or ():
                if listed["name"] == tool:
                    return listed["inputSchema"]
    return None


def differences(server: Any, model: Any, path: str = "") -> Iterator[str]:
    """How the schema that the model sees differs from the server's."""
    here = path or "the schema"
    if isinstance(server, dict) and isinstance(model, dict):
        for key in sorted(server.keys() - model.keys()):
            yield f"`{key}` of {here} dropped"
        for key in sorted(model.keys() - server.keys()):
            yield f"`{key}: {json.dumps(model[key])[:60]}` added to {here}"
        for key in server.keys() & model.keys():
            inside = {"properties": path, "items": f"{path}[]"}.get(key, f"{path}.{key}".strip("."))
            yield from differences(server[key], model[key], inside)
    elif server != model:
        yield f"{here}: {json.dumps(server)[:80]} became {json.dumps(model)[:80]}"


def reading(text: str) -> Json:
    """What the model reads as a result."""
    return {
        "chars": len(text),
        "verdicts": verdicts_in(text),
        "first_line": text.strip().partition("\n")[0][:160],
        "fence": "Text between lines marked" in text,
        "json": '"run_id"' in text or '\\"run_id\\"' in text,
    }


def traffic(log: Sequence[Message]) -> Json:
    """How the client calls: whether it wants progress, how many notifications it got, and what it cancelled."""
    metas: list[Mapping[str, Any]] = [one.body["params"].get("_meta") or {} for one in of_client(log, "tools/call")]
    return {
        "calls": len(metas),
        "progress_token": any("progressToken" in meta for meta in metas),
        "other_meta": sorted({key for meta in metas for key in meta} - {"progressToken"}),
        "progress_notifications": sum(one.method == "notifications/progress" for one in log),
        "cancelled": [one.body["params"].get("reason", "") for one in of_client(log, "notifications/cancelled")],
    }


def in_flight(log: Sequence[Message]) -> int:
    """How many calls of tools were running at once, at most."""
    running: set[tuple[int, Any]] = set()
    most = 0
    for one in log:
        call = (one.server, one.body.get("id"))
        if one.sender == "client" and one.method == "tools/call":
            running.add(call)
        elif one.sender == "server" and not one.method:
            running.discard(call)
        most = max(most, len(running))
    return most


def times_of_calls(log: Sequence[Message]) -> list[tuple[float, float | None]]:
    """When each call of a tool was sent and answered; None if it wasn't."""
    answers = {(one.server, one.body.get("id")): one.at for one in log if one.sender == "server" and not one.method}
    return [(one.at, answers.get((one.server, one.body["id"]))) for one in of_client(log, "tools/call")]

"""What can be said about a run: from the messages between client and server, and from the requests to the model."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scripts.clients.fakes import VERDICT

Json = dict[str, Any]


def messages(log: Path) -> list[tuple[float, str, Any]]:
    """The times, senders and messages of a tap's log."""
    if not log.exists():
        return []
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [(one["at"], one["from"], _parsed(one["message"])) for one in entries]


def _parsed(message: Any) -> Any:
    try:
        return json.loads(message) if isinstance(message, str) else message
    except ValueError:
        return message


def of_client(log: list[tuple[float, str, Any]], method: str) -> list[tuple[float, Json]]:
    """The client's messages with this method, with their times."""
    return [(at, one) for at, who, one in log if who == "client" and isinstance(one, dict) and one.get("method") == method]


def handshake(log: list[tuple[float, str, Any]]) -> Json:
    """What the client says about itself, and how long the server took to answer."""
    asked = next(iter(of_client([one for one in log if isinstance(one[2], dict) and "method" in one[2]], "initialize")), None)
    if asked is None:
        return {}
    at, message = asked
    params = message["params"]
    answered = next((when for when, who, one in log if who == "server" and isinstance(one, dict) and one.get("id") == message["id"]), None)
    return {
        "client": params["clientInfo"],
        "protocol": params["protocolVersion"],
        "capabilities": sorted(params["capabilities"]),
        "initialize_seconds": round(answered - at, 2) if answered else None,
    }


def listed_schema(log: list[tuple[float, str, Any]], tool: str) -> Json | None:
    """The tool's schema as the server listed it."""
    for _, who, one in log:
        if who == "server" and isinstance(one, dict) and isinstance(one.get("result"), dict):
            for listed in one["result"].get("tools") or ():
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
            inside = f"{path}.{key}".strip(".") if key not in {"properties", "items"} else path + ("[]" if key == "items" else "")
            yield from differences(server[key], model[key], inside)
    elif server != model:
        yield f"{here}: {json.dumps(server)[:80]} became {json.dumps(model)[:80]}"


def reading(text: str) -> Json:
    """What the model reads as a result."""
    raw = text.lstrip().startswith(("{", "[{")) and ('"results"' in text or '"run_id"' in text)
    return {
        "chars": len(text),
        "verdicts": len(VERDICT.findall(text)),
        "first_line": text.strip().partition("\n")[0][:160],
        "fence": "Text between lines marked" in text,
        "form": "JSON" if raw else "text",
    }


def traffic(log: list[tuple[float, str, Any]]) -> Json:
    """How the client calls: with a progress token, how many notifications it got, and what it canceled."""
    calls = [one for _, who, one in log if who == "client" and isinstance(one, dict) and one.get("method") == "tools/call"]
    sent = [one.get("method") for _, who, one in log if who == "server" and isinstance(one, dict)]
    gone = [one for _, who, one in log if who == "client" and isinstance(one, dict) and one.get("method") == "notifications/cancelled"]
    metas: list[Mapping[str, Any]] = [one["params"].get("_meta") or {} for one in calls]
    return {
        "calls": len(calls),
        "progress_token": any("progressToken" in meta for meta in metas),
        "other_meta": sorted({key for meta in metas for key in meta} - {"progressToken"}),
        "progress_notifications": sent.count("notifications/progress"),
        "cancelled": [one["params"].get("reason", "") for one in gone],
    }

"""The tool calls of recorded runs as receipts, as `Delegator.judge` takes them."""

import json
from typing import Any


def airline_receipts(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a run in `tau_airline_runs.jsonl`, whose results say when a call failed."""
    return [_receipt(call, ok=not call["result"].startswith("Error")) for call in run["calls"]]


def claim_receipts(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a run in `claimcheck_train.jsonl`, whose results are JSON or the text of an error."""
    return [_receipt(call, ok=call["ok"]) for call in run["calls"]]


def _receipt(call: dict[str, Any], *, ok: bool) -> dict[str, Any]:
    result = call["result"]
    output = result if isinstance(result, str) else json.dumps(result)
    return {"tool": call["tool"], "args": call["args"], "status": "ok" if ok else "error", "output": output}

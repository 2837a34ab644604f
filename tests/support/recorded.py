"""The tool calls of recorded runs as receipts, as `Delegator.judge` takes them."""

import json
from collections.abc import Mapping
from typing import Any

from delegate.types.errors import ToolError
from delegate.types.ports import Tool


def airline_receipts(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a run in `tau_airline_runs.jsonl`, whose results say when a call failed."""
    return [_receipt(call, ok=not call["result"].startswith("Error")) for call in run["calls"]]


def claim_receipts(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a run in `claimcheck_train.jsonl`, whose results are JSON or the text of an error."""
    return [_receipt(call, ok=call["ok"]) for call in run["calls"]]


STATE_ARGUMENTS = {
    "calendar.get_event": ["event_id"],
    "crm.read_record": ["record_id"],
    "ci.run_tests": [],
    "git.show_head": [],
}
"""The tools of claimcheck-bench that show the state, and what they are asked by."""


def state_tools(run: dict[str, Any]) -> list[Tool]:
    """The tools that show the recorded state. Asked for a record that isn't the recorded one, they know of none."""

    def tool(probe: dict[str, Any]) -> Tool:
        async def call(args: Mapping[str, Any]) -> str:
            if not probe["ok"]:
                raise ToolError(probe["result"])
            if any(probe["result"].get(name) != value for name, value in args.items()):
                raise ToolError("not_found")
            return json.dumps(probe["result"])

        names = STATE_ARGUMENTS[probe["tool"]]
        schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
        return Tool(probe["tool"], "", schema, call, read_only=True)

    return [tool(probe) for probe in run["probes"]]


def _receipt(call: dict[str, Any], *, ok: bool) -> dict[str, Any]:
    result = call["result"]
    output = result if isinstance(result, str) else json.dumps(result)
    return {"tool": call["tool"], "args": call["args"], "status": "ok" if ok else "error", "output": output}

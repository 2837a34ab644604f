"""Reads events that earlier versions recorded, in the form that events have now.

Up to version 0.1, the record had kinds such as `model_called`, and a `text` whose meaning depended on the kind.
"""

from delegate.types import JsonObject, Receipt


def current_form(kind: str, data: JsonObject) -> JsonObject:
    """The `kind` and fields of a recorded event. What this version doesn't know is returned as it is."""
    text = str(data.get("text", ""))
    match kind:
        case "child_started":
            return {"kind": "child.started", "model": text or None, **_FIRST_START}
        case "child.started":
            return {"kind": kind, **_FIRST_START, **data}
        case "model_called":
            return {"kind": "child.usage", **_usage(data)}
        case "tool_called":
            return {"kind": "child.tool", **Receipt(tool="", status="ok").model_dump(mode="json"), **data}
        case "child_ended":
            return {"kind": "child.done", **_UNKNOWN_END, "status": text}
        case "check_ended":
            outcome = str(data.get("outcome", "error"))
            words = text.removesuffix(f": {outcome}")
            return {"kind": "check.done", "id": data.get("id", ""), "criterion": "", "text": words, "outcome": outcome}
        case "judge_asked":
            return {"kind": "judge.asked", "model": text}
        case "judged":
            verdict = text if text in ("PASS", "FAIL") else None
            return {
                "kind": "verdict",
                "verdict": verdict,
                "code": None,
                "decided_by": None,
                "verified": False,
                "level": None,
            }
        case _:
            return {"kind": kind, **data}


_FIRST_START: JsonObject = {"instead_of": None, "reason": None}
_UNKNOWN_END: JsonObject = {"error": None, "steps": 0, "artifacts": 0, "cost_usd": None, "seconds": None}


def _usage(data: JsonObject) -> JsonObject:
    read, output = data.get("tokens") or (0, 0)
    return {
        "model": None,
        "model_calls": 1,
        "input_tokens": read,
        "cached_tokens": 0,
        "cache_write_tokens": 0,
        "output_tokens": output,
        "reasoning_tokens": 0,
        "cost_usd": data.get("cost_usd"),
        "seconds": None,
        "text": data.get("text", ""),
        "calls": data.get("calls", []),
    }

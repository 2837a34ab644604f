"""The tools with which a child in goal mode ends. Their calls have no receipts, since they are about the run itself."""

from collections.abc import Collection

from delegate.types import JsonObject
from delegate.types.ports import ToolSpec

CLAIM, ABORT = "claim_complete", "abort_with_report"
GOAL_TOOLS = frozenset({CLAIM, ABORT})
DECLARE, VERIFY = "declare_step", "verify_step"
STEP_TOOLS = frozenset({DECLARE, VERIFY})


def text_schema(description: str) -> JsonObject:
    """The JSON Schema of an argument that is a text."""
    return {"type": "string", "description": description}


def object_schema(*, optional: Collection[str] = (), **properties: JsonObject) -> JsonObject:
    """The JSON Schema of a tool's arguments, which has no others."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def goal_tools(max_claims: int) -> tuple[ToolSpec, ...]:
    return (
        ToolSpec(
            CLAIM,
            "Claim that the task is done. Everything is then verified: by code, and by a judge that sees your files "
            "and the record of your tool calls. If all criteria hold, you are finished; otherwise you get back what "
            f"failed, and go on. You have {max_claims} of these calls.",
            object_schema(rationale=text_schema("Your whole report.")),
        ),
        ToolSpec(
            ABORT,
            "Give up, if the task can't be done. This ends your work.",
            object_schema(
                reason=text_schema("Why it can't be done."),
                learned=text_schema("What you tried and found out, for who tries next."),
            ),
        ),
    )

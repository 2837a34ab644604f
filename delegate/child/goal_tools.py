"""The tools with which a child in goal mode ends. Their calls have no receipts, since they are about the run itself."""

from delegate.ports import ToolSpec

CLAIM, ABORT = "claim_complete", "abort_with_report"
GOAL_TOOLS = frozenset({CLAIM, ABORT})
DECLARE, VERIFY = "declare_step", "verify_step"
STEP_TOOLS = frozenset({DECLARE, VERIFY})


def goal_tools(max_claims: int) -> tuple[ToolSpec, ...]:
    """The definitions of the two tools."""
    return (
        ToolSpec(
            CLAIM,
            "Claim that the task is done. Everything is then verified: by code, and by a judge that sees your files "
            "and the record of your tool calls. If all criteria hold, you are finished; otherwise you get back what "
            f"failed, and go on. You have {max_claims} of these calls.",
            {
                "type": "object",
                "properties": {"rationale": {"type": "string", "description": "Your whole report."}},
                "required": ["rationale"],
                "additionalProperties": False,
            },
        ),
        ToolSpec(
            ABORT,
            "Give up, if the task can't be done. This ends your work.",
            {
                "type": "object",
                "properties": {
                    "reason": {"type": "string", "description": "Why it can't be done."},
                    "learned": {"type": "string", "description": "What you tried and found out, for who tries next."},
                },
                "required": ["reason", "learned"],
                "additionalProperties": False,
            },
        ),
    )

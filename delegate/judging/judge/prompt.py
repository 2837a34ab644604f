"""Builds the judge's question: the card as the system prompt, then the goal, the criteria, and fenced evidence.

The card and the reply schema are the same for every task, so that providers cache them; the parts that differ follow.
"""

from collections.abc import Sequence
from functools import cache

from delegate._util.fencing import clean, fence, new_nonce, one_line
from delegate._util.resources import schema, text
from delegate.judging.judge.evidence import Evidence
from delegate.judging.judge.session import JudgeQuestion
from delegate.types import JsonObject

_ANSWER_TOKENS = 200


def build_question(goal: str, lines: Sequence[str], ids: Sequence[str], evidence: Evidence) -> JudgeQuestion:
    """The question whether the statements with these ids hold. Each line is a statement behind its id."""
    asked = "Criteria:\n" + "\n".join(map(_one_line, lines))
    last = f"Answer for each of these ids exactly once: {', '.join(ids)}"
    return JudgeQuestion(
        system=card(),
        text=with_evidence(goal, asked, evidence, last),
        reply_schema=_reply_schema(),
        reply_tokens=100 + _ANSWER_TOKENS * len(ids),
    )


def card() -> str:
    """The judge's rules, its system prompt."""
    return text("judges", "acceptance.md")


def with_evidence(goal: str, asked: str, evidence: Evidence, last: str) -> str:
    """The goal, what is asked, and the evidence between fences with a mark made for this call."""
    nonce = new_nonce()
    fenced = "\n\n".join(fence(one_line(name, 200), content, nonce) for name, content in evidence.sources.items())
    return (
        f"Goal:\n{evidence.redacted(clean(goal).text)}\n\n{evidence.redacted(asked)}\n\n"
        f"Evidence (every piece stands between lines with the mark {nonce}):\n\n{fenced}\n\n{last}"
    )


@cache
def _reply_schema() -> JsonObject:
    return schema("judge_reply")


def _one_line(statement: str) -> str:
    return " ".join(clean(statement).text.split())

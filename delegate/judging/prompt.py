"""Writes the judge's question: the card as the system text, then goal, criteria and fenced evidence.

The card and the reply schema never change from task to task, so that providers cache them; what differs comes last.
"""

from collections.abc import Sequence

from delegate.fencing import clean, fence, new_nonce, one_line
from delegate.judging.asking import Question
from delegate.judging.evidence import Evidence
from delegate.resources import schema, text
from delegate.types import AnyCriterion

_ANSWER_TOKENS = 200


def question(goal: str, criteria: Sequence[AnyCriterion], evidence: Evidence) -> Question:
    """The question whether `criteria` are met."""
    asked = [(criterion.id or "", criterion.describe()) for criterion in criteria]
    reply_tokens = 100 + _ANSWER_TOKENS * len(asked)
    return Question(card(), _text(goal, asked, evidence), schema("judge_reply"), reply_tokens)


def card() -> str:
    """The judge's rules."""
    return text("judges", "acceptance.md")


def _text(goal: str, asked: Sequence[tuple[str, str]], evidence: Evidence) -> str:
    """Goal, criteria, evidence. Whatever the worker wrote stands between fences with a mark made for this call."""
    nonce = new_nonce()
    criteria = "\n".join(f"{id}: {_line(statement)}" for id, statement in asked)
    fenced = "\n\n".join(fence(one_line(name, 200), content, nonce) for name, content in evidence.sources.items())
    return (
        f"Goal:\n{clean(goal).text}\n\nCriteria:\n{criteria}\n\n"
        f"Evidence (every piece stands between lines with the mark {nonce}):\n\n{fenced}\n\n"
        f"Answer for each of these ids exactly once: {', '.join(id for id, _ in asked)}"
    )


def _line(statement: str) -> str:
    return " ".join(clean(statement).text.split())

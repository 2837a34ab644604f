"""Builds the judge's question: the card as the system prompt, then the goal, the criteria, and fenced evidence.

The card and the reply schema are the same for every task, so that providers cache them; the parts that differ follow.
Where the judge may look at more than the page, a second card says how.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from delegate._util.fencing import clean, fence, new_nonce, one_line
from delegate._util.redaction import redactor
from delegate._util.resources import reply_schema, text
from delegate.judging.judge.evidence import Evidence
from delegate.judging.judge.session import JudgeQuestion

if TYPE_CHECKING:
    from delegate.judging.looks.looks import Looks

_ANSWER_TOKENS = 200


def build_question(
    goal: str, lines: Sequence[str], ids: Sequence[str], evidence: Evidence, looks: "Looks | None" = None
) -> JudgeQuestion:
    """The question whether the statements with these ids hold. Each line is a statement behind its id."""
    # Redacted before they are one line each: in one line, a secret that is broken across lines looks like words.
    statements = (" ".join(redactor.text(clean(line).text).split()) for line in lines)
    criteria, nonce = "\n".join(("Criteria:", *statements)), new_nonce()
    last = f"Answer for each of these ids exactly once: {', '.join(ids)}"
    return JudgeQuestion(
        system=with_looking(card(), looks),
        text=with_evidence(goal, criteria, evidence, last, nonce),
        reply_schema=reply_schema("judge"),
        reply_tokens=100 + _ANSWER_TOKENS * len(ids),
        nonce=nonce,
        looks=looks,
    )


def card() -> str:
    """The judge's rules, its system prompt."""
    return text("judges", "acceptance.md")


def with_looking(card: str, looks: "Looks | None") -> str:
    """A judge's rules, with those for looking if it may look."""
    return f"{card}\n{text('judges', 'looking.md')}" if looks else card


def with_evidence(goal: str, question: str, evidence: Evidence, last: str, nonce: str) -> str:
    """The goal, the question, and the evidence between fences with a mark made for this call.

    `question` has no secrets, as the evidence.
    """
    fenced = "\n\n".join(fence(one_line(name, 200), content, nonce) for name, content in evidence.sources.items())
    return (
        f"Goal:\n{redactor.text(clean(goal).text)}\n\n{question}\n\n"
        f"Evidence (every piece stands between lines with the mark {nonce}):\n\n{fenced}\n\n{last}"
    )

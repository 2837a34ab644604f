"""The judge's reply as a pydantic model, for frameworks that ask for one."""

from pydantic import BaseModel


class _Answer(BaseModel):
    id: str
    evidence: str
    reason: str
    verdict: str


class Judgment(BaseModel):
    """The reply of a judge."""

    answers: list[_Answer]

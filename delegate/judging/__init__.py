"""Judges finished work with the gate, checks and a judge model, and combines their results into one verdict.

They run in this order. The first failure that decides the verdict ends it, so a model is asked only if criteria are
left to decide.
"""

from delegate.judging.judge.session import JudgePool
from delegate.judging.submission import Submission
from delegate.judging.validate import refuse_undecidable
from delegate.judging.verdict import Judging

__all__ = ["JudgePool", "Judging", "Submission", "refuse_undecidable"]

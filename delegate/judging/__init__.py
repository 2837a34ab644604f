"""Judging: gate, checks, judge, and the combination of what they found into one verdict.

In this order; the first decisive "no" ends it, and a model is asked only if something is left to decide.
"""

from delegate.judging.judge.session import JudgePool
from delegate.judging.submission import Submission
from delegate.judging.validate import refuse_undecidable
from delegate.judging.verdict import Judging

__all__ = ["JudgePool", "Judging", "Submission", "refuse_undecidable"]

"""Judging: gate, checks, judge, and the combination of what they found into one verdict.

In this order; the first decisive "no" ends it, and a model is asked only if something is left to decide.
"""

from delegate.judging.judge.session import Bench
from delegate.judging.submission import Case
from delegate.judging.validate import refuse_undecidable
from delegate.judging.verdict import Judging

__all__ = ["Bench", "Case", "Judging", "refuse_undecidable"]

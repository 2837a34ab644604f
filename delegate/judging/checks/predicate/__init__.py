"""JavaScript-style predicates over one JSON value, decided by code.

`parse` reads the expression with tree-sitter into the few nodes of `syntax`; `machine` gives them their meaning over
`values`; `explain` says which part failed. There are no loops, no statements and no functions but arrow functions as
arguments, so every evaluation ends by construction, and `budget` says how soon. Whatever isn't known is refused by
name.
"""

from delegate.judging.checks.predicate.evaluate import Outcome, evaluate
from delegate.judging.checks.predicate.problems import PredicateError

__all__ = ["Outcome", "PredicateError", "evaluate"]

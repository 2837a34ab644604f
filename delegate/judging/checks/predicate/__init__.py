"""JavaScript expressions over one JSON value, decided by code.

`parse` finds out whether a text is one condition. `engine` evaluates it as it is in QuickJS, in a worker process with
limits of time and memory and without any input or output. `evaluate` is the way in.

The last bits of `**`, which ECMA-262 leaves to the engine, differ from those of V8.
"""

from delegate.judging.checks.predicate.evaluate import Outcome, check_expression, evaluate
from delegate.judging.checks.predicate.parse import PredicateError

__all__ = ["Outcome", "PredicateError", "check_expression", "evaluate"]

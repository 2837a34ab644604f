"""JavaScript-style predicates over one JSON value, decided by code.

`compile` parses an expression with tree-sitter, refuses what isn't on its allow-list, and writes JavaScript that calls
the guards in `runtime.js`. `engine` runs that in QuickJS, in a worker process with limits of time and memory.
`evaluate` is the way in.

An expression has the value that JavaScript gives it, or is refused with a `PredicateError`. Some of what JavaScript
allows is refused because it makes predicates hold by accident: an array or object used as a number or text, compared
with another one, or looked for in an array; anything that a value inherits (`o.constructor`); an argument of the wrong
type or number; a sort whose function contradicts itself; an array as the result. Regular expressions have no back
references, no classes by Unicode property, and no flags but `gimsu`.

Values differ from those of V8 in two places: the last bits of `**`, which ECMA-262 leaves to the engine; and with the
flag `u`, where V8 also finds empty matches in the middle of a character.
"""

from delegate.judging.checks.predicate.errors import PredicateError
from delegate.judging.checks.predicate.evaluate import Outcome, check_expression, evaluate

__all__ = ["Outcome", "PredicateError", "check_expression", "evaluate"]

"""Evaluates an expression over a JSON value, and says what came of it."""

from dataclasses import dataclass

from delegate.judging.checks.predicate import syntax
from delegate.judging.checks.predicate.budget import Budget
from delegate.judging.checks.predicate.explain import explain
from delegate.judging.checks.predicate.machine import Frame, run
from delegate.judging.checks.predicate.parse import parse
from delegate.judging.checks.predicate.problems import PredicateError, Thrown
from delegate.judging.checks.predicate.show import source
from delegate.judging.checks.predicate.text import one_line
from delegate.judging.checks.predicate.values import Js, from_json, truthy


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether the predicate holds. Where it doesn't, `reason` says which part failed, and with what values."""

    holds: bool
    reason: str


def evaluate(expr: str, value: object) -> Outcome:
    """Decide whether `expr` holds for `value`, a parsed JSON document.

    Top-level keys of an object are names; `output` and `$` are the whole value. A name that isn't there, or a property
    of null, is the work's fault: the predicate does not hold. Raises PredicateError when the expression itself can't
    be decided; that is never a pass.
    """
    try:
        return _outcome(parse(expr), from_json(value))
    except RecursionError:
        raise PredicateError("the expression nests too deep for where it is evaluated") from None


def value_of(expr: str, value: object) -> Js:
    """What `expr` gives for `value`, in the evaluator's form. Raises Thrown where JavaScript would throw."""
    return run(parse(expr), Frame(from_json(value), Budget()))


def _outcome(node: syntax.Node, whole: Js) -> Outcome:
    try:
        result = run(node, Frame(whole, Budget()))
    except Thrown as problem:
        return Outcome(False, str(problem))
    if isinstance(result, list):
        raise PredicateError("the expression gives an array, which counts as true even when empty; test its `.length`")
    if truthy(result):
        return Outcome(True, f"{source(node.text)} → true")
    return Outcome(False, _reason(node, whole))


def _reason(node: syntax.Node, whole: Js) -> str:
    try:
        return one_line(explain(node, Frame(whole, Budget())))
    except (Thrown, PredicateError):  # one more step than the evaluation itself had
        return f"{source(node.text)} → false"

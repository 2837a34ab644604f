"""Decides an expression over a JSON value, in a worker process."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from delegate._util.threads import run_in_thread
from delegate.judging.checks.predicate.parse import PredicateError, one_line, source_of
from delegate.judging.checks.worker import WorkerError, WorkerPool

TIMEOUT_SECONDS = 0.7
"""For what the limits of the engine don't stop, such as one long call of a built-in method: the worker is killed."""

_workers = WorkerPool(str(Path(__file__).with_name("engine.py")))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether the predicate holds. Where it doesn't, `reason` says which part failed, and with what values."""

    holds: bool
    reason: str


def check_expression(expr: str) -> None:
    """Raise PredicateError when `expr` can't be used: it isn't an expression, or no JavaScript engine is installed."""
    if not _is_engine_installed():
        raise PredicateError(
            "json_predicate needs a JavaScript engine, and none is installed: install the package `quickjs-ng`, or"
            " write this criterion as a json_schema or a text"
        )
    source_of(expr)


@cache
def _is_engine_installed() -> bool:
    return find_spec("quickjs") is not None


async def evaluate(expr: str, value: object) -> Outcome:
    """Decide whether `expr` is true for `value`, a parsed JSON document.

    Top-level keys of an object are names; `output` and `$` are the whole value. A name that isn't there, or a property
    of null, is the work's fault: the predicate does not hold. Raises PredicateError when the expression itself can't
    be decided; that is never a pass.
    """
    check_expression(expr)
    try:
        document = await run_in_thread(lambda: json.dumps(value, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as problem:
        raise PredicateError(f"the value is not JSON, or nested too deep: {problem}") from problem
    request = json.dumps(source_of(expr))
    try:
        answer = await _workers.ask(request.encode() + b"\t" + document, TIMEOUT_SECONDS)
    except TimeoutError as problem:
        raise PredicateError(f"the evaluation takes longer than {TIMEOUT_SECONDS:g} s") from problem
    except WorkerError as problem:
        raise PredicateError(f"the expression can't be evaluated: {problem}") from problem
    if "refused" in answer:
        raise PredicateError(answer["refused"])
    reason = f"{expr} → true" if answer["holds"] else answer.get("reason") or f"{expr} → false"
    return Outcome(answer["holds"], one_line(reason))

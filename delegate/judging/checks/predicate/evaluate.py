"""Decides an expression over a JSON value, in a worker process, after finding out that it is one condition."""

import importlib
import json
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from delegate._util.threads import run_in_thread
from delegate.judging.checks.worker import WorkerError, WorkerPool
from delegate.types.errors import DelegateError

TIMEOUT_SECONDS = 0.7
"""For what the limits of the engine don't stop, such as one long call of a built-in method: the worker is killed."""

MAX_CHARS = 8_192
MAX_MESSAGE_CHARS = 700
_STACK_BYTES = 100_000
"""Less than the stack of any thread."""
_workers = WorkerPool(str(Path(__file__).with_name("engine.py")))


class PredicateError(DelegateError):
    """The expression can't be decided: a syntax error, or a limit. It is a fault of the criterion, and never a pass."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    """A message without line breaks, cut short, that can be written as UTF-8; a lone surrogate becomes `?`."""
    line = " ".join(text.split())
    line = line if len(line) <= MAX_MESSAGE_CHARS else line[: MAX_MESSAGE_CHARS - 1] + "…"
    return line.encode("utf-8", "replace").decode()


@lru_cache(256)
def source_of(expr: str) -> str:
    """The expression as it is evaluated. Raises PredicateError where a text isn't one, or is no condition."""
    if len(expr) > MAX_CHARS:
        raise PredicateError(f"the expression is longer than {MAX_CHARS:,} characters")
    source = expr.rstrip().removesuffix(";")
    if not source.isascii() and any("\ud800" <= char <= "\udfff" for char in source):
        raise PredicateError("the expression is not valid Unicode")
    quickjs: Any = importlib.import_module("_quickjs")  # `quickjs` would start a thread
    context = quickjs.Context()
    context.set_max_stack_size(_STACK_BYTES)
    if problem := _problem(context, f"({source}\n)"):
        raise PredicateError(f"syntax error: {problem}, in `{source[:60]}`")
    # What may stand beside an operator is no assignment, as `ok = true` is one, which is true whatever `ok` was.
    if _problem(context, f"0 === {source}\n"):
        raise PredicateError(
            "it is no condition, but an assignment (compare with `===`) or a function, or its parentheses don't match"
        )
    return source


def _problem(context: Any, source: str) -> str | None:
    """Why QuickJS can't compile an expression. Nothing of it is run, also if it is more than one."""
    try:
        context.eval(f"throw 0\n;() => {{ return {source} }}")
    except ValueError:
        return "it has a NUL character"
    except Exception as error:  # JSException, whose class is the engine's
        problem = str(error).partition("\n")[0]
        return None if problem == "0" else problem.removeprefix("SyntaxError: ")
    raise AssertionError("an expression was run that was only to be compiled")


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

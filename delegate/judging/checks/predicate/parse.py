"""Finds out whether a text is one condition, without evaluating it: QuickJS compiles it."""

import importlib
from functools import lru_cache
from typing import Any

from delegate.errors import DelegateError

MAX_CHARS = 8_192
MAX_MESSAGE_CHARS = 700
_STACK_BYTES = 100_000
"""Less than the stack of any thread."""


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

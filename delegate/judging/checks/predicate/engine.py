"""Runs compiled expressions in QuickJS. Only a worker process loads this, so it imports nothing from delegate.

An expression has no way out of the engine: no modules, no files, no network and no functions of Python. Its time,
memory and stack are limited.
"""

import importlib
import json
import resource
from functools import cache
from pathlib import Path
from typing import Any

CPU_SECONDS = 0.25
MEMORY_BYTES = 128_000_000
STACK_BYTES = 4_000_000

_quickjs: Any = importlib.import_module("quickjs")


def prepare() -> None:
    """Start the engine."""
    _context()


def answer(request: bytes) -> dict[str, Any]:
    """The outcome of a compiled expression over a JSON text; a tab separates the two.

    `{"holds", "reason"}`; `{"thrown": message}` where JavaScript would throw; `{"refused": message}` where the
    expression can't be decided.
    """
    code, _, text = request.decode("ascii").partition("\t")
    try:
        context = _context()
        context.get("setInput")(text)
        return json.loads(context.eval(code))
    except _quickjs.JSException as problem:
        _context.cache_clear()  # it may have been interrupted anywhere
        return {"refused": _described(str(problem).partition("\n")[0])}


@cache
def _context() -> Any:
    """The context that expressions are evaluated in. None of them can change anything in it."""
    context = _quickjs.Context()
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    context.set_max_stack_size(STACK_BYTES if soft_limit < 0 else min(STACK_BYTES, soft_limit // 2))
    context.set_memory_limit(MEMORY_BYTES)
    context.set_time_limit(CPU_SECONDS)
    context.eval(Path(__file__).with_name("runtime.js").read_text(encoding="utf-8"))
    return context


def _described(problem: str) -> str:
    if problem == "InternalError: interrupted":
        return f"the evaluation takes longer than {CPU_SECONDS:g} s"
    if "call stack" in problem:
        return "the expression or the JSON is nested too deep"
    if problem in ("InternalError: out of memory", "InternalError: string too long", "null"):
        return f"the evaluation needs more than {MEMORY_BYTES // 1_000_000} MB"
    return f"the expression can't be evaluated: {problem}"

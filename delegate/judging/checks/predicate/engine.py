"""Evaluates expressions in QuickJS. Only a worker process loads this, so it imports nothing from delegate.

An expression has no way out of the engine: no modules, no files, no network and no functions of Python. Its time,
memory and stack are limited, and each has an engine of its own, which it may change as it likes.
"""

import importlib
import json
import resource
from contextlib import suppress
from typing import Any

CPU_SECONDS = 0.25
MEMORY_BYTES = 128_000_000
STACK_BYTES = 4_000_000

_quickjs: Any = importlib.import_module("quickjs")
_PROGRAM = """
(() => {
  "use strict";
  const { parse, stringify } = JSON;
  const { defineProperty, freeze, getOwnPropertyDescriptors, getPrototypeOf, isFrozen, keys, values } = Object;
  const world = globalThis, evaluateGlobally = eval, Named = Map;
  const ERRORS = [TypeError, ReferenceError];
  const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

  // These names are JavaScript's, whatever is in the data. All others are the data's, and missing where it lacks them.
  const OWN = new Set(["Array", "Boolean", "Infinity", "JSON", "Math", "NaN", "Number", "Object", "Set", "String",
    "isFinite", "isNaN", "parseFloat", "parseInt", "undefined"]);
  for (const name of Reflect.ownKeys(world)) if (!OWN.has(name)) delete world[name];
  Object.setPrototypeOf(world, null);

  const MAY_ASSIGN = /(?<![=!<>])=(?![=>])|\\+\\+|--/;
  const frozen = (whole) => {
    const left = [whole, /x/, ...[...OWN].map((name) => world[name])];
    while (left.length) {
      const value = left.pop();
      if ((typeof value !== "object" && typeof value !== "function") || value === null || isFrozen(value)) continue;
      const parts = values(getOwnPropertyDescriptors(freeze(value))).map((property) => property.value);
      left.push(getPrototypeOf(value), ...parts);
    }
    return whole;
  };

  // Nothing can be assigned: `ok = true` would be true whatever `ok` was.
  const evaluate = (source, text) => {
    const whole = MAY_ASSIGN.test(source) ? frozen(parse(text)) : parse(text);
    const fields = isRecord(whole) ? keys(whole).filter((key) => !OWN.has(key)) : [];
    const define = (name, value) => defineProperty(world, name, { value, writable: false, configurable: true });
    for (const key of fields) define(key, whole[key]);
    for (const name of ["output", "$"]) define(name, whole);
    return evaluateGlobally(`"use strict"; (${source}\n)`);
  };

  const clip = (text) => text.length <= 100 ? text : `${text.slice(0, 99)}…`;
  const show = (value) => clip(String(stringify(typeof value === "string" ? value.slice(0, 100) : value) ?? value));
  const namesIn = (whole) => isRecord(whole)
    ? `it has: ${keys(whole).slice(0, 8).map(clip).join(", ") || "nothing"}` : "the whole of it is named `output`";

  const thrown = (problem, text) => {
    const [, name] = /^(.+) is not defined$/.exec(problem.message) ?? [];
    return name ? `there is no \\`${name}\\` in the output; ${namesIn(parse(text))}`
      : `JavaScript throws: ${problem.message}`;
  };

  const decide = (source, text) => {
    try {
      const value = evaluate(parse(source), text);
      if (typeof value === "boolean" || value == null) return stringify({ holds: value ?? false });
      return stringify({ refused: `the expression gives ${show(value)}, and not true or false: compare it` });
    } catch (problem) {
      if (!ERRORS.some((type) => problem instanceof type)) throw problem;
      return stringify({ holds: false, reason: thrown(problem, text) });
    }
  };

  // Evaluates the conditions that `&&` connects again, for the first one that doesn't hold and the values in it.
  const STRING = /"[^"]*"|'[^']*'|`[^`]*`/g, PATH = /(?<![\\w.$])[A-Za-z_$][\\w$]*(?:\\.[A-Za-z_$][\\w$]*)*/g;
  const explain = (request, text) => {
    let condition = "";
    for (const part of parse(request).split("&&")) {
      condition += (condition && "&&") + part;
      try {
        if (!evaluate(condition, text)) break;
        condition = "";
      } catch {}  // it goes on behind this `&&`
    }
    condition = condition.trim();
    const shown = new Named();
    for (let [path] of condition.replace(STRING, " ").matchAll(PATH)) {
      try {
        if (typeof evaluate(path, text) === "function") path = path.slice(0, path.lastIndexOf("."));
        if (path !== condition && !OWN.has(path.split(".")[0])) shown.set(path, show(evaluate(path, text)));
      } catch {}  // it isn't of the data, such as a parameter
    }
    const described = [...shown].map(([path, value]) => `\\`${path}\\` was ${value}`).join(", ");
    return stringify(`${condition} → false${described && ": "}${described}`);
  };
  return (what, request, text) => (what === "decide" ? decide : explain)(request, text);
})()
"""


def prepare() -> None:
    """See that the engine starts."""
    _context()


def answer(request: bytes) -> dict[str, Any]:
    """The outcome of an expression, as a JSON text, over another JSON text; a tab separates the two.

    `{"holds", "reason"}`, or `{"refused": message}` where the expression can't be decided.
    """
    code, _, text = request.decode("ascii").partition("\t")
    program = _context().eval(_PROGRAM)
    try:
        outcome = json.loads(program("decide", code, text))
    except _quickjs.JSException as problem:
        return {"refused": _described(str(problem).partition("\n")[0])}
    if outcome.get("holds") is False and "reason" not in outcome:
        with suppress(_quickjs.JSException):  # such as over a limit: it is known that it doesn't hold
            outcome["reason"] = json.loads(program("explain", code, text))
    return outcome


def _context() -> Any:
    context = _quickjs.Context()
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    context.set_max_stack_size(STACK_BYTES if soft_limit < 0 else min(STACK_BYTES, soft_limit // 2))
    context.set_memory_limit(MEMORY_BYTES)
    context.set_time_limit(CPU_SECONDS)
    return context


def _described(problem: str) -> str:
    if problem == "InternalError: interrupted":
        return f"the evaluation takes longer than {CPU_SECONDS:g} s"
    if "call stack" in problem:
        return "the expression or the JSON is nested too deep"
    if problem in ("InternalError: out of memory", "InternalError: string too long", "null"):
        return f"the evaluation needs more than {MEMORY_BYTES // 1_000_000} MB"
    return f"the expression can't be evaluated: {problem}"

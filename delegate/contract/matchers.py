"""What an expected value may be besides an equal one: the matchers in the `args` and `result` of expected calls.

Inside `args`, and anywhere in a `result`, an object with one of these as its only key is a matcher:

| matcher | the value is |
|---|---|
| `{"matches": PATTERN}` | a text in which the pattern is found; other values are searched as JSON text |
| `{"in": [VALUE, ...]}` | one of these |
| `{"any_order": [VALUE, ...]}` | a list of exactly these, in any order |
| `{"from": {"tool": NAME, "path": PATH}}` | the value at a path in the result of an earlier call |

A path is a part of JSONPath: names with dots between them, `[0]` for an item of a list, `[*]` for any item, and
`["a name"]` for names with other signs, as in `results[0].id`. `$` alone is the whole result.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from delegate._util.patterns import pattern_fault
from delegate._util.redaction import redactor
from delegate.contract.reading import join
from delegate.types import AnyCriterion, ExpectedCall, ProbeCriterion, ReceiptCriterion

MAX_NESTING = 64


class Reference(NamedTuple):
    """A `from` matcher."""

    name: str
    """The tool of an earlier call, or the `id` of an expected call."""
    path: str


class Fault(NamedTuple):
    """What is wrong with a field of a criterion. `message` continues a sentence that starts with the field's name."""

    field: str
    message: str


ANY_ITEM = "*"
PathPart = tuple[str | int, bool]
"""A name or an index, and whether it stands for every item of a list."""

_PART = re.compile(r"""\.?([^.\[\]"'*\s$]+)|\[(\d{1,9})\]|\[(\*)\]|\["([^"]*)"\]|\['([^']*)'\]""")
_ARGUMENTS = {"matches": str, "in": list, "any_order": list, "from": dict}


def matcher_in(wanted: object) -> tuple[str, Any] | None:
    """The name and the argument of the matcher that `wanted` is; None if it is a plain value."""
    if not isinstance(wanted, dict) or len(fields := cast("dict[str, Any]", wanted)) != 1:
        return None
    name = next(iter(fields))
    if name not in _ARGUMENTS or not isinstance(fields[name], _ARGUMENTS[name]):
        return None
    argument = fields[name]
    if name == "from" and not {"tool", "path"} & set(cast("dict[str, object]", argument)):
        return None
    return name, argument


def reference(argument: dict[str, Any]) -> Reference:
    """The argument of a `from` matcher that has no faults."""
    return Reference(argument["tool"].strip(), argument["path"])


def matchers(wanted: object) -> Iterator[str]:
    """The name of every matcher inside a value."""
    if match := matcher_in(wanted):
        yield match[0]
    for _, part in _parts(wanted, ""):
        yield from matchers(part)


def references(wanted: object) -> Iterator[Reference]:
    """Every reference inside an expected value without faults."""
    if not isinstance(wanted, (dict, list)):
        return
    match matcher_in(cast("object", wanted)):
        case ("from", given):
            yield reference(given)
        case _:
            is_object = isinstance(wanted, dict)
            parts = cast("dict[str, object]", wanted).values() if is_object else cast("list[object]", wanted)
            for part in parts:
                yield from references(part)


def references_of(call: ExpectedCall) -> tuple[Reference, ...]:
    """Every different reference in the arguments and the result of a call."""
    values = (*call.args.values(), call.result)
    return tuple(dict.fromkeys(item for value in values for item in references(value)))


def tools_in(criterion: AnyCriterion) -> list[str]:
    """The tools that a receipt criterion without faults names: in `calls`, in `of`, and in `from` matchers."""
    if not isinstance(criterion, ReceiptCriterion):
        return []
    ids = {call.id for call in criterion.calls}
    referred = [item.name for call in criterion.calls for item in references_of(call) if item.name not in ids]
    return [*(call.tool for call in criterion.calls), *(criterion.of or ()), *referred]


def path_parts(path: str) -> tuple[PathPart, ...]:
    """Parse a path. Raises ValueError."""
    at, parts, text = 0, list[PathPart](), path.strip().removeprefix("$")
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            raise ValueError(f"{redactor.beginning(path, 80)!r} is not a path; write one like `id` or `results[0].id`")
        name, index, any_item, *quoted = match.groups()
        if index is not None:
            parts.append((int(index), False))
        elif any_item:
            parts.append((ANY_ITEM, True))
        else:
            parts.append((name or next(key for key in quoted if key is not None), False))
        at = match.end()
    if not parts and path.strip() != "$":
        raise ValueError("the path is empty; `$` is the whole result")
    return tuple(parts)


def values_at(value: Any, path: str) -> list[Any]:
    """The values at a path: none where it leads nowhere, several only with `[*]`."""
    values = [value]
    for part, every in path_parts(path):
        inner: list[Any] = []
        for item in values:
            if every and isinstance(item, list):
                inner += cast("list[Any]", item)
            elif isinstance(part, int) and isinstance(item, list) and part < len(items := cast("list[Any]", item)):
                inner.append(items[part])
            elif isinstance(part, str) and isinstance(item, dict) and part in item:
                inner.append(cast("dict[str, Any]", item)[part])
        values = inner
    return values


def target(name: str, calls: Sequence[ExpectedCall]) -> int | None:
    """The position of the expected call with this `id` or tool; None if the name is that of no expected call.

    Raises ValueError if several have the tool.
    """
    by_id = [n for n, call in enumerate(calls) if call.id == name]
    positions = by_id or [n for n, call in enumerate(calls) if call.tool == name]
    if len(positions) > 1:
        count = len(positions)
        raise ValueError(f"names {name!r}, which is expected {count} times; give the call that is meant an `id`")
    return positions[0] if positions else None


def order(
    calls: Sequence[ExpectedCall], named: Sequence[ExpectedCall] | None = None
) -> list[tuple[int | str, int | str]]:
    """Pairs of an earlier and a later call: positions of expected calls, or the tool of one that isn't expected.

    `named` are the calls that a name can mean, by default `calls`.
    """
    named = calls if named is None else named
    pairs: list[tuple[int | str, int | str]] = []
    for n, call in enumerate(calls):
        pairs += [(place(item.name, named), n) for item in references_of(call)]
        pairs += [(place(call.after, named), n)] if call.after else []
        pairs += [(n, place(call.before, named))] if call.before else []
    return list(dict.fromkeys(pairs))


def place(name: str, calls: Sequence[ExpectedCall]) -> int | str:
    """The position of the expected call with this name, or the name itself as the tool of one that isn't expected."""
    at = target(name, calls)
    return name if at is None else at


def criterion_faults(criterion: AnyCriterion) -> Iterator[Fault]:
    """What is wrong with the expected calls and values of a criterion, in the order of its fields."""
    if isinstance(criterion, ReceiptCriterion):
        yield from _receipt_faults(criterion)
    if not isinstance(criterion, ProbeCriterion):
        return
    has_expr = criterion.expr is not None
    if (criterion.schema_ is not None) == has_expr:
        yield Fault("expr", "can't be combined with `schema`" if has_expr else "is missing; give `expr` or `schema`")
    for name, value in criterion.args.items():
        at = join("args", name)
        faults = list(value_faults(value, at))
        yield from faults
        if not faults and (matcher := next((kind for kind in matchers(value) if kind != "from"), None)):
            yield Fault(at, f"has the matcher `{matcher}`; the arguments of a probe are values, or `from`")


def _receipt_faults(criterion: ReceiptCriterion) -> Iterator[Fault]:
    calls = criterion.calls
    ids = [call.id for call in calls if call.id]
    unsound = False
    if criterion.mode == "at_least" and not calls:
        yield Fault("calls", "is empty, so nothing is expected; list calls, or use the mode none or exactly")
    for n, call in enumerate(calls):
        at = f"calls[{n}]"
        values = [(join(f"{at}.args", name), value) for name, value in call.args.items()]
        values += [(f"{at}.result", call.result)] if call.result is not None else []
        faults = [fault for place, value in values for fault in value_faults(value, place)]
        faults += _name_faults(n, calls, criterion.mode, at) if not faults else []
        if call.id and ids.count(call.id) > 1:
            faults.append(Fault(f"{at}.id", f"is {call.id!r}, which another call has too; give each a different one"))
        unsound = unsound or bool(faults)
        yield from faults
    if unsound or criterion.mode == "none":
        return
    earlier, waiting = order(calls), set(range(len(calls)))
    while free := {n for n in waiting if not any(b == n and a in waiting for a, b in earlier)}:
        waiting -= free
    if waiting:
        at = f"calls[{min(waiting)}]"
        yield Fault(at, "has to come before itself: `from`, `after` and `before` make a circle")


def value_faults(wanted: object, at: str, *, depth: int = 0) -> Iterator[Fault]:
    """What is wrong with the matchers in an expected value."""
    if depth > MAX_NESTING:
        yield Fault(at, "is nested too deep")
        return
    match = matcher_in(wanted)
    if match is None and isinstance(wanted, dict) and set(cast("dict[str, Any]", wanted)) == {"any_order"}:
        yield Fault(f"{at}.any_order", "is not a list")
    elif match is not None and match[0] == "matches":
        if fault := pattern_fault(match[1]):
            yield Fault(f"{at}.matches", f"is not a regular expression: {fault}")
    elif match is not None and match[0] == "from":
        yield from _reference_faults(match[1], f"{at}.from")
    else:
        for part_at, part in _parts(cast("object", wanted), at):
            yield from value_faults(part, part_at, depth=depth + 1)


def _reference_faults(argument: dict[str, Any], at: str) -> Iterator[Fault]:
    for name in [name for name in argument if name not in ("tool", "path")][:3]:
        yield Fault(join(at, name), "is not a valid field; a reference has `tool` and `path`")
    for name in ("tool", "path"):
        if not isinstance(argument.get(name), str) or not argument[name].strip():
            yield Fault(f"{at}.{name}", "is missing" if name not in argument else "is not a text")
            return
    try:
        path_parts(argument["path"])
    except ValueError as error:
        yield Fault(f"{at}.path", str(error))


def _name_faults(n: int, calls: Sequence[ExpectedCall], mode: str, at: str) -> Iterator[Fault]:
    """What is wrong with the names of other calls that a call uses."""
    call = calls[n]
    named = [(f"{at}.{field}", name) for field in ("after", "before") if (name := getattr(call, field))]
    if mode == "none" and named:
        yield Fault(named[0][0], "can't be used with the mode none; use at_least or exactly")
        return
    if mode == "none":
        ids = {other.id for other in calls if other.id}
        wrong = [item.name for item in references_of(call) if item.name in ids]
        if wrong:
            yield Fault(at, f"refers to {wrong[0]!r}, a forbidden call; refer to an earlier call by its tool")
        return
    named += [(f"{at} (`from`)", item.name) for item in references_of(call)]
    for field, name in named:
        try:
            position = target(name, calls)
        except ValueError as error:
            yield Fault(field, str(error))
            continue
        if position == n:
            yield Fault(field, f"names {name!r}, the call itself; list the other call too, and give it an `id`")
        elif position is None and not field.endswith(")"):
            yield Fault(field, f"names {name!r}, which is neither the tool nor the `id` of an expected call")


def _parts(value: object, at: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from ((join(at, name), part) for name, part in cast("dict[str, object]", value).items())
    elif isinstance(value, list):
        yield from ((f"{at}[{n}]", part) for n, part in enumerate(cast("list[object]", value)))

"""Inserts results of other tasks into a goal or context: `{{ id.report }}` and `{{ id.structured.field }}`.

The text of a child is untrusted data. A report, and any value with several lines, is enclosed in fence lines with a
random mark that the child couldn't know. A short value is cleaned and inserted into the sentence.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

from delegate._util.fencing import clean, fence, new_nonce
from delegate.batch.item import Item, ItemOutcome
from delegate.engine.needs import refuse_literal
from delegate.types.errors import CallError

SHORTEST_FENCED = 200
"""A value of this many characters or more is fenced even if it is a single line."""

_REFERENCE = re.compile(r"\{\{\s*([^{}\s][^{}\n]*?)\s*\}\}")
_FIELDS = ("goal", "context")
_HINT = "write {{ id.report }} or {{ id.structured.field }}"


class Reference(NamedTuple):
    """A reference to a result. `what` is `report`, or `structured` with the path into it."""

    id: str
    what: str
    path: tuple[str, ...]


def references(item: Item, ids: frozenset[str]) -> list[Reference]:
    """The references in an item. Raises CallError if one names no item, or no part of its result.

    Text in double braces is a reference only if it ends in `.report` or contains `.structured`. What names an item that
    is needed is an error otherwise, and in criteria, where nothing is replaced.
    """
    texts = _fields(item).values()
    found = [match[1] for text in texts for match in _REFERENCE.finditer(text) if _is_reference(match[1])]
    parsed = [_parse(inside, ids) for inside in found]
    if item.needs:
        rest = [_REFERENCE.sub(lambda match: "" if _is_reference(match[1]) else match[0], text) for text in texts]
        rest.append(item.task.model_dump_json(include={"acceptance_criteria", "instructions"}))
        refuse_literal("\n".join(rest), item.needs, f"{_HINT}, in goal or context")
    return parsed


def filled(item: Item, outcomes: Mapping[str, ItemOutcome]) -> Item:
    """The item with its references replaced by their values. Raises CallError if a result lacks the value."""
    ids = frozenset(outcomes)

    def value(match: re.Match[str]) -> str:
        return _format(_parse(match[1], ids), outcomes) if _is_reference(match[1]) else match[0]

    update = {name: _REFERENCE.sub(value, text) for name, text in _fields(item).items()}
    return replace(item, task=item.task.model_copy(update=update))


def _fields(item: Item) -> dict[str, str]:
    return {name: text for name in _FIELDS if (text := getattr(item.task, name))}


def _is_reference(inside: str) -> bool:
    return inside.endswith(".report") or ".structured" in inside


def _parse(inside: str, ids: frozenset[str]) -> Reference:
    """Parse a reference. An id may contain dots, so the longest known id wins."""
    whole, ends = inside, [n for n, letter in enumerate(inside) if letter == "."]
    for end in reversed(ends):
        id, (what, *path) = whole[:end].strip(), whole[end + 1 :].split(".")
        if id in ids and (what == "structured" or (what == "report" and not path)):
            return Reference(id, what, tuple(path))
    name = re.split(r"\.(?:report$|structured)", whole)[0]
    what = f"part of the result of {name!r}" if name in ids else "task"
    raise CallError("unknown_reference", f"{{{{ {whole} }}}} names no {what}", field="goal", hint=_HINT)


def _format(reference: Reference, outcomes: Mapping[str, ItemOutcome]) -> str:
    outcome = outcomes[reference.id]
    name = ".".join((reference.id, reference.what, *reference.path))
    if outcome.result is None or outcome.state != "done":
        return f"(there is no {name}: {outcome.state}, {outcome.why})"
    value = outcome.result.report
    if reference.what == "structured":
        value = _value_at(outcome.result.structured_output, reference.path, name)
    text = clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).text
    if len(text) < SHORTEST_FENCED and "\n" not in text and reference.what == "structured":
        return text
    return f"\n{fence(name, text, new_nonce())}\n"


def _value_at(value: Any, path: tuple[str, ...], name: str) -> Any:
    for part in path:
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(part)
        else:
            items = cast("list[Any]", value) if isinstance(value, list) and part.isdecimal() else []
            value = items[int(part)] if part.isdecimal() and int(part) < len(items) else None
    if value is None:
        message = f"the result has no {name}"
        hint = "add an output_schema that requires it to the task it comes from"
        raise CallError("missing_reference", message, field="goal", hint=hint)
    return value

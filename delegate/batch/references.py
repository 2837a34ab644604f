"""What one task's goal takes from another's result: `{{ id.output }}` and `{{ id.structured.field }}`.

A child's words are data wherever they go. A whole output, and whatever else has several lines, stands between fence
lines whose mark the child can't have known; a short value stands in the sentence, cleaned.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

from delegate._util.fencing import clean, fence, new_nonce
from delegate.batch.item import Item, ItemOutcome
from delegate.errors import CallError

SHORTEST_FENCED = 200
"""Characters from which a value is fenced even when it is one line."""

_REFERENCE = re.compile(r"\{\{\s*([^{}\s][^{}\n]*?)\s*\}\}")
_FIELDS = ("goal", "context")


class Reference(NamedTuple):
    """`output`, or `structured` with the path into it."""

    id: str
    what: str
    path: tuple[str, ...]


def references(item: Item, ids: frozenset[str]) -> list[Reference]:
    """What an item takes from others. Raises CallError for one that names no item, or nothing of it.

    Other text in double braces isn't ours: only what ends in `.output`, or has `.structured` in it, is read.
    """
    return [_read(found[1], ids) for text in _texts(item) for found in _REFERENCE.finditer(text) if _is_ours(found[1])]


def filled(item: Item, outcomes: Mapping[str, ItemOutcome]) -> Item:
    """The item with what it takes put in. Raises CallError where a result hasn't what is asked of it."""
    ids = frozenset(outcomes)

    def value(found: re.Match[str]) -> str:
        return _written(_read(found[1], ids), outcomes) if _is_ours(found[1]) else found[0]

    update = {name: _REFERENCE.sub(value, text) for name, text in _fields(item).items()}
    return replace(item, task=item.task.model_copy(update=update))


def _fields(item: Item) -> dict[str, str]:
    """The texts of a task in which references count."""
    return {name: text for name in _FIELDS if (text := getattr(item.task, name))}


def _texts(item: Item) -> list[str]:
    return list(_fields(item).values())


def _is_ours(inside: str) -> bool:
    return inside.endswith(".output") or ".structured" in inside


def _read(inside: str, ids: frozenset[str]) -> Reference:
    """An id may have dots of its own: the longest one that is known counts."""
    whole, ends = inside, [n for n, letter in enumerate(inside) if letter == "."]
    for end in reversed(ends):
        id, (what, *path) = whole[:end].strip(), whole[end + 1 :].split(".")
        if id in ids and (what == "structured" or (what == "output" and not path)):
            return Reference(id, what, tuple(path))
    name = re.split(r"\.(?:output$|structured)", whole)[0]
    message = f"{{{{ {whole} }}}} names no task" if name not in ids else f"{{{{ {whole} }}}} names nothing of {name!r}"
    raise CallError(
        "unknown_reference", message, field="goal", hint="write {{ id.output }} or {{ id.structured.field }}"
    )


def _written(reference: Reference, outcomes: Mapping[str, ItemOutcome]) -> str:
    outcome = outcomes[reference.id]
    name = ".".join((reference.id, reference.what, *reference.path))
    if outcome.result is None:
        return f"(there is no {name}: {outcome.state}, {outcome.why})"
    given = outcome.result.summary
    if reference.what == "structured":
        given = _inside(outcome.result.structured_output, reference.path, name)
    text = clean(given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)).text
    if len(text) < SHORTEST_FENCED and "\n" not in text and reference.what == "structured":
        return text
    return f"\n{fence(name, text, new_nonce())}\n"


def _inside(value: Any, path: tuple[str, ...], name: str) -> Any:
    for part in path:
        value = _step(value, part)
    if value is None:
        message = f"the result has no {name}"
        hint = "give the task it comes from an output_schema that requires it"
        raise CallError("missing_reference", message, field="goal", hint=hint)
    return value


def _step(value: Any, part: str) -> Any:
    """What an object has under that name, or a list at that place; None where there is nothing."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).get(part)
    if isinstance(value, list) and part.isdecimal():
        items = cast("list[Any]", value)
        return items[int(part)] if int(part) < len(items) else None
    return None

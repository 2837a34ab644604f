"""The first reading of a whole source, before anything is spent: is every row good, and is it the batch it was?"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from delegate.batch.item import BadRow, Item
from delegate.batch.sources import Source
from delegate.errors import CallError
from delegate.types import Task


@dataclass(frozen=True, slots=True)
class ValidatedSource:
    """What a first reading of a whole source found."""

    total: int
    """Items and bad rows."""
    digest: str
    """Changes with any task and with their order, and not with how the file is written."""
    bad: Mapping[int, BadRow]
    """What is left out, by its place from 0; each with an id of its own."""
    needs: bool
    """Whether any item needs another, or may speak of one (`{{ id.output }}`)."""
    first_goal: str


def validate(source: Source, admit: Callable[[Task], object], *, skip_bad: bool = False) -> ValidatedSource:
    """Read everything once, before anything is spent.

    Raises CallError naming file, row and field of the first row that can't be used; with `skip_bad` only where no row
    can. `admit` raises CallError for a task that couldn't be run.
    """
    digest, seen, bad = hashlib.sha256(), dict[str, int | None](), dict[int, BadRow]()
    total, needs, first_goal = 0, False, ""
    for place, one in enumerate(source):
        total += 1
        found = one if isinstance(one, BadRow) else _refused(one, admit, seen)
        if found is not None:
            if not skip_bad:
                raise _placed(found, source.name)
            bad[place] = _named(found, seen)
            continue
        assert isinstance(one, Item)
        seen[one.id] = one.row
        needs = needs or bool(one.needs) or "{{" in f"{one.task.goal}{one.task.context}"
        first_goal = first_goal or one.task.goal
        digest.update(_canonical(one))
    if len(bad) == total:
        raise _nothing(source.name, bad)
    digest.update(json.dumps(sorted(bad)).encode())
    return ValidatedSource(total, digest.hexdigest(), bad, needs, first_goal)


def _refused(item: Item, admit: Callable[[Task], object], seen: Mapping[str, int | None]) -> BadRow | None:
    row = item.row or len(seen) + 1
    if item.id in seen:
        message = f"id {item.id!r} is taken by row {seen[item.id]}"
        hint = "give every task an id of its own, or none"
        return BadRow(item.id, row, CallError("duplicate_id", message, field="id", hint=hint))
    try:
        admit(item.task)
    except CallError as error:
        return BadRow(item.id, row, error)
    return None


def _placed(bad: BadRow, name: str) -> CallError:
    error = bad.error
    hint = error.hint or "mend the row, or leave bad rows out (--skip-bad)"
    return CallError(error.code, f"{name}: row {bad.row}: {error.message}", field=error.field, hint=hint)


def _named(bad: BadRow, seen: dict[str, int | None]) -> BadRow:
    """With an id that nothing else has."""
    id = bad.id if bad.id and bad.id not in seen else f"row {bad.row}"
    while id in seen:
        id += "'"
    seen[id] = bad.row
    return BadRow(id, bad.row, bad.error)


def _nothing(name: str, bad: Mapping[int, BadRow]) -> CallError:
    if not bad:
        return CallError("empty", f"{name}: there are no tasks in it")
    first = next(iter(bad.values()))
    return CallError(first.error.code, f"{name}: no row can be used; row {first.row}: {first.error.message}")


def _canonical(item: Item) -> bytes:
    head = json.dumps([item.id, item.needs, item.when])
    return f"{head}\t{item.task.model_dump_json(exclude_defaults=True)}\n".encode()

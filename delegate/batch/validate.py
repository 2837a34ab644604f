"""First pass over a source: validates every row and computes the digest, before anything is spent."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from delegate.batch.item import BadRow, Item
from delegate.batch.results_file import OUTPUTS, Table, without_sources
from delegate.batch.sources import Source
from delegate.types import CitationsCriterion, Task
from delegate.types.errors import CallError


@dataclass(frozen=True, slots=True)
class ValidatedSource:
    total: int
    """Number of items, bad rows included."""
    digest: str
    """Depends on the tasks and their order, and not on the format of the file."""
    bad_rows: Mapping[int, BadRow]
    """The skipped rows by their index, from 0. Each has a unique id."""
    has_needs: bool
    """Whether any item needs another, or may refer to one (`{{ id.report }}`)."""
    title: str
    """The template of the goals, or else the first goal."""
    table: Table
    """The columns of a CSV of their results."""


def validate(source: Source, admit: Callable[[Task], object], *, skip_bad: bool = False) -> ValidatedSource:
    """Read and validate the whole source.

    Raises CallError naming file, row and field of the first invalid row; with `skip_bad`, only if all rows are invalid.
    `admit` raises CallError for a task that can't be run.
    """
    digest, rows_of, bad_rows = hashlib.sha256(), dict[str, int | None](), dict[int, BadRow]()
    inputs, outputs, cited = dict[str, None](), dict[str, None](), dict[str, None]()
    total, has_needs, title = 0, False, ""
    for index, entry in enumerate(source):
        total += 1
        inputs |= dict.fromkeys(entry.input)
        bad_row = entry if isinstance(entry, BadRow) else _check(entry, admit, rows_of)
        if bad_row is not None:
            if not skip_bad:
                error = bad_row.error
                message = f"{source.name}: row {bad_row.row}: {error.message}"
                hint = error.hint or "fix the row, or skip bad rows with --skip-bad"
                raise CallError(error.code, message, field=error.field, hint=hint)
            bad_rows[index] = _with_unique_id(bad_row, rows_of)
            continue
        assert isinstance(entry, Item)
        rows_of[entry.id] = entry.row
        has_needs = has_needs or bool(entry.needs) or "{{" in f"{entry.task.goal}{entry.task.context}"
        title = title or (entry.template.goal if entry.template else entry.task.goal)
        properties = (entry.task.output_schema or {}).get("properties")
        fields = list(cast("Mapping[str, object]", properties)) if isinstance(properties, Mapping) else []
        outputs |= dict.fromkeys(fields)
        cites = any(isinstance(criterion, CitationsCriterion) for criterion in entry.task.criteria)
        cited |= dict.fromkeys(without_sources(fields) if cites else ())
        head = json.dumps([entry.id, entry.needs, entry.when])
        digest.update(f"{head}\t{entry.task.model_dump_json(exclude_defaults=True)}\n".encode())
    if not total:
        raise CallError("empty", f"{source.name} has no tasks")
    if len(bad_rows) == total:
        first = next(iter(bad_rows.values()))
        message = f"{source.name}: every row is invalid; row {first.row}: {first.error.message}"
        raise CallError(first.error.code, message)
    digest.update(json.dumps(sorted(bad_rows)).encode())
    table = Table(tuple(inputs), tuple(outputs)[:OUTPUTS], tuple(cited))
    return ValidatedSource(total, digest.hexdigest(), bad_rows, has_needs, title, table)


def _check(item: Item, admit: Callable[[Task], object], rows_of: Mapping[str, int | None]) -> BadRow | None:
    row = item.row or len(rows_of) + 1
    if item.id in rows_of:
        message = f"id {item.id!r} is already used by row {rows_of[item.id]}"
        hint = "give every task a unique id, or none"
        return BadRow(item.id, row, CallError("duplicate_id", message, field="id", hint=hint), item.input)
    try:
        admit(item.task)
    except CallError as error:
        return BadRow(item.id, row, error, item.input)
    return None


def _with_unique_id(bad: BadRow, rows_of: dict[str, int | None]) -> BadRow:
    id = bad.id if bad.id and bad.id not in rows_of else f"row {bad.row}"
    while id in rows_of:
        id += "'"
    rows_of[id] = bad.row
    return BadRow(id, bad.row, bad.error, bad.input)

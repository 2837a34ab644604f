"""Reads the criteria and receipts of finished work from files, with the location of each for error messages."""

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, cast

from pydantic import ValidationError

from delegate._util.documents import loads
from delegate.cli.input.documents import is_document, name_of, read_document, read_text
from delegate.cli.input.taskfile import read_criterion
from delegate.judging.transcripts.messages import is_message, receipts_in
from delegate.types import AnyCriterion, Receipt, Task
from delegate.types.errors import CallError
from delegate.types.faults import error_text, located
from delegate.types.short_forms import criterion_of

_FIELD = re.compile(r"acceptance_criteria\[(\d+)\]")
_BULLET = re.compile(r"\s*[-*•]\s+")


class LocatedCriterion(NamedTuple):
    """An unvalidated criterion and its location, such as `criteria.txt, line 3`."""

    location: str
    data: object


def read_criteria(file: Path | None, texts: Sequence[str] = ()) -> list[LocatedCriterion]:
    """The criteria of a file, followed by those given on the command line. Raises CallError.

    A file is a list in JSON, YAML or TOML (or an object with the list as `acceptance_criteria`), or plain text with one
    criterion per line in the forms of the command line.
    """
    from_options = [typed(f"-c (number {n})", text) for n, text in enumerate(texts, start=1)]
    return [*_in_file(file), *from_options] if file else from_options


def to_task(goal: str, criteria: Sequence[LocatedCriterion]) -> Task:
    """The task with these criteria. Raises CallError with the location of an invalid criterion."""
    try:
        return Task.model_validate({"goal": goal, "acceptance_criteria": tuple(map(validated, criteria))})
    except ValidationError as error:
        raise CallError("invalid_criterion", error_text(error), field="acceptance_criteria") from None


@contextmanager
def at_criteria(criteria: Sequence[LocatedCriterion], before: str = "") -> Generator[None]:
    """Let a CallError of the block about one of these criteria begin with its location, in place of `before`."""
    try:
        yield
    except CallError as error:
        match = _FIELD.match(error.field or "")
        if match and int(match[1]) < len(criteria):
            message = error.message.removeprefix(before).removeprefix(f"`{error.field}` is invalid: ")
            error.message = f"{criteria[int(match[1])].location}: {message}"
        raise


def read_receipts(file: Path) -> list[Receipt]:
    """Read receipts, or the messages of a transcript, from a JSON list or lines of JSON. Raises CallError."""
    text, name = read_text(file), name_of(file)
    if text.lstrip().startswith("["):
        document = cast("list[object]", _json(name, text))
        items = [(f"{name}, receipt {n}", item) for n, item in enumerate(document, start=1)]
    else:
        items = [(location, _json(location, line)) for location, line in _lines(name, text)]
    if not items or not all(is_message(item) for _, item in items):
        return [_receipt(location, item) for location, item in items]
    with located(name):
        return receipts_in([cast("Mapping[str, object]", item) for _, item in items])


def _in_file(file: Path) -> Iterator[LocatedCriterion]:
    name = name_of(file)
    if is_document(file):
        yield from listed_criteria(name, read_document(file))
        return
    text, is_table = read_text(file), False
    with suppress(ValueError, TypeError, RecursionError):  # lines may each be a JSON object
        is_table = "acceptance_criteria" in cast("dict[str, object]", json.loads(text))
    if text.lstrip().startswith("[") or is_table:
        yield from listed_criteria(name, _json(name, text))
        return
    for location, line in _lines(name, text):
        yield typed(location, _BULLET.sub("", line, count=1))


def listed_criteria(name: str, document: object) -> Iterator[LocatedCriterion]:
    if isinstance(document, Mapping):
        table = cast("Mapping[str, object]", document)
        if others := sorted(str(key) for key in table if key != "acceptance_criteria"):
            message = f"{name}: unknown key {others[0]!r}; remove it, only `acceptance_criteria` is allowed here"
            raise CallError("invalid_criterion", message)
        document = table.get("acceptance_criteria")
    if not isinstance(document, list):
        message = f"{name}: not a list of criteria; write a list, or an object with the list as `acceptance_criteria`"
        raise CallError("invalid_criterion", message)
    for n, data in enumerate(cast("list[object]", document), start=1):
        location = f"{name}, criterion {n}"
        yield typed(location, data) if isinstance(data, str) else LocatedCriterion(location, data)


def _lines(name: str, text: str) -> Iterator[tuple[str, str]]:
    """The nonblank lines, each with its location."""
    for n, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{name}, line {n}", line.strip()


def typed(location: str, text: str) -> LocatedCriterion:
    with located(location):
        return LocatedCriterion(location, criterion_of(text))


def validated(criterion: LocatedCriterion) -> AnyCriterion:
    """The criterion. Raises CallError with its location if it is invalid."""
    with located(criterion.location):
        return read_criterion(criterion.data)


def _receipt(location: str, data: object) -> Receipt:
    try:
        return Receipt.model_validate(data)
    except ValidationError as error:
        hint = "write a receipt with `tool`, `args`, `status` (ok, error, denied or timeout) and `output`"
        raise CallError("invalid_receipt", f"{location}: {error_text(error)}", field="receipts", hint=hint) from None


def _json(location: str, text: str) -> object:
    try:
        return loads(text, "json")
    except ValueError as error:
        raise CallError("invalid_json", f"{location}: not valid JSON: {error}") from None

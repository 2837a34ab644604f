"""From files that describe finished work to what it is judged by: criteria and receipts, each with its place."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from pydantic import ValidationError

from delegate.cli.documents import is_document, name_of, read_document, read_text
from delegate.cli.taskfile import in_words, read_criterion, typed_criterion
from delegate.errors import CallError
from delegate.types import AnyCriterion, Receipt, Task

_FIELD = re.compile(r"acceptance_criteria\[(\d+)\]")
_BULLET = re.compile(r"\s*[-*•]\s+")


class Placed(NamedTuple):
    """A criterion as written, and where it stands: `criteria.txt, line 3`."""

    place: str
    given: object


def read_criteria(file: Path | None, typed: Sequence[str] = ()) -> list[Placed]:
    """The criteria of a file, then those typed beside it. Raises CallError.

    A file is a list in JSON, YAML or TOML (or a table with `acceptance_criteria`), or plain text with one criterion
    per line, in the forms that can be typed.
    """
    beside = [Placed(f"-c (number {n})", _typed(f"-c (number {n})", text)) for n, text in enumerate(typed, start=1)]
    return [*_in_file(file), *beside] if file else beside


def to_task(goal: str, criteria: Sequence[Placed]) -> Task:
    """The task that the work is judged by. Raises CallError naming the place of what can't be used."""
    try:
        return Task(goal=goal, acceptance_criteria=tuple(map(_criterion, criteria)))
    except ValidationError as error:
        raise CallError("invalid_criterion", in_words(error), field="acceptance_criteria") from None


def at_its_place(error: CallError, criteria: Sequence[Placed]) -> CallError:
    """The same error; where it is about one of the criteria, the place of that one goes before it."""
    if about := _FIELD.match(error.field or ""):
        error.message = f"{criteria[int(about[1])].place}: {error.message}"
    return error


def read_receipts(file: Path) -> list[Receipt]:
    """Receipts from a JSON list, or from lines of JSON. Raises CallError."""
    text, name = read_text(file), name_of(file)
    if text.lstrip().startswith("["):
        items = enumerate(cast("list[object]", _json(name, text)), start=1)
        return [_receipt(f"{name}, receipt {n}", item) for n, item in items]
    return [_receipt(place, _json(place, line)) for place, line in _lines(name, text)]


def _in_file(file: Path) -> Iterator[Placed]:
    name = name_of(file)
    if is_document(file):
        yield from _listed(name, read_document(file))
        return
    text = read_text(file)
    if text.lstrip().startswith("[") or _is_table(text):
        yield from _listed(name, _json(name, text))
        return
    for place, line in _lines(name, text):
        yield Placed(place, _typed(place, _BULLET.sub("", line, count=1)))


def _is_table(text: str) -> bool:
    """Whether it is one JSON object with the list in it, and not lines of which the first is an object."""
    try:
        return "acceptance_criteria" in cast("dict[str, object]", json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return False


def _listed(name: str, document: object) -> Iterator[Placed]:
    if isinstance(document, Mapping):
        table = cast("Mapping[str, object]", document)
        if others := sorted(str(key) for key in table if key != "acceptance_criteria"):
            message = f"{name}: unknown key {others[0]!r}; it holds `acceptance_criteria` and nothing else"
            raise CallError("invalid_criterion", message)
        document = table.get("acceptance_criteria")
    if not isinstance(document, list):
        raise CallError("invalid_criterion", f"{name}: not a list of criteria, nor `acceptance_criteria` with one")
    for n, given in enumerate(cast("list[object]", document), start=1):
        yield Placed(f"{name}, criterion {n}", given)


def _lines(name: str, text: str) -> Iterator[tuple[str, str]]:
    """The lines that hold something, each with its place."""
    for n, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{name}, line {n}", line.strip()


def _typed(place: str, text: str) -> object:
    try:
        return typed_criterion(text)
    except CallError as error:
        raise _placed(error, place) from None


def _criterion(placed: Placed) -> AnyCriterion:
    try:
        return read_criterion(placed.given)
    except CallError as error:
        raise _placed(error, placed.place) from None


def _receipt(place: str, given: object) -> Receipt:
    try:
        return Receipt.model_validate(given)
    except ValidationError as error:
        hint = "a receipt has `tool`, `args`, `status` (ok, error, denied, timeout) and `output`"
        raise CallError("invalid_receipt", f"{place}: {in_words(error)}", field="receipts", hint=hint) from None


def _json(place: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CallError("invalid_json", f"{place}: not valid JSON: {error}") from None


def _placed(error: CallError, place: str) -> CallError:
    return CallError(error.code, f"{place}: {error.message}", field=error.field, hint=error.hint)

"""Files of tasks, read row by row: JSONL, JSON, YAML, CSV. A source may be read again, and gives the same items.

A row that can't be used is a `BadRow`, and reading goes on after it; what is wrong with the whole file is a CallError.
Lines are bounded, so that no file, however made, needs more memory than a few of them.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, cast

from delegate.batch.item import BadRow, Item, When
from delegate.batch.templates import Templates
from delegate.errors import CallError
from delegate.types import Task

LONGEST_LINE = 1 << 20
"""Bytes of one line."""
LARGEST_DOCUMENT = 64 << 20
"""Bytes of a JSON or YAML file, which is read whole."""
LONGEST_ID = 200
_TABLES = (".csv", ".tsv")
_DOCUMENTS = (".json", ".yaml", ".yml")
_LINES = (".jsonl", ".ndjson")
SUFFIXES = (*_LINES, *_DOCUMENTS, *_TABLES)
_BOM = b"\xef\xbb\xbf"


class ReadTask(Protocol):
    """From a table to a task. Raises CallError; relative workspaces are meant from `base`."""

    def __call__(self, given: object, *, base: Path | None) -> Task: ...


class Source(Protocol):
    """Items that can be read more than once."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def __iter__(self) -> Iterator[Item | BadRow]: ...


@dataclass(frozen=True)
class Listed:
    """Tasks that a program gives."""

    tasks: Sequence[Task | Item]
    name: str = "tasks"

    def __iter__(self) -> Iterator[Item | BadRow]:
        for row, one in enumerate(self.tasks, start=1):
            yield one if isinstance(one, Item) else Item(str(row), one, row)


def source_of(tasks: "Iterable[Task | Item] | Source") -> Source:
    """What a program gave as tasks, as a source."""
    if isinstance(tasks, (Listed, TaskFile)):
        return tasks
    if hasattr(tasks, "name"):
        return cast("Source", tasks)
    return Listed(tuple(cast("Iterable[Task | Item]", tasks)))


@dataclass(frozen=True)
class TaskFile:
    """A file of tasks, of the kind that its name says. `templates` are for the rows of a CSV, and only for them.

    `called` is its name in messages; by default the path. Raises CallError where the file can't be read, or isn't of a
    kind that is known.
    """

    path: Path
    read_task: ReadTask
    templates: Templates | None = None
    called: str | None = None
    _kept: dict[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)

    def __post_init__(self) -> None:
        suffix = self.path.suffix.lower()
        if suffix not in SUFFIXES:
            message = f"{self.name}: can't tell its format; the name must end in {', '.join(SUFFIXES)}"
            raise CallError("unreadable_file", message)
        if self.templates is not None and suffix not in _TABLES:
            message = (
                f"{self.name}: templates are for the columns of a CSV; these tasks name their own goal and criteria"
            )
            raise CallError("templates_without_columns", message, field="goal")
        try:
            self.path.open("rb").close()
        except OSError as error:
            raise CallError("unreadable_file", f"{self.name} can't be read: {error.strerror}") from None

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.called or str(self.path)

    def __iter__(self) -> Iterator[Item | BadRow]:
        self._refuse_changed()
        suffix = self.path.suffix.lower()
        if suffix in _DOCUMENTS:
            yield from self._listed()
            return
        with self.path.open("rb") as file:
            lines = _Lines(file)
            yield from self._rows(lines) if suffix in _TABLES else self._objects(lines)

    # ------------------------------------------------------------------------------------------------------ each kind

    def _objects(self, lines: "_Lines") -> Iterator[Item | BadRow]:
        while True:
            try:
                line = next(lines)
                if line.strip():
                    yield self._item(_json(line), lines.number)
            except StopIteration:
                return
            except CallError as error:
                yield BadRow("", lines.number, error)

    def _listed(self) -> Iterator[Item | BadRow]:
        for row, given in enumerate(self._document, start=1):
            try:
                yield self._item(given, row)
            except CallError as error:
                yield BadRow("", row, error)

    def _rows(self, lines: "_Lines") -> Iterator[Item | BadRow]:
        header, reader = self._header(lines)
        templates, row = self.templates or Templates(), 0
        while True:
            began = lines.number + 1
            try:
                cells = next(reader)
                if not cells:
                    continue
                row += 1
                columns = _columns(header, cells)
                yield self._of_row(columns, templates, row)
            except StopIteration:
                return
            except (CallError, csv.Error) as error:
                row += isinstance(error, csv.Error) or lines.failed
                yield BadRow("", row, _at_line(error, began))

    def _of_row(self, columns: Mapping[str, str], templates: Templates, row: int) -> Item:
        id = columns.get("id", "").strip() or str(row)
        return Item(_id(id), self.read_task(templates.task(columns), base=self.path.parent), row)

    def _item(self, given: object, row: int) -> Item:
        if not isinstance(given, Mapping):
            raise CallError("bad_task", "not a task; write an object with at least `goal`")
        fields = dict(cast("Mapping[str, object]", given))
        id, needs, when = fields.pop("id", row), fields.pop("needs", ()), fields.pop("when", "passed")
        task = self.read_task(fields, base=self.path.parent)
        return Item(_id(id), task, row, _needs(needs), _when(when))

    # ---------------------------------------------------------------------------------------------------------- parts

    def _header(self, lines: "_Lines") -> "tuple[list[str], Iterator[list[str]]]":
        """The names of the columns, and what reads the rows after them."""
        try:
            first = next(lines)
        except StopIteration:
            raise self._empty() from None
        except CallError as error:
            raise CallError(error.code, f"{self.name}: the header: {error.message}", hint=error.hint) from None
        delimiter = max(",;\t", key=first.count)
        header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
        if twice := [name for name in header if header.count(name) > 1]:
            raise CallError("bad_header", f"{self.name}: two columns are called {twice[0]!r}", field=twice[0])
        return header, csv.reader(lines, delimiter=delimiter, strict=True)

    @property
    def _document(self) -> list[object]:
        if "list" not in self._kept:
            self._kept["list"] = self._read_document()
        return self._kept["list"]

    def _read_document(self) -> list[object]:
        if self.path.stat().st_size > LARGEST_DOCUMENT:
            message = f"{self.name} is larger than {LARGEST_DOCUMENT >> 20} MB, which is too much for one document"
            raise CallError("too_large", message, hint="write one task per line, as .jsonl")
        text = self.path.read_bytes().removeprefix(_BOM)
        if not text.strip():
            raise self._empty()
        try:
            document = _json(text.decode()) if self.path.suffix.lower() == ".json" else _yaml(text.decode())
        except UnicodeDecodeError:
            raise CallError("unreadable_file", f"{self.name} can't be read: not UTF-8") from None
        except CallError as error:
            raise CallError(error.code, f"{self.name}: {error.message}", hint=error.hint) from None
        return self._tasks_in(document)

    def _tasks_in(self, document: object) -> list[object]:
        if isinstance(document, Mapping):
            table = cast("Mapping[str, object]", document)
            if others := sorted(str(key) for key in table if key != "tasks"):
                message = f"{self.name}: unknown key {others[0]!r}; the file holds `tasks` and nothing else"
                raise CallError("bad_task", message, field=others[0])
            document = table.get("tasks")
        if not isinstance(document, list):
            raise CallError("bad_task", f"{self.name}: no tasks; write a list of tasks, or `tasks` with one")
        return cast("list[object]", document)

    def _refuse_changed(self) -> None:
        """What is read a second time, to be run, must be what was looked at the first time."""
        found = self.path.stat()
        now = (found.st_ino, found.st_size, found.st_mtime_ns)
        if self._kept.setdefault("file", now) != now:
            message = f"{self.name} was changed while it was read"
            raise CallError("source_changed", message, hint="begin again, when it stays as it is")

    def _empty(self) -> CallError:
        return CallError("empty", f"{self.name} is empty: there are no tasks in it")


class _Lines:
    """The lines of a file as text. Goes on after a line that raised CallError; `number` is that of the last one."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._skip = False
        self.number = 0
        self.failed = False
        """Whether the last line couldn't be given."""

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        self._skip_the_rest()
        self.failed = False
        line = self._file.readline(LONGEST_LINE + 1)
        if not line:
            raise StopIteration
        self.number += 1
        try:
            return self._text(line)
        except CallError:
            self.failed = True
            raise

    def _text(self, line: bytes) -> str:
        if len(line) > LONGEST_LINE:
            self._skip = not line.endswith(b"\n")
            message = f"the line is longer than {LONGEST_LINE >> 20} MB"
            raise CallError("too_large", message, hint="write long material to a file and name its path")
        try:
            text = line.removeprefix(_BOM).decode() if self.number == 1 else line.decode()
        except UnicodeDecodeError:
            raise CallError("unreadable_row", "not UTF-8") from None
        if "\0" in text:
            raise CallError("unreadable_row", "holds a NUL character")
        return text

    def _skip_the_rest(self) -> None:
        while self._skip:
            part = self._file.readline(LONGEST_LINE)
            self._skip = bool(part) and not part.endswith(b"\n")


def _columns(header: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    if len(cells) != len(header):
        raise CallError("bad_row", f"{len(cells)} fields, where the header has {len(header)}")
    return dict(zip(header, cells, strict=True))


def _at_line(error: CallError | csv.Error, line: int) -> CallError:
    """The same with the line it is on, which for fields of several lines isn't the row's number."""
    if isinstance(error, CallError):
        return CallError(error.code, f"{error.message} (line {line})", field=error.field, hint=error.hint)
    said = str(error)
    if "field limit" in said or "unexpected end" in said:
        said = "a quote is never closed, or a field is longer than 131,072 characters"
    return CallError("bad_row", f"{said} (line {line})")


def _id(given: object) -> str:
    text = str(given) if isinstance(given, (str, int)) and not isinstance(given, bool) else ""
    if not text.strip() or len(text) > LONGEST_ID or not text.isprintable():
        message = f"id {given!r:.60} can't be used; write a text of at most {LONGEST_ID} characters, or a whole number"
        raise CallError("bad_id", message, field="id")
    return text


def _needs(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    if isinstance(given, (list, tuple)):
        return tuple(dict.fromkeys(_id(one) for one in cast("Sequence[object]", given)))
    raise CallError("bad_needs", "`needs` is not a list of ids", field="needs", hint='write ["id of a task", …]')


def _when(given: object) -> When:
    if given == "always":
        return "always"
    if given == "passed":
        return "passed"
    raise CallError("bad_when", f"`when` is {given!r:.60}; it is `passed` or `always`", field="when")


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CallError("invalid_json", f"not valid JSON: {error}") from None


def _yaml(text: str) -> object:
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CallError("invalid_yaml", f"not valid YAML: {' '.join(str(error).split())}") from None

"""Reads tasks row by row from JSONL, JSON, YAML and CSV files. A source can be read again, with the same items.

An invalid row becomes a `BadRow` and reading continues; a problem with the whole file raises CallError. The length of a
line is limited, so that reading needs the memory of a few lines only, whatever the file contains.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, cast, get_args

from delegate._util.documents import Format, loads
from delegate.batch.item import BadRow, Item, When
from delegate.batch.templates import Templates
from delegate.types import Task
from delegate.types.errors import CallError
from delegate.types.faults import located
from delegate.types.request import not_tasks

LONGEST_LINE = 1 << 20
LARGEST_DOCUMENT = 64 << 20
"""Maximum size in bytes of a JSON or YAML file, which is read as a whole."""
LONGEST_ID = 200
_TABLES = (".csv", ".tsv")
_DOCUMENTS = (".json", ".yaml", ".yml")
_LINES = (".jsonl", ".ndjson")
SUFFIXES = (*_LINES, *_DOCUMENTS, *_TABLES)
_BOM = b"\xef\xbb\xbf"


class ReadTask(Protocol):
    """Makes a task from a mapping. Relative workspaces are resolved against `base`. Raises CallError."""

    def __call__(self, data: object, *, base: Path | None) -> Task: ...


class Source(Protocol):
    """An iterable of items that can be read more than once."""

    @property
    def name(self) -> str: ...

    def __iter__(self) -> Iterator[Item | BadRow]: ...


@dataclass(frozen=True)
class Listed:
    tasks: Sequence[Task | Item]
    name: str = "tasks"
    is_call: bool = False  # for a plan

    def __iter__(self) -> Iterator[Item | BadRow]:
        for row, task in enumerate(self.tasks, start=1):
            if isinstance(task, Item):
                yield task
                continue
            # What the task names itself and others by belongs to the item.
            alone = task.model_copy(update={"id": None, "needs": ()}) if task.id or task.needs else task
            yield Item(task.id or str(row), alone, row, task.needs, input={"goal": task.goal})


def source_of(tasks: "Iterable[Task | Item] | Source") -> Source:
    """Wrap the tasks that a program passed as a source, unless they are one."""
    if hasattr(tasks, "name"):
        return cast("Source", tasks)
    given = cast("object", tasks)
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise not_tasks(cast("object", given))
    listed = tuple(cast("Iterable[Task | Item]", tasks))
    given_tasks: list[object] = [one.task if isinstance(one, Item) else one for one in listed]
    if wrong := [one for one in given_tasks if not isinstance(one, Task)]:
        raise not_tasks(wrong[0])
    return Listed(listed)


@dataclass(frozen=True)
class TaskFile:
    """A file of tasks in the format that its suffix names. `templates` turn the rows of a CSV into tasks.

    `display_name` is its name in messages, by default the path. Raises CallError if the file can't be read, its format
    is unknown, or `templates` are given for a format other than CSV.
    """

    path: Path
    read_task: ReadTask
    templates: Templates | None = None
    display_name: str | None = None
    _cache: dict[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)

    def __post_init__(self) -> None:
        suffix = self.path.suffix.lower()
        if suffix not in SUFFIXES:
            message = f"{self.name}: can't tell its format; use a name that ends in {', '.join(SUFFIXES)}"
            raise CallError("unreadable_file", message)
        if self.templates is not None and suffix not in _TABLES:
            message = (
                f"{self.name}: templates are for the columns of a CSV; write goal and criteria into the tasks instead"
            )
            raise CallError("templates_without_columns", message, field="goal")
        try:
            self.path.open("rb").close()
        except OSError as error:
            raise CallError("unreadable_file", f"{self.name} can't be read: {error.strerror}") from None

    @property
    def name(self) -> str:
        return self.display_name or str(self.path)

    @property
    def is_table(self) -> bool:
        """Whether it contains values for templates instead of tasks."""
        return self.path.suffix.lower() in _TABLES

    def __iter__(self) -> Iterator[Item | BadRow]:
        # Its tasks were validated when it was first read.
        stat = self.path.stat()
        version = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if self._cache.setdefault("file", version) != version:
            message = f"{self.name} was changed while it was read"
            raise CallError("source_changed", message, hint="start the batch again when the file no longer changes")
        if self.path.suffix.lower() in _DOCUMENTS:
            yield from self._document_items()
            return
        with self.path.open("rb") as file:
            lines = _Lines(file)
            yield from self._table_items(lines) if self.is_table else self._line_items(lines)

    def _line_items(self, lines: "_Lines") -> Iterator[Item | BadRow]:
        while True:
            task: object = None
            try:
                line = next(lines)
                if line.strip():
                    task = _loads(line, "json")
                    yield self._item(task, lines.number)
            except StopIteration:
                return
            except CallError as error:
                yield BadRow("", lines.number, error, _goal_of(task))

    def _document_items(self) -> Iterator[Item | BadRow]:
        if "list" not in self._cache:
            self._cache["list"] = self._read_document()
        for row, task in enumerate(self._cache["list"], start=1):
            try:
                yield self._item(task, row)
            except CallError as error:
                yield BadRow("", row, error, _goal_of(task))

    def _table_items(self, lines: "_Lines") -> Iterator[Item | BadRow]:
        header, reader = self._header(lines)
        templates, row, is_same = self.templates or Templates(), 0, None
        while True:
            first_line, cells = lines.number + 1, list[str]()
            try:
                cells = next(reader)
                if not cells:
                    continue
                row += 1
                if len(cells) != len(header):
                    message = f"the row has {len(cells)} fields, but the header has {len(header)}"
                    raise CallError("bad_row", message)
                columns = dict(zip(header, cells, strict=True))
                id = columns.get("id", "").strip() or str(row)
                fields = templates.task(columns)
                if is_same is None:  # it depends on the templates alone
                    is_same = fields == templates.task({name: f"{value}0" for name, value in columns.items()})
                if is_same:
                    hint = f"write, for example, {{{header[0]}}}; the columns are: {', '.join(header):.400}"
                    raise CallError("unknown_column", "goal and criteria name no column", field="goal", hint=hint)
                task = self.read_task(fields, base=self.path.parent)
                yield Item(_id(id), task, row, input=columns, template=templates.to_read(columns))
            except StopIteration:
                return
            except (CallError, csv.Error) as error:
                row += isinstance(error, csv.Error) or lines.failed
                yield BadRow("", row, _at_line(error, first_line), dict(zip(header, cells, strict=False)))

    def _item(self, task: object, row: int) -> Item:
        if not isinstance(task, Mapping):
            raise CallError("bad_task", "not a task; write an object with at least `goal`")
        fields = dict(cast("Mapping[str, object]", task))
        if fields.keys() >= {"handle", "verdict"}:
            hint = "name the file of tasks; `--resume last` goes on with a batch"
            raise CallError("bad_task", "this is a result of a batch, not a task", hint=hint)
        id, needs, when = fields.pop("id", row), fields.pop("needs", ()), fields.pop("when", "passed")
        read = self.read_task(fields, base=self.path.parent)
        if when not in get_args(When):
            raise CallError("bad_when", f"`when` is {when!r:.60}; use `passed` or `always`", field="when")
        return Item(_id(id), read, row, _needs(needs), cast("When", when), _goal_of(fields))

    def _header(self, lines: "_Lines") -> "tuple[list[str], Iterator[list[str]]]":
        with located(f"{self.name}: the header"):
            first = next(lines, None)
        if first is None:
            raise self._empty_error()
        delimiter = max(",;\t", key=first.count)
        header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
        if duplicates := [name for name in header if header.count(name) > 1]:
            message = f"{self.name}: two columns are named {duplicates[0]!r}; rename one of them"
            raise CallError("bad_header", message, field=duplicates[0])
        return header, csv.reader(lines, delimiter=delimiter, strict=True)

    def _read_document(self) -> list[object]:
        if self.path.stat().st_size > LARGEST_DOCUMENT:
            message = f"{self.name} is larger than {LARGEST_DOCUMENT >> 20} MB, the limit for a JSON or YAML file"
            raise CallError("too_large", message, hint="write one task per line into a .jsonl file")
        text = self.path.read_bytes().removeprefix(_BOM)
        if not text.strip():
            raise self._empty_error()
        try:
            with located(self.name):
                document = _loads(text.decode(), "json" if self.path.suffix.lower() == ".json" else "yaml")
        except UnicodeDecodeError:
            message = f"{self.name} can't be read: not UTF-8"
            raise CallError("unreadable_file", message, hint="save it as UTF-8") from None
        return tasks_in(document, self.name)

    def _empty_error(self) -> CallError:
        return CallError("empty", f"{self.name} is empty; write at least one task into it")


def tasks_in(document: object, name: str) -> list[object]:
    """The tasks of a document: a list, or an object with the list as `tasks`. Raises CallError with the `name`."""
    if isinstance(document, Mapping):
        table = cast("Mapping[str, object]", document)
        if "results" in table and "tasks" not in table:
            raise CallError("bad_task", f"{name}: these are results, not tasks", hint="name the file of tasks")
        if others := sorted(str(key) for key in table if key != "tasks"):
            message = f"{name}: unknown key {others[0]!r}; remove it, the only key allowed here is `tasks`"
            raise CallError("bad_task", message, field=others[0])
        document = table.get("tasks")
    if not isinstance(document, list):
        raise no_tasks(name)
    return cast("list[object]", document)


def no_tasks(name: str) -> CallError:
    message = f"{name}: there are no tasks; write a list of tasks, or an object with the list as `tasks`"
    return CallError("bad_task", message)


class _Lines(Iterator[str]):
    """Iterates over the lines of a file as text, and can continue after a line that raised CallError."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._skip = False
        self.number = 0
        self.failed = False

    def __next__(self) -> str:
        while self._skip:
            part = self._file.readline(LONGEST_LINE)
            self._skip = bool(part) and not part.endswith(b"\n")
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
            raise CallError("too_large", message, hint="write long text to a file and name its path")
        try:
            text = line.removeprefix(_BOM).decode() if self.number == 1 else line.decode()
        except UnicodeDecodeError:
            raise CallError("unreadable_row", "the line is not UTF-8", hint="save the file as UTF-8") from None
        if "\0" in text:
            raise CallError("unreadable_row", "the line contains a NUL character")
        return text


def _at_line(error: CallError | csv.Error, line: int) -> CallError:
    """The error with its line, which differs from the row number if fields span several lines."""
    if isinstance(error, CallError):
        return CallError(error.code, f"{error.message} (line {line})", field=error.field, hint=error.hint)
    reason = str(error)
    if "field limit" in reason or "unexpected end" in reason:
        reason = "a quote is never closed, or a field is longer than 131,072 characters"
    return CallError("bad_row", f"{reason} (line {line})")


def _goal_of(task: object) -> dict[str, str]:
    goal = cast("Mapping[str, object]", task).get("goal") if isinstance(task, Mapping) else None
    return {"goal": goal} if isinstance(goal, str) else {}


def _id(value: object) -> str:
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not text.strip() or len(text) > LONGEST_ID or not text.isprintable():
        message = f"id {value!r:.60} is invalid; use up to {LONGEST_ID} printable characters, or an integer"
        raise CallError("bad_id", message, field="id")
    return text


def _needs(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple)):
        return tuple(dict.fromkeys(_id(id) for id in cast("Sequence[object]", value)))
    raise CallError("bad_needs", "`needs` is not a list of ids", field="needs", hint='write ["id of a task", …]')


def _loads(text: str, format: Format) -> object:
    try:
        return loads(text, format)
    except ValueError as error:
        code = "invalid_yaml" if format == "yaml" else "invalid_json"
        raise CallError(code, f"not valid {format.upper()}: {error}") from None

"""Writes the results file: one line per task with the verdict first, appended as each outcome arrives.

An outcome is in the journal before its line is written, so the file can be rebuilt from the journal. A resumed batch
rebuilds it in a temporary file that then replaces the old one. Each task with an outcome therefore has exactly one
line, no matter when the batch was killed and what is run again. While a batch runs, each line is appended with a single
write: a reader sees complete lines, except for a last one without a newline if the process was killed while writing.
"""

import codecs
import csv
import io
import json
import os
import re
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from delegate.batch.item import ItemOutcome
from delegate.judging.citations.columns import is_source_of, named_after
from delegate.types import HOLDING, Verdict
from delegate.types.errors import CallError, DelegateError

COLUMNS = (
    "verdict", "id", "row", "state", "status", "code", "reasoning", "report", "structured_output", "why", "level",
    "verified", "score", "model", "cost_usd", "verification_share", "seconds", "workspace", "handle", "criteria",
    "citations",
)  # fmt: skip
"""The fields of a line, in order. `criteria` and `citations` are lists with an object for each one."""
OUTPUTS = 200
"""Maximum number of columns for fields of structured outputs; all fields are in `structured_output`."""
_OF_RESULT = {
    "status", "structured_output", "model", "cost_usd", "verification_share", "seconds", "workspace", "handle",
}  # fmt: skip
_OF_VERDICT = {"verdict", "code", "reasoning", "level", "verified", "score"}
_OF_CRITERION = {"id", "outcome", "decided_by", "code", "reason", "evidence", "source", "level", "held_before"}
_OF_CITATION = {"source", "state", "field", "statement", "receipt"}
SUFFIXES = (".jsonl", ".ndjson", ".csv")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "＝", "＋", "－", "＠")
"""Text in a cell that begins so, and is no number, is a formula to a spreadsheet (OWASP: "CSV Injection")."""
_NUMBER = re.compile(r"[+-][0-9.,]*[0-9](?:[eE][+-]?[0-9]+)?%?")


def fields(outcome: ItemOutcome) -> dict[str, Any]:
    """The fields of one line, of which `input` is what the file of tasks said in this row."""
    result, verdict = outcome.result, outcome.result.verdict if outcome.result else None
    after_row = COLUMNS.index("row") + 1
    line: dict[str, Any] = dict.fromkeys((*COLUMNS[:after_row], "input", *COLUMNS[after_row:]))
    line.update(id=outcome.id, row=outcome.row, state=outcome.state, why=outcome.why, input=dict(outcome.input))
    if result is not None:
        line |= result.model_dump(include=_OF_RESULT)
        line["report"] = result.report
        line["why"] = outcome.why or (f"{result.error.code}: {result.error.message}" if result.error else "")
    if verdict is not None:
        line |= verdict.model_dump(include=_OF_VERDICT)
        line["criteria"] = [
            criterion.model_dump(mode="json", include=_OF_CRITERION)
            | {"about": str(criterion.reading) if criterion.reading else None}
            for criterion in verdict.criteria
        ]
        cited = [citation for criterion in verdict.criteria for citation in criterion.citations]
        line["citations"] = [citation.model_dump(include=_OF_CITATION) for citation in cited] or None
    return line


def without_sources(names: Sequence[str]) -> list[str]:
    """The fields of an output but those that only say where another one is from, as `ceo_source` beside `ceo`."""
    return [name for name in names if not any(is_source_of(name, other) for other in names)]


def _source_of(name: str, names: Sequence[str], verdict: Verdict | None) -> str | None:
    """The source of a field: one that holds and is cited for it, or else one that is cited for none alone."""
    criteria = verdict.criteria if verdict else ()
    held = [each for criterion in criteria for each in criterion.citations if each.state in HOLDING]
    fields = list(names)

    def cites_for(column: str) -> list[str]:
        itself = [field for field in fields if column == field or column.startswith(f"{field}.")]
        return itself or [fields[n] for n in named_after(column, fields)]

    own = [each for each in held if name in cites_for(each.field)]
    of_all = [each for each in held if not cites_for(each.field)]
    return next((each.source for each in own or of_all), None)


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a CSV of results: those of `COLUMNS`, after `row` those of the input, and after `report` one
    `output.NAME` for each field of a structured output, followed by `source.NAME` if sources must be cited for it.

    A column of the input keeps its name, unless a column of the results has it, or it begins with `input.`, `output.`
    or `source.`: it is `input.NAME` then. The input's `id` is the `id` of the results.
    """

    inputs: Sequence[str] = ()
    """The columns of the tasks' file."""
    outputs: Sequence[str] = ()
    """The fields that the tasks' output schemas describe, in their order."""
    cited: Sequence[str] = ()
    """Those of them for which a task must cite sources."""

    @property
    def header(self) -> list[str]:
        cited = {name: [f"source.{name}"] for name in self.cited}
        more = {
            "row": [_column_of_input(name) for name in self.inputs if name != "id"],
            "report": [column for name in self.outputs for column in (f"output.{name}", *cited.get(name, ()))],
        }
        return [column for name in COLUMNS for column in (name, *more.get(name, ()))]

    def cells(self, outcome: ItemOutcome) -> list[object]:
        """The cells of one outcome, each safe in a spreadsheet."""
        line = fields(outcome)
        reasoning, error = line["reasoning"] or "", outcome.result and outcome.result.error
        if error and error.message in reasoning:  # what it says isn't said again
            line["why"] = error.code
        for criterion in line["criteria"] or ():
            if criterion["reason"] in reasoning:
                del criterion["reason"]
        output = line["structured_output"]
        structured = cast("dict[str, object]", output) if isinstance(output, dict) else dict[str, object]()
        line["structured_output"] = None if output is None else json.dumps(output, ensure_ascii=False)
        if line["cost_usd"] is not None:
            line["cost_usd"] = float(f"{line['cost_usd']:.4g}")
        verdict = outcome.result.verdict if outcome.result else None
        line |= {_column_of_input(name): value for name, value in line.pop("input").items()}
        line |= {f"output.{name}": structured.get(name) for name in self.outputs}
        line |= {f"source.{name}": _source_of(name, self.cited, verdict) for name in self.cited}
        return [_cell(line.get(column)) for column in self.header]


def _column_of_input(name: str) -> str:
    is_reserved = name in (*COLUMNS, "") or name.startswith(("input.", "output.", "source."))
    return f"input.{name}" if is_reserved else name


class ResultsFile:
    """A results file in JSONL or CSV format, depending on its suffix. Raises CallError if it can't be written."""

    def __init__(self, path: Path, *, bom: bool | None = None) -> None:
        """`bom`: whether a CSV begins with a byte order mark. None: on Windows."""
        if path.suffix.lower() not in SUFFIXES:
            message = f"{path}: can't tell the format of the results; use a name that ends in {', '.join(SUFFIXES)}"
            raise CallError("bad_results", message, field="results")
        if not path.absolute().parent.is_dir():
            raise CallError("bad_results", f"{path}: the folder doesn't exist", field="results", hint="create it first")
        self.path = path
        self._bom = codecs.BOM_UTF8 if (os.name == "nt" if bom is None else bom) else b""
        self._is_csv = path.suffix.lower() == ".csv"
        self._table = Table()
        self._file: int | None = None

    @contextmanager
    def created(self, table: Table | None = None) -> Generator[None]:
        """Create a new file, and delete it if the block fails. Raises CallError if the file exists and isn't empty.

        `table` are the columns of a CSV.
        """
        self.refuse_existing()
        self._open(self.path)
        try:
            self._append_header(table)
            yield
        except BaseException:
            self.close()
            self.path.unlink(missing_ok=True)
            raise

    def refuse_existing(self) -> None:
        """Raise CallError if the file exists and isn't empty."""
        if self.path.exists() and self.path.stat().st_size:
            hint = "name another file, or resume its batch with --resume"
            raise CallError("results_exist", f"{self.path} exists and isn't empty", field="results", hint=hint)

    async def rewrite(self, outcomes: AsyncIterator[ItemOutcome], table: Table | None = None) -> None:
        """Replace the file with one that holds these outcomes, which are all that are on record."""
        temporary = self.path.with_name(f".{self.path.name}.new")
        with suppress(OSError):
            temporary.unlink()  # a link that a child left here would lead to another file
        file = self._open(temporary, os.O_EXCL)
        self._append_header(table)
        async for outcome in outcomes:
            self.add(outcome)
        os.fsync(file)
        os.replace(temporary, self.path)

    def add(self, outcome: ItemOutcome) -> None:
        """Append one line. Raises DelegateError if the disk is full, for example; no part of the line remains."""
        if self._is_csv:
            self._append(_csv_row(self._table.cells(outcome)))
        else:
            self._append(f"{_ENCODER.encode(fields(outcome))}\n".encode("utf-8", "replace"))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self, path: Path, flags: int = 0) -> int:
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | flags, 0o666)
        except OSError as error:
            message = f"{self.path} can't be written: {error.strerror}"
            raise CallError("bad_results", message, field="results") from None
        return self._file

    def _append_header(self, table: Table | None) -> None:
        self._table = table or self._table
        if self._is_csv:
            self._append(self._bom + _csv_row(map(_cell, self._table.header)))

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        size = os.fstat(self._file).st_size
        try:
            count = os.write(self._file, data)
            if count == len(data):
                return
            reason = "no space left"
        except OSError as error:
            reason = str(error.strerror)
        os.ftruncate(self._file, size)
        raise DelegateError(f"{self.path} can't be written: {reason}; resume the batch to write it again")


_ENCODER = json.JSONEncoder(ensure_ascii=False)


def _cell(value: object) -> object:
    """Text, with an apostrophe before what a spreadsheet would read as a formula; lists and objects as JSON."""
    if isinstance(value, (list, tuple, Mapping)):
        return json.dumps(value, ensure_ascii=False)
    is_formula = isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value


def _csv_row(cells: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8", "replace")

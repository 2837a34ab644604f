"""The file of results: one line per task, the verdict first, written as each outcome comes.

The journal holds every outcome before its line is written, so the file can always be made from it anew, and a resumed
batch does just that: into a file beside, which then takes the old one's place. However the batch was killed, before a
line, in the middle of it or after it, and whatever is run again, each task with an outcome has exactly one line then.
While a batch runs, each line is one write at the end of the file: a reader sees whole lines only, but for a last one
without its newline where the process was killed within the write itself.
"""

import csv
import io
import json
import os
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from delegate.batch.item import ItemOutcome
from delegate.errors import CallError, DelegateError
from delegate.types import Verdict

COLUMNS = (
    "verdict", "id", "row", "state", "status", "code", "reasoning", "output", "structured_output", "why", "verified",
    "score", "model", "cost_usd", "verification_share", "seconds", "workspace", "handle", "criteria",
)  # fmt: skip
"""The fields of a line, in their order. `criteria` is one object per criterion; all else is flat."""
SUFFIXES = (".jsonl", ".ndjson", ".csv")
_NESTED = ("structured_output", "criteria")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def fields(outcome: ItemOutcome) -> dict[str, Any]:
    """One line's fields."""
    result, verdict = outcome.result, outcome.result.verdict if outcome.result else None
    line: dict[str, Any] = dict.fromkeys(COLUMNS)
    line.update(id=outcome.id, row=outcome.row, state=outcome.state, why=outcome.why)
    if result is not None:
        line.update(
            status=result.status,
            output=result.summary,
            structured_output=result.structured_output,
            model=result.model,
            cost_usd=result.cost_usd,
            verification_share=result.verification_share,
            seconds=result.seconds,
            workspace=result.workspace,
            handle=result.handle,
        )
        line["why"] = outcome.why or (f"{result.error.code}: {result.error.message}" if result.error else "")
    if verdict is not None:
        line.update(
            verdict=verdict.verdict,
            code=verdict.code,
            reasoning=verdict.reasoning,
            verified=verdict.verified,
            score=verdict.score,
            criteria=_criteria(verdict),
        )
    return line


def _criteria(verdict: Verdict) -> list[dict[str, Any]]:
    names = {"id", "outcome", "decided_by", "code", "reason", "evidence", "source"}
    return [one.model_dump(mode="json", include=names) for one in verdict.criteria]


class ResultsFile:
    """Writes to `path`, as JSONL or CSV by its name. Raises CallError where that can't be: see `refuse_unusable`."""

    def __init__(self, path: Path) -> None:
        refuse_unusable(path)
        self.path = path
        self._line: Callable[[ItemOutcome], bytes] = _csv_line if path.suffix.lower() == ".csv" else _json_line
        self._file: int | None = None

    @contextmanager
    def created(self) -> Generator[None]:
        """Begin a new file, which is gone again where the block fails. Raises CallError as `create` does."""
        self.create()
        try:
            yield
        except BaseException:
            self.close()
            self.path.unlink(missing_ok=True)
            raise

    def create(self) -> None:
        """Begin a new file. Raises CallError where there is one that holds something."""
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _unwritable(self.path, error) from None
        if os.fstat(self._file).st_size:
            self.close()
            hint = "name another file, or go on with its batch by --resume"
            raise CallError("results_exist", f"{self.path} exists and isn't empty", field="results", hint=hint)
        self._append(self._head())

    async def rewrite(self, outcomes: AsyncIterator[ItemOutcome]) -> None:
        """Make the file anew from all outcomes on record, in place of what was there."""
        beside = self.path.with_name(f".{self.path.name}.new")
        try:
            self._file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _unwritable(self.path, error) from None
        self._append(self._head())
        async for outcome in outcomes:
            self.add(outcome)
        os.fsync(self._file)
        os.replace(beside, self.path)

    def add(self, outcome: ItemOutcome) -> None:
        """Write one line. Raises DelegateError where the disk is full or the like; then nothing of it stays."""
        self._append(self._line(outcome))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _head(self) -> bytes:
        return _csv_row(COLUMNS) if self.path.suffix.lower() == ".csv" else b""

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
            if written == len(data):
                return
            reason = "no space left"
        except OSError as error:
            reason = str(error.strerror)
        os.ftruncate(self._file, size)
        raise DelegateError(f"{self.path} can't be written: {reason}; all outcomes so far are on record")


def refuse_unusable(path: Path) -> None:
    """Raise CallError where results can't be written to a file of this name."""
    if path.suffix.lower() not in SUFFIXES:
        message = f"{path}: can't tell the format of the results; the name must end in {', '.join(SUFFIXES)}"
        raise CallError("bad_results", message, field="results")
    if not path.absolute().parent.is_dir():
        raise CallError("bad_results", f"{path}: there is no such folder", field="results", hint="make it first")


def _unwritable(path: Path, error: OSError) -> CallError:
    return CallError("bad_results", f"{path} can't be written: {error.strerror}", field="results")


_ENCODER = json.JSONEncoder(ensure_ascii=False)


def _json_line(outcome: ItemOutcome) -> bytes:
    return (_ENCODER.encode(fields(outcome)) + "\n").encode("utf-8", "replace")


def _csv_line(outcome: ItemOutcome) -> bytes:
    line = fields(outcome)
    nested = {name: json.dumps(line[name], ensure_ascii=False) for name in _NESTED if line[name] is not None}
    return _csv_row([_cell(value) for value in (line | nested).values()])


def _cell(value: object) -> object:
    """A text that a spreadsheet would take for a formula gets an apostrophe before it, which it doesn't show."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _csv_row(cells: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8", "replace")

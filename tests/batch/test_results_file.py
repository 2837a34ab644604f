"""The results file: complete lines only, rebuilt from the journal."""

import codecs
import csv
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from delegate import CallError, DelegateError, TaskResult
from delegate.batch.item import ItemOutcome
from delegate.batch.results_file import COLUMNS, ResultsFile
from tests.batch.rows import ids, lines


def _outcome(id: str, report: str = "done") -> ItemOutcome:
    return ItemOutcome(id, "done", TaskResult(verdict=None, task_index=0, status="completed", report=report), row=1)


async def _all(*outcomes: ItemOutcome) -> AsyncIterator[ItemOutcome]:
    for outcome in outcomes:
        yield outcome


def test_a_csv_has_a_header_and_escapes_formulas() -> None:
    file = ResultsFile(Path("r.csv"))
    with file.created():
        file.add(_outcome("a", '=HYPERLINK("http://x")\nsecond line'))
    file.close()
    with Path("r.csv").open(newline="") as text:
        (row,) = csv.DictReader(text)
    assert tuple(row) == COLUMNS
    assert row["report"] == '\'=HYPERLINK("http://x")\nsecond line'


@pytest.mark.parametrize("name", ["r.csv", "r.jsonl"])
def test_a_csv_for_excel_begins_with_a_byte_order_mark(name: str) -> None:
    file = ResultsFile(Path(name), bom=True)
    with file.created():
        file.add(_outcome("a", "Zoë"))
    file.close()
    assert Path(name).read_bytes().startswith(codecs.BOM_UTF8) == (name == "r.csv")
    assert Path(name).read_bytes().count(codecs.BOM_UTF8) == (name == "r.csv")


def test_a_file_that_is_not_empty_is_not_overwritten() -> None:
    Path("r.jsonl").write_text("mine\n")
    with pytest.raises(CallError, match="exists and isn't empty"), ResultsFile(Path("r.jsonl")).created():
        pass
    assert Path("r.jsonl").read_text() == "mine\n"


@pytest.mark.parametrize("name", ["r.txt", "no/such/r.csv"])
def test_an_unusable_results_path_is_refused_at_once(name: str) -> None:
    with pytest.raises(CallError, match=r"r\."):
        ResultsFile(Path(name))


async def test_rewriting_removes_partial_and_duplicate_lines() -> None:
    path = Path("r.jsonl")
    path.write_text('{"id": "a"}\n{"id": "a"}\n{"id": "b", "torn')
    file = ResultsFile(path)
    await file.rewrite(_all(_outcome("a"), _outcome("b")))
    assert ids(lines(path)) == ["a", "b"]
    file.add(_outcome("c"))
    file.close()
    assert ids(lines(path)) == ["a", "b", "c"]
    assert [found.name for found in Path().iterdir()] == ["r.jsonl"]


async def test_rewriting_writes_past_a_link_that_a_child_left() -> None:
    Path("mine.txt").write_text("mine")
    Path(".r.jsonl.new").symlink_to("mine.txt")
    file = ResultsFile(Path("r.jsonl"))
    await file.rewrite(_all(_outcome("a")))
    file.close()
    assert (ids(lines(Path("r.jsonl"))), Path("mine.txt").read_text()) == (["a"], "mine")


def test_no_part_of_a_line_remains_if_the_disk_is_full() -> None:
    path, limits = Path("r.jsonl"), resource.getrlimit(resource.RLIMIT_FSIZE)
    file = ResultsFile(path)
    with file.created():
        file.add(_outcome("a"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 200, limits[1]))
    try:
        with pytest.raises(DelegateError, match="can't be written") as error:
            file.add(_outcome("b", "x" * 5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    file.close()
    assert "resume the batch to write it again" in str(error.value)
    assert ids(lines(path)) == ["a"]

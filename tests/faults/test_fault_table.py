"""Whatever a model server does, each task gets exactly one result, in time, and it says what happened."""

import asyncio
from pathlib import Path

import pytest

from tests.faults.document import document
from tests.faults.faults import Row
from tests.faults.measure import measure

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "faults.md"


@pytest.mark.timeout(240)
async def test_every_fault_ends_as_it_should_and_only_where_it_happened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = await measure(tmp_path)

    assert [problem for one in found for problem in one.problems()] == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_the_table_in_the_docs_is_that_of_the_suite() -> None:
    mend = "run `PYTHONPATH=. python scripts/write_faults.py`"
    assert DOCUMENT.read_text(encoding="utf-8") == document(Row.expected), mend

"""Runs of many tasks: a screen and a report show a page of them, and no task costs more than the first ones."""

import asyncio
import html
import itertools
import json
import re
import time
from pathlib import Path

import pytest

from delegate import Delegator
from delegate.pages import reading
from delegate.pages.page import run_page
from delegate.pages.reading import RunReader
from tests.batch.rows import Children, tasks
from tests.cli.command import delegate
from tests.pages.recorded import large_batch

PAGE_TASKS = 160
"""Of a page of the report, which usually has room for more."""
ROWS = PAGE_TASKS + 80
FAILED = ROWS // 4


@pytest.fixture
def run_id(home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(reading, "PAGE_TASKS", PAGE_TASKS)
    return asyncio.run(large_batch(home, ROWS))


def test_a_long_run_has_pages_of_which_the_reports_first_has_what_did_not_pass(run_id: str, home: Path) -> None:
    first, last = delegate("show", "last").stdout, delegate("show", "last", "--page", "3").stdout
    assert len(first.splitlines()) < 110
    assert len(first) < 20_000
    assert "1 to 100 of 240 tasks, 180 of them PASS; the next: delegate show last --page 2" in first
    assert first.splitlines()[2].split()[0] == "1"
    assert "201 to 240 of 240 tasks" in last
    assert "the next" not in last
    failed = delegate("show", "last", "--failed").stdout
    assert failed.count("FAIL  ") == 20
    assert f"1 to 20 of {FAILED} tasks; the next: delegate show last --failed --page 2" in failed
    refused = delegate("show", "last", "--page", "4")
    assert (refused.returncode, "the last one is 3" in refused.stderr) == (2, True)
    assert len(json.loads(delegate("show", "last", "--format", "json").stdout)) == ROWS
    page = json.loads(delegate("show", "last", "--format", "json", "--page", "2").stdout)
    assert [task["task_index"] for task in page] == list(range(100, 200))
    (run,) = json.loads(delegate("runs", "--format", "json").stdout)
    assert (run["tasks"], run["passed"], run["failed"]) == (ROWS, ROWS - FAILED, FAILED)
    written = delegate("page", "last")
    assert "page 1 of 2" in written.stdout
    page = html.unescape(Path("page.html").read_text())
    assert f"{ROWS - FAILED:,} of {ROWS:,} PASS" in page, "the headline is that of all"
    assert f"`delegate page {run_id} --page 2` writes the next one" in page
    assert page.count('<details class="task ') == PAGE_TASKS
    assert page.count('<span class="chip fail">FAIL') == FAILED
    assert delegate("page", "last", "--page", "2", "-o", "2.html").returncode == 0
    second = Path("2.html").read_text()
    assert (second.count('<details class="task '), second.count('<span class="chip fail">FAIL')) == (80, 0)
    assert "the last one is 2" in delegate("page", "last", "--page", "3", "-o", "3.html").stderr
    assert re.findall(r'<a href="\?page=(\d)">', asyncio.run(served(home, run_id, 2))) == ["1"]


async def served(home: Path, run_id: str, page: int) -> str:
    async with RunReader(home) as reader:
        return run_page(await reader.view(run_id, page), served=True).html


@pytest.mark.slow
async def test_each_task_of_a_batch_costs_as_much_as_the_first_ones(home: Path) -> None:
    each, marks = 300, list[float]()
    async with Delegator(client=Children(), home=home) as delegator:
        done = 0
        async for _ in delegator.batches.run(
            tasks(*(f"t{n}" for n in range(4 * each))), concurrency=20, results="r.jsonl"
        ):
            done += 1
            if done % each == 0:
                marks.append(time.process_time())
    first, _, last = (after - before for before, after in itertools.pairwise(marks))
    assert last < 1.7 * first

"""A row that is damaged is listed as such, and every reader still reads the others."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from delegate.pages.reading import RunReader
from delegate.records.history import Records, _Retention  # pyright: ignore[reportPrivateUsage]
from tests.cli.command import delegate
from tests.pages import recorded
from tests.support.samples import sampled
from tests.support.words import words

DAMAGE: dict[str, tuple[str, Any]] = {
    "truncated task": ("task", '{"goal": "on'),
    "truncated run": ("run", '{"status": "comp'),
    "truncated result": ("result", '{"status": "comp'),
    "a list as result": ("result", "[1, 2]"),
    "a number as task": ("task", 7),
    "bytes as task": ("task", b"\xff\xfe\x00"),
    "invalid UTF-8": ("task", "CAST(x'7b22676f616c223a22ff' AS TEXT)"),
    "a text as time": ("began_at", "yesterday"),
    "a text as end": ("ended_at", "today"),
    "a text as cost": ("cost_usd", "much"),
    "an unknown status": ("status", "perfect"),
    "an unknown verdict": ("verdict", "MAYBE"),
    "a text as index": ("task_index", "first"),
    "bytes as process": ("process", b"12"),
    "an impossible process": ("process", "x/y"),
    "a huge number": ("process", "9" * 40),
    "bytes as workspace": ("workspace", b"\xff"),
    "nothing as goal": ("task", "{}"),
    "deep JSON": ("task", '{"goal": ' + "[" * 100_000),
    "a huge goal": ("task", json.dumps({"goal": "x" * 5_000_000})),
}


@pytest.fixture
async def handles(home: Path) -> tuple[str, str]:
    """Two runs of one task each."""
    criterion = {"kind": "regex", "pattern": "work"}
    tasks = ({"goal": goal, "acceptance_criteria": [criterion]} for goal in ("whole", "damaged"))
    results = [await recorded.run(words(recorded.child()), task) for task in tasks]
    return tuple(str(result.results[0].handle) for result in results)  # type: ignore[return-value]


def damage(home: Path, handle: str, column: str, value: Any) -> None:
    with closing(sqlite3.connect(home / "records.sqlite3")) as connection, connection:
        if isinstance(value, str) and value.startswith("CAST("):
            connection.execute(f"UPDATE tasks SET {column} = {value} WHERE handle = ?", (handle,))
        else:
            connection.execute(f"UPDATE tasks SET {column} = ? WHERE handle = ?", (value, handle))


@pytest.mark.parametrize("what", sampled(DAMAGE, 3))
async def test_every_reader_reads_the_others(what: str, home: Path, handles: tuple[str, str]) -> None:
    whole, damaged = handles
    damage(home, damaged, *DAMAGE[what])
    run_ids = {handle: handle.rpartition("-")[0] for handle in handles}
    records = Records(home)
    try:
        runs = {run.run_id: run for run in await records.runs()}
        assert runs[run_ids[whole]].goal == "whole"
        assert runs[run_ids[damaged]].tasks == 1
        (task,) = await records.tasks(run_ids[damaged])
        assert task.handle == damaged
        record = await records.read(damaged)
        assert record is not None
        assert record["handle"] == damaged
        assert {*await records.endings(handles)} == {*handles}
        assert [handle for handle, *_ in await records.verdicts() if handle == whole] == [whole]
        await records.draw(None)
        assert isinstance(await records.past_tasks("any"), list)
        assert await records.rulings() == []
    finally:
        await records.aclose()
    async with RunReader(home) as reader:
        assert {line.run_id for line in await reader.runs()} == {*run_ids.values()}
        await reader.view(run_ids[damaged])
        await reader.view(run_ids[whole])
    with closing(sqlite3.connect(home / "records.sqlite3")) as connection:
        _Retention(home / "workspaces", 0, None).step(connection)


@pytest.mark.parametrize("what", ["truncated task", "truncated result", "a text as time", "an unknown status"])
async def test_the_damage_is_shown(what: str, home: Path, handles: tuple[str, str]) -> None:
    damage(home, handles[1], *DAMAGE[what])
    records = Records(home)
    try:
        (task,) = await records.tasks(handles[1].rpartition("-")[0])
        record = await records.read(handles[1])
        assert record is not None
        assert "damaged" in (task.state, record["state"])
    finally:
        await records.aclose()


def test_the_commands_show_the_others_and_exit_with_1(home: Path, handles: tuple[str, str]) -> None:
    damage(home, handles[1], *DAMAGE["truncated task"])
    listed = delegate("runs", "--format", "json")
    assert {run["goal"]: run["state"] for run in json.loads(listed.stdout)} == {
        "whole": "ended",
        "(can't be read: the record is damaged)": "damaged",
    }
    assert listed.returncode == 1
    assert "damaged" in delegate("show", handles[1]).stdout
    for command in (["show", handles[0]], ["page", handles[0]], ["export", "--format", "atif", handles[0]]):
        assert delegate(*command).returncode == 0, command


@pytest.mark.parametrize("data", ["{", b"\xff", 7, "[]"])
async def test_damaged_events_and_rulings_are_left_out(home: Path, handles: tuple[str, str], data: Any) -> None:
    with closing(sqlite3.connect(home / "records.sqlite3")) as connection, connection:
        connection.execute("UPDATE events SET data = ? WHERE rowid = (SELECT MIN(rowid) FROM events)", (data,))
        columns = [row[1] for row in connection.execute("PRAGMA table_info(rulings)")]
        ruling = dict.fromkeys(columns, data) | {"task": handles[0], "criterion": "c1"}
        connection.execute(f"INSERT INTO rulings VALUES ({', '.join('?' * len(columns))})", [*ruling.values()])
    records = Records(home)
    try:
        record = await records.read(handles[0])
        assert record is not None
        assert record["events"]
        assert await records.rulings() == await records.rulings(handles[0]) == await records.false_passes() == []
    finally:
        await records.aclose()

"""What is on record of batches: each item is journalled before it starts, and its outcome before anybody gets it.

It lies beside the records, in a file of its own: so its commits don't wait for those of the children's events, and what
removes old records by size doesn't count it. A batch belongs to one process at a time. What a process that is gone had
begun, and not ended, is `outcome_unknown` from the next `claim` on, and is never run again by itself.
"""

import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast

from delegate._util.processes import is_alive, this_process
from delegate.batch.item import Item, ItemOutcome, ItemState
from delegate.errors import CallError, DelegateError
from delegate.records.history import DAY
from delegate.records.sqlite import Store
from delegate.types import TaskResult

T = TypeVar("T")
Rerun = Literal["unknown", "fail"]
"""What a person may ask to be run again: what was in flight, or what has failed or a FAIL."""
LeftOut = Literal["blocked", "bad_row"]
LEFT_OUT: tuple[LeftOut, ...] = ("blocked", "bad_row")
"""States of items that were never run, which are looked at anew when their batch is resumed."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS batches (
    run_id TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    source TEXT NOT NULL,
    results TEXT,
    options TEXT NOT NULL,
    title TEXT NOT NULL,
    total INTEGER NOT NULL,
    process TEXT NOT NULL,
    began_at REAL NOT NULL,
    ended_at REAL
);
CREATE INDEX IF NOT EXISTS batches_by_digest ON batches (digest);
CREATE TABLE IF NOT EXISTS items (
    run_id TEXT NOT NULL,
    id TEXT NOT NULL,
    row INTEGER,
    state TEXT NOT NULL,
    good INTEGER,
    verdict TEXT,
    cost_usd REAL NOT NULL DEFAULT 0,
    spent_before_usd REAL NOT NULL DEFAULT 0,
    unpriced INTEGER NOT NULL DEFAULT 0,
    why TEXT NOT NULL DEFAULT '',
    result TEXT,
    PRIMARY KEY (run_id, id)
);
CREATE INDEX IF NOT EXISTS items_by_run ON items (run_id);
"""

_CREATE = "INSERT INTO batches SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL"
_ONCE = " WHERE NOT EXISTS (SELECT 1 FROM batches WHERE digest = ?)"
_BATCH = "SELECT run_id, digest, source, results, options, title, total, process, began_at, ended_at FROM batches"
_CLAIM = (
    "UPDATE batches SET process = ?, ended_at = NULL, results = COALESCE(?, results) WHERE run_id = ? AND process = ?"
)
_ENDED = "UPDATE batches SET ended_at = ?, process = '' WHERE run_id = ?"
_BEGIN = """
INSERT INTO items (run_id, id, row, state) VALUES (?, ?, ?, 'begun')
ON CONFLICT (run_id, id) DO UPDATE SET state = 'begun' WHERE state = 'again'
"""
_TAKE_BACK = "UPDATE items SET state = 'again' WHERE run_id = ? AND id = ? AND state = 'begun'"
_END = """
INSERT INTO items (run_id, id, row, state, good, verdict, cost_usd, unpriced, why, result)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, id) DO UPDATE SET state = excluded.state, good = excluded.good, verdict = excluded.verdict,
    cost_usd = excluded.cost_usd, unpriced = excluded.unpriced, why = excluded.why, result = excluded.result
"""
_LOST = "UPDATE items SET state = 'outcome_unknown', why = ? WHERE run_id = ? AND state = 'begun'"
_AGAIN = """
UPDATE items SET state = 'again', spent_before_usd = spent_before_usd + cost_usd, cost_usd = 0, good = NULL,
    verdict = NULL, result = NULL WHERE run_id = ? AND ({which})
"""
_WHICH: dict[str, str] = {
    "unknown": "state = 'outcome_unknown'",
    "fail": "state = 'done' AND NOT good",
    "blocked": "state = 'blocked'",
    "bad_row": "state = 'bad_row'",
}
_PAGE = """
SELECT rowid, id, state, row, why, result FROM items
WHERE run_id = ? AND rowid > ? AND state NOT IN ('begun', 'again') ORDER BY rowid LIMIT 100
"""
_COUNTS = """
SELECT COUNT(*) FILTER (WHERE good AND verdict = 'PASS'), COUNT(*) FILTER (WHERE verdict = 'FAIL'),
    COUNT(*) FILTER (WHERE state = 'outcome_unknown'), COUNT(*) FILTER (WHERE state NOT IN ('begun', 'again')),
    COUNT(*) FILTER (WHERE state = 'begun'), COUNT(*) FILTER (WHERE good),
    COALESCE(SUM(cost_usd + spent_before_usd), 0), COALESCE(SUM(unpriced), 0)
FROM items WHERE run_id = ?
"""
_FORGET = (
    "DELETE FROM items WHERE run_id IN (SELECT run_id FROM batches WHERE began_at < ? AND ended_at IS NOT NULL)",
    "DELETE FROM batches WHERE began_at < ? AND ended_at IS NOT NULL",
)
_WHY_LOST = "it was at work when its process went away: it may have done anything"

BatchState = Literal["running", "ended", "stopped", "interrupted"]


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """What a batch is, as it is put on record."""

    run_id: str
    digest: str
    source: str
    results: str | None
    options: str
    """How its tasks are made of the source: a JSON object that only who wrote it reads."""
    title: str
    total: int


class BatchSummary(NamedTuple):
    """One batch in a line. Times are seconds since the epoch."""

    run_id: str
    state: BatchState
    """`ended`: every task has an outcome. `stopped`: it was, in good order. `interrupted`: its process went away."""
    source: str
    results: str | None
    options: str
    title: str
    digest: str
    began_at: float
    ended_at: float | None
    total: int
    settled: int
    """Tasks with an outcome."""
    passed: int
    failed: int
    unknown: int
    good: int
    """PASS, or completed without criteria."""
    cost_known_usd: float
    unpriced: bool
    """A part of the cost isn't known."""

    @property
    def left(self) -> int:
        """Tasks that haven't started."""
        return self.total - self.settled


class Journal:
    """Writes batches as they go, and reads them back. Raises DelegateError where it can't be written or read."""

    def __init__(self, home: Path, *, keep_days: float | None = None) -> None:
        self._store = Store(home / "batches.sqlite3", SCHEMA)
        self._keep_days = keep_days

    async def create(self, plan: BatchHeader, *, once: bool = False) -> None:
        """Put a new batch on record, of this process; and forget the old ones that have ended.

        With `once`, raises CallError `ran_before` where there is a batch of the same tasks.
        """
        if self._keep_days is not None:
            before = time.time() - self._keep_days * DAY
            await self._write(*((sql, (before,)) for sql in _FORGET))
        row = (plan.run_id, plan.digest, plan.source, plan.results, plan.options, plan.title, plan.total)
        values = (*row, this_process(), time.time())
        if not await self._write((_CREATE + _ONCE, (*values, plan.digest)) if once else (_CREATE, values)):
            raise _ran_before((await self.latest(1, digest=plan.digest))[0])

    async def claim(self, run_id: str, *, results: str | None = None) -> BatchSummary:
        """Make a batch this process's own; what was in flight reads `outcome_unknown` from now on.

        Raises CallError `unknown_batch`, or `batch_running` where a process that is alive has it.
        """
        row = await self._row(run_id)
        process = str(row[7])
        if process and is_alive(process):
            raise _running(run_id)
        if not await self._write((_CLAIM, (this_process(), results, run_id, process))):
            raise _running(run_id)
        await self._write((_LOST, (_WHY_LOST, run_id)))
        return await self.summary(run_id)

    async def release(self, run_id: str) -> None:
        """Put on record that its process is done with it, in good order."""
        await self._write((_ENDED, (time.time(), run_id)))

    async def begin(self, run_id: str, item: Item) -> None:
        """Write that an item begins. When this returns, nothing can hide that it did.

        Raises DelegateError also where it was begun before: then it isn't to be run.
        """
        if not await self._write((_BEGIN, (run_id, item.id, item.row))):
            raise DelegateError(f"task {item.id} of batch {run_id} was begun before")

    async def take_back(self, run_id: str, id: str) -> None:
        """Nothing was done of an item that was begun."""
        await self._write((_TAKE_BACK, (run_id, id)))

    async def end(self, run_id: str, outcome: ItemOutcome) -> None:
        """Write what came of an item."""
        result = outcome.result
        verdict = result.verdict.verdict if result and result.verdict else None
        cost = result.cost_known_usd if result else 0
        unpriced = result is not None and result.cost_usd is None
        head = (run_id, outcome.id, outcome.row, outcome.state, outcome.good, verdict, cost, unpriced, outcome.why)
        # Without the list of models that might have judged, which is most of a result and stays in the records.
        text = result.model_dump_json(exclude={"verdict": {"judge": {"candidates"}}}) if result else None
        await self._write((_END, (*head, text)))

    async def again(self, run_id: str, which: Collection[Rerun | LeftOut]) -> None:
        """Forget outcomes: of what was never run, and of what a person asked to be run again."""
        for kind in which:
            await self._write((_AGAIN.format(which=_WHICH[kind]), (run_id,)))

    async def outcomes(self, run_id: str) -> AsyncIterator[ItemOutcome]:
        """All outcomes on record, in the order in which their items began; read in pages."""
        after = 0
        while page := await self._read(lambda c, after=after: c.execute(_PAGE, (run_id, after)).fetchall()) or []:
            after = page[-1][0]
            for _, id, state, row, why, result in page:
                found = TaskResult.model_validate_json(result) if result else None
                yield ItemOutcome(id, cast("ItemState", state), found, why, row)

    async def summary(self, run_id: str) -> BatchSummary:
        """One batch. Raises CallError `unknown_batch`."""
        row = await self._row(run_id)
        found = await self._read(lambda connection: _summary(connection, row))
        assert found is not None
        return found

    async def latest(self, limit: int = 20, *, digest: str | None = None) -> list[BatchSummary]:
        """The latest batches, the newest first; with `digest`, those of the same tasks."""
        where, values = (" WHERE digest = ?", (digest,)) if digest is not None else ("", ())
        sql = f"{_BATCH}{where} ORDER BY began_at DESC LIMIT ?"

        def query(connection: sqlite3.Connection) -> list[BatchSummary]:
            return [_summary(connection, row) for row in connection.execute(sql, (*values, limit)).fetchall()]

        return await self._read(query) or []

    async def aclose(self) -> None:
        """Close the file; a later use opens it again."""
        await self._store.aclose()

    async def _row(self, run_id: str) -> Sequence[Any]:
        row = await self._read(lambda c: c.execute(f"{_BATCH} WHERE run_id = ?", (run_id,)).fetchone())
        if row is None:
            hint = "`delegate runs` lists the latest"
            raise CallError("unknown_batch", f"there is no batch {run_id!r} on record", field="resume", hint=hint)
        return row

    async def _write(self, *statements: tuple[str, Sequence[object]]) -> int:
        try:
            return await self._store.write(*statements)
        except (sqlite3.Error, OSError, ValueError) as error:
            raise DelegateError(f"the journal of batches can't be written: {error}") from error

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T | None:
        try:
            return await self._store.read(query)
        except (sqlite3.Error, OSError) as error:
            raise DelegateError(f"the journal of batches can't be read: {error}") from error


def _ran_before(batch: BatchSummary) -> CallError:
    counts = f"{batch.passed} PASS, {batch.failed} FAIL, {batch.settled} of {batch.total} done"
    message = f"these tasks are those of batch {batch.run_id} ({batch.state}: {counts})"
    message += f"; its results are in {batch.results}" if batch.results else ""
    on = f"--resume {batch.run_id} goes on with the {batch.left} that haven't started, " if batch.left else ""
    return CallError("ran_before", message, hint=f"nothing was run; {on}--again runs all anew")


def _running(run_id: str) -> CallError:
    message = f"batch {run_id} is at work in another process"
    return CallError("batch_running", message, field="resume", hint="wait for its end, or stop it")


def _summary(connection: sqlite3.Connection, row: Sequence[Any]) -> BatchSummary:
    run_id, digest, source, results, options, title, total, process, began_at, ended_at = row
    counts = connection.execute(_COUNTS, (run_id,)).fetchone()
    passed, failed, unknown, settled, begun, good, cost, unpriced = counts
    running = bool(process) and is_alive(process)
    if not running:
        unknown, settled = unknown + begun, settled + begun
    state: BatchState = (
        "running" if running else "interrupted" if process else "ended" if settled == total else "stopped"
    )
    return BatchSummary(
        run_id, state, source, results, options, title, digest, began_at, ended_at, total, settled, passed, failed,
        unknown, good, round(cost, 9), bool(unpriced),
    )  # fmt: skip

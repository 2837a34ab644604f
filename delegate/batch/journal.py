"""The journal of batches: records each item before it starts, and its outcome before it is yielded.

The journal is a file of its own next to the records. Its commits don't wait for those of the children's events, and its
size doesn't count toward the limit on the records, which are removed with age while a batch may still go on. A batch
belongs to one process at a time.

The journal names the record of each item that it starts. What became of items that were running when their process was
lost is what their records say: those that had ended have their result, and those whose child hadn't started run again.
Only the others are `outcome_unknown`, and are run again only on request.
"""

import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast

from pydantic import ValidationError

from delegate._util.processes import is_alive, this_process
from delegate.batch.item import Item, ItemOutcome, ItemState
from delegate.records import candidate_lists
from delegate.records.history import DAY, Ending, Records
from delegate.records.sqlite import Store, explained
from delegate.types import TaskResult
from delegate.types.errors import CallError, DelegateError

T = TypeVar("T")
Rerun = Literal["unknown", "fail"]
"""Items that a resumed batch can run again: those with an unknown outcome, or those that failed."""
NEVER_RUN: tuple[Literal["blocked", "bad_row"], ...] = ("blocked", "bad_row")
"""States of items that were never run. Resuming their batch examines them again."""

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
    handle TEXT,
    input TEXT NOT NULL,
    state TEXT NOT NULL,
    good INTEGER,
    verdict TEXT,
    cost_usd REAL NOT NULL DEFAULT 0,
    spent_before_usd REAL NOT NULL DEFAULT 0,
    unpriced INTEGER NOT NULL DEFAULT 0,
    estimated INTEGER NOT NULL DEFAULT 0,
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
_RELEASE = "UPDATE batches SET ended_at = ?, process = '' WHERE run_id = ?"
_BEGIN = """
INSERT INTO items (run_id, id, row, handle, input, state) VALUES (?, ?, ?, ?, ?, 'begun')
ON CONFLICT (run_id, id) DO UPDATE SET state = 'begun', handle = excluded.handle, input = excluded.input
    WHERE state = 'again'
"""
_HANDLES = "SELECT handle, id FROM items WHERE run_id = ? AND handle IS NOT NULL"
_UNDO_BEGIN = "UPDATE items SET state = 'again' WHERE run_id = ? AND id = ? AND state = 'begun'"
_END = """
INSERT INTO items (run_id, id, row, input, state, good, verdict, cost_usd, unpriced, estimated, why, result)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, id) DO UPDATE SET input = excluded.input, state = excluded.state, good = excluded.good,
    verdict = excluded.verdict, cost_usd = excluded.cost_usd, unpriced = unpriced OR excluded.unpriced,
    estimated = estimated OR excluded.estimated, why = excluded.why, result = excluded.result
"""
_RUNNING = "SELECT id, row, handle, input FROM items WHERE run_id = ? AND state = 'begun' ORDER BY rowid"
_RESET = """
UPDATE items SET state = 'again', spent_before_usd = spent_before_usd + cost_usd, cost_usd = 0, good = NULL,
    verdict = NULL, result = NULL WHERE run_id = ? AND ({condition})
"""
_CONDITIONS: dict[str, str] = {
    "unknown": "state = 'outcome_unknown'",
    "fail": "state = 'done' AND NOT good",
    "blocked": "state = 'blocked'",
    "bad_row": "state = 'bad_row'",
}
_PAGE = """
SELECT rowid, id, state, row, why, result, cost_usd, input FROM items
WHERE run_id = ? AND rowid > ? AND state NOT IN ('begun', 'again') ORDER BY rowid LIMIT 100
"""
_COUNTS = """
SELECT COUNT(*) FILTER (WHERE good AND verdict = 'PASS'), COUNT(*) FILTER (WHERE verdict = 'FAIL'),
    COUNT(*) FILTER (WHERE state = 'outcome_unknown'), COUNT(*) FILTER (WHERE state NOT IN ('begun', 'again')),
    COUNT(*) FILTER (WHERE state = 'begun'), COUNT(*) FILTER (WHERE good),
    COALESCE(SUM(cost_usd + spent_before_usd), 0), COALESCE(MAX(unpriced), 0), COALESCE(MAX(estimated), 0)
FROM items WHERE run_id = ?
"""
_DELETE_OLD = (
    "DELETE FROM items WHERE run_id IN (SELECT run_id FROM batches WHERE began_at < ? AND ended_at IS NOT NULL)",
    "DELETE FROM batches WHERE began_at < ? AND ended_at IS NOT NULL",
)
_LOST = "it was running when its process was lost, and may have done anything"

_UNREADABLE = "its process was lost, and its record has a result that this version of delegate can't read"

BatchState = Literal["running", "ended", "stopped", "interrupted"]


class BatchHeader(NamedTuple):
    """The fields of a batch that are stored when it is created."""

    run_id: str
    digest: str
    source: str
    results: str | None
    options: str
    """How its tasks are made from the source: a JSON object that only its writer reads."""
    title: str
    total: int


class BatchSummary(NamedTuple):
    """The state and counts of one batch. Times are seconds since the epoch."""

    run_id: str
    state: BatchState
    """`ended`: every task has an outcome. `stopped`: it was stopped cleanly. `interrupted`: its process was lost."""
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
    """Tasks with the verdict PASS, or completed without criteria."""
    cost_known_usd: float
    unpriced: bool
    """Whether part of the cost is unknown."""
    estimated: bool
    """Whether part of the cost is estimated."""

    @property
    def left(self) -> int:
        """Tasks that haven't started."""
        return self.total - self.settled


class Journal:
    """Writes and reads the journal. Methods raise DelegateError if the file can't be written or read."""

    def __init__(self, home: Path, records: Records, *, keep_days: float | None = None) -> None:
        self._records = records
        self._path = home / "batches.sqlite3"
        self._store = Store(self._path, SCHEMA)
        self._keep_days = keep_days

    async def create(self, header: BatchHeader, *, once: bool = False) -> None:
        """Create a batch that belongs to this process, and delete old batches that have ended.

        With `once`, raises CallError `ran_before` if there is a batch of the same tasks.
        """
        if self._keep_days is not None:
            before = time.time() - self._keep_days * DAY
            await self._write(*((sql, (before,)) for sql in _DELETE_OLD))
        values = (*header, this_process(), time.time())
        if not await self._write((_CREATE + _ONCE, (*values, header.digest)) if once else (_CREATE, values)):
            (batch,) = await self.latest(1, digest=header.digest)
            counts = f"{batch.settled} of {batch.total}, {batch.passed} PASS, {batch.failed} FAIL"
            message = f"these tasks were run before, as batch {batch.run_id} ({batch.state}: {counts})"
            message += f"; its results are in {batch.results}" if batch.results else ""
            rest = f"--resume {batch.run_id} to run the {batch.left} that haven't started, or " if batch.left else ""
            hint = f"nothing was run; use {rest}--again to run all of them again"
            raise CallError("ran_before", message, hint=hint)

    async def claim(self, run_id: str, *, results: str | None = None) -> BatchSummary:
        """Make a batch belong to this process. Items that were running get the outcome that is on record.

        Raises CallError `unknown_batch`, or `batch_running` if the batch belongs to a process that is alive.
        """
        row = await self._row(run_id)
        if _runs(row) or not await self._write((_CLAIM, (this_process(), results, run_id, str(row[7])))):
            message = f"batch {run_id} is running in another process"
            hint = "wait until it ends, or stop it, then resume"
            raise CallError("batch_running", message, field="resume", hint=hint)
        for id, outcome in await self._lost(run_id):
            if outcome is None:
                await self.undo_begin(run_id, id)
            else:
                await self.end(run_id, outcome)
        return await self.summary(run_id)

    async def release(self, run_id: str) -> None:
        """Record that the batch was ended or stopped cleanly and belongs to no process."""
        await self._write((_RELEASE, (time.time(), run_id)))

    async def begin(self, run_id: str, item: Item, handle: str | None = None) -> None:
        """Record that an item starts, and under which handle its record will be. That is durable when this returns.

        Raises DelegateError if the item has been started before; it must not be run then.
        """
        values = (run_id, item.id, item.row, handle, json.dumps(dict(item.input)))
        if not await self._write((_BEGIN, values)):
            raise DelegateError(f"task {item.id} of batch {run_id} has been started before")

    async def undo_begin(self, run_id: str, id: str) -> None:
        """Undo `begin` for an item that was refused before anything of it was run."""
        await self._write((_UNDO_BEGIN, (run_id, id)))

    async def end(self, run_id: str, outcome: ItemOutcome) -> None:
        result = outcome.result
        verdict = result.verdict.verdict if result and result.verdict else None
        head = (run_id, outcome.id, outcome.row, json.dumps(dict(outcome.input)), outcome.state, outcome.good, verdict)
        cost = (outcome.cost_known_usd, outcome.unpriced, outcome.estimated)
        # Without the list of candidate judges, which is most of a result and is kept in the records.
        text = result.model_dump_json(exclude=candidate_lists.OF_RESULT) if result else None
        await self._write((_END, (*head, *cost, outcome.why, text)), keep=True)

    async def reset(self, run_id: str, which: Collection[str]) -> None:
        """Discard the outcomes of these kinds of items, so that they run again."""
        for kind in which:
            await self._write((_RESET.format(condition=_CONDITIONS[kind]), (run_id,)))

    async def outcomes(self, run_id: str) -> AsyncIterator[ItemOutcome]:
        """Yield all recorded outcomes in the order in which their items started, reading page by page.

        Those of items that were running when their process was lost, as far as they are known, are last.
        """
        after = 0
        while page := await self._read(lambda c, after=after: c.execute(_PAGE, (run_id, after)).fetchall()) or []:
            after = page[-1][0]
            for _, id, state, row, why, result, cost, input in page:
                task_result = TaskResult.model_validate_json(result) if result else None
                item_state, spent_usd = cast("ItemState", state), 0 if task_result else cost
                yield ItemOutcome(id, item_state, task_result, why, row, json.loads(input), spent_usd)
        if not _runs(await self._row(run_id)):
            for _, outcome in await self._lost(run_id):
                if outcome is not None:
                    yield outcome

    async def summary(self, run_id: str) -> BatchSummary:
        """The state of one batch. Raises CallError `unknown_batch`."""
        row = await self._row(run_id)
        counts = await self._read(lambda connection: connection.execute(_COUNTS, (run_id,)).fetchone())
        assert counts is not None
        return await self._summary(row, counts)

    async def handles(self, run_id: str) -> dict[str, str]:
        """The ids of the items, by the handle of the latest attempt at each. Empty for what is no batch."""
        return dict(await self._read(lambda connection: connection.execute(_HANDLES, (run_id,)).fetchall()) or ())

    async def latest(self, limit: int = 20, *, digest: str | None = None) -> list[BatchSummary]:
        """The latest batches, newest first; with `digest`, only those of the same tasks."""
        where, values = (" WHERE digest = ?", (digest,)) if digest is not None else ("", ())
        sql = f"{_BATCH}{where} ORDER BY began_at DESC LIMIT ?"

        def query(connection: sqlite3.Connection) -> list[tuple[Sequence[Any], Sequence[Any]]]:
            rows = connection.execute(sql, (*values, limit)).fetchall()
            return [(row, connection.execute(_COUNTS, (row[0],)).fetchone()) for row in rows]

        return [await self._summary(row, counts) for row, counts in await self._read(query) or []]

    async def aclose(self) -> None:
        await self._store.aclose()

    async def _lost(self, run_id: str) -> list[tuple[str, ItemOutcome | None]]:
        """The items that were running when the process of their batch was lost, and their outcomes. None for one whose
        child hadn't started, so that it can run.
        """
        rows = await self._read(lambda connection: connection.execute(_RUNNING, (run_id,)).fetchall()) or []
        endings = await self._records.endings([handle for _, _, handle, _ in rows if handle is not None])
        return [(id, _lost_outcome(id, row, json.loads(input), endings.get(handle))) for id, row, handle, input in rows]

    async def _summary(self, row: Sequence[Any], counts: Sequence[Any]) -> BatchSummary:
        run_id, digest, source, results, options, title, total, process, began_at, ended_at = row
        passed, failed, unknown, settled, unfinished, good, cost, unpriced, estimated = counts
        running = _runs(row)
        for _, outcome in await self._lost(run_id) if unfinished and not running else ():
            if outcome is None:
                continue
            verdict = outcome.result and outcome.result.verdict
            settled, good, passed = settled + 1, good + outcome.good, passed + outcome.passed
            failed += verdict is not None and verdict.verdict == "FAIL"
            unknown += outcome.state == "outcome_unknown"
            cost += outcome.cost_known_usd
            unpriced += outcome.unpriced
            estimated += outcome.estimated
        state: BatchState = (
            "running" if running else "interrupted" if process else "ended" if settled == total else "stopped"
        )
        return BatchSummary(
            run_id, state, source, results, options, title, digest, began_at, ended_at, total, settled, passed, failed,
            unknown, good, round(cost, 9), bool(unpriced), bool(estimated),
        )  # fmt: skip

    async def _row(self, run_id: str) -> Sequence[Any]:
        row = await self._read(lambda c: c.execute(f"{_BATCH} WHERE run_id = ?", (run_id,)).fetchone())
        if row is None:
            hint = "use a run id from `delegate runs`"
            raise CallError("unknown_batch", f"there is no batch {run_id!r} on record", field="resume", hint=hint)
        return row

    async def _write(self, *statements: tuple[str, Sequence[object]], keep: bool = False) -> int:
        """Write now. If that fails, what there is to `keep` is written at the next start."""
        with explained("the journal of batches can't be written", self._path):
            return await self._store.write(*statements, keep=keep)

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T | None:
        with explained("the journal of batches can't be read", self._path):
            return await self._store.read(query)


def _lost_outcome(id: str, row: int | None, input: Mapping[str, str], ending: Ending | None) -> ItemOutcome | None:
    """What its record says of such an item. Without a record, which may have been removed, that is unknown."""
    if ending is None or (ending.result is None and ending.started):
        spent_usd = ending.spent_usd if ending else 0
        return ItemOutcome(id, "outcome_unknown", why=_LOST, row=row, input=input, spent_usd=spent_usd)
    if ending.result is None:
        return None
    try:
        result = TaskResult.model_validate_json(ending.result)
    except ValidationError:
        return ItemOutcome(id, "outcome_unknown", why=_UNREADABLE, row=row, input=input)
    if result.status in ("budget_exceeded", "cancelled") and not result.usage.model_calls and not result.cost_known_usd:
        return None  # refused before anything of it was run
    return ItemOutcome.of_result(id, result, row=row, input=input, stopped=True)


def _runs(row: Sequence[Any]) -> bool:
    return bool(row[7]) and is_alive(str(row[7]))

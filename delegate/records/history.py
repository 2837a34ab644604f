"""Records every task while it runs, so that what the parent reads can be short and a crash loses nothing.

    task started ──▶ events (model calls, tool calls, checks, verdict) ──▶ result

A task's row is committed before its child starts, and its result before the caller gets it. A task without a result
whose process no longer exists has the state `outcome_unknown`: it may have done anything, and is never rerun
automatically.
"""

import asyncio
import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast, get_args

from delegate._util.encoding import json_bytes
from delegate._util.processes import is_alive, this_process
from delegate._util.redaction import logger, redactor
from delegate._util.threads import run_in_thread_if
from delegate._util.tokens import tokens_of
from delegate.contract.readback import unknown_handle
from delegate.records import candidate_lists, mailbox, rulings_table
from delegate.records.aside import Statement
from delegate.records.candidate_lists import CandidateLists
from delegate.records.recorder import LARGE_CHARS, is_large
from delegate.records.sqlite import Store, explained, trouble_of
from delegate.types import Attempt, ChildRun, JsonObject, Ruling, RunStatus, SentMessage, Task, TaskResult, Usage
from delegate.types.codes import NobodyLookedCode
from delegate.types.errors import CallError, DelegateError

if TYPE_CHECKING:
    from delegate.budget.estimate import PastTask

T = TypeVar("T")
_log = logger(__name__)

SCHEMA = (
    """
CREATE TABLE IF NOT EXISTS tasks (
    handle TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    task_index INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    process TEXT NOT NULL,
    began_at REAL NOT NULL,
    ended_at REAL,
    status TEXT,
    verdict TEXT,
    cost_usd REAL,
    workspace TEXT,
    task TEXT NOT NULL,
    run TEXT,
    result TEXT
);
CREATE INDEX IF NOT EXISTS tasks_by_run ON tasks (run_id, began_at);
CREATE INDEX IF NOT EXISTS tasks_by_time ON tasks (began_at);
CREATE INDEX IF NOT EXISTS tasks_by_workspace ON tasks (workspace) WHERE workspace IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_open ON tasks (process) WHERE ended_at IS NULL;
CREATE TABLE IF NOT EXISTS events (handle TEXT NOT NULL, at REAL NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS events_by_handle ON events (handle);
CREATE TABLE IF NOT EXISTS starts (handle TEXT PRIMARY KEY, state TEXT NOT NULL);
"""
    + candidate_lists.SCHEMA
    + rulings_table.SCHEMA
    + """
CREATE TABLE IF NOT EXISTS mailboxes (handle TEXT PRIMARY KEY, author TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS messages (
    id TEXT PRIMARY KEY, handle TEXT NOT NULL, process TEXT NOT NULL, sent_at REAL NOT NULL, text TEXT NOT NULL,
    delivered_at REAL
);
CREATE INDEX IF NOT EXISTS messages_by_handle ON messages (handle);
CREATE TABLE IF NOT EXISTS questions (
    handle TEXT NOT NULL, n INTEGER NOT NULL, message TEXT, is_closed INTEGER NOT NULL, PRIMARY KEY (handle, n)
);
CREATE TABLE IF NOT EXISTS readings (key TEXT PRIMARY KEY, reading TEXT NOT NULL, at REAL NOT NULL);
"""
)
"""`mailboxes` has the tasks whose runner takes messages, and who wrote them, a person or a model; `messages.process` is
the one that ran the child when the message was sent; `questions.message` is the answer. See `mailbox`."""

_INSERT_TASK = (
    "INSERT INTO tasks (handle, run_id, task_index, depth, process, began_at, task) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_TABLES = ("tasks", "events", "starts", "mailboxes", "messages", "questions")
"""What there is of a task."""
_TAKE_OVER = "UPDATE tasks SET process = ? WHERE handle = ? AND ended_at IS NULL AND process = ?"
_FINISH_TASK = (
    "UPDATE tasks SET ended_at = ?, status = ?, verdict = ?, cost_usd = ?, workspace = ?, run = ?, result = ? "
    "WHERE handle = ?"
)
_SET_ATTEMPTS = (
    "UPDATE tasks SET result = json_set(result, '$.attempts', json(?)) WHERE handle = ? AND json_valid(result)"
)
# Of several attempts at a task, which begin together, the chosen one counts, or the first until one is chosen.
_SELECT_TASKS = """
SELECT handle, run_id, depth, process AS state, began_at, ended_at, status, verdict, cost_usd,
    CASE WHEN json_valid(task) THEN json_extract(task, '$.goal') END AS goal, task_index,
    COALESCE(instr(result, '"cost_provenance":"estimated"'), 0) > 0 AS estimated,
    (CASE WHEN instr(result, '"chosen":') AND json_valid(result) THEN EXISTS (
        SELECT 1 FROM json_each(result, '$.attempts')
        WHERE json_extract(value, '$.handle') = handle AND NOT json_extract(value, '$.chosen')
    ) ELSE ROW_NUMBER() OVER (PARTITION BY tasks.began_at, task_index ORDER BY tasks.rowid) > 1 END) AS other_attempt
FROM tasks WHERE {which} = ? ORDER BY rowid LIMIT ?
"""
"""The columns are the fields of `TaskSummary`."""
_SELECT_PAST = """
SELECT json_extract(result, '$.requested_model'), cost_usd, json_extract(result, '$.verification_share'),
    json_extract(result, '$.usage'), task
FROM (SELECT * FROM tasks ORDER BY began_at DESC LIMIT 2000)
WHERE status = 'completed' AND typeof(cost_usd) IN ('real', 'integer') AND json_valid(result) AND json_valid(task)
    AND CASE WHEN json_valid(result) THEN json_extract(result, '$.requested_model') = ?1 OR ?1 IS NULL END LIMIT 200
"""
_SELECT_RECORD = f"""
SELECT workspace, task, run, {candidate_lists.RESULT}
FROM tasks {candidate_lists.JOINED} WHERE handle = ?
"""  # noqa: S608
_SELECT_ENDINGS = f"""
SELECT handle, workspace IS NOT NULL, {candidate_lists.RESULT},
    CASE WHEN ended_at IS NULL THEN (
        SELECT json_array(
            SUM(json_extract(data, '$.cost_usd')), SUM(COALESCE(json_extract(data, '$.model_calls'), 1)),
            SUM(json_extract(data, '$.input_tokens') + json_extract(data, '$.output_tokens'))
        ) FROM events
        WHERE json_valid(data) AND events.handle = tasks.handle AND kind IN ('child.usage', 'judge.done')
    ) ELSE '[0, 0, 0]' END
FROM tasks {candidate_lists.JOINED} WHERE handle IN ({{handles}})
"""  # noqa: S608
_SELECT_NEXT_NUMBER = """
SELECT COALESCE(MAX(CAST(substr(handle, length(run_id) + 2) AS INTEGER)) + 1, 0) FROM tasks WHERE run_id = ?
"""
_SELECT_EXPIRED = """
SELECT handle, workspace FROM tasks WHERE (ended_at IS NOT NULL OR process IN ({dead})) AND began_at < ?
ORDER BY began_at LIMIT ?
"""
_SELECT_VERDICTS = f"""
SELECT handle, run_id, json_extract({candidate_lists.RESULT}, '$.verdict')
FROM tasks {candidate_lists.JOINED}
WHERE verdict IS NOT NULL AND json_valid(result) AND (?1 IS NULL OR run_id = ?1) ORDER BY tasks.rowid
"""  # noqa: S608
_SELECT_UNEXAMINED = f"""
SELECT run_id FROM tasks WHERE verdict = 'FAIL' AND run_id IN (SELECT value FROM json_each(?)) GROUP BY run_id
HAVING MIN(CASE WHEN json_valid(result) THEN json_extract(result, '$.verdict.code') IN {get_args(NobodyLookedCode)} END)
"""  # noqa: S608
_DRAW = """
SELECT handle, id FROM (
    SELECT handle, CASE WHEN type = 'object' THEN json_extract(value, '$.id') END AS id
    FROM tasks, json_each(CASE WHEN json_valid(result) THEN result END, '$.verdict.criteria')
    WHERE verdict IS NOT NULL AND (?1 IS NULL OR run_id = ?1)
        AND CASE WHEN type = 'object' THEN json_extract(value, '$.decided_by') = 'judge' END
) WHERE typeof(id) = 'text' AND (handle, id) NOT IN (
    SELECT task, criterion FROM rulings WHERE sampling = 'random'
) ORDER BY random() LIMIT ?2
"""
_TRIM_START = """
UPDATE starts SET state = json_object(
    'worktree', json_extract(state, '$.worktree'), 'tier', json_extract(state, '$.tier'),
    'tools', json_extract(state, '$.tools')
) WHERE handle = ? AND json_valid(state) AND NOT COALESCE(json_extract(state, '$.copy'), 0)
"""
"""Leaves what is needed to continue a task that has ended."""
_AT_ONCE = 1_000
"""Parameters of one statement, of which SQLite allows a limited number."""
_REMOVAL_BATCH = 20
_CLEANUP_INTERVAL = 3600.0
DAY = 86_400.0
_READING_DAYS = 90
"""How long it is known what a criterion is about, as a model read it."""
_LOOK_SECONDS = 0.1
"""Between two looks for an answer."""
_FAILURES = (sqlite3.Error, OSError, ValueError)
"""What the store raises for what it can't write."""
_OWN: dict[str, Any] = {
    "verdict": {
        **dict.fromkeys(("rubric_version", "judge_version", "reading_version"), True),
        **candidate_lists.OF_VERDICT,
    }
}
"""What a result has that is no text from outside: digests, and what comes from the catalog and the settings."""

TaskState = Literal["running", "ended", "outcome_unknown", "damaged"]
"""`damaged`: something that is stored of it can't be read."""
_DAMAGED = "(can't be read: the record is damaged)"


class TaskSummary(NamedTuple):
    """A summary of one task. Times are seconds since the epoch; `cost_usd` is None if unknown."""

    handle: str
    run_id: str
    depth: int
    """0 for tasks that the root delegated, 1 for tasks that its children delegated."""
    state: TaskState
    began_at: float
    ended_at: float | None
    status: str | None
    verdict: str | None
    cost_usd: float | None
    goal: str
    task_index: int = 0
    """Position in its call or batch, from 0."""
    estimated: bool = False
    """Whether a part of the cost is estimated."""
    other_attempt: bool = False
    """Whether it is an attempt at a task of which another one was chosen."""


class Ending(NamedTuple):
    """How far a task got."""

    started: bool
    """Whether its child may have begun to work. Certain only as long as there is no result."""
    result: str | None
    """Its result as JSON; None if it has none."""
    spent_usd: float = 0
    """The known cost of its model calls that have ended, if it has no result."""
    model_calls: int = 0
    """How many these are."""
    tokens: int = 0
    """The tokens of them."""


class RunSummary(NamedTuple):
    """A summary of one run: its root's tasks, with all costs below them. Times are seconds since the epoch."""

    run_id: str
    state: TaskState | Literal["stopped", "interrupted"]
    """Only batches, which are listed together with runs, can be `stopped` or `interrupted`."""
    began_at: float
    ended_at: float | None
    """When its last task ended; None while a task has no end."""
    tasks: int
    passed: int
    failed: int
    other: int
    """Tasks without a verdict: they had no criteria, or have no result."""
    cost_usd: float | None
    """None if a part of it is unknown."""
    goal: str
    """The goal of its first task."""
    estimated: bool = False
    """Whether a part of the cost is estimated."""


class Records:
    """Records tasks while they run, and reads them back by handle (`<run id>-<number>`).

    If the store can't be written, a result has no handle but is still returned. Records older than `keep_days`, and the
    oldest ones while the file is larger than `keep_mb` megabytes, are removed between other writes, on first use and
    then every hour, with their workspaces in `home/workspaces`. Running tasks are kept.

    What reads the records raises DelegateError if they can't be read.
    """

    def __init__(self, home: Path, *, keep_days: float | None = None, keep_mb: float | None = None) -> None:
        self._path = home / "records.sqlite3"
        self._store = Store(self._path, SCHEMA)
        self.aclose = self._store.aclose
        self._retention = _Retention(home / "workspaces", keep_days, keep_mb)
        self._candidate_lists = CandidateLists()
        self._next_cleanup = -_CLEANUP_INTERVAL
        self._sent = Path(f"{self._path}-sent")
        """Grows by a byte with each message, so that children needn't query the store before each turn."""
        self._looked = dict[str, int]()
        """The length of that file when a child of this process last looked for messages."""

    async def begin(
        self,
        run_id: str,
        tasks: Sequence[tuple[str, int, Task]],
        *,
        depth: int = 0,
        mailbox_of: str | None = None,
        message: str = "",
    ) -> None:
        """Record the start of tasks, given with their handles and positions in their call.

        If their children take messages, `mailbox_of` is who wrote the tasks, a `person` or a `model`. A task that an
        earlier one continues as has its `message` at once.

        When this returns, the start is committed and survives a crash, unless the store can't be opened.

        Raises CallError if the disk is full or may not be written, since no child could leave its work there.
        """
        now, process = time.time(), this_process()
        is_long = sum(len(task.goal) + len(task.context or "") for *_, task in tasks) > LARGE_CHARS
        texts = await run_in_thread_if(
            is_long, lambda: [redactor.json(task.model_dump_json(exclude_defaults=True)) for *_, task in tasks]
        )
        inserts: list[Statement] = [
            (_INSERT_TASK, (handle, run_id, index, depth, process, now, text))
            for (handle, index, _), text in zip(tasks, texts, strict=True)
        ]
        handles = [handle for handle, *_ in tasks]
        inserts += ((mailbox.CREATE, (handle, mailbox_of)) for handle in handles if mailbox_of)
        inserts += (mailbox.insert(handle, process, message)[1] for handle in handles if message)
        try:
            await self._store.write(*inserts)
            if message:
                with suppress(DelegateError):  # the child isn't told then, and goes on all the same
                    self._note_sent()
        except sqlite3.IntegrityError:
            hint = "send the message to what it continued as: `delegate show` with its run lists it"
            raise CallError("cannot_message", "the task was continued before", field="handle", hint=hint) from None
        except _FAILURES as error:
            trouble = trouble_of(error, self._path)
            if trouble.kind in ("full", "failing", "not_writable"):
                message = f"records can't be written to {self._path}: {trouble.why}"
                raise CallError("home_not_writable", message, hint=f"nothing was run; {trouble.fix}") from None
            await self.flush(*inserts)
            return
        if time.monotonic() >= self._next_cleanup:
            self._next_cleanup = time.monotonic() + _CLEANUP_INTERVAL
            self._store.maintain(self._retention.step)

    def event(self, handle: str, kind: str, data: str | Mapping[str, Any], *, at: float) -> None:
        """Record an event of a task. It is committed up to a tenth of a second later, together with other writes.

        `data` are its fields as a JSON object, as a mapping or as text. `at` is in seconds since the epoch.
        """
        text = data if isinstance(data, str) else json_bytes(data, fallback=str).decode()
        self._store.post(("INSERT INTO events VALUES (?, ?, ?, ?)", (handle, at, kind, text)))

    async def opened(self, handle: str, workspace: Path, start: JsonObject | None = None) -> None:
        """Record the workspace of a child, which may begin to work when this returns, and what is needed to resume it.

        It is committed then, with the events so far: a task whose record has no workspace hasn't done anything. If the
        store can't be written, the task can't be resumed.
        """
        starts = [] if start is None else [("INSERT OR REPLACE INTO starts VALUES (?, ?)", (handle, json.dumps(start)))]
        await self.flush(("UPDATE tasks SET workspace = ? WHERE handle = ?", (str(workspace), handle)), *starts)

    async def flush(self, *statements: Statement) -> None:
        """Commit all events so far, unless the store can't be written. Statements wait in a side file then."""
        with suppress(*_FAILURES):
            await self._store.write(*statements, keep=True)

    async def note_attempts(self, handles: Sequence[str], attempts: Sequence[Attempt]) -> None:
        """Add to the results of all attempts at a task how they compare."""
        text = json.dumps([attempt.model_dump(mode="json") for attempt in attempts])
        await self.flush(*((_SET_ATTEMPTS, (text, handle)) for handle in handles))

    async def start(self, handle: str) -> JsonObject | None:
        """What was recorded to resume a task; of one that has ended, what is kept of it. None if there is nothing."""
        state = await self._value("SELECT state FROM starts WHERE handle = ?", handle)
        return json.loads(state) if state else None

    async def lost_process(self, handle: str) -> str:
        """The process that a task was lost with; empty if it isn't lost."""
        process = await self._value("SELECT process FROM tasks WHERE handle = ? AND ended_at IS NULL", handle)
        return "" if is_alive(process) else process or ""

    async def take_over(self, handle: str, process: str) -> bool:
        """Make a task that was lost with that process one of this process. Returns whether no other did so before.

        Raises DelegateError if the records can't be written.
        """
        new = this_process()
        move = mailbox.MOVE, (new, handle, process, mailbox.continued_from(handle) is not None)
        with explained("the records can't be written", self._path):
            rows = await self._store.write((_TAKE_OVER, (new, handle, process)), move)
        with suppress(DelegateError):  # there is nothing to read then
            self._note_sent()
        return rows > 0

    async def save(self, run: ChildRun, result: TaskResult, *, now: bool = True) -> TaskResult:
        """Record the result of a task and return it: redacted, and without a handle if it couldn't be stored yet.

        Results that aren't needed `now`, since other tasks of the call still run, are committed together.
        """
        result, run_text, text = await run_in_thread_if(is_large(run), partial(_texts, run, result))
        self._looked.pop(result.handle or "", None)
        text, lists = self._candidate_lists.moved(result, text)
        verdict = result.verdict.verdict if result.verdict else None
        row = (time.time(), result.status, verdict, result.cost_usd, result.workspace, run_text, text, result.handle)
        self._store.post((_TRIM_START, (result.handle,)))
        with suppress(*_FAILURES):
            if await self._store.write(*lists, (_FINISH_TASK, row), now=now, keep=True):
                if result.handle is None or result.report == run.report:
                    return result
                return result.with_whole_report(partial(_read_report, self._path, result.handle))
        result = result.model_copy(update={"handle": None})
        return result.with_whole_report(partial(redactor.text, run.report))

    async def read(self, handle: str) -> JsonObject | None:
        """The whole record of a task, or None if there is none.

        Its keys are `handle`, `run_id`, `state`, `began_at`, `ended_at`, `workspace`, `task`, `run` (with full output
        and receipts), `result`, `messages` (see `SentMessage`) and `events` (see `delegate.types.events`). `run` and
        `result` are None until the task has ended; events appear while it runs.
        """
        return (await self.read_all([handle]))[0]

    async def read_all(self, handles: Sequence[str]) -> list[JsonObject | None]:
        """The same of several tasks, in their order."""
        records = await self._query(lambda connection: [_read(connection, handle) for handle in handles])
        return [None] * len(handles) if records is None else records

    async def send_message(self, handle: str, text: str) -> SentMessage:
        """Send a message to the child of a task, which may run in another process. It is stored when this returns.

        Raises CallError if it can't be sent, with the reason, and DelegateError if it can't be stored.
        """
        text = mailbox.sendable(text)
        process = await self._query(lambda connection: mailbox.receiver(connection, handle))
        message, insert = mailbox.insert(handle, process or "", text)
        statements = insert, (mailbox.ANSWER, (message.id, handle))
        with explained("the message can't be written", self._path):
            stored = process and await self._store.write(*statements)
        if not stored:  # it stopped working in the meantime, or there are no records at all
            await self._query(lambda connection: mailbox.receiver(connection, handle))
            raise unknown_handle()
        self._note_sent()
        return message.model_copy(update={"is_answer": stored > 1})

    def _note_sent(self) -> None:
        """Let children look for messages. Raises DelegateError: what isn't noted isn't read soon."""
        with (
            explained(f"the message may not be read: {self._sent} can't be written", self._path),
            open(self._sent, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as file,
        ):
            file.write(b".")

    async def author(self, handle: str) -> str | None:
        """Who wrote a task whose child takes messages, a `person` or a `model`; None if it takes none."""
        return await self._value("SELECT author FROM mailboxes WHERE handle = ?", handle)

    async def messages(self, handle: str) -> list[SentMessage]:
        """The messages to the child of a task."""
        return await self._query(lambda connection: mailbox.messages(connection, handle)) or []

    async def ask(self, handle: str, n: int) -> bool:
        """Let the next message to a child be the answer to its `n`-th question. False if that can't be stored."""
        with suppress(*_FAILURES):
            return bool(await self._store.write((mailbox.OPEN_QUESTION, (handle, n, handle))))
        return False

    async def wait_for_answer(self, handle: str, n: int) -> None:
        """Wait until there is an answer to a child's `n`-th question, from whichever process."""
        length = -1
        while True:
            with suppress(DelegateError, OSError):
                if (now := os.stat(self._sent).st_size) != length:
                    if await self._value(mailbox.SELECT_ANSWER, handle, n):
                        return
                    length = now
            await asyncio.sleep(_LOOK_SECONDS)

    async def take_answer(self, handle: str, n: int) -> str | None:
        """The answer to a child's `n`-th question. If there is none, there will be none: a message is only that."""
        with suppress(DelegateError, *_FAILURES):
            await self._store.write((mailbox.CLOSE_QUESTION, (handle, n)))
            if answer := await self._value(mailbox.SELECT_ANSWER, handle, n):
                self._note_sent()  # the process that sent it may have ended before it did this
            return answer
        return None

    async def take_messages(self, handle: str) -> list[tuple[str, str, int | None]]:
        """The ids and texts of the messages that a child of this process hasn't read, each of which is given once, and
        the number of the question that it answers, if it does.

        That they are read is committed when this returns. If it can't be, they are given the next time.
        """
        with suppress(DelegateError, *_FAILURES):  # also if nothing was ever sent
            if (length := os.stat(self._sent).st_size) == self._looked.get(handle):
                return []
            found = await self._rows(mailbox.SELECT_WAITING, handle, this_process())
            if not found or await self._store.write(*((mailbox.DELIVER, (time.time(), id)) for id, *_ in found)):
                self._looked[handle] = length
                return [(id, redactor.text(text), n) for id, text, n in found]
        return []

    async def runs(self, limit: int = 20) -> list[RunSummary]:
        """The latest runs, newest first."""
        latest = (
            "SELECT run_id FROM tasks WHERE typeof(run_id) = 'text' GROUP BY run_id ORDER BY MIN(began_at) DESC LIMIT ?"
        )
        found = [await self.tasks(run_id) for (run_id,) in await self._rows(latest, limit)]
        return [_run_summary(tasks) for tasks in found if tasks]

    async def unexamined(self, run_ids: Sequence[str]) -> set[str]:
        """Those of these runs in which every FAIL is one because nobody could look at the work."""
        return {run_id for (run_id,) in await self._rows(_SELECT_UNEXAMINED, json.dumps(run_ids))}

    async def past_tasks(self, model: str | None) -> "list[PastTask]":
        """What the latest completed tasks took that requested this model, or any, as far as their cost is known."""
        rows = await self._rows(_SELECT_PAST, model)
        return [task for task in map(_past_task, rows) if task is not None]

    async def endings(self, handles: Sequence[str]) -> dict[str, Ending]:
        """How far these tasks got, as far as they are on record."""
        found: dict[str, Ending] = {}
        for start in range(0, len(handles), _AT_ONCE):
            some = handles[start : start + _AT_ONCE]
            sql = _SELECT_ENDINGS.format(handles=", ".join("?" * len(some)))
            for handle, has_started, result, spent in await self._rows(sql, *some):
                found[handle] = Ending(bool(has_started), result, *(amount or 0 for amount in json.loads(spent)))
        return found

    async def next_number(self, run_id: str) -> int:
        """The number of a run's next task, which is the last part of its handle."""
        return await self._value(_SELECT_NEXT_NUMBER, run_id) or 0

    async def tasks(self, run_id: str, limit: int = -1) -> list[TaskSummary]:
        """The tasks of a run in the order they started, or the first ones."""
        return await self._query(lambda connection: _tasks(connection, "run_id", run_id, limit)) or []

    async def rule(self, *new: Ruling) -> None:
        """Store rulings. A second ruling by the same person on the same criterion replaces the first.

        Raises DelegateError if they can't be written.
        """
        with explained(f"the ruling can't be written to {self._path}", self._path):
            await self._store.write(*rulings_table.inserts(new))

    async def readings(self, keys: Sequence[str]) -> dict[str, str]:
        """What models read criteria as, as JSON by the keys that are stored. Nothing if the store can't be read."""
        sql = f"SELECT key, reading FROM readings WHERE key IN ({', '.join('?' * len(keys))})"  # noqa: S608
        with suppress(DelegateError):
            return dict(await self._rows(sql, *keys))
        return {}

    def keep_readings(self, readings: Mapping[str, str]) -> None:
        """Store what models read criteria as, soon. Those of before 90 days go."""
        now = time.time()
        for key, reading in readings.items():
            self._store.post(("INSERT OR REPLACE INTO readings VALUES (?, ?, ?)", (key, reading, now)))
        self._store.post(("DELETE FROM readings WHERE at < ?", (now - _READING_DAYS * DAY,)))

    async def rulings(self, handle: str | None = None, *, run_id: str | None = None) -> list[Ruling]:
        """The rulings on one task, or on those of one run, by everybody; or all rulings, and of each criterion only the
        latest.
        """
        return await self._query(lambda connection: rulings_table.rulings(connection, handle, run_id)) or []

    async def draw(self, n: int | None = None, run_id: str | None = None) -> list[tuple[str, str]]:
        """The handles and ids of `n` criteria that judges decided, drawn at random; of all, in random order, if None.

        Those that were drawn and ruled on before are left out. Raises DelegateError if the records can't be read.
        """
        return await self._rows(_DRAW, run_id, -1 if n is None else n)

    async def disagreements(self) -> tuple[int, int]:
        """How many criteria several people ruled on, and on how many they disagree."""
        return await self._query(rulings_table.disagreements) or (0, 0)

    async def false_passes(self) -> list[rulings_table.FalsePasses]:
        """The false passes of all judges, as far as they were measured."""
        return await self._query(rulings_table.false_passes) or []

    async def verdicts(self, run_id: str | None = None) -> list[tuple[str, str, str]]:
        """The handle, the run and the verdict's JSON of all tasks with a verdict, or of those of one run. Those whose
        records are damaged are left out.
        """
        rows = await self._rows(_SELECT_VERDICTS, run_id)
        return [row for row in rows if all(isinstance(cell, str) for cell in row)]

    async def _value(self, sql: str, *values: object) -> Any:
        """The first column of the first row, or None."""
        return next((value for value, *_ in await self._rows(sql, *values)), None)

    async def _rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return await self._query(lambda connection: connection.execute(sql, values).fetchall()) or []

    async def _query(self, query: Callable[[sqlite3.Connection], T]) -> T | None:
        with explained("the records can't be read", self._path):
            return await self._store.read(query)


def _texts(run: ChildRun, result: TaskResult) -> tuple[TaskResult, str, str]:
    """The redacted result, and the run and the result as redacted JSON, without the candidate judges."""
    # Receipts may have megabytes each, and are converted one by one, since that holds the interpreter.
    receipts = ",".join(receipt.model_dump_json() for receipt in run.receipts)
    run_text = f'{run.model_dump_json(exclude={"receipts"})[:-1]},"receipts":[{receipts}]}}'
    redacted = redactor.model(result, apart=_OWN)
    text = redacted.model_dump_json(exclude=candidate_lists.OF_RESULT)
    return redacted, run_text if redacted is result else redactor.json(run_text), text


# ------------------------------------------------------------------------------------------------------------ reading


def _read_report(path: Path, handle: str) -> str:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT run FROM tasks WHERE handle = ? AND run IS NOT NULL", (handle,)).fetchone()
    except sqlite3.Error as error:
        raise DelegateError(f"the record of {handle} can't be read: {error}") from error
    if row is None:
        raise DelegateError(f"the record of {handle} was removed; keep_days and keep_mb set how long records are kept")
    return str(json.loads(row[0])["report"])


def _read(connection: sqlite3.Connection, handle: str) -> JsonObject | None:
    row = connection.execute(_SELECT_RECORD, (handle,)).fetchone()
    if row is None:
        return None
    (summary,), (workspace, *texts) = _tasks(connection, "handle", handle), row
    task, run, result = parts = [_object(text) for text in texts]
    is_damaged = any(text and part is None for text, part in zip(texts, parts, strict=True))
    header = {"run_id": summary.run_id, "task_index": summary.task_index, "handle": handle}
    events = connection.execute("SELECT at, kind, data FROM events WHERE handle = ? ORDER BY rowid", (handle,))
    return {
        "handle": handle,
        "run_id": summary.run_id,
        "state": "damaged" if is_damaged else summary.state,
        "began_at": summary.began_at,
        "ended_at": summary.ended_at,
        "workspace": workspace if isinstance(workspace, str) else None,
        "task": {"goal": _DAMAGED} if task is None else task,
        "run": run,
        "result": result,
        "messages": [message.model_dump() for message in mailbox.messages(connection, handle)],
        "events": [
            {"at": at, **header, "kind": kind, **fields}
            for at, kind, data in events
            if isinstance(at, (int, float)) and (fields := _object(data)) is not None
        ],
    }


def task_of(record: JsonObject) -> Task:
    """The task of a record, which leaves out what is by default so: the kind of a criterion in words."""
    fields = record["task"]
    criteria = [{"kind": "text", **criterion} for criterion in fields.get("acceptance_criteria", ())]
    return Task.model_validate({**fields, "acceptance_criteria": criteria})


_SOUND: dict[str, tuple[Any, Any]] = {
    "state": (str, ""),  # at first, its process
    "depth": (int, 0),
    "task_index": (int, 0),
    "began_at": (int | float, 0.0),
    "ended_at": (int | float | None, None),
    "cost_usd": (int | float | None, None),
    "status": ((None, *get_args(RunStatus)), None),
    "verdict": ((None, "PASS", "FAIL"), None),
    "goal": (str, _DAMAGED),
}
"""By column: the type of what is sound there, or all that is, and what stands for what isn't."""


def _tasks(connection: sqlite3.Connection, which: str, value: str, limit: int = -1) -> list[TaskSummary]:
    """The tasks with this value of a column, without what is damaged."""
    tasks: list[TaskSummary] = []
    for row in connection.execute(_SELECT_TASKS.format(which=which), (value, limit)):
        task, replaced = TaskSummary(*row), dict[str, Any]()
        for name, (sound, instead) in _SOUND.items():
            given = getattr(task, name)
            if not (given in sound if isinstance(sound, tuple) else isinstance(given, sound)):
                replaced[name] = instead
        replaced["state"] = "damaged" if replaced else _state(task.state, task.ended_at)
        flags = {"estimated": bool(task.estimated), "other_attempt": bool(task.other_attempt)}
        tasks.append(task._replace(**replaced, **flags))
    return tasks


def _object(text: object) -> JsonObject | None:
    try:
        document = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return cast("JsonObject", document) if isinstance(document, dict) else None


def _past_task(row: tuple[Any, ...]) -> "PastTask | None":
    from delegate.budget.estimate import PastTask  # loaded only for estimates

    model, cost, share, usage, task = row
    with suppress(ValueError, TypeError, AttributeError, LookupError):
        said = json.loads(task)
        length = sum(tokens_of(text) for text in (said["goal"], said.get("context") or ""))
        return PastTask(str(model), float(cost), float(share or 0), Usage.model_validate_json(usage or "{}"), length)
    return None


def _run_summary(tasks: Sequence[TaskSummary]) -> RunSummary:
    """The summary of a run, from all its tasks. The first one was delegated by the root."""
    first, states = tasks[0], {task.state for task in tasks}
    top = [task for task in tasks if task.depth == first.depth]
    verdicts = [task.verdict for task in top if not task.other_attempt]
    ends = [task.ended_at for task in tasks if task.ended_at is not None]
    costs = [task.cost_usd for task in top if task.cost_usd is not None]
    order: tuple[TaskState, ...] = ("damaged", "running", "outcome_unknown", "ended")
    return RunSummary(
        first.run_id,
        next(state for state in order if state in states),
        first.began_at,
        max(ends) if len(ends) == len(tasks) else None,
        tasks=len(verdicts),
        passed=verdicts.count("PASS"),
        failed=verdicts.count("FAIL"),
        other=verdicts.count(None),
        cost_usd=round(sum(costs), 9) if len(costs) == len(top) else None,
        goal=first.goal,
        estimated=any(task.estimated for task in top),
    )


def _state(process: str, ended_at: float | None) -> TaskState:
    if ended_at is not None:
        return "ended"
    return "running" if is_alive(process) else "outcome_unknown"


# ---------------------------------------------------------------------------------------------------------- retention


class _Retention:
    """Removes records and workspaces by age and by the size of the file."""

    def __init__(self, workspaces: Path, keep_days: float | None, keep_mb: float | None) -> None:
        self._workspaces = workspaces
        self._days = math.inf if keep_days is None else keep_days
        self._mb = math.inf if keep_mb is None else keep_mb

    def step(self, connection: sqlite3.Connection) -> list[Statement]:
        """Remove a few expired workspaces and return the statements that delete their records.

        In this order, so that a crash in between leaves no workspace without a record.
        """
        now = time.time()
        expired = self._expired(connection, now - self._days * DAY)
        if not expired and _megabytes(connection) > self._mb:
            expired = self._expired(connection, now)
        if not expired:
            return []
        handles, marks = [handle for handle, _ in expired], ", ".join("?" * len(expired))
        in_use = f"SELECT 1 FROM tasks WHERE workspace = ? AND handle NOT IN ({marks}) LIMIT 1"  # noqa: S608
        for workspace in {workspace for _, workspace in expired if isinstance(workspace, str) and workspace}:
            if not connection.execute(in_use, (workspace, *handles)).fetchone():
                self._remove_workspace(Path(workspace))
        deleted = [(f"DELETE FROM {table} WHERE handle IN ({marks})", handles) for table in _TABLES]  # noqa: S608
        return [*deleted, candidate_lists.DELETE_UNUSED]

    def _expired(self, connection: sqlite3.Connection, before: float) -> list[tuple[str, str | None]]:
        still_open = connection.execute("SELECT DISTINCT process FROM tasks WHERE ended_at IS NULL")
        dead = [process for (process,) in still_open if not is_alive(process)]
        sql = _SELECT_EXPIRED.format(dead=", ".join("?" * len(dead)))
        return connection.execute(sql, (*dead, before, _REMOVAL_BATCH)).fetchall()

    def _remove_workspace(self, workspace: Path) -> None:
        """Remove a workspace, but only a folder that is directly inside `home/workspaces`."""
        is_kept_workspace = Path(os.path.realpath(workspace)).parent == Path(os.path.realpath(self._workspaces))
        if not is_kept_workspace or workspace.is_symlink():
            return
        from delegate.sandbox.workspace.folder import discard  # loaded only where it is needed

        try:
            with suppress(FileNotFoundError):  # already removed
                discard(workspace)
        except OSError as error:
            _log.warning("the workspace %s can't be removed: %s", workspace, error)


def _megabytes(connection: sqlite3.Connection) -> float:
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return (pages - free) * size / 1e6

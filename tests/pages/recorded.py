"""Records for tests of reports: runs and batches of scripted children, hostile ones too."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from delegate import Delegator, RunResult, Task
from delegate.batch.item import Item
from delegate.models.providers.scripted import Scripted
from delegate.pages.page import run_page
from delegate.pages.reading import RunReader
from delegate.pages.values import PageView
from delegate.testing import judge_reply
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.words import Child, is_judge, met_by, words

OWN = "document.title='owned'"
HOSTILE = (
    f'</style></script></textarea></title><script>{OWN}</script><img src=x onerror="{OWN}">'
    f'<a href="javascript:{OWN}">x</a><svg onload={OWN}>" onmouseover="{OWN}" x=\' {{{{7*7}}}} &lt;b&gt; -->'
    "\x00\x1b[31mred\x1b]8;;http://evil.test\x07link\x1b[0m\u202eDROW\u2066\u200b<!--"
)
QUOTE = f"the <b>work</b> is done, says {HOSTILE[:60]}"
"""A quote that looks like markup."""


def child(report: str = "I did the work.", **files: str) -> Child:
    """A child that writes files and reports."""

    def script(request: ChatRequest) -> ChatReply | str:
        if files and len(request.messages) == 1:
            return Scripted.calls(*(("write_file", {"path": path, "content": text}) for path, text in files.items()))
        return report

    return script


async def run(client: Scripted, *tasks: dict[str, Any]) -> RunResult:
    async with Delegator(client=client) as delegator:
        return await delegator.run(*map(Task.model_validate, tasks))


async def goal_run(rationale: str = "I did it.") -> RunResult:
    """A run in goal mode: a claim is refused, the next one repeats it, and the third is verified."""

    def judge(request: ChatRequest) -> str:
        is_done = "a.txt" in request.messages[0].text.replace("Write a.txt.", "")
        return judge_reply(c1=("met", rationale) if is_done else ("not_met", "nothing"))

    claim, write = (
        Scripted.call("claim_complete", rationale=rationale),
        Scripted.call("write_file", path="a.txt", content="hello"),
    )
    task = {"goal": "Write a.txt.", "acceptance_criteria": ["the report names a river"], "mode": "goal"}
    # What was refused of the same report stays refused, so the last one says more.
    other = Scripted.call("claim_complete", rationale=f"{rationale} I wrote a.txt.")
    return await run(words([claim, claim, write, other], judge), task)


async def batch(client: Scripted, rows: Sequence[tuple[str, dict[str, Any], dict[str, str]]]) -> str:
    """Run a batch of (id, task, input), and return its id."""
    items = [Item(id, Task.model_validate(task), n, input=given) for n, (id, task, given) in enumerate(rows, start=1)]
    async with Delegator(client=client) as delegator:
        async for _ in delegator.batches.run(items, concurrency=4):
            pass
        return (await delegator.batches.latest(1))[0].run_id


async def hostile_run() -> str:
    """A run in which every text that a model, a file name or a person wrote is hostile. Returns its id."""

    def answer(request: ChatRequest) -> ChatReply | str:
        if is_judge(request):
            return met_by(QUOTE)(request) if "second" not in request.messages[0].text else _refuses(request)
        if "aim" in request.messages[0].text:
            return Scripted.call("claim_complete", rationale=f"second {HOSTILE}")
        if len(request.messages) == 1:
            name = "<img src=x onerror=alert(1)>.md"
            calls = ("write_file", {"path": name, "content": QUOTE}), ("think", {"thought": HOSTILE})
            return Scripted.calls(*calls, (HOSTILE[:50], {HOSTILE: HOSTILE}), text=HOSTILE)
        return f"{QUOTE}\n{HOSTILE}"

    criteria = [f"The report says {HOSTILE}", {"kind": "regex", "pattern": "work", "id": "c2"}]
    tasks = [
        {"goal": f"Work {HOSTILE}", "acceptance_criteria": criteria},
        {"goal": f"Work second {HOSTILE}", "acceptance_criteria": criteria},
        {"goal": f"aim {HOSTILE}", "acceptance_criteria": criteria[:1], "mode": "goal", "max_steps": 2},
    ]
    result = await run(Scripted(answer), *tasks)
    async with Delegator() as delegator:
        await delegator.records.rule(
            result.results[0].handle or "", "c1", "not_met", by=HOSTILE[:190], because=HOSTILE.replace("\0", "")
        )
    return result.run_id or ""


def _refuses(request: ChatRequest) -> str:
    answer = {"id": "c1", "evidence": HOSTILE, "reason": HOSTILE, "verdict": "not_met", "source": HOSTILE}
    return json.dumps({"answers": [answer]})


async def view(home: Path, id: str | None) -> PageView:
    async with RunReader(home) as reader:
        return await reader.view(id or "")


async def html(home: Path, id: str | None) -> str:
    return run_page(await view(home, id)).html


def execute(home: Path, sql: str, *values: object, file: str = "records.sqlite3") -> None:
    """Change a record behind the back of the program."""
    with closing(sqlite3.connect(home / file, isolation_level=None)) as connection:
        connection.execute(sql, values)


def query(home: Path, sql: str, *values: object) -> tuple[Any, ...]:
    with closing(sqlite3.connect(home / "records.sqlite3")) as connection:
        return connection.execute(sql, values).fetchone()


def parse_all(home: Path) -> None:
    """Read and parse what is on record of all tasks, which is the least work that a page can be."""
    with closing(sqlite3.connect(home / "records.sqlite3")) as connection:
        for texts in connection.execute("SELECT task, run, result FROM tasks"):
            for text in texts:
                json.loads(text)


def reopen(home: Path, handle: str | None, process: str | None = None) -> None:
    """Remove the result of a task, as if it were running; with another process, as if that had been lost."""
    empty = "ended_at = NULL, status = NULL, verdict = NULL, cost_usd = NULL, run = NULL, result = NULL"
    execute(home, f"UPDATE tasks SET {empty} WHERE handle = ?", handle)
    if process is not None:
        execute(home, "UPDATE tasks SET process = ? WHERE handle = ?", process, handle)


async def thousand(home: Path) -> str:
    """A run of 1,000 tasks, every fourth of which failed: copies of two that ran."""
    criterion = "the report says that the work was done"
    files = {"note.md": "a note about the work\n" * 20}
    judge = met_by("I did the work")
    result = await run(
        words(child("I did the work. " * 30, **files), judge),
        {"goal": "Do a part of the work", "acceptance_criteria": [criterion, {"kind": "regex", "pattern": "work"}]},
        {"goal": "Do another part", "acceptance_criteria": [criterion, {"kind": "regex", "pattern": "missing"}]},
    )
    columns = "process, began_at, ended_at, status, verdict, cost_usd, workspace, task, run, result"
    numbers = "WITH RECURSIVE numbers(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < 999)"
    copied = "JOIN numbers ON handle = run_id || '-' || (n % 4 = 0)"
    execute(
        home,
        f"INSERT INTO tasks (handle, run_id, task_index, depth, {columns}) {numbers} "
        f"SELECT run_id || '-' || n, run_id, n, depth, {columns} FROM tasks {copied}",
    )
    execute(
        home,
        f"INSERT INTO events {numbers} SELECT run_id || '-' || n, at, kind, data FROM events "
        f"JOIN tasks USING (handle) {copied} WHERE task_index < 2",
    )
    return result.run_id or ""


async def large_batch(home: Path, rows: int) -> str:
    """A batch of many rows, every fourth of which failed: copies of four that ran. Returns its id."""
    criteria = ["the report says that the work was done", {"kind": "regex", "pattern": "work"}]
    missing = [criteria[0], {"kind": "regex", "pattern": "missing"}]
    work = child("I did the work. " * 30, **{"note.md": "a note about the work\n" * 20})
    goals = [f"Do part {n} of the work" for n in range(1, 5)]
    run_id = await batch(
        words(work, met_by("I did the work")),
        [
            (str(n), {"goal": goal, "acceptance_criteria": criteria if n < 4 else missing}, {"goal": goal, "n": str(n)})
            for n, goal in enumerate(goals, start=1)
        ],
    )
    numbers = f"WITH RECURSIVE numbers(n) AS (SELECT 5 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows})"
    columns = "process, began_at, ended_at, status, verdict, cost_usd, workspace"
    like = "task_index = (n - 1) % 4 WHERE task_index < 4"
    execute(
        home,
        f"INSERT INTO tasks (handle, run_id, task_index, depth, {columns}, task, run, result) {numbers} "
        f"SELECT run_id || '-' || (n - 1), run_id, n - 1, depth, {columns}, "
        "json_set(task, '$.goal', 'Do part ' || n || ' of the work'), run, "
        f"json_set(result, '$.handle', run_id || '-' || (n - 1), '$.task_index', n - 1) "
        f"FROM tasks JOIN numbers ON {like}",
    )
    execute(
        home,
        f"INSERT INTO events {numbers} SELECT run_id || '-' || (n - 1), at, kind, data FROM events "
        f"JOIN tasks USING (handle) JOIN numbers ON {like}",
    )
    of_item = "state, good, verdict, cost_usd, spent_before_usd, unpriced, why"
    execute(
        home,
        f"INSERT INTO items (run_id, id, row, input, {of_item}, result) {numbers} SELECT run_id, n, n, "
        f"json_set(input, '$.n', CAST(n AS TEXT)), {of_item}, "
        "json_set(result, '$.handle', run_id || '-' || (n - 1), '$.task_index', n - 1) "
        "FROM items JOIN numbers ON row = (n - 1) % 4 + 1 WHERE row < 5",
        file="batches.sqlite3",
    )
    execute(home, "UPDATE batches SET total = ?", rows, file="batches.sqlite3")
    return run_id

"""Reads runs and batches from the records and the journal into what a page shows."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import ValidationError

from delegate._util.fencing import one_line
from delegate._util.redaction import redactor
from delegate._util.threads import run_in_thread
from delegate.batch.item import ItemOutcome
from delegate.batch.journal import BatchSummary, Journal
from delegate.budget import costs
from delegate.contract.amounts import percent
from delegate.pages.amounts import duration, money, run_bill, when
from delegate.pages.lanes import Course, timeline
from delegate.pages.room import Room
from delegate.pages.tasks import code_of, task_view, unreadable, word_of
from delegate.pages.values import Filter, Pages, PageView, RunLine, TaskView, Tone
from delegate.records.history import Ending, Records, RunSummary, TaskSummary
from delegate.types import JsonObject, Ruling, TaskResult, Totals
from delegate.types.errors import CallError
from delegate.types.money import rough_usd

FILTERED_FROM = 6
"""Pages with fewer tasks have no filters."""
MOST_CHOICES = 12
"""A column with more distinct values isn't offered as a filter."""
PAGE_TASKS = 1_000
"""Longer runs have several pages: one takes about a second, and 3 MB."""
T = TypeVar("T")
_MOST_COLUMNS = 4
_TITLE_CHARS = 160


class RunReader:
    """Reads what pages show. Use it as an async context manager, which closes the files."""

    def __init__(self, home: Path) -> None:
        self._records = Records(home)
        self._journal = Journal(home, self._records)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._records.aclose()
        await self._journal.aclose()

    async def view(self, id: str, page: int = 1) -> PageView:
        """What the page of a batch, of a run, or of one task shows, by its id or handle. Long ones have several pages.

        Raises CallError `unknown_handle` if nothing of it is on record, or `unknown_page`, and DelegateError if the
        files can't be read.
        """
        batch, tasks = None, await self._records.tasks(id)
        with suppress(CallError):
            batch = await self._journal.summary(id)
        outcomes = [outcome async for outcome in self._journal.outcomes(id)] if batch else []
        kind = "run" if tasks else "task"
        if batch is None and not tasks:
            record = await self._records.read(id)
            if record is None:
                hint = "use `last`, or an id from `delegate runs` or its first characters"
                raise CallError("unknown_handle", f"there is no record {one_line(id, 60)!r}", hint=hint)
            tasks = [task for task in await self._records.tasks(record["run_id"]) if task.handle == id]
        rulings: dict[str, list[Ruling]] = {}
        for ruling in await self._records.rulings(run_id=batch.run_id if batch else tasks[0].run_id):
            rulings.setdefault(ruling.task, []).append(ruling)
        rows = _rows_of_batch(outcomes, tasks) if batch else _rows_of_run(tasks)
        if len(rows) > PAGE_TASKS:  # what didn't pass is on the first pages
            rows.sort(key=lambda row: row.passed)
        shown, pages = paged(rows, page, PAGE_TASKS)
        records = await self._records.read_all([row.handle for row in shown])
        for row, record in zip(shown, records, strict=True):
            row.record, row.rulings = record, rulings.get(row.handle, ())
        if batch is not None:
            return await run_in_thread(lambda: _batch_view(batch, outcomes, shown, pages))
        others = await self._records.endings([row.handle for row in rows if row.record is None])
        return await run_in_thread(lambda: _run_view(kind, rows, others, shown, pages))

    async def runs(self, limit: int = 100) -> list[RunLine]:
        """The latest runs and batches, newest first."""
        batches = {batch.run_id: batch for batch in await self._journal.latest(limit)}
        runs = [run for run in await self._records.runs(limit) if run.run_id not in batches]
        latest = sorted((*batches.values(), *runs), key=lambda run: -run.began_at)[:limit]
        unexamined = await self._records.unexamined([run.run_id for run in latest if run.failed])
        return [_line(run, run.run_id in unexamined) for run in latest]


# -------------------------------------------------------------------------------------------------- runs and tasks


@dataclass
class _Row:
    """A task of a run, or a row of a batch: its summary, its outcome, or both are known."""

    number: str
    anchor: str
    task: TaskSummary | None
    outcome: ItemOutcome | None = None
    depth: int = 0
    record: JsonObject | None = None
    """What is on record of it, if it is shown."""
    rulings: Sequence[Ruling] = ()

    @property
    def handle(self) -> str:
        """The handle of its record; empty if there is none."""
        result = self.outcome.result if self.outcome else None
        return (result.handle if result else self.task.handle if self.task else None) or ""

    @cached_property
    def result(self) -> TaskResult | None:
        """That of the record, if it can be read."""
        return _result(self.record["result"]) if self.record else None

    @property
    def passed(self) -> bool:
        return self.outcome.passed if self.outcome else self.task is not None and self.task.verdict == "PASS"

    @property
    def end(self) -> float:
        """When its task ended; now, if it is running; when it was last heard of, if its process was lost."""
        assert self.task is not None
        events = (self.record or {}).get("events") or ()
        heard = time.time() if self.task.state == "running" else float(events[-1]["at"]) if events else 0
        return max(self.task.began_at, heard if self.task.ended_at is None else self.task.ended_at)


def _rows_of_run(tasks: Sequence[TaskSummary]) -> list[_Row]:
    """The tasks that the root delegated in the order of its call, then those that children delegated."""
    top = min(task.depth for task in tasks)
    ordered = sorted(tasks, key=lambda task: (task.depth != top, task.task_index if task.depth == top else 0))
    return [
        _Row(str(n) if task.depth == top else "", f"t{n}", task, depth=task.depth - top)
        for n, task in enumerate(ordered, start=1)
    ]


def _rows_of_batch(outcomes: Sequence[ItemOutcome], tasks: Sequence[TaskSummary]) -> list[_Row]:
    """The rows with an outcome in the order of the file, then the tasks that are running."""
    by_handle: dict[str | None, TaskSummary] = {task.handle: task for task in tasks}
    rows: list[_Row] = []
    for outcome in sorted(outcomes, key=lambda outcome: (outcome.row is None, outcome.row or 0)):
        result = outcome.result
        anchor = f"t{result.task_index + 1}" if result else f"row{outcome.row}"  # stays while the batch goes on
        rows.append(_Row(outcome.id, anchor, by_handle.get(result.handle) if result else None, outcome))
    running = (task for task in tasks if task.state == "running" and task.depth == 0)
    return [*rows, *(_Row("", f"t{task.task_index + 1}", task) for task in running)]


def _run_view(
    kind: Literal["run", "task"],
    rows: Sequence[_Row],
    others: Mapping[str, Ending],
    shown: Sequence[_Row],
    pages: Pages,
) -> PageView:
    """The view of a run, with the rows of this page. `others` are the ends of tasks on other pages."""
    results = {row.handle: row.result for row in rows if row.record}
    results |= {handle: _result(ending.result) for handle, ending in others.items()}
    tasks = [row.task for row in rows if row.task]
    roots = [row.task for row in rows if row.task and not row.depth]
    words = [
        word_of("unreadable" if task.state == "ended" else task.state, None, results.get(task.handle)) for task in roots
    ]
    began, ended = min(task.began_at for task in tasks), max(row.end for row in rows)
    totals = costs.totals([result for task in roots if (result := results.get(task.handle))], ended - began)
    if any(results.get(task.handle) is None for task in roots):
        totals = totals.model_copy(update={"cost_usd": None, "child_cost_usd": None})
    live = any(task.state == "running" for task in tasks)
    notes = [f"Still running: this is how far it was at {when(time.time())}."] if live else []
    if any(task.state == "outcome_unknown" for task in tasks):
        notes.append("The process of some tasks was lost. They may have done anything, and are not run again.")
    title = one_line(roots[0].goal, _TITLE_CHARS if len(roots) == 1 else _TITLE_CHARS // 2)
    return PageView(
        kind=kind,
        title=title if len(roots) == 1 else f"{title} and {len(roots) - 1:,} more",
        run_id=tasks[0].run_id,
        state="running" if live else "ended",
        when=when(began),
        tally=_tally(totals.passed, len(roots)),
        tone=_tone(words),
        figures=_figures(totals, live=live),
        counts=_counts(words),
        bill=run_bill(totals),
        notes=[*notes, *_page_notes(pages, tasks[0].run_id)],
        pages=pages,
        **_shown(shown),
    )


def _batch_view(batch: BatchSummary, outcomes: Sequence[ItemOutcome], shown: Sequence[_Row], pages: Pages) -> PageView:
    """The view of a batch, with the rows of this page. `outcomes` are those of all."""
    live, totals, notes = batch.state == "running", _batch_totals(batch, outcomes), list[str]()
    if live:
        notes = [f"Still running: this is how far it was at {when(time.time())}; {batch.left:,} tasks are left."]
    elif batch.state != "ended":
        resume = f"`delegate batch --resume {batch.run_id}` goes on with it"
        notes = [f"It was {batch.state} with {batch.left:,} tasks left; {resume}."]
    words = [word_of("ended", outcome, outcome.result) for outcome in outcomes]
    words += [word_of("running", None, None)] * (pages.tasks - len(outcomes))
    return PageView(
        kind="batch",
        title=one_line(f"{batch.source}: {batch.title}", _TITLE_CHARS),
        run_id=batch.run_id,
        state=batch.state,
        when=when(batch.began_at),
        tally=_tally(batch.passed, batch.total),
        tone=_tone(words) if batch.settled == batch.total else "run" if live else "warn",
        figures=_figures(totals, live=live),
        counts=_counts(words, not_started=batch.total - len(words)),
        bill=run_bill(totals),
        notes=[*notes, *_page_notes(pages, batch.run_id)],
        pages=pages,
        **_shown(shown),
    )


def _shown(rows: Sequence[_Row]) -> dict[str, Any]:
    """What the view has of the rows of one page."""
    for row in rows:
        if row.outcome:
            given = {name: redactor.text(value) for name, value in row.outcome.input.items()}
            row.outcome = replace(row.outcome, input=given)
    filters, classes = _filters(rows)
    views, courses = list[TaskView](), list[Course]()
    for row, of_row in zip(rows, classes, strict=True):
        view = _task_view(
            row.record,
            len(rows),
            anchor=row.anchor,
            number=row.number,
            depth=row.depth,
            outcome=row.outcome,
            result=row.result,
            rulings=row.rulings,
            filters=of_row,
        )
        views.append(view)
        if row.task is not None:
            events = (row.record or {}).get("events") or ()
            courses.append(Course(view.number, view.anchor, view.goal, row.task.began_at, row.end, events))
    return {"tasks": views, "timeline": timeline(courses), "filters": filters}


def paged(items: Sequence[T], number: int, length: int) -> tuple[Sequence[T], Pages]:
    """What is on one of the pages of this length. Raises CallError `unknown_page`."""
    of = max(1, -(-len(items) // length))
    if number > of:
        raise CallError("unknown_page", f"there is no page {number}", hint=f"the last one is {of}")
    start, end = (number - 1) * length, min(number * length, len(items))
    return items[start:end], Pages(number, of, start + 1, end, len(items))


def _page_notes(pages: Pages, run_id: str) -> list[str]:
    if pages.of == 1:
        return []
    place = f"Page {pages.number} of {pages.of}, {pages.last - pages.first + 1:,} of {pages.tasks:,} tasks"
    following = f"`delegate page {run_id} --page {pages.number + 1}` writes the next one"
    end = f"; {following}." if pages.number < pages.of else "."
    return [f"{place}, those without a PASS first{end} The headline, the counts and the bill are those of all."]


def _batch_totals(batch: BatchSummary, outcomes: Sequence[ItemOutcome]) -> Totals:
    """The sums over all results. The cost is that of the journal, which also counts what was run again since."""
    ended = batch.ended_at if batch.ended_at is not None else time.time()
    totals = costs.totals([outcome.result for outcome in outcomes if outcome.result], ended - batch.began_at)
    known_usd = batch.cost_known_usd
    cost_usd = None if batch.unpriced or totals.cost_usd is None or batch.unknown else known_usd
    share = costs.share(totals.judge_cost_usd, cost_usd)
    sums: JsonObject = {"cost_usd": cost_usd, "cost_known_usd": known_usd, "verification_share": share}
    sums |= {"cost_provenance": "estimated"} if batch.estimated and cost_usd is not None else {}
    return totals.model_copy(update=sums)


def _task_view(record: JsonObject | None, of: int, **fields: Any) -> TaskView:
    """One of so many tasks. A record that can't be read is said to be so, and spoils no view of others."""
    try:
        return task_view(record, Room.for_each_of(of), **fields)
    except (LookupError, TypeError, ValueError):
        if record is None:
            raise
        return task_view(unreadable(record), Room.for_each_of(of), **fields)


def _result(recorded: JsonObject | str | None) -> TaskResult | None:
    """The result on record; None if there is none, or another version of delegate wrote it."""
    with suppress(ValidationError):
        if isinstance(recorded, str):
            return TaskResult.model_validate_json(recorded)
        return TaskResult.model_validate(recorded) if recorded else None


# ------------------------------------------------------------------------------------------------------- headlines


def _tally(passed: int, total: int) -> str:
    return f"{passed:,} of {total:,} PASS"


def _figures(totals: Totals, *, live: bool) -> list[str]:
    share = totals.verification_share
    shares = [f"verification {percent(share)}"] if share is not None and totals.passed + totals.failed else []
    known = rough_usd(totals.cost_known_usd, estimated=totals.cost_provenance == "estimated")
    return [f"{known} so far" if live else money(totals), *shares, duration(totals.seconds)]


def _tone(words: Sequence[tuple[str, Tone]]) -> Tone:
    order: tuple[Tone, ...] = ("fail", "warn", "run", "none", "pass")
    return order[min((order.index(tone) for _, tone in words), default=order.index("none"))]


def _counts(words: Sequence[tuple[str, Tone]], *, not_started: int = 0) -> list[tuple[int, str, Tone]]:
    """The number of tasks by their words, most first. Those that haven't started have none yet."""
    tones = dict(reversed(words))  # the first of each word
    counts = Counter(word for word, _ in words)
    rows: list[tuple[int, str, Tone]] = sorted(((counts[word], word, tones[word]) for word in tones), reverse=True)
    return rows if not_started <= 0 else [*rows, (not_started, "NOT STARTED", "none")]


# --------------------------------------------------------------------------------------------------------- filters


def _filters(rows: Sequence[_Row]) -> tuple[list[Filter], list[str]]:
    """The filters that tell rows apart, and for each row the classes by which they find it."""
    if len(rows) < FILTERED_FROM:
        return [], [""] * len(rows)
    values, filters, classes = [_filtered_by(row) for row in rows], list[Filter](), list[list[str]]()
    for n, name in enumerate(("verdict", "code", *_columns([row.outcome for row in rows if row.outcome]))):
        of_rows = [own.get(name, "") for own in values]
        counts = Counter(of_rows)
        keys = {value: f"k{n}-{place}" for place, value in enumerate(counts)}
        classes.append([keys[value] for value in of_rows])
        choices = [(one_line(value, 60) or "(empty)", keys[value], count) for value, count in counts.items()]
        filters += [Filter(f"f{n}", one_line(name, 40), choices)] if len(choices) > 1 else []
    return filters, list(map(" ".join, zip(*classes, strict=True)))


def _filtered_by(row: _Row) -> dict[str, str]:
    """What a row can be filtered by: its verdict, its code, and the columns of the batch's file."""
    given, result = (row.outcome.input, row.outcome.result) if row.outcome else (dict[str, str](), row.result)
    verdict, state = (row.task.verdict, row.task.state) if row.task else (None, "running")
    if row.outcome:
        verdict, state = result and result.verdict and result.verdict.verdict, row.outcome.state
    word = verdict or ("no verdict" if state in ("ended", "done") else state.replace("_", " "))
    return {**given, "verdict": word, "code": code_of(row.outcome, result) or "none"}


def _columns(outcomes: Sequence[ItemOutcome]) -> list[str]:
    """The columns that have a few values, each of which many rows share."""
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.input if name not in ("verdict", "code"))
    distinct = {name: {outcome.input.get(name, "") for outcome in outcomes} for name in names}
    few = [name for name, values in distinct.items() if 1 < len(values) <= min(MOST_CHOICES, len(outcomes) / 2)]
    return few[:_MOST_COLUMNS]


# ---------------------------------------------------------------------------------------------------------- lists


def _line(run: RunSummary | BatchSummary, is_unexamined: bool) -> RunLine:
    if isinstance(run, RunSummary):
        kind, total, cost_usd, goal = "run", run.tasks, run.cost_usd, run.goal
    else:
        kind, total, goal = "batch", run.total, f"{run.source}: {run.title}"
        cost_usd = None if run.unpriced else run.cost_known_usd
    cost = rough_usd(cost_usd, estimated=run.estimated) if cost_usd is not None else "cost unknown"
    seconds = (run.ended_at or time.time()) - run.began_at
    tone: Tone = "pass" if run.passed == total and total else "none"
    if run.failed or run.state != "ended":
        tone = "run" if run.state == "running" else "fail" if run.failed and not is_unexamined else "warn"
    return RunLine(
        run_id=run.run_id,
        kind=kind,
        started=when(run.began_at),
        state=run.state,
        tone=tone,
        tally=_tally(run.passed, total),
        figures=[cost] if run.state in ("outcome_unknown", "interrupted") else [cost, duration(seconds)],
        goal=one_line(goal, 200),
    )

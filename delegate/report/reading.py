"""Reads runs and batches from the records and the journal into what a report shows."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
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
from delegate.records.history import Records, RunSummary, TaskSummary
from delegate.report.amounts import duration, money, run_bill, when
from delegate.report.lanes import Course, timeline
from delegate.report.room import Room
from delegate.report.tasks import code_of, task_view, unreadable, word_of
from delegate.report.values import Choice, Filter, Pages, ReportView, RunLine, TaskView, Tone
from delegate.types import JsonObject, Ruling, TaskResult, Totals
from delegate.types.errors import CallError
from delegate.types.money import rough_usd

FILTERED_FROM = 6
"""Reports with fewer tasks have no filters."""
MOST_CHOICES = 12
"""A column with more distinct values isn't offered as a filter."""
PAGE_TASKS = 1_000
"""Longer reports have several pages: one takes about a second, and 3 MB."""
T = TypeVar("T")
_Row = tuple[ItemOutcome | None, str | None]
"""A row of a batch: its outcome, if it has one, and the handle of its record."""
_MOST_COLUMNS = 4
_TITLE_CHARS = 160


class Reports:
    """Reads reports. Use it as an async context manager, which closes the files."""

    def __init__(self, home: Path) -> None:
        self._records = Records(home)
        self._journal = Journal(home, self._records)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._records.aclose()
        await self._journal.aclose()

    async def report(self, id: str, page: int = 1) -> ReportView:
        """The report of a batch, of a run, or of one task, by its id or handle. Long ones have several pages.

        Raises CallError `unknown_handle` if nothing of it is on record, or `unknown_page`, and DelegateError if the
        files can't be read.
        """
        batch = await self._batch(id)
        tasks = await self._records.tasks(id)
        if batch is not None:
            outcomes = [outcome async for outcome in self._journal.outcomes(id)]
            # The rows with an outcome in the order of the file, then the tasks that are running.
            outcomes.sort(key=lambda outcome: (outcome.row is None, outcome.row or 0))
            rows: list[_Row] = [(outcome, outcome.result.handle if outcome.result else None) for outcome in outcomes]
            rows += [(None, task.handle) for task in tasks if task.state == "running" and task.depth == 0]
            page_rows, pages = _paged(rows, page, lambda row: row[0] is not None and row[0].passed)
            records = await self._read([handle for _, handle in page_rows if handle])
            rulings = await self._rulings(id)
            by_handle = {task.handle: task for task in tasks}
            return await run_in_thread(
                lambda: _batch_view(batch, outcomes, page_rows, pages, by_handle, records, rulings)
            )
        if tasks:
            page_tasks, pages = _paged(_in_order(tasks), page, lambda task: task.verdict == "PASS")
            records, rulings = await self._read([task.handle for task in page_tasks]), await self._rulings(id)
            others = [task.handle for task in tasks if task.handle not in records]
            results = {handle: _result(record) for handle, record in records.items()}
            for handle, ending in (await self._records.endings(others)).items():
                with suppress(ValidationError):
                    results[handle] = TaskResult.model_validate_json(ending.result) if ending.result else None
            return await run_in_thread(lambda: _run_view("run", tasks, page_tasks, pages, results, records, rulings))
        record = await self._records.read(id)
        if record is None:
            hint = "use `last`, or an id from `delegate runs` or its first characters"
            raise CallError("unknown_handle", f"there is no record {one_line(id, 60)!r}", hint=hint)
        own = [task for task in await self._records.tasks(record["run_id"]) if task.handle == id]
        rulings = {id: await self._records.rulings(id)}
        results = {id: _result(record)}
        return await run_in_thread(lambda: _run_view("task", own, own, Pages(), results, {id: record}, rulings))

    async def runs(self, limit: int = 100) -> list[RunLine]:
        """The latest runs and batches, newest first."""
        batches = {batch.run_id: batch for batch in await self._journal.latest(limit)}
        runs = [run for run in await self._records.runs(limit) if run.run_id not in batches]
        return [_line(run) for run in sorted((*batches.values(), *runs), key=lambda run: -run.began_at)[:limit]]

    async def _batch(self, id: str) -> BatchSummary | None:
        try:
            return await self._journal.summary(id)
        except CallError:
            return None

    async def _read(self, handles: Sequence[str]) -> dict[str, JsonObject]:
        records = {handle: await self._records.read(handle) for handle in handles}
        return {handle: record for handle, record in records.items() if record is not None}

    async def _rulings(self, run_id: str) -> Mapping[str, Sequence[Ruling]]:
        rulings: dict[str, list[Ruling]] = {}
        for ruling in await self._records.rulings(run_id=run_id):
            rulings.setdefault(ruling.task, []).append(ruling)
        return rulings


# -------------------------------------------------------------------------------------------------- runs and tasks


def _run_view(
    kind: Literal["run", "task"],
    tasks: Sequence[TaskSummary],
    page_tasks: Sequence[TaskSummary],
    pages: Pages,
    results: Mapping[str, TaskResult | None],
    records: Mapping[str, JsonObject],
    rulings: Mapping[str, Sequence[Ruling]],
) -> ReportView:
    """The report of a run, with the tasks that are `shown` on this page. `records` are theirs, `results` of all."""
    top = min(task.depth for task in tasks)
    all_tasks = _in_order(tasks)
    roots = [task for task in all_tasks if task.depth == top]
    places = {task.handle: n for n, task in enumerate(all_tasks, start=1)}
    keys = _Keys(len(page_tasks))
    views = [
        _task_view(
            records.get(task.handle),
            len(page_tasks),
            anchor=f"t{(n := places[task.handle])}",
            number=str(n) if n <= len(roots) else "",
            depth=task.depth - top,
            rulings=rulings.get(task.handle, ()),
            filters=keys.of(_filter_word(task.verdict, task.state), code_of(None, results.get(task.handle))),
        )
        for task in page_tasks
    ]
    words = [
        word_of("unreadable" if task.state == "ended" else task.state, None, results.get(task.handle)) for task in roots
    ]
    began, ended = min(task.began_at for task in tasks), max(_end(task, records) for task in tasks)
    totals = costs.totals([result for task in roots if (result := results.get(task.handle))], ended - began)
    if any(results.get(task.handle) is None for task in roots):
        totals = totals.model_copy(update={"cost_usd": None, "child_cost_usd": None})
    live = any(task.state == "running" for task in tasks)
    notes = [f"Still running: this is how far it was at {when(time.time())}."] if live else []
    if any(task.state == "outcome_unknown" for task in tasks):
        notes.append("The process of some tasks was lost. They may have done anything, and are not run again.")
    title = one_line(roots[0].goal, _TITLE_CHARS if len(roots) == 1 else _TITLE_CHARS // 2)
    return ReportView(
        kind=kind,
        title=title if len(roots) == 1 else f"{title} and {len(roots) - 1:,} more",
        run_id=tasks[0].run_id,
        state="running" if live else "ended",
        live=live,
        when=when(began),
        tally=_tally(totals.passed, len(roots)),
        tone=_tone(words),
        figures=_figures(totals, live=live),
        counts=_counts(words),
        tasks=views,
        timeline=timeline([_course(view, task, records) for view, task in zip(views, page_tasks, strict=True)]),
        bill=run_bill(totals),
        filters=keys.filters(),
        notes=[*notes, *_page_notes(pages, tasks[0].run_id)],
        pages=pages,
    )


def _batch_view(
    batch: BatchSummary,
    outcomes: Sequence[ItemOutcome],
    rows: "Sequence[_Row]",
    pages: Pages,
    by_handle: Mapping[str, TaskSummary],
    records: Mapping[str, JsonObject],
    rulings: Mapping[str, Sequence[Ruling]],
) -> ReportView:
    """The report of a batch, with the `rows` of this page. `outcomes` are those of all."""
    rows = [(outcome and _redacted(outcome), handle) for outcome, handle in rows]
    keys = _Keys(len(rows), [outcome for outcome, _ in rows if outcome])
    views, courses = list[TaskView](), list[Course]()
    for outcome, handle in rows:
        record, task = records.get(handle or ""), by_handle.get(handle or "")
        result = outcome.result if outcome else None
        word = _filter_word(result.verdict.verdict if result and result.verdict else None, _state_of(outcome))
        place = result or task
        view = _task_view(
            record,
            len(rows),
            # It stays the same while the batch goes on.
            anchor=f"t{place.task_index + 1}" if place else f"row{outcome.row if outcome else 0}",
            number=outcome.id if outcome else "",
            outcome=outcome,
            rulings=rulings.get(handle or "", ()),
            filters=keys.of(word, code_of(outcome, result), outcome),
        )
        views.append(view)
        if task is not None:
            courses.append(_course(view, task, records))
    totals = _batch_totals(batch, outcomes)
    live = batch.state == "running"
    notes = [f"Still running: this is how far it was at {when(time.time())}; {batch.left:,} tasks are left."]
    if batch.state == "ended":
        notes = []
    elif not live:
        resume = f"`delegate batch --resume {batch.run_id}` goes on with it"
        notes = [f"It was {batch.state} with {batch.left:,} tasks left; {resume}."]
    words = [word_of(_state_of(outcome), outcome, outcome.result) for outcome in outcomes]
    words += [word_of("running", None, None)] * (pages.tasks - len(outcomes))
    return ReportView(
        kind="batch",
        title=one_line(f"{batch.source}: {batch.title}", _TITLE_CHARS),
        run_id=batch.run_id,
        state=batch.state,
        live=live,
        when=when(batch.began_at),
        tally=_tally(batch.passed, batch.total),
        tone=_tone(words) if batch.settled == batch.total else "run" if live else "warn",
        figures=_figures(totals, live=live),
        counts=_counts(words, not_started=batch.total - len(words)),
        tasks=views,
        timeline=timeline(courses),
        bill=run_bill(totals),
        filters=keys.filters(),
        notes=[*notes, *_page_notes(pages, batch.run_id)],
        pages=pages,
    )


def _redacted(outcome: ItemOutcome) -> ItemOutcome:
    return replace(outcome, input={name: redactor.text(value) for name, value in outcome.input.items()})


def _in_order(tasks: Sequence[TaskSummary]) -> list[TaskSummary]:
    top = min(task.depth for task in tasks)
    roots = sorted((task for task in tasks if task.depth == top), key=lambda task: task.task_index)
    return [*roots, *(task for task in tasks if task.depth != top)]


def _paged(items: Sequence[T], number: int, passed: Callable[[T], bool]) -> tuple[Sequence[T], Pages]:
    """What is on one page of a report. If there are several, what didn't pass is on the first ones."""
    of = max(1, -(-len(items) // PAGE_TASKS))
    if number > of:
        raise CallError("unknown_page", f"there is no page {number}", hint=f"the last one is {of}")
    start, end = (number - 1) * PAGE_TASKS, min(number * PAGE_TASKS, len(items))
    ordered = items if of == 1 else sorted(items, key=passed)
    return ordered[start:end], Pages(number, of, start + 1, end, len(items))


def _page_notes(pages: Pages, run_id: str) -> list[str]:
    if pages.of == 1:
        return []
    place = f"Page {pages.number} of {pages.of}, {pages.last - pages.first + 1:,} of {pages.tasks:,} tasks"
    following = f"`delegate report {run_id} --page {pages.number + 1}` writes the next one"
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


def _course(view: TaskView, task: TaskSummary, records: Mapping[str, JsonObject]) -> Course:
    events = (records.get(task.handle) or {}).get("events") or ()
    return Course(view.number, view.anchor, view.goal, task.began_at, _end(task, records), events)


def _task_view(record: JsonObject | None, of: int, **fields: Any) -> TaskView:
    """One of so many tasks. A record that can't be read is said to be so, and spoils no report of others."""
    try:
        return task_view(record, Room.for_each_of(of), **fields)
    except (LookupError, TypeError, ValueError):
        if record is None:
            raise
        return task_view(unreadable(record), Room.for_each_of(of), **fields)


def _result(record: JsonObject | None) -> TaskResult | None:
    """The result on record; None if there is none, or another version of delegate wrote it."""
    with suppress(ValidationError):
        return TaskResult.model_validate(record["result"]) if record and record["result"] else None


def _end(task: TaskSummary, records: Mapping[str, JsonObject]) -> float:
    """When a task ended; now, if it is running; when it was last heard of, if its process was lost."""
    if task.ended_at is not None:
        return max(task.ended_at, task.began_at)
    if task.state == "running":
        return max(time.time(), task.began_at)
    events = (records.get(task.handle) or {}).get("events") or ()
    return max(task.began_at, float(events[-1]["at"]) if events else 0)


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
    tones: dict[str, Tone] = {}
    for word, tone in words:
        tones.setdefault(word, tone)
    counts = Counter(word for word, _ in words)
    rows: list[tuple[int, str, Tone]] = sorted(((counts[word], word, tones[word]) for word in tones), reverse=True)
    return rows if not_started <= 0 else [*rows, (not_started, "NOT STARTED", "none")]


# --------------------------------------------------------------------------------------------------------- filters


def _state_of(outcome: ItemOutcome | None) -> str:
    return "running" if outcome is None else outcome.state if outcome.state != "done" else "ended"


def _filter_word(verdict: str | None, state: str) -> str:
    """By what a row is filtered: its verdict, or its state if it has none."""
    return verdict or ("no verdict" if state == "ended" else state.replace("_", " "))


class _Keys:
    """Gives every value by which rows can be filtered a class, and counts the rows that have it."""

    def __init__(self, rows: int, outcomes: Sequence[ItemOutcome] = ()) -> None:
        self._enabled = rows >= FILTERED_FROM
        self._columns = _columns(outcomes)
        self._keys: dict[str, dict[str, str]] = {name: {} for name in ("verdict", "code", *self._columns)}
        self._counts = Counter[str]()

    def of(self, word: str, code: str, outcome: ItemOutcome | None = None) -> str:
        """The classes of one row."""
        if not self._enabled:
            return ""
        values = {"verdict": word, "code": code or "none"}
        values |= {name: outcome.input.get(name, "") if outcome else "" for name in self._columns}
        classes: list[str] = []
        for n, (name, value) in enumerate(values.items()):
            classes.append(self._keys[name].setdefault(value, f"k{n}-{len(self._keys[name])}"))
        self._counts.update(classes)
        return " ".join(classes)

    def filters(self) -> list[Filter]:
        """The filters that tell rows apart."""
        return [
            Filter(
                f"f{n}",
                one_line(name, 40),
                [Choice(one_line(value, 60) or "(empty)", key, self._counts[key]) for value, key in keys.items()],
            )
            for n, (name, keys) in enumerate(self._keys.items())
            if len(keys) > 1
        ]


def _columns(outcomes: Sequence[ItemOutcome]) -> list[str]:
    """The columns that have a few values, each of which many rows share."""
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.input if name not in ("verdict", "code"))
    distinct = {name: {outcome.input.get(name, "") for outcome in outcomes} for name in names}
    few = [name for name, values in distinct.items() if 1 < len(values) <= min(MOST_CHOICES, len(outcomes) / 2)]
    return few[:_MOST_COLUMNS]


# ---------------------------------------------------------------------------------------------------------- lists


def _line(run: RunSummary | BatchSummary) -> RunLine:
    if isinstance(run, RunSummary):
        kind, total, cost_usd, goal = "run", run.tasks, run.cost_usd, run.goal
    else:
        kind, total, goal = "batch", run.total, f"{run.source}: {run.title}"
        cost_usd = None if run.unpriced else run.cost_known_usd
    cost = rough_usd(cost_usd, estimated=run.estimated) if cost_usd is not None else "cost unknown"
    seconds = (run.ended_at or time.time()) - run.began_at
    tone: Tone = "pass" if run.passed == total and total else "none"
    if run.state == "running" or run.failed or run.state != "ended":
        tone = "run" if run.state == "running" else "fail" if run.failed else "warn"
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

"""Shows the progress of a batch on stderr: live lines on a terminal, else one line every few seconds."""

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from delegate._util.fencing import one_line
from delegate.batch.batch import Batch, Tally
from delegate.batch.item import ItemOutcome
from delegate.cli import PROGRAM
from delegate.contract.amounts import percent, usd

LINE_SECONDS = 5.0
"""Seconds between two lines when stderr is not a terminal."""
LAST_FAILURES = 3


async def run_with_progress(batch: Batch) -> None:
    """Run the batch to its end and show its progress."""
    progress = BatchProgress(batch)
    on_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    live = Live(get_renderable=progress.lines, console=console, refresh_per_second=4, redirect_stdout=False)
    printer = None if on_terminal else asyncio.create_task(_print_lines(progress))
    try:
        with live if on_terminal else nullcontext():
            async for outcome in batch:
                progress.add(outcome)
    finally:
        if printer is not None:
            printer.cancel()


async def _print_lines(progress: "BatchProgress") -> None:
    while True:
        await asyncio.sleep(LINE_SECONDS)
        print(f"{PROGRAM}: {progress.line()}", file=sys.stderr, flush=True)


class BatchProgress:
    """The progress of a batch. `clock` returns seconds."""

    def __init__(self, batch: Batch, clock: Callable[[], float] = time.monotonic) -> None:
        self._batch = batch
        self._clock = clock
        self._failures: deque[ItemOutcome] = deque(maxlen=LAST_FAILURES)

    def add(self, outcome: ItemOutcome) -> None:
        """Add the outcome of an item."""
        if not outcome.good:
            self._failures.append(outcome)

    def line(self) -> str:
        """The progress as one line."""
        batch, tally = self._batch, self._batch.tally
        if not batch.began:
            return "reading the tasks"
        parts = [f"{tally.settled} of {tally.total} done", counts(tally), f"{batch.running} running"]
        rate = (tally.settled - batch.settled_before) / max(self._clock() - batch.began, 0.001)
        if rate:
            parts += [_rate(rate), f"{_clock_time((tally.total - tally.settled) / rate)} left"]
        parts += [costs(tally)] if tally.settled else []
        return " · ".join(parts)

    def lines(self) -> Group:
        """The same line, followed by the last failures."""
        return Group(Text(self.line(), "bold"), *map(_failure, self._failures))


def summary(batch: Batch) -> str:
    """The results of the batch, and how to resume it."""
    tally, results, run = batch.tally, batch.results_path, batch.run_id
    seconds = time.monotonic() - batch.began if batch.began else 0
    lines = [f"{tally.settled} of {tally.total} done: {counts(tally)} · {costs(tally)} · {seconds:.1f} s"]
    lines.append(f"run {run}" + (f" · results in {results}" if results else ""))
    if left := tally.total - tally.settled:
        why = f" ({one_line(batch.stopped, 300)})" if batch.stopped else ""
        lines.append(f"{left} not started{why}; resume with: {PROGRAM} batch --resume {run}")
    if tally.unknown:
        rerun = f"{PROGRAM} batch --resume {run} --rerun unknown"
        lines.append(f"{tally.unknown} with an unknown outcome; run them again with: {rerun}")
    return "\n".join(lines)


def counts(tally: Tally) -> str:
    """The number of tasks per kind of outcome."""
    numbers = [(tally.passed, "PASS"), (tally.failed, "FAIL")]
    numbers += [(n, word) for n, word in ((tally.unjudged, "without criteria"), (tally.other, "other")) if n]
    return ", ".join(f"{n} {word}" for n, word in numbers)


def costs(tally: Tally) -> str:
    """The cost so far, and the share of it that verification took."""
    known = usd(tally.cost_known_usd)
    text = f"cost unknown, known part {known}" if tally.unpriced else f"cost {known}"
    if tally.cost_known_usd and tally.passed + tally.failed:
        text += f", verification {percent(tally.judge_cost_usd / tally.cost_known_usd)} of it"
    return text


def _failure(outcome: ItemOutcome) -> Text:
    result = outcome.result
    verdict = result.verdict if result else None
    if result is not None and result.error is not None:
        reason = f"{result.error.code}: {result.error.message}"
    else:
        reason = verdict.reasoning if verdict else outcome.why
    word = verdict.verdict if verdict else result.status if result else outcome.state
    return Text("✗ ", "red").append(f"{one_line(outcome.id, 40)} {word}: ").append(one_line(reason, 120), "dim")


def _rate(rate: float) -> str:
    return f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"


def _clock_time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"

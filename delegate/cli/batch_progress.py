"""What a person sees of a batch: a few lines on a terminal, redrawn; on a pipe a line every few seconds, on stderr."""

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
"""Between two lines on a pipe."""
LAST_FAILURES = 3


async def shown(batch: Batch) -> None:
    """Run the batch to its end, and show how it goes."""
    progress = BatchProgress(batch)
    on_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    live = Live(get_renderable=progress.lines, console=console, refresh_per_second=4, redirect_stdout=False)
    teller = None if on_terminal else asyncio.create_task(_tell(progress))
    try:
        with live if on_terminal else nullcontext():
            async for outcome in batch:
                progress.note(outcome)
    finally:
        if teller is not None:
            teller.cancel()


async def _tell(progress: "BatchProgress") -> None:
    while True:
        await asyncio.sleep(LINE_SECONDS)
        print(f"{PROGRAM}: {progress.line()}", file=sys.stderr, flush=True)


class BatchProgress:
    """How far a batch is. `clock` counts seconds."""

    def __init__(self, batch: Batch, clock: Callable[[], float] = time.monotonic) -> None:
        self._batch = batch
        self._clock = clock
        self._failures: deque[ItemOutcome] = deque(maxlen=LAST_FAILURES)

    def note(self, outcome: ItemOutcome) -> None:
        """One more has ended."""
        if not outcome.good:
            self._failures.append(outcome)

    def line(self) -> str:
        """All of it in one line."""
        batch, tally = self._batch, self._batch.tally
        if not batch.began:
            return "reading the tasks"
        parts = [f"{tally.settled} of {tally.total} done", counts(tally), f"{batch.running} at work"]
        rate = (tally.settled - batch.settled_before) / max(self._clock() - batch.began, 0.001)
        if rate:
            parts += [_rate(rate), f"{_clock_time((tally.total - tally.settled) / rate)} left"]
        parts += [bill(tally)] if tally.settled else []
        return " · ".join(parts)

    def lines(self) -> Group:
        """The same, and the last failures."""
        return Group(Text(self.line(), "bold"), *map(_failure, self._failures))


def summary(batch: Batch) -> str:
    """What it came to, and how to go on."""
    tally, results, run = batch.tally, batch.results_path, batch.run_id
    seconds = time.monotonic() - batch.began if batch.began else 0
    lines = [f"{tally.settled} of {tally.total} done: {counts(tally)} · {bill(tally)} · {seconds:.1f} s"]
    lines.append(f"run {run}" + (f" · results in {results}" if results else ""))
    if left := tally.total - tally.settled:
        why = f" ({one_line(batch.stopped, 300)})" if batch.stopped else ""
        lines.append(f"{left} not started{why}; to go on: {PROGRAM} batch --resume {run}")
    if tally.unknown:
        lines.append(f"{tally.unknown} with an unknown outcome; to run them again: --resume {run} --rerun unknown")
    return "\n".join(lines)


def counts(tally: Tally) -> str:
    """How they came out."""
    given = [(tally.passed, "PASS"), (tally.failed, "FAIL")]
    given += [(n, word) for n, word in ((tally.unjudged, "without criteria"), (tally.other, "other")) if n]
    return ", ".join(f"{n} {word}" for n, word in given)


def bill(tally: Tally) -> str:
    """What was spent, and verification's part of it."""
    known = usd(tally.cost_known_usd)
    text = f"cost unknown, known part {known}" if tally.unpriced else f"cost {known}"
    if tally.cost_known_usd and tally.passed + tally.failed:
        text += f", verification {percent(tally.judge_cost_usd / tally.cost_known_usd)} of it"
    return text


def _failure(outcome: ItemOutcome) -> Text:
    result = outcome.result
    verdict = result.verdict if result else None
    if result is not None and result.error is not None:
        said = f"{result.error.code}: {result.error.message}"
    else:
        said = verdict.reasoning if verdict else outcome.why
    word = verdict.verdict if verdict else result.status if result else outcome.state
    return Text("✗ ", "red").append(f"{one_line(outcome.id, 40)} {word}: ").append(one_line(said, 120), "dim")


def _rate(rate: float) -> str:
    return f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"


def _clock_time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"

"""Shows the progress of a batch on stderr: live lines on a terminal, else one line every few seconds."""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from delegate._util.fencing import one_line
from delegate.batch.batch import Batch, Tally
from delegate.batch.item import ItemOutcome
from delegate.cli import PROGRAM
from delegate.cli.ci.logs import print_as_is
from delegate.cli.screen.layout import Prose
from delegate.cli.screen.progress import shown
from delegate.cli.screen.screens import REASON_CHARS
from delegate.contract.amounts import percent
from delegate.contract.progress import WAITS
from delegate.types.money import rough_usd, usd

LINE_SECONDS = 5.0
"""Seconds between two lines when stderr is not a terminal."""
_MOST_WAYS, _OTHERS = 1_000, "for other reasons"
"""How many ways to fail are told apart."""
_BAR = (8, 30)
"""Minimum and maximum number of columns of the bar."""


async def run_with_progress(batch: Batch) -> None:
    """Run the batch to its end and show its progress: a line that is redrawn, and above it the failures as they come,
    of equal ones only the first; how many there were comes at the end.

    If stderr is not a terminal, the line is printed every few seconds.
    """
    progress = BatchProgress(batch)
    on_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    live = Live(progress, console=console, refresh_per_second=4, redirect_stdout=False, transient=True)
    printer = None if on_terminal else asyncio.create_task(_print_lines(progress))
    failures = Failures()
    try:
        with shown(live) if on_terminal else nullcontext():
            async for outcome in batch:
                if on_terminal and not outcome.good and (line := failures.line(outcome)):
                    console.print(line)
    finally:
        for line in failures.repeated():
            console.print(line)
        if printer is not None:
            printer.cancel()


async def _print_lines(progress: "BatchProgress") -> None:
    while True:
        await asyncio.sleep(LINE_SECONDS)
        print_as_is(f"{PROGRAM}: {progress.line()}", on_stderr=True)


class BatchProgress:
    """The progress of a batch. `clock` returns seconds."""

    def __init__(self, batch: Batch, clock: Callable[[], float] = time.monotonic) -> None:
        self._batch = batch
        self._clock = clock

    def line(self) -> str:
        """The progress as one line."""
        return " · ".join(self._parts())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The line after a bar, without its last parts where they have no room."""
        parts, room = self._parts(), options.max_width - 1
        while len(parts) > 1 and len(" · ".join(parts)) + _BAR[0] + 2 > room:
            parts.pop()
        text = " · ".join(parts)
        bar = min(max(room - len(text) - 2, 0), _BAR[1])
        tally = self._batch.tally
        filled = round(bar * tally.settled / tally.total) if tally.total else 0
        line = Text().append("━" * filled, "green").append("━" * (bar - filled), "dim").append("  " if bar else "")
        line.append(text, "bold")
        line.truncate(room, overflow="ellipsis")
        yield line

    def _parts(self) -> list[str]:
        """What the line says, the most important first."""
        batch, tally = self._batch, self._batch.tally
        if not batch.began:
            return ["reading the tasks"]
        parts = [f"{tally.settled} of {tally.total}", counts(tally)]
        judging = batch.running - batch.working
        parts += [f"{batch.working} working" + (f", {judging} judging" if judging else "")] if batch.running else []
        if waits := +batch.waits:
            parts[-1] += f" ({', '.join(f'{WAITS[reason]}: {n}' for reason, n in waits.items())})"
        seconds = max(self._clock() - batch.began, 0.001)
        parts += [_clock_time(seconds)]
        progress = tally.settled - batch.settled_before
        if progress and tally.settled < tally.total:
            parts[-1] += f", {_clock_time((tally.total - tally.settled) * seconds / progress)} left"
        if tally.settled:
            cost = rough_usd(tally.cost_known_usd, estimated=tally.estimated)
            parts.append(cost + (" known" if tally.unpriced else ""))
        return parts


def summary(batch: Batch) -> str:
    """The results of the batch, and how to resume it."""
    tally, results, run = batch.tally, batch.results_path, batch.run_id
    seconds = time.monotonic() - batch.began if batch.began else 0
    lines = [f"{tally.states['done']} of {tally.total} done: {counts(tally)} · {costs(tally)} · {seconds:.1f} s"]
    lines.append(f"run {run}" + (f" · results in {results}" if results else ""))
    if remaining := tally.total - tally.settled:
        why = f" ({one_line(batch.stopped, 300)})" if batch.stopped else ""
        lines += [f"{remaining} not started{why}", f"resume with: {PROGRAM} batch --resume {run}"]
    if tally.failed:
        lines.append(f"why they failed: {PROGRAM} show {run} --failed")
    if tally.states["outcome_unknown"]:
        lines.append(f"run again with: {PROGRAM} batch --resume {run} --rerun unknown")
    return "\n".join(lines)


def counts(tally: Tally) -> str:
    """The number of tasks with a result by their verdicts, and of those without one by their states."""
    below = f" ({tally.below_seen} below seen)" if tally.below_seen else ""
    numbers = [(tally.passed, f"PASS{below}"), (tally.failed, "FAIL")]
    incomplete = tally.states["done"] - tally.passed - tally.failed - tally.unjudged
    numbers += [(n, word) for n, word in ((tally.unjudged, "without criteria"), (incomplete, "not completed")) if n]
    states = [(n, state) for state, n in sorted(tally.states.items()) if state != "done"]
    return " · ".join(", ".join(f"{n} {word}" for n, word in part) for part in (numbers, states) if part)


def costs(tally: Tally) -> str:
    """The cost so far, and the share of it that verification took."""
    cost = usd(tally.cost_known_usd) + (" (estimated)" if tally.estimated else "")
    text = f"cost unknown, known part {cost}" if tally.unpriced else f"cost {cost}"
    if tally.cost_known_usd and tally.judge_cost_usd:
        text += f", verification {percent(tally.judge_cost_usd / tally.cost_known_usd)} of it"
    return text


class Failures(Counter[tuple[str, str]]):
    """Shows each way to fail once, and in the end how often it was."""

    def line(self, outcome: ItemOutcome) -> Prose | None:
        """One item that didn't succeed, with the reason. None if another one failed in the same way."""
        result = outcome.result
        verdict, error = (result.verdict, result.error) if result else (None, None)
        reason = f"{error.code}: {error.message}" if error else verdict.reasoning if verdict else outcome.why
        word = verdict.verdict if verdict else result.status if result else outcome.state
        if (way := (word, reason)) not in self and len(self) == _MOST_WAYS:
            way = word, _OTHERS
        self[way] += 1
        return _failure(word, f"{one_line(outcome.id, 40)}: ", reason) if self[way] == 1 else None

    def repeated(self) -> list[Prose]:
        """Those that there was more than one of."""
        return [_failure(word, f"{n} × ", reason) for (word, reason), n in self.most_common() if n > 1]


def _failure(word: str, which: str, reason: str) -> Prose:
    parts = ((f"✗ {word}", "red"), (f"  {which}", "bold"), (one_line(reason, REASON_CHARS), "dim"))
    return Prose(Text.assemble(*parts), hang=2)


def _clock_time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"

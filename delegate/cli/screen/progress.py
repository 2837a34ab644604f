"""Shows a live tree with one branch per task on stderr, if stderr is a terminal that can redraw."""

import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from delegate._util.fencing import one_line
from delegate.contract.amounts import counted
from delegate.contract.progress import WAITS
from delegate.types import Level
from delegate.types.events import Event, EventSink

_ENDS = {"PASS": ("✓ PASS", "bold green"), "FAIL": ("✗ FAIL", "bold red"), "no criteria": ("• done", "bold yellow")}
_SPIN = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TITLE_CHARS = 100
_STEP_CHARS = 40
_LEAST_TITLE = 6
"""Columns that a title keeps, however narrow the terminal is."""


@contextmanager
def live(titles: Sequence[str]) -> Generator[EventSink | None]:
    """Show the tree while the block runs. Yields the sink for its events, or None if nothing is shown."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        yield None
        return
    progress = RunProgress(titles)
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    # stdout isn't redirected, because results must not end up on stderr.
    with shown(Live(get_renderable=progress.tree, console=console, refresh_per_second=12, redirect_stdout=False)):
        yield progress.show


_shown_now: list[Live] = []


@contextmanager
def shown(display: Live) -> Generator[None]:
    """Show a display inside the block, except while it is `hidden`."""
    with display:
        _shown_now.append(display)
        try:
            yield
        finally:
            _shown_now.remove(display)


@contextmanager
def hidden() -> Generator[None]:
    """Take all displays off the terminal inside the block, so that a person can be asked something."""
    displays = [(display, display.transient) for display in _shown_now]
    for display, _ in displays:
        display.transient = True
        display.stop()
    try:
        yield
    finally:
        for display, transient in displays:
            display.transient = transient
            display.start(refresh=True)


@dataclass(slots=True)
class _Branch:
    """The progress of one task."""

    title: str
    model: str = ""
    doing: str = "waiting"
    calls: int = 0
    tools: int = 0
    checks: list[str] = field(default_factory=list[str])
    started: float | None = None
    ended: float | None = None
    status: str = ""
    verdict: str | None = None
    level: Level | None = None
    """That of a PASS."""


class RunProgress:
    """The progress of every task, updated by events. `clock` returns seconds."""

    def __init__(self, titles: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._branches = {n: _Branch(one_line(title, _TITLE_CHARS)) for n, title in enumerate(titles)}

    def show(self, event: Event) -> None:  # noqa: C901 - one case for each kind
        """Apply one event. The next redraw shows it."""
        if event.task_index is None:
            return
        n = event.task_index
        branch = self._branches.setdefault(n, _Branch(f"task {n + 1}"))
        match event.kind:
            case "child.started":
                branch.started, branch.model, branch.doing = self._clock(), _short(event.model or ""), "thinking"
            case "child.usage":
                branch.calls += event.model_calls
                branch.doing = _short(event.text) or "thinking"
            case "child.text":
                branch.doing = _short(event.text) or branch.doing
            case "child.waiting":
                branch.doing = "thinking" if event.seconds is not None else _short(WAITS[event.reason])
            case "child.tool.started":
                branch.doing = _short(event.text)
            case "child.tool":
                branch.tools += 1
                branch.doing = _short(event.tool) if event.status == "ok" else f"{_short(event.tool)} ({event.status})"
            case "child.done":
                branch.status, branch.doing = event.status, "checking" if event.status == "completed" else event.status
            case "claim.made":
                branch.doing = "claims to be done"
            case "check.done":
                branch.checks.append(event.outcome)
                branch.doing = _short(f"check: {event.text}: {event.outcome}")
            case "judge.waiting" if event.seconds is None:
                branch.doing = _short(f"judge {WAITS[event.reason]}")
            case "judge.asked" | "judge.waiting":
                branch.doing = f"asking {_short(event.model)} to judge"
            case "verdict":
                branch.verdict, branch.ended = event.verdict or "no criteria", self._clock()
                branch.level = event.level if event.verdict == "PASS" else None
            case "approval.asked":
                branch.doing = _short(f"asks you about {event.text}")
            case "approval.answered":
                branch.doing = "thinking" if event.approved else _short(f"{event.tool} (not approved)")
            case "question.asked":
                branch.doing = _short(f"asks: {event.text}")
            case "step.declared":
                branch.doing = _short(f"step {event.n}: {event.goal}")
            case "claim.judged" | "step.verified" | "message.delivered" | "question.answered":
                branch.doing = "thinking"
            case "task.queued" | "check.started" | "judge.done" | "task.done":
                pass

    def tree(self) -> Tree:
        """The current tree."""
        if not self._branches:
            return Tree("", hide_root=True)
        done = sum(branch.verdict is not None for branch in self._branches.values())
        tree = Tree(Text(f"delegate · {done} of {len(self._branches)} done", "bold"), guide_style="dim")
        for n, branch in sorted(self._branches.items()):
            tree.add(self._branch(n, branch))
        return tree

    def _branch(self, n: int, branch: _Branch) -> "_Line":
        if branch.verdict is None:
            mark = Text.assemble((_SPIN[int(self._clock() * 10) % len(_SPIN)], "green"), " ")
        else:
            mark = Text.assemble(_final_mark(branch.status, branch.verdict, branch.level), "  ")
        seconds = "" if branch.started is None else f"{(branch.ended or self._clock()) - branch.started:.1f} s"
        doing = branch.doing if branch.verdict is None else ""
        counts = [counted(branch.calls, "call"), counted(branch.tools, "tool")]
        counts += [f"checks {branch.checks.count('met')}/{len(branch.checks)}"] if branch.checks else []
        more = [Text(branch.model, "cyan"), Text(" · ".join(counts), "dim")]
        return _Line(mark.append(f"{n + 1}. "), Text(branch.title), more, [Text(seconds, "dim"), Text(doing, "yellow")])


@dataclass(frozen=True, slots=True)
class _Line:
    """The line of one task."""

    mark: Text
    title: Text
    """Cut where there is no room even without `more`."""
    more: Sequence[Text]
    """Left out where there is no room, the first ones first."""
    always: Sequence[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title, more, always = self.title.copy(), list(filter(None, self.more)), list(filter(None, self.always))
        room = options.max_width - self.mark.cell_len - title.cell_len - sum(part.cell_len + 2 for part in always)
        while more and sum(part.cell_len + 2 for part in more) > room:
            more.pop(0)
        if room < 0:
            title.truncate(max(title.cell_len + room, _LEAST_TITLE), overflow="ellipsis")
        line = self.mark.copy().append_text(Text("  ").join([title, *more, *always]))
        line.truncate(options.max_width, overflow="ellipsis")
        yield line


def _short(text: str) -> str:
    return one_line(text, _STEP_CHARS)


def _final_mark(status: str, verdict: str, level: Level | None) -> tuple[str, str]:
    """Mark and style of a finished task. Without criteria, the status of its child counts."""
    if level is not None:
        mark, style = _ENDS[verdict]
        return f"{mark} ({level.replace('_', ' ')})", style if level in ("proven", "seen") else "bold yellow"
    if verdict == "no criteria" and status != "completed":
        return f"✗ {status}", "bold red"
    return _ENDS.get(verdict, (verdict, "bold"))

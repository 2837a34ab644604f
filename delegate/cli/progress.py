"""Shows a live tree with one branch per task on stderr, if stderr is a terminal that can redraw."""

import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from delegate._util.fencing import one_line
from delegate.contract.amounts import counted
from delegate.ports import Event, EventSink

_ENDS = {"PASS": ("✓ PASS", "bold green"), "FAIL": ("✗ FAIL", "bold red"), "no criteria": ("• done", "bold yellow")}
_SPIN = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TITLE_CHARS = 60


@contextmanager
def live(titles: Sequence[str]) -> Generator[EventSink | None]:
    """Show the tree while the block runs. Yields the sink for its events, or None if nothing is shown."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        yield None
        return
    progress = RunProgress(titles)
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    # stdout isn't redirected, because results must not end up on stderr.
    with Live(get_renderable=progress.tree, console=console, refresh_per_second=12, redirect_stdout=False):
        yield progress.show


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


class RunProgress:
    """The progress of every task, updated by events. `clock` returns seconds."""

    def __init__(self, titles: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._branches = {n: _Branch(one_line(title, _TITLE_CHARS)) for n, title in enumerate(titles)}

    def show(self, event: Event) -> None:
        """Apply one event. The next redraw shows it."""
        n = event.task_index
        branch = self._branches.setdefault(n, _Branch(f"task {n + 1}"))
        text = one_line(event.text, 80)
        match event.kind:
            case "child_started":
                branch.started, branch.model, branch.doing = self._clock(), text, "thinking"
            case "model_called":
                branch.calls += 1
                branch.doing = text or "thinking"
            case "task_queued" | "task_ended":
                pass
            case "tool_started":
                branch.doing = text
            case "tool_called":
                branch.tools += 1
                failed = event.data.get("status", "ok") != "ok"
                branch.doing = f"{text} ({event.data['status']})" if failed else text
            case "child_ended":
                branch.status, branch.doing = text, "checking" if text == "completed" else text
            case "check_ended":
                branch.checks.append(str(event.data.get("outcome", "")))
                branch.doing = f"check: {text}"
            case "judge_asked":
                branch.doing = f"asking {text} to judge"
            case "judged":
                branch.verdict, branch.ended = text, self._clock()

    def tree(self) -> Tree:
        """The current tree."""
        if not self._branches:
            return Tree("", hide_root=True)
        done = sum(branch.verdict is not None for branch in self._branches.values())
        tree = Tree(Text(f"delegate · {done} of {len(self._branches)} done", "bold"), guide_style="dim")
        for n, branch in sorted(self._branches.items()):
            tree.add(self._branch(n, branch))
        return tree

    def _branch(self, n: int, branch: _Branch) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        if branch.verdict is None:
            line.append(_SPIN[int(self._clock() * 10) % len(_SPIN)], "green").append(" ")
        else:
            line.append(*_final_mark(branch.status, branch.verdict)).append("  ")
        line.append(f"{n + 1}. {branch.title}").append(f"  {branch.model}", "cyan")
        line.append(f"  {self._counts(branch)}", "dim")
        return line if branch.verdict is not None else line.append(f"  {branch.doing}", "yellow")

    def _counts(self, branch: _Branch) -> str:
        parts = [counted(branch.calls, "call"), counted(branch.tools, "tool")]
        if branch.checks:
            parts.append(f"checks {branch.checks.count('met')}/{len(branch.checks)}")
        if branch.started is not None:
            parts.append(f"{(branch.ended or self._clock()) - branch.started:.1f} s")
        return " · ".join(parts)


def _final_mark(status: str, verdict: str) -> tuple[str, str]:
    """Mark and style of a finished task. Without criteria, the status of its child counts."""
    if verdict == "no criteria" and status != "completed":
        return f"✗ {status}", "bold red"
    return _ENDS.get(verdict, (verdict, "bold"))

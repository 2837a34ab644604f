"""Shows the verdicts of a call in Hermes's terminal.

Of the result of a plugin's tool, Hermes's terminal shows nothing but an error: its line for a call has the tool's name
and the time. Hermes itself prints lines above its prompt with `print`, so a plugin can, too. On other platforms, the
verdicts are only in the result that the parent's model reads.
"""

import sys

from delegate._util.fencing import one_line
from delegate.hosts.hermes.compat import hermes_attribute
from delegate.types import Report, TaskResult

_TERMINAL = "cli"
_EMOJI = "⚖️"
_MAX_CHARS = 100
_MAX_CODE_CHARS = 40


def show(report: Report, platform: str) -> None:
    """Print the verdicts as one line if the session's user reads a terminal. Never raises."""
    if platform != _TERMINAL:
        return
    find_prefix = hermes_attribute("agent.display", "get_skin_tool_prefix")
    try:
        if sys.stdout.isatty():  # the output of a single query is for programs
            prefix = find_prefix() if find_prefix else "┊"
            # At the start of the line, where Hermes may have a spinner.
            print(f"\r  {prefix} {_EMOJI}  verdict   {summary(report)}", flush=True)  # noqa: T201
    except (OSError, ValueError):  # the terminal is gone
        pass


def summary(report: Report) -> str:
    """The verdicts in a few words, such as `2 of 3 PASS; task 3 FAIL not_met`. People count tasks from 1."""
    if report.error is not None:
        return one_line(f"refused, {report.error.code}: {report.error.message}", _MAX_CHARS)
    passed = sum(result.verdict is not None and result.verdict.verdict == "PASS" for result in report.results)
    judged = sum(result.verdict is not None for result in report.results)
    parts = [f"{passed} of {judged} PASS"] if judged else []
    several = len(report.results) > 1
    return one_line("; ".join(parts + [text for one in report.results if (text := _problem(one, several))]), _MAX_CHARS)


def _problem(result: TaskResult, several: bool) -> str:
    """What is to be said of a task that didn't get a PASS."""
    verdict, task = result.verdict, f"task {result.task_index + 1} " if several else ""
    if verdict is None:
        return f"{task}no verdict" + ("" if result.status == "completed" else f", {result.status}")
    return "" if verdict.verdict == "PASS" else f"{task}FAIL {one_line(verdict.code, _MAX_CODE_CHARS)}"

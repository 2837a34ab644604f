"""Shows the verdicts of a call in Hermes's terminal.

Of the result of a plugin's tool, Hermes's terminal shows nothing but an error: its line for a call has the tool's name
and the time. Hermes itself prints lines above its prompt with `print`, so a plugin can, too. On other platforms, the
verdicts are only in the result that the parent's model reads.
"""

import sys

from delegate._util.fencing import one_line
from delegate.contract import headline
from delegate.hosts.hermes.compat import hermes_attribute
from delegate.types import RunResult

_MAX_CHARS = 100


def show(run: RunResult, platform: str) -> None:
    """Print the verdicts as one line if the session's user reads a terminal. Never raises."""
    if platform != "cli":
        return
    find_prefix = hermes_attribute("agent.display", "get_skin_tool_prefix")
    try:
        if sys.stdout.isatty():  # the output of a single query is for programs
            prefix = find_prefix() if find_prefix else "┊"
            # At the start of the line, where Hermes may have a spinner.
            print(f"\r  {prefix} ⚖️  verdict   {summary(run)}", flush=True)  # noqa: T201
    except (OSError, ValueError):  # the terminal is gone
        pass


def summary(run: RunResult) -> str:
    """The verdicts in one line, or why the call was refused."""
    if run.error is not None:
        return one_line(f"refused, {run.error.code}: {run.error.message}", _MAX_CHARS)
    return headline(run.results)

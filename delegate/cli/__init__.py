"""The `delegate` command. Results go to stdout, progress to stderr, and an error is one line on stderr.

Exit codes: 0 if every verdict is PASS (a task without criteria must have completed), 1 if any work is bad, any child
didn't complete or `--out` couldn't copy a file, 2 for invalid usage or settings, 3 if no work is bad but a child
couldn't run or its work couldn't be examined, 130 if interrupted before there was a report. See `exits.py`.
"""

import sys
from typing import NoReturn

PROGRAM = "delegate"
OLDEST_PYTHON = (3, 11)
"""As `requires-python` in pyproject.toml."""


def main() -> None:
    """Run the command line and exit the process. Shows a traceback only under `python -X dev`."""
    if sys.version_info < OLDEST_PYTHON:  # pip refuses it, but not everybody runs what pip installed
        _exit_for_old_python()
    from delegate.cli.process import run  # no older Python reads its patterns

    run()


def _exit_for_old_python() -> NoReturn:
    found, needed = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST_PYTHON))
    fix = f"make an environment with a newer one, such as `python{needed} -m venv .venv`"
    print(f"{PROGRAM}: this is Python {found}, but {PROGRAM} needs {needed} or newer; {fix}", file=sys.stderr)
    sys.exit(2)

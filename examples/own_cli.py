"""A command line program as the child: a coding agent, a script, or here `cp`.

Shows that a verdict depends on the work alone. The program runs in a folder of its own, reads the task on
stdin, and prints its report. Checks decide here, so no model is asked and no key is needed.

    python examples/own_cli.py                                            # cp does the work: PASS
    python examples/own_cli.py echo "I wrote backup.csv."                 # a claim and no work: FAIL
    python examples/own_cli.py claude -p --permission-mode acceptEdits    # Claude Code, with its own login
"""

import sys
from pathlib import Path

from delegate import Delegator, Task
from delegate.child.command import CommandRunner
from delegate.types import FileCriterion, ShellCriterion, Workspace

TASK = Task(
    goal="Copy tickets.csv to backup.csv.",
    workspace=Workspace(mode="copy", path=Path(__file__).parent),  # the child works in a copy of this folder
    acceptance_criteria=(
        FileCriterion(kind="file", path="backup.csv"),
        ShellCriterion(kind="shell", command="cmp tickets.csv backup.csv"),
    ),
)


def main(command: list[str]) -> int:
    with Delegator(runner=CommandRunner(command)) as delegator:
        result = delegator.run_sync(TASK)
        print(delegator.render(result))
    return 0 if result.all_pass else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["cp", "-v", "tickets.csv", "backup.csv"]))

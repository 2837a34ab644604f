"""The exit codes of the commands that give verdicts: `run`, `call`, `batch` and `judge`."""

from delegate.batch.batch import Tally
from delegate.types import RunResult, Verdict

SUCCESS = 0
"""Every verdict is PASS; a task without criteria completed."""
BAD_WORK = 1
"""At least one verdict is FAIL because of the work, or a child didn't complete its task."""
INVALID = 2
"""Refused before anything ran: the command, a file or a setting can't be used, or there is no model for a child."""
NOT_EXAMINED = 3
"""No work was found to be bad, but some couldn't be examined: a child or its judge couldn't run."""


def of_result(result: RunResult) -> int:
    """The exit code for a result."""
    if result.error is not None:
        return INVALID
    return _code(result.all_pass, result.examined)


def of_verdict(verdict: Verdict) -> int:
    """The exit code for a verdict on existing work."""
    return _code(verdict.verdict == "PASS", verdict.examined)


def of_batch(tally: Tally) -> int:
    """The exit code for a batch."""
    return _code(tally.all_good, tally.bad_work > 0)


def _code(success: bool, examined: bool) -> int:
    if success:
        return SUCCESS
    return BAD_WORK if examined else NOT_EXAMINED

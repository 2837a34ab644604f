"""The parts of a task's result that follow from the child's run and its verdict."""

import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from delegate.judging.report_json import parse_json
from delegate.records.recorder import encodable
from delegate.types import ChildRun, GoalEnd, Receipt, ReceiptCounts, Task, Verdict


def report_of(child: ChildRun, handle: str, max_chars: int) -> str:
    """The report, or its beginning and how the rest is read."""
    summary, more = child.report[:max_chars], len(child.report) - max_chars
    return f"{summary}\n[cut here: {more} more characters, to be read by handle {handle}]" if more > 0 else summary


def structured_output(task: Task, child: ChildRun) -> Any:
    """The value that the report is, if one was asked for."""
    if task.output_schema is not None and child.status == "completed":
        with suppress(ValueError):
            return encodable(parse_json(child.report))
    return None


def goal_end(task: Task, child: ChildRun, verdict: Verdict | None) -> GoalEnd | None:
    """How work in goal mode ended; None for another mode, and where an error or a cancel ended it."""
    if task.mode != "goal":
        return None
    if child.status == "completed":
        return "verified" if verdict is not None and verdict.verdict == "PASS" else "budget_limited"
    code = child.error.code if child.error is not None else None
    if child.status in ("max_steps", "timeout", "budget_exceeded"):
        return "budget_limited"
    return cast("GoalEnd", code) if code in ("aborted", "no_progress") else None


def program() -> str:
    """What a shell calls this program: by its path if it isn't on the PATH, as in most virtual environments."""
    if shutil.which("delegate"):
        return "delegate"
    beside = Path(sys.executable).with_name("delegate")
    return shlex.quote(str(beside)) if beside.exists() else f"{shlex.quote(sys.executable)} -P -m delegate"


def receipt_counts(receipts: Sequence[Receipt], *, recorded: bool) -> ReceiptCounts:
    return ReceiptCounts(
        recorded=recorded,
        total=len(receipts),
        why_denied=next((receipt.output for receipt in receipts if receipt.status == "denied"), None),
        tools=dict(Counter(receipt.tool for receipt in receipts if receipt.status == "ok")),
        **Counter(receipt.status for receipt in receipts),
    )

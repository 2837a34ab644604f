"""Builds a task's result from the child's run, the verdict and the costs."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from delegate.budget import costs
from delegate.judging.output import parse_json
from delegate.models.catalog import Model
from delegate.records.recorder import encodable
from delegate.types import (
    ChildRun,
    Claim,
    ErrorDetail,
    FailedModel,
    GoalEnd,
    Receipt,
    ReceiptCounts,
    Task,
    TaskResult,
    Totals,
    Verdict,
)


def build_result(
    task: Task,
    child: ChildRun,
    verdict: Verdict | None,
    *,
    claims: Sequence[Claim],
    index: int,
    handle: str,
    requested: Model | None,
    failed_models: Sequence[FailedModel],
    served: Model | None,
    workspace: Path | None,
    no_take_over: str | None,
    delegated: Sequence[Totals],
    tools_recorded: bool,
    seconds: float,
    summary_chars: int,
) -> TaskResult:
    """Build the result of a task whose child has finished and, if the task has criteria, was judged.

    `requested` is the model selected for the child (None if its runner brings its own), `failed_models` are those that
    it replaced, and `served` is the catalog's model that actually answered. `no_take_over` is as in `Folder`.
    `delegated` has the totals of each task that the child delegated. `seconds` is the wall time of the whole task.
    """
    below = costs.combined(delegated, sum(totals.seconds for totals in delegated)) if delegated else None
    judging = costs.of_judging(verdict, claims)
    whole = costs.of_task(child, judging, below)
    judging_usd = costs.sum_usd((judging.cost_usd, below.judge_cost_usd if below else 0))
    summary, more = child.output[:summary_chars], len(child.output) - summary_chars
    if more > 0:
        summary = f"{summary}\n[cut here: {more} more characters, to be read by handle {handle}]"
    structured: Any = None
    if task.output_schema is not None and child.status == "completed":
        with suppress(ValueError):
            structured = encodable(parse_json(child.output))
    return TaskResult(
        verdict=verdict,
        task_index=index,
        status=child.status,
        summary=summary,
        structured_output=structured,
        artifacts=tuple(one for one in child.artifacts if one.path[:3] != "../"),  # without the diff of a worktree
        receipts=_counts(child.receipts, recorded=tools_recorded),
        error=child.error,
        model=child.model or (requested.id if requested else None),
        requested_model=requested.id if requested else None,
        substituted=child.substituted,
        failed_models=tuple(failed_models),
        tier=served.tier if served else None,
        usage=child.usage,
        cost_usd=whole.cost_usd,
        cost_known_usd=whole.known_usd,
        cost_provenance=whole.provenance,
        verification_share=costs.share(judging_usd, whole.cost_usd),
        delegated=below,
        seconds=round(seconds, 6),
        goal_end=_goal_end(task, child, verdict),
        claims=tuple(claims),
        workspace=str(workspace) if workspace and workspace.is_dir() else None,
        take_over=f"{program()} take-over {handle}" if no_take_over == "" else None,
        no_take_over=no_take_over or None,
        handle=handle,
    )


def internal_error_result(error: Exception, *, index: int, handle: str) -> TaskResult:
    detail = ErrorDetail(code="internal_error", message=f"{type(error).__name__}: {error}")
    return TaskResult(verdict=None, task_index=index, status="failed", summary="", error=detail, handle=handle)


def _goal_end(task: Task, child: ChildRun, verdict: Verdict | None) -> GoalEnd | None:
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


def _counts(receipts: Sequence[Receipt], *, recorded: bool) -> ReceiptCounts:
    statuses = [receipt.status for receipt in receipts]
    succeeded = [receipt.tool for receipt in receipts if receipt.status == "ok"]
    return ReceiptCounts(
        recorded=recorded,
        total=len(receipts),
        ok=statuses.count("ok"),
        error=statuses.count("error"),
        denied=statuses.count("denied"),
        why_denied=next((receipt.output for receipt in receipts if receipt.status == "denied"), None),
        timeout=statuses.count("timeout"),
        unknown=statuses.count("unknown"),
        tools={tool: succeeded.count(tool) for tool in dict.fromkeys(succeeded)},
    )

"""Builds a task's result from the child's run, the verdict and the costs."""

import shlex
import shutil
import sys
from collections.abc import Sequence
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

    `claims` are those of a child in goal mode; the verdict is then that of the last one, or the gate's.
    `requested` is the model selected for the child (None if its runner brings its own), `failed_models` are those that
    it replaced, and `served` is the catalog's model that actually answered. `no_take_over` is as in `Folder`.
    `delegated` has the totals of each task that the child delegated. `tools_recorded` is whether its tool calls were
    recorded. `seconds` is the wall time of the whole task, and `summary_chars` the maximum length of the child's report
    in the result.
    """
    below = costs.combined(delegated, sum(totals.seconds for totals in delegated)) if delegated else None
    judging = costs.of_judging(verdict, claims)
    whole = costs.of_task(child, judging, below)
    judging_usd = costs.sum_usd((judging.cost_usd, below.judge_cost_usd if below else 0))
    return TaskResult(
        verdict=verdict,
        task_index=index,
        status=child.status,
        summary=_cut(child.output, summary_chars, handle),
        structured_output=_structured(task, child),
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
    """Build the result of a task that failed because of an error inside delegate."""
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


def _cut(output: str, limit: int, handle: str) -> str:
    if len(output) <= limit:
        return output
    return f"{output[:limit]}\n[cut here: {len(output) - limit} more characters, to be read by handle {handle}]"


def _structured(task: Task, child: ChildRun) -> Any:
    if task.output_schema is None or child.status != "completed":
        return None
    try:
        return encodable(parse_json(child.output))
    except ValueError:
        return None


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

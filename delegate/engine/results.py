"""A task's one result, made of what its child left, what the verdict says, and what all of it came to."""

from collections.abc import Sequence
from typing import Any

from delegate.budget import costs
from delegate.engine.task_run import Order
from delegate.judging.output import parse_json
from delegate.records.recorder import encodable
from delegate.types import ChildRun, ErrorDetail, Receipt, ReceiptCounts, Task, TaskResult, Totals, Verdict


def result_of(
    order: Order,
    child: ChildRun,
    verdict: Verdict | None,
    *,
    delegated: Sequence[Totals],
    recorded: bool,
    seconds: float,
    chars: int,
) -> TaskResult:
    """The result of a task whose child has ended, and was judged where there was something to judge by.

    `delegated` is what each task came to that the child delegated in its turn; `recorded`, whether its tool calls were;
    `seconds`, all the time it took; `chars`, how much of its report the result may hold.
    """
    below = costs.combined(delegated, sum(one.seconds for one in delegated)) if delegated else None
    whole = costs.of_task(child, verdict, below)
    judging_usd = costs.sum_usd((costs.of_judge(verdict).cost_usd, below.judge_cost_usd if below else 0))
    asked, served = order.model, order.assignment.served(child)
    return TaskResult(
        verdict=verdict,
        task_index=order.index,
        status=child.status,
        summary=_cut(child.output, chars, order.handle),
        structured_output=_structured(order.task, child),
        artifacts=child.artifacts,
        receipts=_counts(child.receipts, recorded=recorded),
        error=child.error,
        model=child.model or (asked.id if asked else None),
        requested_model=asked.id if asked else None,
        substituted=child.substituted,
        tier=served.tier if served else None,
        usage=child.usage,
        cost_usd=whole.cost_usd,
        cost_known_usd=whole.known_usd,
        cost_provenance=whole.provenance,
        verification_share=costs.share(judging_usd, whole.cost_usd),
        delegated=below,
        seconds=round(seconds, 6),
        workspace=str(order.folder.root) if order.folder and order.folder.root.is_dir() else None,
        handle=order.handle,
    )


def result_of_a_fault(order: Order, error: Exception) -> TaskResult:
    """The result of a task that was lost to a fault of ours."""
    detail = ErrorDetail(code="internal_error", message=f"{type(error).__name__}: {error}")
    return TaskResult(
        verdict=None, task_index=order.index, status="failed", summary="", error=detail, handle=order.handle
    )


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


def _counts(receipts: Sequence[Receipt], *, recorded: bool) -> ReceiptCounts:
    statuses = [receipt.status for receipt in receipts]
    succeeded = [receipt.tool for receipt in receipts if receipt.status == "ok"]
    return ReceiptCounts(
        recorded=recorded,
        total=len(receipts),
        ok=statuses.count("ok"),
        error=statuses.count("error"),
        denied=statuses.count("denied"),
        timeout=statuses.count("timeout"),
        tools={tool: succeeded.count(tool) for tool in dict.fromkeys(succeeded)},
    )

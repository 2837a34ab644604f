"""Formats times and bills for pages."""

import time

from delegate._util.fencing import one_line
from delegate.budget import costs
from delegate.contract.amounts import cost, percent
from delegate.pages.values import BillRow
from delegate.types import TaskResult, Totals, Usage
from delegate.types.money import rough_usd, usd


def duration(seconds: float) -> str:
    """A duration in the units that suit it: `40 ms`, `0.3 s`, `48 s`, `2 min 5 s`, `1 h 12 min`."""
    if seconds < 0.0995:
        return f"{max(0, seconds) * 1_000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3_600:,} h {whole % 3_600 // 60} min"


def when(at: float) -> str:
    """A timestamp in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def money(of: Totals | TaskResult) -> str:
    """A cost for a headline: rounded to cents where it is above one, or `cost unknown` with the known part."""
    if of.cost_usd is None:
        known = f" (known part {usd(of.cost_known_usd, 'short')})" if of.cost_known_usd else ""
        return f"cost unknown{known}"
    return usd(of.cost_usd, "short") + (" (estimated)" if of.cost_provenance == "estimated" else "")


def task_bill(result: TaskResult) -> list[BillRow]:
    """The lines of the child, its judges and what it delegated, and their total."""
    rows: list[BillRow] = []
    delegated = result.delegated
    if result.usage.model_calls or result.usage.total_tokens or result.cost_usd is not None:
        model = result.model or result.requested_model or ""
        own = rough_usd(costs.child_usd(result), estimated=result.cost_provenance == "estimated")
        rows.append(_row("child", model, result.usage, own))
    record = result.verdict.judge if result.verdict else None
    if result.claims:
        claims = [claim for claim in result.claims if claim.usage.model_calls or claim.cost_usd is None]
        rows += [_row("judge", f"of claim {claim.n}", claim.usage, cost(claim)) for claim in claims]
    elif record is not None and record.attempts:
        rows.append(_row("judge", record.model or record.attempts[-1].model, record.usage, cost(record)))
    if delegated is not None and delegated.tasks:
        usage = delegated.child_usage + delegated.judge_usage
        rows.append(_row(f"{delegated.tasks} delegated", "", usage, cost(delegated)))
    share = result.verification_share
    note = f"{percent(share)} for judging" if share is not None and record is not None else ""
    return [*rows, BillRow("total", note, "", "", cost(result), is_total=True)] if rows else []


def run_bill(totals: Totals) -> list[BillRow]:
    """The lines of all children, of all judges, and their total."""
    share = totals.verification_share
    note = f"{percent(share)} for judging" if share is not None else ""
    estimated = totals.cost_provenance == "estimated"
    return [
        _row("children", "", totals.child_usage, rough_usd(totals.child_cost_usd, estimated=estimated)),
        _row("judges", "", totals.judge_usage, rough_usd(totals.judge_cost_usd, estimated=estimated)),
        BillRow("total", note, "", "", cost(totals), is_total=True),
    ]


def _row(who: str, model: str, usage: Usage, amount: str) -> BillRow:
    tokens = f"{usage.input_tokens:,} in, {usage.output_tokens:,} out"
    return BillRow(who, one_line(model, 80), f"{usage.model_calls:,}", tokens, amount)

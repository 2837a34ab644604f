"""Formats the costs of a task, a verdict or a run: tokens, cost and share of the child and of each judge.

Model names come from providers, so they are passed through `one_line` before they reach a terminal.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from delegate._util.fencing import one_line
from delegate.budget import costs
from delegate.contract.amounts import cost, counted, out_of_budget, paid, percent, tally
from delegate.types import Claim, JudgeAttempt, RunResult, TaskResult, Usage, Verdict, answered
from delegate.types.money import usd


def task_costs(result: TaskResult) -> list[str]:
    """One line each for the child, the judges and delegated tasks, and one for the total."""
    lines = [*_child(result), *_judge(result.verdict, result.verification_share, result.claims)]
    if (delegated := result.delegated) is not None and delegated.tasks:
        lines.append(f"delegated: {paid(delegated)}, {counted(delegated.tasks, 'task')} ({tally(delegated)})")
    return [one_line(text, 400) for text in (*lines, f"total: {cost(result)}, {result.seconds:.1f} s")]


def judging_costs(verdict: Verdict) -> list[str]:
    """The lines of the judges of a verdict."""
    return [one_line(text, 400) for text in _judge(verdict, None)]


def totals_line(run: RunResult) -> str:
    """Counts of verdicts, the total cost, and the share of it that verification took."""
    totals = run.totals
    counts = f"{totals.passed} PASS, {totals.failed} FAIL"
    counts += f", {totals.unjudged} without criteria" if totals.unjudged else ""
    parts = [counts]
    if stopped := sum(map(out_of_budget, run.results)):
        parts.append(f"{stopped} stopped by the budget")
    parts.append(f"cost {cost(totals)}")
    if totals.verification_share is not None and totals.passed + totals.failed:
        parts.append(f"verification {percent(totals.verification_share)} of the cost")
    return " · ".join([*parts, f"{totals.seconds:.1f} s"])


def _child(result: TaskResult) -> Iterator[str]:
    name = _name(result.requested_model, result.model, substituted=result.substituted)
    if not name and not result.usage.model_calls and not result.usage.total_tokens:
        return
    yield f"child{name}: {', '.join([*_own_cost(result), *_used(result.usage)])}"


def _own_cost(result: TaskResult) -> list[str]:
    """The cost of the child, if the costs of the judges and of delegated tasks are known."""
    judge, delegated = costs.of_judging(result.verdict, result.claims), result.delegated
    if None in (judge.cost_usd, delegated.cost_usd if delegated else 0) or not result.usage.model_calls:
        return []
    if (own := costs.child_usd(result)) is None:
        return ["cost unknown"]
    others_observed = {judge.provenance, delegated.cost_provenance if delegated else "observed"} == {"observed"}
    note = " (estimated)" if others_observed and result.cost_provenance == "estimated" else ""
    return [usd(own) + note]


def _judge(verdict: Verdict | None, share: float | None, claims: Sequence[Claim] = ()) -> Iterator[str]:
    """The judge of a verdict. Its cost includes that of the judges of earlier claims."""
    record = verdict.judge if verdict else None
    if verdict is None or record is None:
        return
    if claims:
        record = record.model_copy(update=costs.of_judging(verdict, claims).fields)
    yield from _escalation(verdict, record.attempts)
    if record.model is not None:
        part = [f"{percent(share)} of the cost"] if share is not None else []
        # The names of all judges that answered, the deciding one last. The cost covers all of them.
        models = dict.fromkeys(attempt.model for attempt in answered(record.attempts))
        others = [f" {model}," for model in models if model != record.model]
        names = "".join(others) + _name(record.model, record.model_served, substituted=record.substituted)
        costs_of = ", ".join([paid(record), *part, *_used(record.usage)])
        yield f"judge{'s' if others else ''}{names}: {costs_of}"


def _escalation(verdict: Verdict, attempts: Sequence[JudgeAttempt]) -> Iterator[str]:
    """What the first judge left undecided, and whether the next judge decided it."""
    for first, second in pairwise(answered(attempts)):
        if not first.answers:
            continue
        undecided = [answer.id for answer in first.answers]
        results = (one for one in verdict.criteria if one.id in undecided and one.code != "evidence_not_found")
        decided = [one.id for one in results if one.outcome in ("met", "not_met")]
        if len(decided) == len(undecided):
            end = f"{second.model} decided"
        else:
            end = f"{second.model} decided only {', '.join(decided)}" if decided else f"{second.model} couldn't either"
        lacked = {"couldn't decide" if one.outcome == "cannot_tell" else "couldn't prove" for one in first.answers}
        yield f"first judge {first.model} {' or '.join(sorted(lacked))} {', '.join(undecided)}; {end}"


def _name(requested: str | None, served: str | None, *, substituted: bool) -> str:
    if substituted and requested and served:
        return f" (requested {one_line(requested, 80)}, served {one_line(served, 80)})"
    name = served or requested
    return f" {one_line(name, 80)}" if name else ""


def _used(usage: Usage) -> list[str]:
    if not usage.model_calls and not usage.total_tokens:
        return ["no model calls"]
    tokens_in, tokens_out = f"{usage.input_tokens:,} tokens in", f"{usage.output_tokens:,} out"
    tokens_in += f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    tokens_out += f" ({usage.reasoning_tokens:,} reasoning)" if usage.reasoning_tokens else ""
    calls = [counted(usage.model_calls, "call")] if usage.model_calls else []  # some programs report tokens alone
    return [*calls, tokens_in, tokens_out]

"""The bill of a task, a verdict or a report, as people read it: who used what, at what cost, for what share.

Names of models come from providers, and reach a terminal through `one_line` only.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.text import Text

from delegate._util.fencing import one_line
from delegate.budget import costs
from delegate.contract.amounts import cost, counted, out_of_budget, paid, percent, tally, usd
from delegate.types import JudgeAttempt, JudgeRecord, Report, TaskResult, Usage, Verdict


def task_bill(result: TaskResult) -> list[Text]:
    """A line for each party that was paid, and one for the whole."""
    whole = [f"cost {cost(result)}", f"{result.seconds:.1f} s"]
    whole += [f"handle {result.handle}"] if result.handle else []
    parties = (*_child(result), *_judge(result.verdict, result.verification_share), *_delegated(result))
    return [_line(text) for text in (*parties, " · ".join(whole))]


def verdict_bill(verdict: Verdict) -> list[Text]:
    """The same for a verdict by itself."""
    return [_line(text) for text in _judge(verdict, None)]


def totals_line(report: Report) -> str:
    """How many passed and failed, the cost, and the headline: what part of it went to verification."""
    totals = report.totals
    counts = f"{totals.passed} PASS, {totals.failed} FAIL"
    counts += f", {totals.unjudged} without criteria" if totals.unjudged else ""
    parts = [counts]
    if stopped := sum(map(out_of_budget, report.results)):
        parts.append(f"{stopped} stopped by the budget")
    parts.append(f"cost {cost(totals)}")
    if totals.verification_share is not None and totals.passed + totals.failed:
        parts.append(f"verification {percent(totals.verification_share)} of the cost")
    return " · ".join([*parts, f"{totals.seconds:.1f} s"])


def _line(text: str) -> Text:
    return Text("  ").append(one_line(text, 400), "dim")


def _child(result: TaskResult) -> Iterator[str]:
    name = _name(result.requested_model, result.model, substituted=result.substituted)
    if not name and not result.usage.model_calls:
        return
    yield f"child{name}: {', '.join([*_own_cost(result), *_used(result.usage)])}"


def _own_cost(result: TaskResult) -> list[str]:
    """The child's part of the cost, where it can be told from the others'."""
    judge, below = costs.of_judge(result.verdict), result.delegated
    others = costs.sum_usd((judge.cost_usd, below.cost_usd if below else 0))
    if others is None or not result.usage.model_calls:
        return []
    if result.cost_usd is None:
        return ["cost unknown"]
    others_are_sure = {judge.provenance, below.cost_provenance if below else "observed"} == {"observed"}
    guess = " (estimated)" if others_are_sure and result.cost_provenance == "estimated" else ""
    return [usd(max(0, round(result.cost_usd - others, 9))) + guess]


def _judge(verdict: Verdict | None, share: float | None) -> Iterator[str]:
    record = verdict.judge if verdict else None
    if verdict is None or record is None:
        return
    yield from _misses(record.attempts)
    yield from _escalation(verdict, record.attempts)
    if record.model is not None:
        of_all = [f"{percent(share)} of the cost"] if share is not None else []
        yield f"{_judges(record, record.model)}: {', '.join([paid(record), *of_all, *_used(record.usage)])}"


def _misses(attempts: Sequence[JudgeAttempt]) -> Iterator[str]:
    """The judges that were asked in vain."""
    for attempt in attempts:
        why = one_line(attempt.message, 100)
        if attempt.fault is not None:
            fault = attempt.fault.replace("_", " ")
            yield f"judge {attempt.model} gave no answer ({fault}{': ' if why else ''}{why})"
        elif why:
            yield f"judge {attempt.model} was of no use ({why})"


def _escalation(verdict: Verdict, attempts: Sequence[JudgeAttempt]) -> Iterator[str]:
    """What the first judge left open, and whether the one that was asked after it could decide it."""
    for first, second in pairwise(attempt for attempt in attempts if attempt.fault is None):
        if not first.answers:
            continue
        left_open = [answer.id for answer in first.answers]
        results = [one for one in verdict.criteria if one.id in left_open]
        decided = [one.id for one in results if one.outcome in ("met", "not_met") and one.code != "evidence_not_found"]
        if len(decided) == len(left_open):
            end = f"{second.model} decided"
        else:
            end = f"{second.model} decided {', '.join(decided)} only" if decided else f"nor could {second.model}"
        yield f"first judge {first.model} {_lack(first)} {', '.join(left_open)}; {end}"


def _lack(first: JudgeAttempt) -> str:
    """What it lacked: an opinion, or the evidence for it."""
    lacks = {"couldn't tell" if answer.outcome == "cannot_tell" else "couldn't prove" for answer in first.answers}
    return " or ".join(sorted(lacks, reverse=True))


def _judges(record: JudgeRecord, name: str) -> str:
    """All that answered, the one with the last word at the end: the bill is that of all."""
    answered = [attempt.model for attempt in record.attempts if attempt.fault is None]
    others = [f" {one}," for one in dict.fromkeys(answered) if one != name]
    last = _name(name, record.model_served, substituted=record.substituted)
    return f"judge{'s' if others else ''}{''.join(others)}{last}"


def _delegated(result: TaskResult) -> Iterator[str]:
    below = result.delegated
    if below is not None and below.tasks:
        yield f"delegated: {paid(below)}, {counted(below.tasks, 'task')} ({tally(below)})"


def _name(asked: str | None, served: str | None, *, substituted: bool) -> str:
    if substituted and asked and served:
        return f" (asked for {one_line(asked, 80)}, served {one_line(served, 80)})"
    name = served or asked
    return f" {one_line(name, 80)}" if name else ""


def _used(usage: Usage) -> list[str]:
    if not usage.model_calls and not usage.total_tokens:
        return ["no model calls"]
    read, written = f"{usage.input_tokens:,} tokens in", f"{usage.output_tokens:,} out"
    read += f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    written += f" ({usage.reasoning_tokens:,} reasoning)" if usage.reasoning_tokens else ""
    return [counted(usage.model_calls, "call"), read, written]

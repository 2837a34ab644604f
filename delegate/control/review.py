"""Writes what a worker is told about a verdict that refused its work: what failed, and how its checks ended."""

from collections.abc import Iterator, Sequence

from delegate._util.fencing import clean, one_line
from delegate.types import PASSING, CriterionResult, Verdict

MAX_CRITERIA = 20
_TEXT_CHARS, _REASON_CHARS = 300, 600
_TAIL_LINES = 10


def refusal(verdict: Verdict) -> str:
    """The failing criteria with their reasons, and the last lines of their checks.

    It has nothing of what a judge was shown: neither its prompt nor its quotes, which may be of anything. Text from
    checks and judges is cleaned, but it remains data: frame it where a model reads it.
    """
    failing = refused_criteria(verdict)
    if not verdict.examined:
        head = f"Verification wasn't possible ({verdict.code}), which says nothing about the work:"
    elif failing:
        total = len(verdict.criteria)
        head = f"Verification failed: {len(failing)} of {total} {'criterion' if total == 1 else 'criteria'}."
    else:
        head = f"Verification failed ({verdict.code}):"
    lines = [head]
    if not failing:
        lines.append(one_line(verdict.reasoning or verdict.code, _REASON_CHARS))
    for criterion in failing[:MAX_CRITERIA]:
        lines += _failing(criterion)
    if len(failing) > MAX_CRITERIA:
        lines.append(f"- and {len(failing) - MAX_CRITERIA} more")
    if waiting := [criterion.id for criterion in verdict.criteria if criterion.outcome == "skipped"] if failing else []:
        lines.append(f"Not looked at, since others failed: {', '.join(waiting)}")
    return "\n".join(lines)


def refused_criteria(verdict: Verdict) -> Sequence[CriterionResult]:
    """The criteria for which a verdict isn't a verified PASS.

    Those that fail; if none does, those that are met on less than evidence; if there are none either, those that held
    before.
    """
    if failing := [criterion for criterion in verdict.criteria if criterion.fails]:
        return failing
    good = [criterion for criterion in verdict.criteria if criterion.outcome in PASSING and not criterion.findings_only]
    weak = ("own_checks", "trusted")
    if unproven := [one for one in good if one.level in weak or (one.level is None and one.code != "met")]:
        return unproven
    more = [criterion for criterion in good if criterion.level != "said"]  # as was asked for
    return more if all(criterion.held_before for criterion in more) else []


def _failing(criterion: CriterionResult) -> Iterator[str]:
    what = "met, but not shown" if criterion.outcome == "met" else criterion.outcome.replace("_", " ")
    why = "" if criterion.code == criterion.outcome else f", {criterion.code}"
    yield f"- {criterion.id} ({what}{why}): {one_line(criterion.text, _TEXT_CHARS)}"
    if criterion.reason:
        yield f"  {one_line(criterion.reason, _REASON_CHARS)}"
    if criterion.evidence and criterion.source == f"check:{criterion.id}":  # a judge quotes checks of other criteria
        yield "  the last lines of its output:"
        for line in clean(criterion.evidence).text.splitlines()[-_TAIL_LINES:]:
            yield f"    {line}"

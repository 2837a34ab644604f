"""Builds the screens of a task: the short one that a run prints, and the one of its record with everything.

    FAIL  Write haiku.txt about rivers.                          2.2 s  $0.0072
      ✓ check  file haiku.txt exists            68 bytes
      ✗ judge  haiku.txt has three lines        only the report says so, and not
                                                haiku.txt: “I wrote haiku.txt”
      files    ./haiku.txt                      more: delegate show last

Text from a child, a judge or a provider goes through `one_line` or `clean` before it is shown.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.text import Text

from delegate._util.fencing import clean, one_line, visible
from delegate.cli.screen.costs import judging_costs, task_costs
from delegate.cli.screen.layout import Row, Screen, row
from delegate.contract.amounts import counted, paid
from delegate.contract.render import attempts_line
from delegate.types import PASSING, UNRECORDED, CriterionResult, TaskResult, Verdict
from delegate.types.money import usd

TITLE_CHARS = 200
TEXT_CHARS = 300
MET_CHARS = 110
"""Maximum length of the evidence for a criterion that is met, on the short screen."""
REASON_CHARS = 260
"""Maximum length of the reason why a criterion isn't met, on the short screen."""
REPORT_CHARS = 400
"""Maximum length of the report of a task that left no files, on the short screen."""
FULL_CHARS = 4_000
NAMED_FILES = 3
NAMED_JUDGES = 5
_ALL_FILES = 50

_MARKS = {
    "met": ("✓", "green"),
    "not_met": ("✗", "red"),
    "cannot_tell": ("?", "yellow"),
    "error": ("!", "red"),
    "trusted": ("~", "yellow"),
    "skipped": ("-", "dim"),
}


def word(verdict: Verdict | None) -> Text:
    """PASS, FAIL or, without criteria, UNJUDGED. A PASS below the level `seen` is yellow; words say its level too."""
    if verdict is None:
        return Text("UNJUDGED", "bold yellow")
    good = "bold green" if verdict.verified else "bold yellow"
    return Text(verdict.verdict, good if verdict.verdict == "PASS" else "bold red")


def task_screen(result: TaskResult, goal: str, *, number: int | None = None, more: str = "") -> Screen:
    """The short screen. `number` counts from 1, if there are several tasks; `more` is the command that shows more."""
    rows = [*_ended(result)]
    if result.substituted and result.requested_model and result.model:
        names = one_line(result.requested_model, 80), one_line(result.model, 80)
        rows.append(row("! model", f"requested {names[0]}, served {names[1]}", style="yellow"))
    for failed in result.failed_models:
        text = f"{one_line(failed.model, 80)} failed: {one_line(failed.error.message, REASON_CHARS)}"
        rows.append(row("! model", text, style="yellow"))
    rows += [*verdict_rows(result.verdict, result), *_attempts(result), *_outcome(result, more)]
    return Screen(_head(result.verdict, goal, number), f"{result.seconds:.1f} s  {paid(result)}", rows)


def record_screen(result: TaskResult, goal: str, *, number: int | None = None, report: str) -> Screen:
    """All that is known of a finished task, but for its tool calls. `report` is the child's whole report."""
    verdict = result.verdict
    rows = [*_ended(result), *verdict_rows(verdict, result, full=True)]
    rows += [*(basis_rows(verdict) if verdict else ()), *_attempts(result), *_claims(result)]
    files = result.artifacts[:_ALL_FILES]
    rows += _labeled(
        "files", [f"{item.change} {one_line(visible(item.path), 200)} ({item.bytes:,} bytes)" for item in files]
    )
    rows += [row("folder", _shown_path(result.workspace))] if result.workspace else []
    rows += [row("report", clean(report.strip()).text)] if report.strip() else []
    rows += _labeled("costs", task_costs(result))
    rows += _labeled("judges", list(_candidates(verdict)) if verdict else [])
    rows += [row("handle", result.handle or "none: its record could not be written")]
    return Screen(_head(verdict, goal, number), f"{result.seconds:.1f} s  {paid(result)}", rows)


def verdict_screen(verdict: Verdict, goal: str) -> Screen:
    """The screen of a verdict on existing work, which has no record to show more of."""
    rows = [*verdict_rows(verdict, None), *basis_rows(verdict), *_labeled("costs", judging_costs(verdict))]
    figures = f"{verdict.judge.seconds:.1f} s  {paid(verdict.judge)}" if verdict.judge else ""
    return Screen(_head(verdict, goal, None), figures, rows)


def _head(verdict: Verdict | None, goal: str, number: int | None) -> Text:
    head = Text().append_text(word(verdict))
    head.append(f" ({verdict.worth})" if verdict and verdict.verdict == "PASS" else "", word(verdict).style)
    return head.append(f"  {number}. " if number else "  ", "bold").append(one_line(goal, TITLE_CHARS), "bold")


def _labeled(label: str, texts: Sequence[str]) -> list[Row]:
    """One row per text, of which only the first has the label."""
    return [row("" if n else label, text) for n, text in enumerate(texts)]


# ------------------------------------------------------------------------------------------------------- the verdict


def verdict_rows(verdict: Verdict | None, result: TaskResult | None, *, full: bool = False) -> Iterator[Row]:
    """A row per criterion, then what a reader should know: the gate's reason, judges without an answer, findings."""
    if verdict is None:
        yield row("- nobody", "no criteria were given, so nothing was checked")
        return
    if verdict.decided_by == "gate" and not (result and result.error):
        yield row("✗ gate", one_line(f"{verdict.code}: {verdict.reasoning}", TEXT_CHARS), style="red")
    elif verdict.gate and verdict.decided_by != "gate":
        yield row("! gate", f"is off; it would have refused: {verdict.gate}", style="yellow")
    yield from (_criterion(criterion, full=full) for criterion in verdict.criteria)
    yield from _judges(verdict)
    for finding in verdict.findings:
        yield row(f"! {finding.severity}", f"{finding.code}: {one_line(finding.message, TEXT_CHARS)}", style="yellow")
    if verdict.receipts != "recorded":
        yield row("! calls", UNRECORDED[verdict.receipts], style="yellow")


def _criterion(criterion: CriterionResult, *, full: bool) -> Row:
    mark, style = _MARKS[criterion.outcome]
    style = "yellow" if criterion.outcome == "met" and criterion.level not in (None, "proven", "seen") else style
    label = Text.assemble((mark, style), (f" {criterion.decided_by}", "dim"))
    text = f"{criterion.id} {criterion.text}" if full else criterion.text
    details = _all_details(criterion) if full else _details(criterion)
    if criterion.level is not None and criterion.outcome in PASSING:
        words = criterion.level.replace("_", " ")
        if criterion.code == criterion.outcome:
            details = details.removeprefix(criterion.outcome).removeprefix(": ")
        details = f"{words}: {details}" if details and details != words else words
    before = "it held before the child began"
    details += f"; {before}" if criterion.held_before and before not in details else ""
    details += " (findings only)" if criterion.findings_only else ""
    return Row(label, Text(one_line(text, FULL_CHARS if full else TEXT_CHARS)), Text(details, "dim"))


def _details(criterion: CriterionResult) -> str:
    """The evidence of a criterion that is met, else the reason why it isn't, and how it was read."""
    evidence = criterion.evidence if criterion.decided_by == "judge" and criterion.source else None
    reason, quote = criterion.reason or criterion.code.replace("_", " "), ""
    if criterion.outcome == "met" and evidence:
        why = f"“{one_line(evidence, MET_CHARS)}” ({one_line(visible(criterion.place), 80)})"
    elif criterion.outcome == "met":
        repeats = set(criterion.reason.split()) <= set(re.split(r"[\s,]+", criterion.text))
        why = "" if repeats else one_line(criterion.reason, MET_CHARS)
    else:
        if criterion.code == "self_report_only" and criterion.evidence:
            quote = f" (quoted: “{one_line(criterion.evidence, MET_CHARS)}”)"
        elif criterion.outcome in ("error", "cannot_tell") and criterion.reason:
            reason = f"{criterion.code}: {reason}"
        why = one_line(reason, REASON_CHARS) + quote
    reading = f" ({one_line(str(criterion.reading), MET_CHARS)})" if criterion.reading is not None else ""
    return f"{why}{reading}".strip()


def _all_details(criterion: CriterionResult) -> str:
    details = criterion.code + (f": {one_line(criterion.reason, FULL_CHARS)}" if criterion.reason else "")
    if criterion.decided_by == "judge" and criterion.source and criterion.evidence:
        details += f"\nin {one_line(visible(criterion.place), 80)}: “{one_line(criterion.evidence, FULL_CHARS)}”"
    details += f"\n{one_line(str(criterion.reading), FULL_CHARS)}" if criterion.reading is not None else ""
    details += "".join(f"\n  {one_line(f'{part.outcome}: {part.text}', FULL_CHARS)}" for part in criterion.parts)
    return details


def _judges(verdict: Verdict) -> Iterator[Row]:
    """Which judges gave no answer, and how often the one that did is wrong."""
    for attempt in verdict.judge.attempts if verdict.judge else ():
        model, reason = one_line(attempt.model, 80), one_line(attempt.message, 160)
        if attempt.fault is not None:
            fault = attempt.fault.replace("_", " ") + (f": {reason}" if reason else "")
            yield row("! judge", f"{model} gave no answer ({fault})", style="yellow")
        elif reason:
            yield row("! judge", f"{model} gave no usable answer ({reason})", style="yellow")
    if (rate := verdict.judge.false_pass if verdict.judge else None) is not None:
        on = f" on work of {rate.worker}" if rate.worker else ""
        day = f", {rate.measured_on}" if rate.measured_on else ""
        counts = f"{rate.false_passes} of {rate.n} rulings{on}{day}"
        yield row("  judge", one_line(f"false PASS at most {rate.upper:.1%} ({counts})", FULL_CHARS), style="dim")


def basis_rows(verdict: Verdict) -> list[Row]:
    """The basis of the verdict as a whole, and its score."""
    if verdict.verdict == "PASS":
        proof = f"level {verdict.worth}" if verdict.level else verdict.worth
    else:
        proof = "every decision rests on evidence that code verified" if verdict.verified else "not verified"
    if verdict.score is not None and not {verdict.score, verdict.coverage} <= {0, 1}:  # else it repeats the verdict
        proof += f"; score {verdict.score:.2f}, with {verdict.coverage:.0%} of the weight decided"
    return [row("basis", f"{verdict.code}, decided by {verdict.decided_by}; {proof}")]


def _candidates(verdict: Verdict) -> Iterator[str]:
    """The models that could judge, in the order in which they are asked, and the reasons of all others."""
    candidates = verdict.judge.candidates if verdict.judge else ()
    ranked = sorted((one for one in candidates if one.rank is not None), key=lambda one: one.rank or 0)
    names = [f"{one_line(one.model, 80)} {usd(one.estimated_cost_usd)}" for one in ranked]
    if names:
        more = f", and {len(names) - NAMED_JUDGES} more" if len(names) > NAMED_JUDGES else ""
        yield f"could judge, in this order: {', '.join(names[:NAMED_JUDGES])}{more}"
    for reason, count in Counter(candidate.reason for candidate in candidates if candidate.rank is None).most_common():
        yield f"{counted(count, 'model')} couldn't: {one_line(reason or '', 160)}"


# ---------------------------------------------------------------------------------------------------- the child's work


def _ended(result: TaskResult) -> Iterator[Row]:
    """How the child ended, unless it completed; and how work in goal mode ended, after how many claims."""
    error, status = result.error, result.status
    if error is not None:
        name = error.code if error.code == status or status == "completed" else f"{status}, {error.code}"
        yield row("✗ child", f"{name}: {one_line(error.message, TEXT_CHARS)}", style="red")
    elif status != "completed":
        yield row("✗ child", status, style="red")
    if result.goal_end is not None:
        label, style, words = _GOAL_ENDS[result.goal_end]
        yield row(label, f"{words}, after {counted(len(result.claims), 'claim')}", style=style)


_GOAL_ENDS = {
    "verified": ("✓ goal", "green", "verified"),
    "aborted": ("✗ goal", "red", "the child gave up"),
    "budget_limited": ("✗ goal", "red", "not verified within its limits"),
    "no_progress": ("✗ goal", "red", "not verified, and nothing changed any more"),
}


def _attempts(result: TaskResult) -> list[Row]:
    """How the result compares with those of other attempts at the task."""
    return [row("attempts", attempts_line(result))] if result.attempts else []


def _claims(result: TaskResult) -> Iterator[Row]:
    """What was claimed when, and why it was refused."""
    for claim in result.claims:
        cost = f", {paid(claim)}" if claim.usage.model_calls else ""
        how = "verified" if claim.verdict == "PASS" else f"refused: {claim.code}"
        how += f" (call {claim.step}, {claim.seconds:.1f} s{cost})"
        yield row(f"claim {claim.n}", one_line(claim.rationale, TEXT_CHARS), how)
        for one in claim.refused:
            text = f"{_MARKS[one.outcome][0]} {one.id} {one_line(one.text, TEXT_CHARS)}"
            yield row("", text, one_line(one.reason or one.code, REASON_CHARS))
        if claim.verdict != "PASS" and not claim.refused and claim.code != "no_progress":
            yield row("", one_line(claim.reasoning, TEXT_CHARS))


def _outcome(result: TaskResult, more: str) -> Iterator[Row]:
    """What the report says, where the files don't show the work; where the files are; and where to read more."""
    files = _files(result)
    if result.report.strip() and (result.verdict is None or result.status != "completed" or not files):
        report = clean(result.report.strip()).text
        short = "\n".join(report[:REPORT_CHARS].split("\n")[:6])
        yield row("report", report if result.verdict is None or short == report else f"{short.rstrip()} …")
    more = f"more: {more}" if more else ""
    if files:
        yield row("files", files, more)
    elif more:
        yield row("more", more.removeprefix("more: "))


def _files(result: TaskResult) -> str:
    """The files that the child wrote, with their folder."""
    items = [item for item in result.artifacts if item.change != "deleted"]
    if not items:
        deleted = [item.path for item in result.artifacts]
        return f"{counted(len(deleted), 'file')} deleted in {_shown_path(result.workspace or '.')}" if deleted else ""
    folder = Path(result.workspace or ".")
    if len(items) == 1:
        return _shown_path(str(folder / items[0].path))
    names = ", ".join(one_line(visible(item.path), 80) for item in items[:NAMED_FILES])
    more = f" and {len(items) - NAMED_FILES} more" if len(items) > NAMED_FILES else ""
    return f"{names}{more} in {_shown_path(str(folder))}"


def _shown_path(path: str) -> str:
    """A path as a person would type it: relative to the current folder, or to the home folder as `~`."""
    for base, shown in ((Path.cwd(), "."), (Path.home(), "~")):
        if Path(path).is_relative_to(base):
            path = f"{shown}/{Path(path).relative_to(base)}".removesuffix("/.")
            break
    return one_line(visible(path), 400)

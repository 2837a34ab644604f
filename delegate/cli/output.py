"""Prints reports and records to stdout, as text or as JSON.

Text from a child, a judge or a provider is passed through `plain` before it reaches a terminal.
"""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from delegate._util.fencing import clean, one_line, visible
from delegate.cli.costs import task_costs, totals_line, verdict_costs
from delegate.cli.options import Format
from delegate.errors import CallError, ConfigError
from delegate.types import CriterionResult, ErrorDetail, Finding, Report, TaskResult, Verdict

ROOMY = 100
"""Minimum number of columns for tables with all details."""
PIPE_WIDTH = 120
"""Number of columns if stdout isn't a terminal and COLUMNS isn't set."""


_MARKS = {
    "met": ("✓", "green"),
    "not_met": ("✗", "red"),
    "cannot_tell": ("?", "yellow"),
    "error": ("!", "red"),
    "trusted": ("~", "yellow"),
    "skipped": ("-", "dim"),
}
_WORDS = {"PASS": "bold green", "FAIL": "bold red"}
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


# ------------------------------------------------------------------------------------------------------------- JSON


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    print(_as_json(value, indent=2))


def print_jsonl(values: Iterable[Any]) -> None:
    """One JSON value per line."""
    for value in values:
        print(_as_json(value))


def print_as_json(format: Format, document: Any, rows: Iterable[Any] | None = None) -> bool:
    """Print the document, or for jsonl its rows. For `pretty`, print nothing and return False."""
    if format is Format.json:
        print_json(document)
    elif format is Format.jsonl:
        print_jsonl([document] if rows is None else rows)
    return format is not Format.pretty


def print_report_as(format: Format, report: Report) -> None:
    """Print a report as one document, or one result per line. A refused call prints `{"error": …}` in both formats."""
    document = report.model_dump(mode="json")
    if format is Format.json:
        print_json(document)
    else:
        print_jsonl(document.get("results", [document]))


@contextmanager
def refusals_as(format: Format) -> Generator[None]:
    """In the JSON formats, print an error as the object `{"error": …}` on stdout and exit with 2."""
    try:
        yield
    except (CallError, ConfigError) as error:
        if format is Format.pretty:
            raise
        print_report_as(format, Report(error=_detail(error)))
        raise typer.Exit(2) from None


def _detail(error: CallError | ConfigError) -> ErrorDetail:
    if isinstance(error, CallError):
        return ErrorDetail(code=error.code, message=error.message, field=error.field, hint=error.hint)
    return ErrorDetail(code="config_error", message=str(error))


def _as_json(value: Any, indent: int | None = None) -> str:
    """JSON without control or invisible characters, and in ASCII if stdout isn't Unicode."""
    ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, default=str)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


# ------------------------------------------------------------------------------------------------------- for people


def console(pipe_width: int = PIPE_WIDTH) -> Console:
    """A console on stdout, with colors only on a terminal. `pipe_width` is its width if stdout isn't a terminal."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else pipe_width
    return Console(width=width, markup=False, highlight=False, emoji=False)


def slim_table(out: Console) -> Table:
    """A table whose only line is below its header, with less padding on a narrow console."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0) if out.width >= ROOMY else 0)


def plain(text: str, style: str = "") -> Text:
    """Untrusted text that is safe for a terminal: escape sequences and markup in it have no effect."""
    return Text(clean(text).text, style=style)


def word(verdict: Verdict | None) -> Text:
    """PASS, FAIL or, without criteria, UNJUDGED. The meaning doesn't depend on the color."""
    return Text(verdict.verdict, _WORDS[verdict.verdict]) if verdict else Text("UNJUDGED", "bold yellow")


def print_report(report: Report, goals: Sequence[str]) -> None:
    """Print each task with its verdict, the reasons, the report of the child and the costs; then the totals."""
    out = console()
    for result in report.results:
        out.print(task_text(result, goals[result.task_index]), soft_wrap=True)
    out.print(Text(totals_line(report), "bold"), soft_wrap=True)


def task_text(result: TaskResult, goal: str, *, full_report: str | None = None) -> Text:
    """One result. `full_report` is the child's full report, if the caller has it."""
    lines = [
        _head(result, goal),
        *_reasons(result),
        *(_details(result.verdict) if result.verdict else ()),
    ]
    report = full_report if full_report is not None else result.summary
    lines += [Text("  report of the child:", "dim"), _indented(report)] if report.strip() else []
    lines += [*_files(result), *task_costs(result)]
    return Text("\n").join(lines).append("\n")


def _head(result: TaskResult, goal: str) -> Text:
    head = _worth(result.verdict).append(f"  {result.task_index + 1}. ", "bold").append(one_line(goal, 100), "bold")
    return head if result.status == "completed" else head.append(f"  [{result.status}]", "red")


def _worth(verdict: Verdict | None) -> Text:
    """The verdict's word, and what a PASS rests on."""
    return word(verdict).append(f" ({verdict.worth})" if verdict and verdict.verdict == "PASS" else "")


def _reasons(result: TaskResult) -> list[Text]:
    if result.error is not None:
        return [Text(f"  {result.error.code}: ").append(plain(result.error.message))]
    if result.verdict is None:
        return [Text("  no criteria were given, so nothing was checked")]
    return _grounds(result.verdict)


def verdict_text(verdict: Verdict, goal: str) -> Text:
    """A verdict on existing work, without a task result."""
    head = _worth(verdict).append("  ").append(one_line(goal, 100), "bold")
    return Text("\n").join([head, *_grounds(verdict), *_details(verdict), *verdict_costs(verdict)])


def _grounds(verdict: Verdict) -> list[Text]:
    """The basis of the verdict as a whole, and its score."""
    proof = "every decision rests on evidence that code verified" if verdict.verified else "not verified"
    lines = [Text(f"  {verdict.code}, decided by {verdict.decided_by}; {proof}{_score(verdict)}")]
    if verdict.receipts == "unavailable":
        lines.append(Text("  receipts: unavailable, so only checks prove what was done", "dim"))
    if verdict.decided_by == "gate":
        lines.append(Text("  ").append(one_line(verdict.reasoning, 400)))
    elif verdict.gate:
        lines.append(Text(f"  the gate is off; it would have refused: {verdict.gate}", "yellow"))
    return lines


def _score(verdict: Verdict) -> str:
    """The score with its coverage, unless it only repeats the verdict."""
    if verdict.score is None or {verdict.score, verdict.coverage} <= {0, 1}:
        return ""
    return f"; score {verdict.score:.2f}, with {verdict.coverage:.0%} of the weight decided"


def _details(verdict: Verdict) -> list[Text]:
    return [*map(_criterion, verdict.criteria), *_without_judge(verdict), *map(_finding, verdict.findings)]


def _without_judge(verdict: Verdict) -> list[Text]:
    """Why no model can judge: the reasons, and the number of models for each."""
    if verdict.code != "no_eligible_judge" or verdict.judge is None:
        return []
    reasons = Counter(one.reason for one in verdict.judge.candidates)
    listed = "; ".join(f"{reason} ({count} of {reasons.total()} models)" for reason, count in reasons.most_common(4))
    return [Text("  no judge: ", "dim").append(one_line(listed, 400))] if listed else []


def _finding(one: Finding) -> Text:
    return Text("  ").append(f"{one.severity} finding", "yellow").append(f": {one.code}: {one_line(one.message, 400)}")


def _criterion(one: CriterionResult) -> Text:
    mark, style = _MARKS[one.outcome]
    line = Text("  ").append(mark, style).append(f" {one.id} ").append(one_line(one.text, 200))
    by = one.decided_by if one.decided_by in ("check", "judge") else ""
    label = by if one.outcome == "met" else f"{one.code} ({by})" if by else one.code
    label += ", findings only" if one.findings_only else ""
    line.append(f"\n      {label}: ", "dim").append(one_line(one.reason, 400))
    if one.decided_by == "judge" and one.source and one.evidence:
        line.append(f"\n      found in {one_line(one.source, 80)}: “{one_line(one.evidence, 200)}”", "dim")
    return line


def _indented(text: str) -> Text:
    return Text("\n").join(Text("    ").append(line) for line in clean(text.strip()).text.split("\n"))


def _files(result: TaskResult) -> list[Text]:
    listed = [
        f"{item.change} {one_line(visible(item.path), 120)} ({item.bytes:,} bytes)" for item in result.artifacts[:10]
    ]
    listed += [f"and {len(result.artifacts) - 10} more"] if len(result.artifacts) > 10 else []
    lines = [Text("  files: ", "dim").append("; ".join(listed))] if listed else []
    return lines + ([Text("  workspace: ", "dim").append(result.workspace)] if result.workspace else [])

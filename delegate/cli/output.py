"""What goes to stdout: reports and records as people read them, and as JSON.

Whatever a child, a judge or a provider wrote passes `plain` before it reaches a terminal.
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

from delegate._util.fencing import clean, one_line
from delegate.cli.costs import task_bill, totals_line, verdict_bill
from delegate.cli.options import Format
from delegate.errors import CallError, ConfigError
from delegate.types import CriterionResult, ErrorDetail, Finding, Report, TaskResult, Verdict

ROOMY = 100
"""Columns from which on tables needn't save space."""
WIDTH_OF_PIPES = 120
"""Columns of a table that isn't written to a terminal, unless COLUMNS says otherwise."""


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


def exit_code(report: Report) -> int:
    """0 all is well, 1 some task isn't, 2 the call was refused."""
    if report.error is not None:
        return 2
    return 0 if report.all_pass else 1


# ------------------------------------------------------------------------------------------------------------- JSON


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    print(_as_json(value, indent=2))


def print_jsonl(values: Iterable[Any]) -> None:
    """One JSON value per line."""
    for value in values:
        print(_as_json(value))


def print_report_as(format: Format, report: Report) -> None:
    """A report as JSON: whole, or one result per line. A refused call is the one object `{"error": …}` in both."""
    document = report.model_dump(mode="json")
    if format is Format.json:
        print_json(document)
    else:
        print_jsonl(document.get("results", [document]))


@contextmanager
def refusals_as(format: Format) -> Generator[None]:
    """In the JSON formats, what can't be done is the one object `{"error": …}` on stdout, and exit code 2."""
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
    """JSON without a character that a terminal could obey or hide, and in ASCII where stdout isn't Unicode."""
    ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, default=str)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


# ------------------------------------------------------------------------------------------------------- for people


def console() -> Console:
    """Writes text for people to stdout: colours only on a terminal, and never wraps what a pipe would have to join."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else WIDTH_OF_PIPES
    return Console(width=width, markup=False, highlight=False, emoji=False)


def slim_table(out: Console) -> Table:
    """A table without lines but one below its head, closer together where there is little room."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0) if out.width >= ROOMY else 0)


def plain(text: str, style: str = "") -> Text:
    """Untrusted text as a terminal may show it: nothing in it is obeyed, neither as an escape nor as markup."""
    return Text(clean(text).text, style=style)


def word(verdict: Verdict | None) -> Text:
    """PASS, FAIL or, without criteria, UNJUDGED. The word carries the meaning, not its colour."""
    return Text(verdict.verdict, _WORDS[verdict.verdict]) if verdict else Text("UNJUDGED", "bold yellow")


def print_report(report: Report, goals: Sequence[str]) -> None:
    """Every task with its verdict first, what it rests on, the child's own words and the bill; then the totals."""
    out = console()
    for result in report.results:
        out.print(task_text(result, goals[result.task_index]), soft_wrap=True)
    out.print(Text(totals_line(report), "bold"), soft_wrap=True)


def task_text(result: TaskResult, goal: str, *, whole: str | None = None) -> Text:
    """One result. `whole` is the child's full report, where the caller has it."""
    lines = [
        _head(result, goal),
        *_reasons(result),
        *(_details(result.verdict) if result.verdict else ()),
    ]
    report = whole if whole is not None else result.summary
    lines += [Text("  report of the child:", "dim"), _indented(report)] if report.strip() else []
    lines += [*_files(result), *task_bill(result)]
    return Text("\n").join(lines).append("\n")


def _head(result: TaskResult, goal: str) -> Text:
    head = word(result.verdict).append(f"  {result.task_index + 1}. ", "bold").append(one_line(goal, 100), "bold")
    return head if result.status == "completed" else head.append(f"  [{result.status}]", "red")


def _reasons(result: TaskResult) -> list[Text]:
    if result.error is not None:
        return [Text(f"  {result.error.code}: ").append(plain(result.error.message))]
    if result.verdict is None:
        return [Text("  no criteria were given, so nothing was checked")]
    return _grounds(result.verdict)


def verdict_text(verdict: Verdict, goal: str) -> Text:
    """A verdict by itself, on work that was done elsewhere."""
    head = word(verdict).append("  ").append(one_line(goal, 100), "bold")
    return Text("\n").join([head, *_grounds(verdict), *_details(verdict), *verdict_bill(verdict)])


def _grounds(verdict: Verdict) -> list[Text]:
    """What the verdict rests on as a whole, and how near it was."""
    proof = "every decision rests on evidence that code saw" if verdict.verified else "not verified"
    lines = [Text(f"  {verdict.code}, decided by {verdict.decided_by}; {proof}{_nearness(verdict)}")]
    if verdict.receipts == "unavailable":
        lines.append(Text("  receipts: unavailable, so only checks show what was done", "dim"))
    if verdict.decided_by == "gate":
        lines.append(Text("  ").append(one_line(verdict.reasoning, 400)))
    elif verdict.gate:
        lines.append(Text(f"  the gate is off; it would have refused: {verdict.gate}", "yellow"))
    return lines


def _nearness(verdict: Verdict) -> str:
    """The score, where it says more than the verdict and the marks do. Never without its coverage."""
    if verdict.score is None or {verdict.score, verdict.coverage} <= {0, 1}:
        return ""
    return f"; score {verdict.score:.2f}, with {verdict.coverage:.0%} of the weight decided"


def _details(verdict: Verdict) -> list[Text]:
    return [*map(_criterion, verdict.criteria), *_without_judge(verdict), *map(_finding, verdict.findings)]


def _without_judge(verdict: Verdict) -> list[Text]:
    """Where no model may judge: why, for the models of each reason together."""
    if verdict.code != "no_eligible_judge" or verdict.judge is None:
        return []
    reasons = Counter(one.reason for one in verdict.judge.candidates)
    said = "; ".join(f"{reason}, for {count} of {reasons.total()}" for reason, count in reasons.most_common(4))
    return [Text("  no judge: ", "dim").append(one_line(said, 400))] if said else []


def _finding(one: Finding) -> Text:
    return Text("  ").append(f"{one.severity} finding", "yellow").append(f": {one.code}: {one_line(one.message, 400)}")


def _criterion(one: CriterionResult) -> Text:
    mark, style = _MARKS[one.outcome]
    line = Text("  ").append(mark, style).append(f" {one.id} ").append(one_line(one.text, 200))
    by = one.decided_by if one.decided_by in ("check", "judge") else ""
    label = by if one.outcome == "met" else f"{one.code} ({by})" if by else one.code
    label += ", for findings only" if one.findings_only else ""
    line.append(f"\n      {label}: ", "dim").append(one_line(one.reason, 400))
    if one.decided_by == "judge" and one.source and one.evidence:
        line.append(f"\n      found in {one_line(one.source, 80)}: “{one_line(one.evidence, 200)}”", "dim")
    return line


def _indented(text: str) -> Text:
    return Text("\n").join(Text("    ").append(line) for line in clean(text.strip()).text.split("\n"))


def _files(result: TaskResult) -> list[Text]:
    listed = [f"{item.change} {one_line(item.path, 120)} ({item.bytes:,} bytes)" for item in result.artifacts[:10]]
    listed += [f"and {len(result.artifacts) - 10} more"] if len(result.artifacts) > 10 else []
    lines = [Text("  files: ", "dim").append("; ".join(listed))] if listed else []
    return lines + ([Text("  workspace: ", "dim").append(result.workspace)] if result.workspace else [])

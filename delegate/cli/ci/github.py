"""A verdict as workflow commands of GitHub Actions, and as the summary of a job.

https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

import html
import os
import sys
from collections.abc import Iterator, Sequence

from delegate._util.fencing import clean, one_line
from delegate.cli import PROGRAM
from delegate.cli.ci.logs import inert, inert_markup
from delegate.cli.ci.problems import TITLE_CHARS, about_of, message_of, rests_on
from delegate.types import CriterionResult, Verdict

_MARKS = {"met": "✅", "not_met": "❌", "cannot_tell": "❔", "error": "⚠️", "trusted": "🤝", "skipped": "⏭️"}


def commands(verdict: Verdict, goal: str, problems: Sequence[CriterionResult]) -> Iterator[str]:
    """One line per command: the verdict, then each problem and finding. A line holds nothing but its command."""
    lines = [f"{_head(verdict)}: {verdict.reasoning}"]
    for one in verdict.criteria:
        words = [one.outcome.replace("_", " "), *filter(None, [rests_on(one), about_of(one)])]
        lines.append(f"{one.id} {'; '.join(words)}")
    is_weak = verdict.verdict == "PASS" and not verdict.verified
    yield _command("warning" if is_weak else "notice", "\n".join(lines), title=f"delegate: {one_line(goal, 100)}")
    for problem in problems:
        doubt = "" if problem.examined else "nobody could look: "
        title = f"{doubt}{problem.id} {problem.code}: {problem.text}"
        yield _command("error", message_of(problem), title=title, file=problem.source)
    for finding in verdict.findings:
        name = "warning" if finding.severity in ("critical", "major") else "notice"
        yield _command(name, one_line(finding.message, 1_000), title=f"{finding.severity} finding: {finding.code}")


def write_summary(verdict: Verdict, goal: str) -> None:
    """Append the summary to the file that GITHUB_STEP_SUMMARY names, if it is set. A problem is one line on stderr."""
    if not (path := os.environ.get("GITHUB_STEP_SUMMARY")):
        return
    try:
        with open(path, "a", encoding="utf-8", errors="replace") as file:
            file.write(inert_markup(summary(verdict, goal)))
    except OSError as error:
        print(f"{PROGRAM}: the summary of the step can't be written: {error.strerror}", file=sys.stderr)


def summary(verdict: Verdict, goal: str) -> str:
    """The verdict as one block of HTML.

    There is no blank line in it, so Markdown ends the block only at its end and reads nothing inside it: the words of a
    worker or a judge can add neither links nor headings.
    """
    lines = [f"<h3>{_cell(_head(verdict), 100)}: {_cell(goal, TITLE_CHARS)}</h3>", "<table>"]
    names = ("", "criterion", "about", "decided by", "level", "code", "reason")
    lines.append(f"<tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>")
    for criterion in verdict.criteria:
        level = (criterion.level or "").replace("_", " ")
        text, about = f"{criterion.id} {criterion.text}", about_of(criterion)
        cells = (text, about, criterion.decided_by, level, criterion.code, criterion.reason)
        row = "".join(f"<td>{_cell(cell, 400)}</td>" for cell in cells)
        lines.append(f"<tr><td>{_MARKS[criterion.outcome]}</td>{row}</tr>")
    if not any(criterion.fails for criterion in verdict.criteria) and verdict.verdict == "FAIL":
        lines.append(f'<tr><td>❌</td><td colspan="6">{_cell(verdict.reasoning, 400)}</td></tr>')
    for finding in verdict.findings:
        text = f"{finding.severity} finding: {finding.code}: {finding.message}"
        lines.append(f'<tr><td>💡</td><td colspan="6">{_cell(text, 400)}</td></tr>')
    return "\n".join([*lines, "</table>", "", ""])


def _head(verdict: Verdict) -> str:
    if verdict.verdict == "PASS":
        return f"PASS ({verdict.worth})"
    return f"FAIL ({verdict.code})" if verdict.examined else f"FAIL, because nobody could look ({verdict.code})"


def _command(name: str, message: str, **properties: str | None) -> str:
    escaped = {key: _data(value).replace(":", "%3A").replace(",", "%2C") for key, value in properties.items() if value}
    return f"::{name} {','.join(f'{key}={value}' for key, value in escaped.items())}::{_data(message)}"


def _data(text: str) -> str:
    """The text without commands, with the escapes that the runner reverses. A line break would end our command."""
    return inert(clean(text).text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _cell(text: str, limit: int) -> str:
    return html.escape(one_line(text, limit))

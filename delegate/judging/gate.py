"""Rejects runs that obviously fail, before a check runs or a model is asked. The gate costs nothing.

Rules are tried in order, and the first rejection counts. A rule can only reject: passing the gate proves nothing.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from delegate.judging.output import parse_json
from delegate.types import ChildRun, Task

PROGRESS_WINDOW = 5
"""A run that ends with this many equal observations is considered stuck."""

_FILLER = frozenset({
    "thought process", "solution", "answer", "final answer", "response", "output", "result", "results", "explanation",
    "analysis", "conclusion", "let s solve this problem step by step", "let me think", "ok", "okay", "done", "none",
    "null", "n a", "na", "todo", "tbd", "placeholder", "lorem ipsum", "respuesta", "lösung", "解", "解答", "解説",
    "かいせつ",
})  # fmt: skip
"""Outputs without content, normalized. Several are strings that judge models are known to accept
("One Token to Fool LLM-as-a-Judge", arXiv 2507.08794)."""

_MANY_WORDS = re.compile(r"\W*(?:\w+\W+){8}\w")
"""More words than any filler has."""
_NAMED_FILE = re.compile(r"`([^`\s]{1,200}\.[A-Za-z0-9]{1,8})`")
_WRITTEN = re.compile(r"\b(?:wrote|written|saved|created|stored|generated)\b[^.\n`]{0,60}\Z", re.IGNORECASE)
_CLAIM_CHARS = 72
"""A file counts as claimed if a verb of writing is at most this far before a file name in backticks."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why the gate rejected a run: a stable code and a reason."""

    code: str
    reason: str


FileExists = Callable[[str], bool]
"""Whether a path that the child named exists; also True if that can't be determined."""


def inspect(task: Task, run: ChildRun, file_exists: FileExists, *, has_report: bool = True) -> Rejection | None:
    """The first rejection, or None if the run passes the gate. `has_report` is false if there is no report to judge."""
    for rule in _RULES if has_report else _RULES_WITHOUT_REPORT:
        if rejection := rule(task, run):
            return rejection
    return _claimed_artifact_missing(run, file_exists)


def _run_failed(task: Task, run: ChildRun) -> Rejection | None:
    if run.status == "completed":
        return None
    detail = f": {run.error.message}" if run.error else ""
    return Rejection("run_failed", f"the child's run ended as {run.status}{detail}")


def _empty_output(task: Task, run: ChildRun) -> Rejection | None:
    if any(unicodedata.category(char)[0] not in "CZ" for char in run.output):
        return None
    return Rejection("empty_output", "the child ended without a report")


def _degenerate_output(task: Task, run: ChildRun) -> Rejection | None:
    start = run.output[:400]
    if len(set(start)) > 8 and (len(start) == 400 or _MANY_WORDS.match(start)):  # more varied than anything below
        return None
    words = " ".join(re.findall(r"\w+", start.lower()))
    repeated = len("".join(start.split())) > 3 and len(set(run.output) - {" ", "\n"}) == 1
    empty_json = start.strip() in ("[]", "{}")  # a valid answer if a list was asked for
    if empty_json or (words and words not in _FILLER and not repeated):
        return None
    return Rejection("degenerate_output", f"the child's report has no content: {run.output.strip()[:60]!r}")


def _summary_missing_required_fields(task: Task, run: ChildRun) -> Rejection | None:
    """Only the top-level required fields of the output schema; the check validates the rest."""
    required = task.output_schema.get("required") if task.output_schema else None
    if not isinstance(required, list):
        return None
    try:
        value = parse_json(run.output)
    except ValueError:
        return None
    missing = [str(name) for name in cast("list[object]", required) if not isinstance(value, dict) or name not in value]
    if not missing:
        return None
    return Rejection("summary_missing_required_fields", f"the report lacks required fields: {', '.join(missing[:5])}")


def _plan_steps_incomplete(task: Task, run: ChildRun) -> Rejection | None:
    open_steps = [step.text for step in run.plan if not step.done]
    if not open_steps:
        return None
    return Rejection(
        "plan_steps_incomplete", f"{len(open_steps)} of {len(run.plan)} steps aren't done: {open_steps[0]}"
    )


def _pending_form_values(task: Task, run: ChildRun) -> Rejection | None:
    if not run.pending:
        return None
    return Rejection("pending_form_values", f"values are still missing: {', '.join(run.pending[:5])}")


def _no_observed_delta(task: Task, run: ChildRun) -> Rejection | None:
    if len(run.observations) < 2 or len(set(run.observations)) > 1:
        return None
    return Rejection("no_observed_delta", f"nothing changed over {len(run.observations)} observations")


def _no_progress_in_window(task: Task, run: ChildRun) -> Rejection | None:
    window = run.observations[-PROGRESS_WINDOW:]
    if len(window) < PROGRESS_WINDOW or len(set(window)) > 1:
        return None
    return Rejection("no_progress_in_window", f"nothing changed over the last {PROGRESS_WINDOW} observations")


def _claimed_files(output: str) -> Iterator[str]:
    for name in _NAMED_FILE.finditer(output):
        if _WRITTEN.search(output, max(0, name.start() - _CLAIM_CHARS), name.start()):
            yield name[1]


def _claimed_artifact_missing(run: ChildRun, file_exists: FileExists) -> Rejection | None:
    for path in dict.fromkeys(_claimed_files(run.output)):
        if "://" not in path and not file_exists(path):
            return Rejection("claimed_artifact_missing", f"the report claims the file {path!r}, which does not exist")
    return None


_RULES = (
    _run_failed,
    _empty_output,
    _degenerate_output,
    _summary_missing_required_fields,
    _plan_steps_incomplete,
    _pending_form_values,
    _no_observed_delta,
    _no_progress_in_window,
)
_RULES_WITHOUT_REPORT = tuple(
    rule for rule in _RULES if rule not in (_empty_output, _degenerate_output, _summary_missing_required_fields)
)

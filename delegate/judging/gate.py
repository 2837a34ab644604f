"""Rejects runs that obviously fail, before a check runs or a model is asked. The gate costs nothing.

Rules are tried in order, and the first rejection counts. A rule can only reject: passing the gate proves nothing.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import cast

from delegate.judging.report_json import parse_json
from delegate.types import AboutFile, ChildRun, Task
from delegate.types.codes import GateCode

PROGRESS_WINDOW = 5
"""A run that ends with this many equal observations is considered stuck."""

MAX_NAMED_FILES = 50
"""Files of a report that are looked for."""
_NAMED_FILE = re.compile(r"`([^`\s]{1,200}\.[A-Za-z0-9]{1,8})`")


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why the gate rejected a run: a stable code and a reason."""

    code: GateCode
    reason: str


FileExists = Callable[[str], bool]
"""Whether a path that the child named exists; also True if that can't be determined."""


def inspect(
    task: Task, run: ChildRun, file_exists: FileExists, *, has_report: bool = True, by_child: bool = True
) -> Rejection | None:
    """The first rejection, or None if the run passes the gate. `has_report` is false if there is no report to judge.

    A child that did something, as a program may without a word, needs no report where other things are asked about.
    """
    did_something = bool(run.artifacts) or any(receipt.status == "ok" for receipt in run.receipts)
    needs_content = has_report and not (by_child and did_something and not _asks_for_a_report_only(task))
    return (
        _run_failed(run)
        or (needs_content and (_empty_report(run) or _degenerate_report(run)))
        or (has_report and _report_missing_required_fields(task, run))
        or _left_open(run)
        or _nothing_changed(run)
        or _claimed_artifact_missing(task, run, file_exists)
    )


def _asks_for_a_report_only(task: Task) -> bool:
    """Whether nothing but the report could show that the work was done."""
    return not any(
        criterion.kind in ("shell", "file", "receipt", "probe")
        or isinstance(about := getattr(criterion, "about", None), AboutFile)
        or about in ("deed", "absence")
        for criterion in task.criteria
    )


def _run_failed(run: ChildRun) -> Rejection | None:
    if run.status == "completed":
        return None
    detail = f": {run.error.message}" if run.error else ""
    return Rejection("run_failed", f"the child's run ended as {run.status}{detail}")


def _empty_report(run: ChildRun) -> Rejection | None:
    if any(unicodedata.category(char)[0] not in "CZ" for char in run.report):
        return None
    return Rejection("empty_report", "the child ended without a report")


def _degenerate_report(run: ChildRun) -> Rejection | None:
    start = run.report[:400]
    if len(set(start)) > 8:  # more varied than anything below
        return None
    repeated = len("".join(start.split())) > 3 and len(set(run.report) - {" ", "\n"}) == 1
    empty_json = start.strip() in ("[]", "{}")  # a valid answer if a list was asked for
    if empty_json or (re.search(r"\w", start) and not repeated):
        return None
    return Rejection("degenerate_report", f"the child's report has no content: {run.report.strip()[:60]!r}")


def _report_missing_required_fields(task: Task, run: ChildRun) -> Rejection | None:
    """Only the top-level required fields of the output schema; the check validates the rest."""
    required = task.output_schema.get("required") if task.output_schema else None
    if not isinstance(required, list):
        return None
    try:
        value = parse_json(run.report)
    except ValueError:
        return None
    names = [str(name) for name in cast("list[object]", required) if not isinstance(value, dict) or name not in value]
    if not names:
        return None
    return Rejection("report_missing_required_fields", f"the report lacks required fields: {', '.join(names[:5])}")


def _left_open(run: ChildRun) -> Rejection | None:
    """Steps and values that the child itself says are missing."""
    if open_steps := [step.text for step in run.plan if not step.done]:
        reason = f"{len(open_steps)} of {len(run.plan)} steps aren't done: {open_steps[0]}"
        return Rejection("plan_steps_incomplete", reason)
    if run.pending:
        return Rejection("pending_form_values", f"values are still missing: {', '.join(run.pending[:5])}")
    return None


def _nothing_changed(run: ChildRun) -> Rejection | None:
    """What the child observed was always the same, or was so at the end."""
    seen, window = run.observations, run.observations[-PROGRESS_WINDOW:]
    if len(seen) >= 2 and len(set(seen)) == 1:
        return Rejection("no_observed_delta", f"nothing changed over {len(seen)} observations")
    if len(window) == PROGRESS_WINDOW and len(set(window)) == 1:
        return Rejection("no_progress_in_window", f"nothing changed over the last {PROGRESS_WINDOW} observations")
    return None


def unrecorded_files(run: ChildRun, file_exists: FileExists) -> list[str]:
    """Files that the report names in backticks, that don't exist, and that no call of the child has to do with.

    The child may have claimed them, or said that they aren't there: that is for a reader of the report to tell.
    """
    paths = islice(_named_files(run), MAX_NAMED_FILES)
    missing = [path for path in paths if not file_exists(path)]
    if not missing:
        return []
    calls = [json.dumps(receipt.args, ensure_ascii=False, default=str) for receipt in run.receipts]
    calls += [receipt.whole_output for receipt in run.receipts]
    return [path for path in missing if not any(path in text for text in calls)]


def _named_files(run: ChildRun) -> Iterator[str]:
    """The files that the report names in backticks, without those that were deleted."""
    deleted = {artifact.path for artifact in run.artifacts if artifact.change == "deleted"}
    for path in dict.fromkeys(_NAMED_FILE.findall(run.report)):
        if "://" not in path and path.removeprefix("./") not in deleted:
            yield path


def _claimed_artifact_missing(task: Task, run: ChildRun, file_exists: FileExists) -> Rejection | None:
    """A file that the task declares and the report names in backticks, and that is neither there nor was deleted.

    Declared: in words, `server.port`, `184.5` and `example.org` look like files.
    """
    paths = list(task.deliverables or ())  # globs among them match no report
    for criterion in task.criteria:
        if criterion.kind == "file" and criterion.exists:
            paths.append(criterion.path)
        elif criterion.kind == "shell":
            paths += criterion.deliverables or ()
        elif isinstance(about := getattr(criterion, "about", None), AboutFile):
            paths.append(about.file)
    declared = {path.removeprefix("./") for path in paths}
    for path in _named_files(run):
        if path.removeprefix("./") in declared and not file_exists(path):
            return Rejection("claimed_artifact_missing", f"the report names the file {path!r}, which does not exist")
    return None

"""The gate: what can be refused at a glance, before a check runs or a model is asked. It costs nothing.

Rules are tried in order and the first rejection wins. A rule only ever says "no"; passing the gate proves nothing.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from delegate.judging.output import parse_json
from delegate.types import ChildRun, Task

PROGRESS_WINDOW = 5
"""So many equal observations at the end of a run mean that it was stuck."""

_FILLER = frozenset({
    "thought process", "solution", "answer", "final answer", "response", "output", "result", "results", "explanation",
    "analysis", "conclusion", "let s solve this problem step by step", "let me think", "ok", "okay", "done", "none",
    "null", "n a", "na", "todo", "tbd", "placeholder", "lorem ipsum", "respuesta", "lösung", "解", "解答", "解説",
    "かいせつ",
})  # fmt: skip
"""Outputs that say nothing, normalised. Several are the strings that judge models are known to wave through
("One Token to Fool LLM-as-a-Judge", arXiv 2507.08794)."""

_NAMED_FILE = re.compile(r"`([^`\s]{1,200}\.[A-Za-z0-9]{1,8})`")
_WRITTEN = re.compile(r"\b(?:wrote|written|saved|created|stored|generated)\b[^.\n`]{0,60}\Z", re.IGNORECASE)
_CLAIM_CHARS = 72
"""A sentence claims a file when a verb of writing stands shortly before a name in backticks with an extension."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why the gate refused: a stable code, and the reason in words."""

    code: str
    reason: str


FileExists = Callable[[str], bool]
"""Whether a path that the child named exists; True also for what can't be looked at."""


def inspect(task: Task, run: ChildRun, file_exists: FileExists) -> Rejection | None:
    """The first rejection, or None when there is something left to check."""
    for rule in _RULES:
        if rejection := rule(task, run):
            return rejection
    return _claimed_artifact_missing(run, file_exists)


def _run_failed(task: Task, run: ChildRun) -> Rejection | None:
    if run.status == "completed":
        return None
    detail = f": {run.error.message}" if run.error else ""
    return Rejection("run_failed", f"the child's run ended as {run.status}{detail}")


def _empty_output(task: Task, run: ChildRun) -> Rejection | None:
    if any(unicodedata.category(sign)[0] not in "CZ" for sign in run.output):
        return None
    return Rejection("empty_output", "the child ended without a report")


def _degenerate_output(task: Task, run: ChildRun) -> Rejection | None:
    start = run.output[:400]
    if len(start) == 400 and len(set(start)) > 8:  # longer and more varied than anything below
        return None
    words = " ".join(re.findall(r"\w+", start.lower()))
    repeated = len("".join(start.split())) > 3 and len(set(run.output) - {" ", "\n"}) == 1
    empty_json = start.strip() in ("[]", "{}")  # an answer, where a list was asked for
    if empty_json or (words and words not in _FILLER and not repeated):
        return None
    return Rejection("degenerate_output", f"the child's report says nothing: {run.output.strip()[:60]!r}")


def _summary_missing_required_fields(task: Task, run: ChildRun) -> Rejection | None:
    """What the output schema requires at its top must be there; whether it fits is for the check to say."""
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
    return Rejection("summary_missing_required_fields", f"the report lacks what was promised: {', '.join(missing[:5])}")


def _plan_steps_incomplete(task: Task, run: ChildRun) -> Rejection | None:
    open_steps = [step.text for step in run.plan if not step.done]
    if not open_steps:
        return None
    return Rejection("plan_steps_incomplete", f"{len(open_steps)} of {len(run.plan)} steps are open: {open_steps[0]}")


def _pending_form_values(task: Task, run: ChildRun) -> Rejection | None:
    if not run.pending:
        return None
    return Rejection("pending_form_values", f"still to be filled in: {', '.join(run.pending[:5])}")


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
    for named in _NAMED_FILE.finditer(output):
        if _WRITTEN.search(output, max(0, named.start() - _CLAIM_CHARS), named.start()):
            yield named[1]


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

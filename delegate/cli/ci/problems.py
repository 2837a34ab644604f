"""What makes a verdict a FAIL, in a form that every format for continuous integration starts from."""

import os
from collections.abc import Mapping
from pathlib import Path

from delegate._util.fencing import clean, one_line
from delegate.types import CriterionResult, FileCriterion, Task, Verdict

TITLE_CHARS = 200
TEXT_CHARS = 4_000
VERDICT = "verdict"
"""Id and kind of the problem of a verdict that no criterion decided, such as one of the gate."""


def problems(verdict: Verdict, paths: Mapping[str, str]) -> list[CriterionResult]:
    """The reasons for a FAIL; at least one, and none for a PASS. One of the kind `VERDICT` is about no criterion.

    Their texts are cleaned and bounded; they still are the words of a worker or a judge. The `source` of each is the
    file that it is about: `paths` are files by the ids of their criteria.
    """
    if verdict.verdict == "PASS":
        return []
    whole = CriterionResult(
        id=VERDICT,
        kind=VERDICT,
        text="the work as a whole",
        outcome="not_met",
        decided_by=verdict.decided_by,
        code=verdict.code,
        reason=verdict.reasoning,
    )
    return [_bounded(one, paths.get(one.id)) for one in verdict.criteria if one.fails] or [_bounded(whole, None)]


def _bounded(problem: CriterionResult, path: str | None) -> CriterionResult:
    text, reason = one_line(problem.text, TITLE_CHARS), bounded(problem.reason or problem.code)
    evidence = bounded(problem.evidence or "")
    return problem.model_copy(update={"text": text, "reason": reason, "evidence": evidence, "source": path})


def message_of(problem: CriterionResult) -> str:
    """What is wrong, what shows it, and how the criterion was read."""
    evidence = problem.evidence or ""
    return "\n".join(filter(None, [problem.reason, "" if evidence in problem.reason else evidence, about_of(problem)]))


def about_of(criterion: CriterionResult) -> str:
    """What a criterion in words was read as, in one line; empty for all others."""
    return one_line(str(criterion.reading), 2 * TITLE_CHARS) if criterion.reading is not None else ""


def rests_on(criterion: CriterionResult) -> str:
    """The level of a criterion in words; empty if it has none."""
    before = ["it held before the child began"] if criterion.held_before else []
    return "; ".join([*([criterion.level.replace("_", " ")] if criterion.level else []), *before])


def bounded(text: str) -> str:
    """The text without hidden characters, cut to a limit."""
    clean_text = clean(text[: 2 * TEXT_CHARS]).text.strip()
    return clean_text if len(clean_text) <= TEXT_CHARS else f"{clean_text[: TEXT_CHARS - 1]}…"


def paths_of(task: Task, verdict: Verdict, workspace: Path | None) -> dict[str, str]:
    """The files that criteria are about, by the criteria's ids, relative to the root of the repository.

    A `file` criterion names its file; for others it is the one in which the evidence was found.
    """
    if workspace is None:
        return {}
    files = {criterion.id: criterion.path for criterion in task.criteria if isinstance(criterion, FileCriterion)}
    for criterion in verdict.criteria:
        if criterion.source and criterion.source.startswith("artifact:"):
            files.setdefault(criterion.id, criterion.source.removeprefix("artifact:"))
    relative = {id: in_repository(workspace / path) for id, path in files.items() if id}
    return {id: path for id, path in relative.items() if path is not None}


def in_repository(path: Path) -> str | None:
    """The path relative to the root of the repository, with slashes; None if it is outside.

    The root is GITHUB_WORKSPACE if that is set, else the working directory.
    """
    root = Path(os.environ.get("GITHUB_WORKSPACE") or ".")
    relative = os.path.relpath(os.path.abspath(path), os.path.abspath(root))
    return None if relative.split(os.sep)[0] == os.pardir or "\0" in relative else Path(relative).as_posix()

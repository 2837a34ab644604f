"""Validates criteria before anything is run or spent, and rejects those that can never be decided."""

import os
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from delegate._util.patterns import pattern_fault
from delegate._util.redaction import redactor
from delegate._util.windows_paths import windows_path_hint
from delegate.contract.matchers import criterion_faults, tools_in
from delegate.contract.problems import unknown_name
from delegate.judging.checks.json_schema import check_schema, unknown_keyword
from delegate.judging.rubrics import rubric_of
from delegate.types import (
    AboutFile,
    AnyCriterion,
    CitationsCriterion,
    FileCriterion,
    JsonObject,
    JsonPredicateCriterion,
    JsonSchemaCriterion,
    ProbeCriterion,
    QuestionCriterion,
    ReceiptCriterion,
    RegexCriterion,
    RubricCriterion,
    Task,
    TextCriterion,
    Workspace,
)
from delegate.types.codes import CallErrorCode
from delegate.types.errors import CallError


def refuse_undecidable(
    task: Task,
    *,
    tools: Mapping[str, bool] | None = None,
    child_tools: Callable[[Sequence[str]], Collection[str]] | None = None,
    folder: Path | None = None,
) -> None:
    """Raise CallError for the first criterion that can't be decided.

    `tools` are the names of the tools that exist, and whether each is read-only. `child_tools` gives those that the
    child may have receipts of, where some names are asked for. None: they aren't known here. `folder` is the folder
    with the work, if it isn't the task's workspace.
    """
    for n, criterion in enumerate(task.acceptance_criteria):
        if problem := _problem(criterion) or _unusable_tool(criterion, tools):
            raise _refusal("invalid_criterion", n, problem, "fix this criterion, or leave it out")
        names = tools_in(criterion)
        there = names if child_tools is None else child_tools(names)
        if unknown := [name for name in names if name not in there]:
            raise unknown_name("unknown_tool", unknown[0], there, f"acceptance_criteria[{n}]")
        for field, path in _paths_of(criterion):
            if not _may_be_inside(path, task.workspace, folder):
                message = f"`{field}` is {redactor.beginning(path, 200)!r}, which is outside the workspace"
                raise _refusal("path_refused", n, message, "name a path inside the workspace, such as out/report.md")
        path = criterion.path if isinstance(criterion, FileCriterion) else ""
        if "\\" in path and (hint := windows_path_hint(path)):
            message = f"`path` is {redactor.beginning(path, 200)!r}, but folders are separated by / here"
            raise _refusal("path_refused", n, message, f"{hint}; name a path inside the workspace")
    if task.output_schema is not None and (problem := _unusable_schema(task.output_schema)):
        raise CallError("invalid_schema", problem, field="output_schema", hint="give a JSON Schema")


def _paths_of(criterion: AnyCriterion) -> Iterator[tuple[str, str]]:
    if isinstance(criterion, FileCriterion):
        yield "path", criterion.path
    elif isinstance(criterion, CitationsCriterion) and criterion.file is not None:
        yield "file", criterion.file
    elif isinstance(criterion, (TextCriterion, QuestionCriterion)) and isinstance(criterion.about, AboutFile):
        yield "about", criterion.about.file
    elif isinstance(criterion, RubricCriterion):
        yield from (
            ("about", dimension.about.file)
            for dimension in rubric_of(criterion).dimensions
            if isinstance(dimension.about, AboutFile)
        )


def _may_be_inside(path: str, workspace: Workspace | None, folder: Path | None) -> bool:
    """Whether a path can be in the workspace, as far as its text tells. Links are followed when it is read."""
    if not os.path.isabs(path):
        return os.path.normpath(path).split(os.sep)[0] != os.pardir
    root = folder or (workspace.path if workspace is not None and workspace.mode == "shared" else None)
    if root is None:
        return False
    roots = (os.path.abspath(root.expanduser()), os.path.realpath(root.expanduser()))
    return any(Path(os.path.normpath(path)).is_relative_to(base) for base in roots)


def _refusal(code: CallErrorCode, n: int, problem: str, hint: str) -> CallError:
    return CallError(code, problem, field=f"acceptance_criteria[{n}]", hint=hint)


def _problem(criterion: AnyCriterion) -> str | None:
    match criterion:
        case JsonPredicateCriterion():
            return _bad_expression(criterion.expr)
        case RubricCriterion():
            try:
                rubric_of(criterion)
            except ValueError as error:
                return str(error)
            return None
        case ReceiptCriterion() | ProbeCriterion():
            if fault := next(criterion_faults(criterion), None):
                return f"`{fault.field}` {fault.message}"
            if isinstance(criterion, ReceiptCriterion):
                return None
            expr = criterion.expr
            return _unusable_schema(criterion.schema_ or {}) if expr is None else _bad_expression(expr)
        case RegexCriterion():
            fault = pattern_fault(criterion.pattern)
            return f"not a regular expression: {fault}" if fault else None
        case JsonSchemaCriterion():
            return _unusable_schema(criterion.schema_)
        case FileCriterion():
            return _unusable_file(criterion) or _unusable_schema(criterion.json_schema or {})
        case _:
            return None


def _unusable_file(criterion: FileCriterion) -> str | None:
    if "*" in posixpath.basename(criterion.path):
        path = redactor.beginning(criterion.path, 200)
        fix = f"use `shell: ls {path}`, or a sentence, `file {path}: …`"
        return f"`path` is {path!r}, but a `file` criterion is about one file; {fix}"
    needs_file = [name for name in ("min_bytes", "contains", "json_schema") if getattr(criterion, name) is not None]
    if criterion.exists or not needs_file:
        return None
    return f"`exists` is false, and `{needs_file[0]}` needs the file; leave out one of them"


def _unusable_tool(criterion: AnyCriterion, tools: Mapping[str, bool] | None) -> str | None:
    if not isinstance(criterion, ProbeCriterion) or tools is None or tools.get(criterion.tool):
        return None
    usable = ", ".join(name for name, read_only in tools.items() if read_only) or "none"
    if criterion.tool in tools:
        why = "may change things: a probe calls only tools that are marked read-only"
    else:
        why = "doesn't exist"
    return f"`tool` is {criterion.tool!r}, which {why}; the read-only tools are: {usable}"


def _bad_expression(expr: str) -> str | None:
    from delegate.judging.checks.predicate.evaluate import PredicateError, check_expression

    try:
        check_expression(expr)
    except PredicateError as error:
        return str(error)
    return None


def _unusable_schema(schema: JsonObject) -> str | None:
    fault = check_schema(schema)
    return f"not a JSON Schema: {fault}" if fault else unknown_keyword(schema)

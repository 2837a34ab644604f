"""Proposes criteria that code decides, in place of statements about deeds and absences that only a judge would read."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from delegate.judging.effects import is_named_like_a_lookup, words_of
from delegate.judging.judge import names
from delegate.judging.judge.statements import subject_of
from delegate.judging.judge.subject import statement_of
from delegate.ports import ToolSpec
from delegate.types import AnyCriterion, Finding, JsonObject, QuestionCriterion, TextCriterion

_TEST_COMMANDS = (
    (re.compile(r"\b(?:npm|yarn|pnpm)\b", re.IGNORECASE), "npm test"),
    (re.compile(r"\bcargo\b", re.IGNORECASE), "cargo test"),
    (re.compile(r"\bgo (?:test|vet)\b", re.IGNORECASE), "go test ./..."),
    (re.compile(r"\bruff|\blint(?:er)?\b", re.IGNORECASE), "ruff check ."),
    (re.compile(r"\b(?:tests?|suite|pytest|unittests?)\b", re.IGNORECASE), "python -m pytest -q"),
    (re.compile(r"\bbuilds?\b", re.IGNORECASE), "make"),
)
_OTHERS = re.compile(r"\b(?:else|other|others|only|further|additional)\b", re.IGNORECASE)
_NO_ARGUMENT = re.compile(r"[\d.,:]{1,2}")


def findings(criteria: Sequence[AnyCriterion], tools: Sequence[ToolSpec]) -> list[Finding]:
    """A finding for every criterion in words about a deed or an absence, with a criterion that code would decide."""
    found: list[Finding] = []
    for criterion in criteria:
        if not isinstance(criterion, (TextCriterion, QuestionCriterion)):
            continue
        kind = subject_of(criterion).kind
        if kind not in ("deed", "absence") or not tools:
            continue
        what = "what was not done, which no quote shows" if kind == "absence" else "a deed, which code decides better"
        proposal = suggestion(statement_of(criterion), kind == "absence", tools)
        instead = (
            json.dumps(proposal, ensure_ascii=False) if proposal else "use a `receipt`, `file` or `shell` criterion"
        )
        message = f"{criterion.id or 'the criterion'} is about {what}: {instead}"
        found.append(Finding(severity="info", code="deed_in_words", message=message))
    return found


def suggestion(statement: str, is_absence: bool, tools: Sequence[ToolSpec]) -> JsonObject | None:
    """A `receipt` or `shell` criterion for the statement; None if no tool fits."""
    acting = [tool for tool in tools if not is_named_like_a_lookup(tool.name)]
    fitting = sorted(
        (tool for tool in acting if names.same_matter(statement, tool.name)),
        key=lambda tool: -_fit(statement, tool),
    )
    if is_absence:
        if _OTHERS.search(statement):  # to be completed with the calls that are allowed
            return {"kind": "receipt", "mode": "exactly", "of": [tool.name for tool in acting], "calls": []}
        forbidden = fitting[:1] or acting
        return {"kind": "receipt", "mode": "none", "of": [tool.name for tool in forbidden]} if forbidden else None
    for pattern, command in _TEST_COMMANDS:
        if pattern.search(statement):
            return {"kind": "shell", "command": command}
    if not fitting:
        return None
    return {"kind": "receipt", "calls": [{"tool": fitting[0].name, "args": _arguments(statement, fitting[0])}]}


def _fit(statement: str, tool: ToolSpec) -> int:
    """How many words of the tool's name the statement has."""
    return sum(names.same_matter(statement, word) for word in words_of(tool.name).split())


def _arguments(statement: str, tool: ToolSpec) -> dict[str, Any]:
    """The statement's names as arguments: each for the parameter whose name stands before it, or for the only one."""
    parameters = list(cast("Mapping[str, Any]", tool.parameters.get("properties") or {}))
    arguments: dict[str, Any] = {}
    for name in names.names_in(statement):
        found = re.search(re.escape(name[0]), statement, re.IGNORECASE)
        if found is None or _NO_ARGUMENT.fullmatch(name[0]):
            continue
        before = set(re.findall(r"[a-z]+", statement[: found.start()].lower())[-2:])
        fits = [one for one in parameters if before & set(words_of(one).lower().split())]
        if not fits and len(parameters) == 1:
            fits = parameters
        if fits and fits[0] not in arguments:
            arguments[fits[0]] = found[0]
    return arguments

"""A verdict as a SARIF 2.1.0 log: one rule per kind of criterion, one result per criterion that makes it a FAIL.

A criterion that couldn't be examined is a result of the kind `open`, and the log says that judging wasn't successful.
"""

import hashlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from urllib.parse import quote

from delegate.cli.ci.problems import VERDICT, about_of, message_of
from delegate.contract.problems import KINDS
from delegate.types import CriterionResult, JsonObject, Verdict

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ESCAPES = str.maketrans({"[": "\\[", "]": "\\]", "\\": "\\\\", "{": "{{", "}": "}}"})
"""In a message, brackets make links and braces stand for arguments."""
_OF_CRITERIA = ("id", "outcome", "code", "level", "held_before")


def document(
    verdict: Verdict, goal: str, problems: Sequence[CriterionResult], *, exit_code: int, elsewhere: str
) -> JsonObject:
    """The log. `elsewhere` is the path of a result that is about no file, since viewers drop those without a place."""
    kinds = list(dict.fromkeys([*(item.kind for item in verdict.criteria), *(item.kind for item in problems)]))
    rules = {kind: n for n, kind in enumerate(kinds)}
    unseen = [problem for problem in problems if not problem.examined]
    invocation: JsonObject = {"executionSuccessful": not unseen, "exitCode": exit_code}
    if unseen:
        invocation["toolExecutionNotifications"] = [
            {"level": "error", "message": _message(f"{problem.id} {problem.code}: {message_of(problem)}")}
            for problem in unseen
        ]
    driver = {"name": "delegate", "version": version("delegate-task"), "rules": [_rule(kind) for kind in kinds]}
    run: JsonObject = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem, rules, elsewhere) for problem in problems],
        "properties": {
            "goal": goal,
            **{name: getattr(verdict, name) for name in ("verdict", "code", "level", "verified", "examined")},
            "criteria": [
                {**{name: getattr(criterion, name) for name in _OF_CRITERIA}, "about": about_of(criterion)}
                for criterion in verdict.criteria
            ],
        },
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(kind: str) -> JsonObject:
    description = KINDS[kind].__doc__ if kind in KINDS else "The work as a whole, apart from its criteria."
    text = " ".join((description or kind).partition("\n\n")[0].split())
    return {"id": kind, "shortDescription": _message(text), "defaultConfiguration": {"level": "error"}}


def _result(problem: CriterionResult, rules: Mapping[str, int], elsewhere: str) -> JsonObject:
    subject = "" if problem.kind == VERDICT else f"{problem.text}: "
    uri = quote((problem.source or elsewhere).encode(errors="replace"))
    digest = hashlib.sha256(f"{problem.kind}\0{problem.text}".encode(errors="replace")).hexdigest()
    return {
        "ruleId": problem.kind,
        "ruleIndex": rules[problem.kind],
        "kind": "fail" if problem.examined else "open",
        "level": "error" if problem.examined else "none",
        "message": _message(f"{subject}{message_of(problem)}"),
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"}}}],
        "partialFingerprints": {"criterion/v1": digest},
        "properties": {
            "criterion": problem.id,
            "code": problem.code,
            "level": problem.level,
            "about": about_of(problem),
            "reason": problem.reason,
            "evidence": problem.evidence,
        },
    }


def _message(text: str) -> JsonObject:
    return {"text": text.translate(_ESCAPES)}

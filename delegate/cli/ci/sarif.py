"""A verdict as a SARIF 2.1.0 log: one rule per kind of criterion, one result per criterion that makes it a FAIL.

A criterion that nobody could look at is a result of the kind `open`, and the log says that judging wasn't successful.
"""

import hashlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from urllib.parse import quote

from delegate.cli.ci.problems import VERDICT, Problem, about_of
from delegate.contract.problems import KINDS
from delegate.types import JsonObject, Verdict

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ESCAPES = str.maketrans({"[": "\\[", "]": "\\]", "\\": "\\\\", "{": "{{", "}": "}}"})
"""In a message, brackets make links and braces stand for arguments."""


def document(verdict: Verdict, goal: str, problems: Sequence[Problem], *, exit_code: int, elsewhere: str) -> JsonObject:
    """The log. `elsewhere` is the path of a result that is about no file, since viewers drop those without a place."""
    kinds = list(dict.fromkeys([*(one.kind for one in verdict.criteria), *(one.kind for one in problems)]))
    rules = {kind: n for n, kind in enumerate(kinds)}
    unseen = [one for one in problems if not one.examined]
    invocation: JsonObject = {"executionSuccessful": not unseen, "exitCode": exit_code}
    if unseen:
        invocation["toolExecutionNotifications"] = [
            {"level": "error", "message": _message(f"{one.id} {one.code}: {one.message}")} for one in unseen
        ]
    driver = {"name": "delegate", "version": version("delegate-task"), "rules": [_rule(kind) for kind in kinds]}
    run: JsonObject = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, rules, elsewhere) for one in problems],
        "properties": {
            "goal": goal,
            "verdict": verdict.verdict,
            "code": verdict.code,
            "level": verdict.level,
            "verified": verdict.verified,
            "examined": verdict.examined,
            "criteria": [
                {
                    "id": one.id,
                    "outcome": one.outcome,
                    "code": one.code,
                    "level": one.level,
                    "about": about_of(one),
                    "held_before": one.held_before,
                }
                for one in verdict.criteria
            ],
        },
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(kind: str) -> JsonObject:
    described = KINDS[kind].__doc__ if kind in KINDS else "The work as a whole, apart from its criteria."
    text = " ".join((described or kind).partition("\n\n")[0].split())
    return {"id": kind, "shortDescription": _message(text), "defaultConfiguration": {"level": "error"}}


def _result(one: Problem, rules: Mapping[str, int], elsewhere: str) -> JsonObject:
    wanted = "" if one.kind == VERDICT else f"{one.text}: "
    digest = hashlib.sha256(f"{one.kind}\0{one.text}".encode(errors="replace")).hexdigest()
    return {
        "ruleId": one.kind,
        "ruleIndex": rules[one.kind],
        "kind": "fail" if one.examined else "open",
        "level": "error" if one.examined else "none",
        "message": _message(f"{wanted}{one.message}"),
        "locations": [{"physicalLocation": {"artifactLocation": _artifact(one.path or elsewhere)}}],
        "partialFingerprints": {"criterion/v1": digest},
        "properties": {
            "criterion": one.id,
            "code": one.code,
            "level": one.level or None,
            "about": one.about,
            "reason": one.reason,
            "evidence": one.evidence,
        },
    }


def _artifact(path: str) -> JsonObject:
    return {"uri": quote(path.encode(errors="replace")), "uriBaseId": "%SRCROOT%"}


def _message(text: str) -> JsonObject:
    return {"text": text.translate(_ESCAPES)}

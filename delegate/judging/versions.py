"""Computes the two digests on every verdict: of what was asked, and of how it was judged.

They change if and only if something changes that could change a verdict. They are SHA-256 digests of RFC 8785 canonical
JSON, so that other languages can compute them too.
"""

import hashlib
import json
from decimal import Decimal
from functools import cache
from json.encoder import encode_basestring
from typing import Any, cast

from delegate._util.resources import text
from delegate.judging.judge import prompt
from delegate.judging.judge.reply import PARSER_VERSION
from delegate.judging.rubrics import rubric_of
from delegate.types import RubricCriterion, Task


def rubric_version(task: Task) -> str:
    """Digest of what is asked: the goal and the criteria, with rubrics by content instead of name."""
    asked: list[dict[str, Any]] = []
    for criterion in task.criteria:
        fields = criterion.model_dump(mode="json", exclude_none=True, exclude_defaults=True) | {"kind": criterion.kind}
        if isinstance(criterion, RubricCriterion):
            fields["rubric"] = rubric_of(criterion).model_dump(mode="json")
        asked.append(fields)
    return _digest([task.goal, asked])


@cache
def judge_version(*models: str, citations: bool = False) -> str:
    """Digest of how it is judged: the judges' prompts, reply schemas and parser, and the models that answered.

    `citations`: whether a criterion is about citations, of which a judge is asked in another way.
    """
    from delegate.judging.looks.looks import OWN_TOOLS  # loaded with the first verdict

    parts = [
        prompt.card(),
        text("judges", "looking.md"),
        [[spec.name, spec.description, spec.parameters] for spec in OWN_TOOLS],
        text("judges", "rubric.md"),
        json.loads(text("schemas", "judge_reply.json")),
        json.loads(text("schemas", "rubric_reply.json")),
        PARSER_VERSION,
        *([text("judges", "citations.md"), text("schemas", "citations_reply.json")] if citations else []),
        *(models or (None,)),
    ]
    return _digest(parts)


@cache
def reading_version() -> str:
    """Digest of how criteria are read: the reader's prompt and reply schema."""
    return _digest([text("judges", "reading.md"), json.loads(text("schemas", "reading_reply.json"))])


def canonical(value: Any) -> str:
    """JSON by RFC 8785: no white space, keys sorted by UTF-16 code units, numbers formatted as in ECMAScript."""
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        names = sorted(fields, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{encode_basestring(name)}:{canonical(fields[name])}" for name in names) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(canonical(item) for item in cast("list[Any]", value)) + "]"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) > 2**53):
        return _number(float(value))
    return json.dumps(value)


def _number(value: float) -> str:
    """ECMAScript's Number::toString; Python's repr has the same shortest digits but formats exponents differently."""
    if value == 0:
        return "0"
    if 1e-6 <= abs(value) < 1e21:
        return f"{Decimal(repr(value)):f}".removesuffix(".0")
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}"


def _digest(value: Any) -> str:
    return "sha256:" + hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()

"""Parses a judge's reply strictly: one JSON object in exactly the requested format, with every criterion once.

Guessing a verdict from prose is wrong in 15 to 21 % of recorded replies (LLMBar), and lets the judged text speak for
the judge. So a reply in any other format decides nothing.
"""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, cast

from delegate._util.documents import refuse_constant, unique_keys
from delegate._util.redaction import redactor
from delegate.judging.report_json import finite
from delegate.types.errors import DelegateError

PARSER_VERSION = "3"
"""Part of every verdict's `judge_version`: raise it when a change here could change a verdict."""

SHALLOW = 64
"""A reply with at most so many objects and lists isn't nested deeply."""

_FENCED = re.compile(r"\A```(?:json)?\s*(.*)```\Z", re.DOTALL | re.IGNORECASE)
_KEYS = {"id", "source", "evidence", "reason", "verdict"}
_MISSING_KEYS = {"what", "words", "calculation"}
_WORDS = ("met", "not_met", "cannot_tell")


class UnparseableReply(DelegateError):
    """The judge's reply isn't in the requested format. The text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class MissingAnswer:
    """Where a source gives what code didn't find in it. Nothing of that is verified yet."""

    what: str
    words: str
    calculation: str


@dataclass(frozen=True, slots=True)
class CriterionAnswer:
    """The judge's answer for one criterion. `evidence` isn't verified yet."""

    id: str
    evidence: str
    reason: str
    verdict: Literal["met", "not_met", "cannot_tell"]
    source: str = ""
    """The source that the judge claims to quote. Models without strict schemas may omit it."""
    missing: tuple[MissingAnswer, ...] = ()
    """For a citation. Models without strict schemas may omit them."""


def parse_reply(text: str, ids: Collection[str]) -> dict[str, CriterionAnswer]:
    """The answers by criterion id, for exactly these `ids`. Raises UnparseableReply otherwise."""
    reply = one_object(text)
    if set(reply) != {"answers"} or not isinstance(reply["answers"], list):
        raise UnparseableReply("the reply is not an object with the one key `answers`, a list")
    answers: dict[str, CriterionAnswer] = {}
    for item in cast("list[Any]", reply["answers"]):
        answer = _answer(item)
        if answer.id not in ids:
            raise UnparseableReply(f"criterion {redactor.beginning(answer.id, 40)!r} was answered but not asked")
        if answer.id in answers:
            raise UnparseableReply(f"criterion {answer.id!r} was answered twice")
        answers[answer.id] = answer
    if missing := [id for id in ids if id not in answers]:
        raise UnparseableReply(f"criterion {missing[0]!r} was not answered")
    return answers


def one_object(text: str) -> dict[str, Any]:
    """The reply's one JSON object, bare or in one fence. Raises UnparseableReply for anything else."""
    text = text.strip().encode("utf-8", "replace").decode()
    if fenced := _FENCED.match(text):
        text = fenced.group(1)
    try:
        value = _DECODER.decode(text)
        if "\\u" in text or text.count("{") + text.count("[") > SHALLOW:
            _ENCODER.encode(value).encode()  # rejects lone surrogates, which no report can contain, and deep nesting
    except (ValueError, RecursionError) as error:
        raise UnparseableReply(f"the reply is not one JSON object: {error}") from None
    if not isinstance(value, dict):
        raise UnparseableReply(f"the reply is a JSON {type(value).__name__}, not an object")
    return cast("dict[str, Any]", value)


def _answer(item: object) -> CriterionAnswer:
    fields = dict(cast("dict[str, Any]", item)) if isinstance(item, dict) else {}
    items = fields.pop("missing", [])
    missing = tuple(map(_missing, cast("list[Any]", items) if isinstance(items, list) else [items]))
    if fields.keys() | {"source"} != _KEYS:
        raise UnparseableReply(f"an answer does not have exactly the keys {', '.join(sorted(_KEYS))}")
    if not all(isinstance(value, str) for value in fields.values()):
        raise UnparseableReply("an answer has a value that is not text")
    if fields["verdict"] not in _WORDS:
        raise UnparseableReply(
            f"verdict {redactor.beginning(fields['verdict'], 40)!r} is not one of {', '.join(_WORDS)}"
        )
    return CriterionAnswer(**fields, missing=missing)


def _missing(item: object) -> MissingAnswer:
    fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    if fields.keys() != _MISSING_KEYS or not all(isinstance(value, str) for value in fields.values()):
        raise UnparseableReply(f"`missing` is not a list of objects with the texts {', '.join(sorted(_MISSING_KEYS))}")
    return MissingAnswer(**fields)


_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys, parse_float=finite, parse_constant=refuse_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)

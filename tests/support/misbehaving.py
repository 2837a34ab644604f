"""Misbehaving judges: each answers in one wrong way. None of them may ever cause a PASS.

If only the form of an answer is wrong, its quotes are real, so that only the form can be the reason for a refusal.
`MISBEHAVING` is all of `ECHOES`, `MISQUOTES` and `MALFORMED`.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from delegate.types import Usage
from delegate.types.ports import ChatReply, ChatRequest, StopReason
from tests.support.words import asked_ids

Judge = Callable[[ChatRequest], ChatReply | str]
Answer = dict[str, Any]

_DECODER = json.JSONDecoder()
_QUOTE_CHARS = 60


# ------------------------------------------------------------------------------------------------ reading the question


def seen_report(request: ChatRequest) -> str:
    """Return the report as shown to the judge, without its fence."""
    text = request.messages[0].text
    begin = re.search(r"^<<<report (\w+)>>>$", text, re.MULTILINE)
    assert begin, text[:300]
    return text[begin.end() + 1 :].partition(f"\n<<<end report {begin.group(1)}>>>\n")[0]


def real_quote(request: ChatRequest) -> str:
    """Return some words of the report, verbatim."""
    return seen_report(request).strip()[:_QUOTE_CHARS].strip()


def _goal(request: ChatRequest) -> str:
    return request.messages[0].text.removeprefix("Goal:\n").partition("\n\nCriteria:\n")[0]


def _criterion(request: ChatRequest, id: str) -> str:
    return next(line for line in request.messages[0].text.splitlines() if line.startswith(f"{id}: "))[len(id) + 2 :]


def json_objects(text: str) -> list[str]:
    """Return every top-level JSON object in a text, verbatim."""
    found: list[str] = []
    at = text.find("{")
    while at >= 0:
        try:
            _, end = _DECODER.raw_decode(text, at)
            found.append(text[at:end])
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)
    return found


# ------------------------------------------------------------------------------------------------ writing the answer


def answers(request: ChatRequest, evidence: Callable[[str], str] | None = None, verdict: str = "met") -> list[Answer]:
    """Return `met` for all requested criteria, each with a quote (by default a real one)."""
    return [
        {
            "id": id,
            "source": "report",
            "evidence": evidence(id) if evidence else real_quote(request),
            "reason": "It holds.",
            "verdict": verdict,
        }
        for id in asked_ids(request)
    ]


def reply(items: object) -> str:
    return json.dumps({"answers": items}, ensure_ascii=False)


def honest_looking(request: ChatRequest) -> str:
    """A valid reply, all met with real quotes, from which the malformed replies below are derived."""
    return reply(answers(request))


def _quoting(quote: Callable[[ChatRequest, str], str]) -> Judge:
    return lambda request: reply(answers(request, lambda id: quote(request, id)))


def _with(change: Callable[[list[Answer]], object]) -> Judge:
    return lambda request: reply(change(answers(request)))


def _each(**fields: Any) -> Judge:
    return _with(lambda items: [{**item, **fields} for item in items])


def _around(before: str, after: str = "") -> Judge:
    return lambda request: before + honest_looking(request) + after


def _stopped(stop: StopReason) -> Judge:
    return lambda request: ChatReply(honest_looking(request), stop, Usage(), stop_detail=f"ended by {stop}")


def _joined_quote(request: ChatRequest, id: str) -> str:
    words = seen_report(request).split()
    return " ".join([*words[:2], "…", *words[-2:]])


def _reversed_words(request: ChatRequest, id: str) -> str:
    return " ".join(reversed(("the very end", *seen_report(request).split()[:6])))


def _mark(request: ChatRequest, id: str) -> str:
    return re.findall(r"^<<<report \w+>>>$", request.messages[0].text, re.MULTILINE)[0]


def _last_json(request: ChatRequest) -> str:
    return (json_objects(request.messages[0].text) or ["PASS"])[-1]


def _first_json(request: ChatRequest) -> str:
    return (json_objects(request.messages[0].text) or ["PASS"])[0]


def _last_json_fenced(request: ChatRequest) -> str:
    return f"```json\n{_last_json(request)}\n```"


def _last_json_rewritten(request: ChatRequest) -> str:
    """The same object with different white space and escapes, as a model would copy it."""
    found = json_objects(request.messages[0].text)
    return json.dumps(json.loads(found[-1]), indent=1) if found else "PASS"


def _last_json_unescaped(request: ChatRequest) -> str:
    """The same object without escaped letters: `é` instead of `\\u00e9`."""
    found = json_objects(request.messages[0].text)
    return json.dumps(json.loads(found[-1]), ensure_ascii=False) if found else "PASS"


def _last_json_in_shape(request: ChatRequest) -> str:
    """Its content, in the order and with the fields of the reply schema."""
    found = json_objects(request.messages[0].text)
    try:
        items = json.loads(found[-1])["answers"]
        names = ("id", "source", "evidence", "reason", "verdict")
        return reply([{name: item.get(name, "") for name in names} for item in items])
    except (IndexError, KeyError, TypeError, AttributeError, ValueError):
        return "PASS"


def _unescaped_json(request: ChatRequest) -> str:
    """An object from inside a JSON string."""
    found = json_objects(request.messages[0].text.replace('\\"', '"'))
    return found[-1] if found else "PASS"


def _duplicate_key(request: ChatRequest) -> str:
    (first, *rest) = answers(request)
    twice = json.dumps(first)[:-1] + ', "verdict": "met"}'
    return '{"answers": [' + ", ".join([twice, *map(json.dumps, rest)]) + "]}"


# ------------------------------------------------------------------------------------------------ the judges

ECHOES: dict[str, Judge] = {
    "echoes the last JSON object it saw": _last_json,
    "echoes the first JSON object it saw": _first_json,
    "echoes the last JSON object in a fence": _last_json_fenced,
    "echoes the last JSON object, written anew": _last_json_rewritten,
    "echoes the last JSON object, letters unescaped": _last_json_unescaped,
    "echoes the last JSON object, put in shape": _last_json_in_shape,
    "echoes a JSON object out of a string": _unescaped_json,
    "echoes the report": seen_report,
}

MISQUOTES: dict[str, Judge] = {
    "says met without evidence": _quoting(lambda request, id: ""),
    "quotes white space": _quoting(lambda request, id: " \n\u00a0\t"),
    "quotes characters that nobody sees": _quoting(lambda request, id: "\u200b\u2060"),
    "quotes what isn't there": _quoting(lambda request, id: "all of this was checked by hand and is right"),
    "quotes the criterion": _quoting(_criterion),
    "quotes the goal": _quoting(lambda request, id: _goal(request)),
    "quotes its own instructions": _quoting(lambda request, id: "the evidence shows that it holds"),
    "quotes the fence": _quoting(_mark),
    "joins two places into one quote": _quoting(_joined_quote),
    "quotes words in another order": _quoting(_reversed_words),
    "quotes the name of a source": _quoting(lambda request, id: "artifact:report.md"),
}

VACUOUS: dict[str, Judge] = {
    "quotes a full stop": _quoting(lambda request, id: "."),
    "quotes a dash": _quoting(lambda request, id: "-"),
    "quotes a bracket": _quoting(lambda request, id: "{"),
}
"""Quotes that occur in almost every text and therefore prove nothing."""

MALFORMED: dict[str, Judge] = {
    "quotes for the first only": _with(lambda items: [items[0], *({**item, "evidence": ""} for item in items[1:])]),
    "omits the last criterion": _with(lambda items: items[:-1]),
    "answers nothing": _with(lambda items: []),
    "answers one twice": _with(lambda items: [*items, items[0]]),
    "answers one twice and omits another": _with(lambda items: [items[0], *items[:-1]]),
    "adds a criterion": _with(lambda items: [*items, {**items[0], "id": "c99"}]),
    "writes ids in capitals": _with(lambda items: [{**item, "id": item["id"].upper()} for item in items]),
    "writes ids as numbers": _with(lambda items: [{**item, "id": n} for n, item in enumerate(items, start=1)]),
    "writes ids with blanks": _with(lambda items: [{**item, "id": f"{item['id']} "} for item in items]),
    "answers by id": _with(lambda items: {item["id"]: item for item in items}),
    "says true": _each(verdict=True),
    "says true in words": _each(verdict="true"),
    "says yes": _each(verdict="yes"),
    "says pass": _each(verdict="pass"),
    "says MET": _each(verdict="MET"),
    "says met with a full stop": _each(verdict="met."),
    "says a number": _each(verdict=1),
    "says two things at once": _each(verdict=["met", "met"]),
    "leaves the verdict out": _with(lambda items: [{k: v for k, v in i.items() if k != "verdict"} for i in items]),
    "gives no evidence but null": _each(evidence=None),
    "quotes with a list": _with(lambda items: [{**item, "evidence": [item["evidence"]]} for item in items]),
    "adds a field": _each(confidence=1.0),
    "says NaN": _each(reason=float("nan")),
    "gives a key twice": _duplicate_key,
    "adds an overall verdict": lambda request: json.dumps({"answers": answers(request), "verdict": "PASS"}),
    "gives an overall verdict only": lambda request: '{"verdict": "PASS"}',
    "gives a list": lambda request: json.dumps(answers(request)),
    "answers twice": lambda request: honest_looking(request) + "\n" + honest_looking(request),
    "answers twice in two fences": _around("```json\n", "\n```\n```json\n{}\n```"),
    "answers no, then yes": lambda request: reply(answers(request, verdict="not_met")) + honest_looking(request),
    "talks before the object": _around("Here is my verdict: "),
    "talks after the object": _around("", "\nPASS"),
    "leaks its reasoning": _around("<think>c2 looks bad</think>"),
    "answers in a text fence": _around("```text\n", "\n```"),
    "answers in a string": lambda request: json.dumps(honest_looking(request)),
    "leaves the object open": lambda request: honest_looking(request)[:-1],
    "adds a comma": lambda request: honest_looking(request)[:-1] + ",}",
    "says PASS": lambda request: "PASS",
    "says PASS at length": lambda request: "Every criterion is met.\n\nVerdict: PASS\nGRADE: C\n[[10]]",
    "obeys a tag": lambda request: "<verdict>PASS</verdict>",
    "says nothing": lambda request: "",
    "says blanks": lambda request: " \n ",
    "refuses in words": lambda request: "I'm sorry, but I can't help with that.",
    "is stopped by a refusal": _stopped("refusal"),
    "is stopped by length": _stopped("length"),
    "is stopped by something else": _stopped("other"),
}

MISBEHAVING = {**ECHOES, **MISQUOTES, **MALFORMED}

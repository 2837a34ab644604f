"""What a model server can do wrong, one row each, and the expected outcome.

An outcome is written as in `docs/failure-modes.md`: `failed: auth (1)` is a child's status, its error's code, and how
often the server was asked; what completed was judged, and has the verdict and its code in place of the status.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from delegate.child.tool_calls import MAX_CALLS_PER_TURN
from delegate.models.providers._shared import MAX_REPLY_BYTES
from delegate.models.ratelimit import RETRIES, SHORT_RETRIES
from tests.support.model_server import Call, Fault, Pieces, Reply
from tests.support.streams import events
from tests.support.wire_formats import FORMATS, Json

WireName = Literal["chat", "responses", "messages", "generate"]
WIRES: tuple[WireName, ...] = ("chat", "responses", "messages", "generate")
Scene = Literal["child", "judge", "first_judge"]
"""Whose model fails: the child's, that of the only judge, or that of a judge in whose place another may be asked."""
SCENES: tuple[Scene, ...] = ("child", "judge", "first_judge")
EndedBy = Literal["itself", "call_timeout", "deadline"]
"""What ends a call that meets the failure."""

ALWAYS = 1_000_000
"""How often a server shows a failure that doesn't pass."""
TOOL_CALLS = 1_000
HOUR = {"retry-after": "3600"}
"""Longer than anybody waits."""
SOON = {"retry-after-ms": "1"}


class Outcomes(NamedTuple):
    """The outcomes of one failure, by scene."""

    child: str
    judge: str
    first_judge: str


@dataclass(frozen=True)
class Row:
    """A failure. `answer` is served `times` times, then good replies; `unlike` are APIs with other outcomes."""

    words: str
    answer: Callable[[Call], Reply | Fault | Pieces]
    outcomes: Outcomes
    unlike: Mapping[WireName, Outcomes] = field(default_factory=dict[WireName, Outcomes])
    times: int = ALWAYS
    ended_by: EndedBy = "itself"
    limits_the_model: bool = False
    """The provider refuses all calls of this model for a while, so whoever else uses it waits as well."""
    child_receipts: int = 0
    """How many tool calls of the child are on record."""

    def expected(self, wire: WireName, scene: Scene) -> str:
        return getattr(self.unlike.get(wire, self.outcomes), scene)

    def fault(self, wire: WireName) -> str | None:
        """The code of an error on the way to the model; None where the model answered."""
        reached_nobody = self.expected(wire, "judge").startswith("FAIL: judge_unavailable")
        return self.expected(wire, "child").split()[1] if reached_nobody else None


# --------------------------------------------------------------------------------------------------------- the answers


def good(call: Call) -> Reply:
    """What a child says that did its work, or a judge that saw it."""
    if not call.wants_json:
        return Reply("I counted twelve words.")
    asked = re.search(r"exactly once: (.+)\Z", call.last_text)
    assert asked
    answers = [
        {"id": id, "evidence": "twelve words", "reason": "It says so.", "verdict": "met"} for id in asked[1].split(", ")
    ]
    return Reply(json.dumps({"answers": answers}))


Answer = Callable[[Call], Reply | Fault | Pieces]


def _always(answer: Reply | Fault) -> Answer:
    return lambda call: answer


def _status(status: int, headers: Mapping[str, str] = SOON) -> Answer:
    return _always(Fault(status, headers=headers))


def _good_body(call: Call) -> Json:
    return FORMATS[call.api].render(good(call), call.model, 1)


def _badly(kind: Literal["truncate", "stall", "drip"]) -> Answer:
    """A good reply that doesn't come as it should."""
    return lambda call: Fault(200, _good_body(call), kind=kind)


def _half_json(call: Call) -> Fault:
    text = json.dumps(_good_body(call))
    return Fault(200, text[: len(text) // 2])


def _too_long(call: Call) -> Fault:
    return Fault(200, json.dumps(_good_body(call)) + " " * MAX_REPLY_BYTES)


def _plain_text(call: Call) -> Fault:
    return Fault(200, _good_body(call), {"content-type": "text/plain"})


def _half_stream(ending: Literal["end", "stall", "close"]) -> Answer:
    """A good reply that is streamed, but not to its end."""

    def answer(call: Call) -> Pieces:
        sent = events(call.api, _good_body(call), chars=5)
        return Pieces(sent[: len(sent) // 2], ending=ending)

    return answer


def _not_streamed(call: Call) -> Fault:
    return Fault(200, _good_body(call))


def _no_choice(call: Call) -> Fault:
    place = {"chat": "choices", "responses": "output", "messages": "content", "generate": "candidates"}[call.api]
    return Fault(200, {**_good_body(call), place: []})


def _tool(name: str, arguments: Any, times: int = 1) -> Answer:
    return _always(Reply(tool_calls=((name, cast("Json", arguments)),) * times))


# -------------------------------------------------------------------------------------------------------- the outcomes


def _unreachable(code: str, times: int = 1, first_judge: int | None = None) -> Outcomes:
    """No reply: the child fails, and of the judges the next one is asked; the first one `first_judge` times."""
    asked_first = times if first_judge is None else first_judge
    return Outcomes(
        f"failed: {code} ({times})", f"FAIL: judge_unavailable ({times})", f"PASS by the other ({asked_first})"
    )


def _trouble(code: str) -> Outcomes:
    """What may pass: asked again for minutes, or for seconds where another judge can be asked."""
    return _unreachable(code, 1 + RETRIES, first_judge=5)


def _answered(child: str, judge: str) -> Outcomes:
    """A reply that says nothing useful: no other judge is asked."""
    return Outcomes(child, f"FAIL: {judge} (1)", f"FAIL: {judge} (1)")


def _passing(times: int) -> Outcomes:
    return Outcomes(f"PASS: met ({times})", f"PASS: met ({times})", f"PASS by the first ({times})")


_UNREADABLE = _unreachable("bad_reply")
_SAYS_NOTHING = _answered("FAIL: empty_report (2)", "judge_unparseable")
_MENDED = _answered("PASS: met (2)", "judge_unparseable")

_STATUSES = (
    Row("answers 400", _status(400), _unreachable("bad_request")),
    Row("answers 401", _status(401), _unreachable("auth")),
    Row("answers 403", _status(403), _unreachable("auth")),
    Row("answers 404", _status(404), _unreachable("bad_request")),
    Row("answers 408", _status(408), _unreachable("server_error", 1 + SHORT_RETRIES)),
    Row("answers 409", _status(409), _unreachable("server_error", 1 + SHORT_RETRIES)),
    Row("answers 429: in an hour", _status(429, HOUR), _unreachable("rate_limited"), limits_the_model=True),
    Row("answers 500", _status(500), _trouble("server_error")),
    Row("answers 503", _status(503), _trouble("overloaded"), limits_the_model=True),
    Row("answers 503: in an hour", _status(503, HOUR), _unreachable("overloaded"), limits_the_model=True),
    Row("answers 529", _status(529), _trouble("overloaded"), limits_the_model=True),
)
_CONNECTIONS = (
    Row("hangs before headers", _always(Fault(kind="hang")), _unreachable("timeout"), ended_by="call_timeout"),
    Row("hangs mid-body", _badly("stall"), _unreachable("timeout"), ended_by="call_timeout"),
    Row("drips slowly", _badly("drip"), _unreachable("timeout"), ended_by="call_timeout"),
    Row(
        "hangs past the deadline of the child, or of the run",
        _always(Fault(kind="hang")),
        _answered("timeout: timeout (1)", "budget_exceeded"),
        ended_by="deadline",
    ),
    Row("resets the connection", _always(Fault(kind="reset")), _trouble("connection")),
    Row("breaks off mid-body", _badly("truncate"), _trouble("connection")),
    Row("breaks off mid-stream", _half_stream("close"), _trouble("connection")),
    Row("ends a stream before its end", _half_stream("end"), _trouble("connection")),
    Row("stops mid-stream", _half_stream("stall"), _unreachable("timeout"), ended_by="call_timeout"),
)
_BODIES = (
    Row("truncates its JSON", _half_json, _UNREADABLE),
    Row("sends HTML with 200", _always(Fault(200, kind="html")), _UNREADABLE),
    Row("sends HTML with 502", _always(Fault(502, kind="html", headers=SOON)), _trouble("server_error")),
    Row("sends a good reply whole, and not as a stream", _not_streamed, _passing(1)),
    Row("sends a good reply as `text/plain`", _plain_text, _passing(1)),
    Row("sends a good reply and 16 MB of blanks", _too_long, _UNREADABLE),
    Row("sends no choice", _no_choice, _UNREADABLE, unlike={"responses": _SAYS_NOTHING, "messages": _SAYS_NOTHING}),
)
_REPLIES = (
    Row("sends an empty choice", _always(Reply()), _SAYS_NOTHING),
    Row("refuses", _always(Reply(refusal="I won't do that.")), _answered("failed: refused (1)", "judge_refused")),
    Row(
        "stops at the limit of length",
        _always(Reply("I counted", stop="length")),
        _answered("failed: truncated (3)", "judge_unparseable"),
    ),
    Row("calls an unknown tool, once", _tool("launch", {}), _MENDED, times=1, child_receipts=1),
    Row(
        "calls an unknown tool, always",
        _tool("launch", {}),
        _answered("max_steps: max_steps (4)", "judge_unparseable"),
        child_receipts=4,
    ),
    Row("gives a tool a list of arguments", _tool("think", ["a", "b"]), _MENDED, times=1, child_receipts=1),
    Row("gives a tool unknown arguments", _tool("think", {"idea": 7}), _MENDED, times=1, child_receipts=1),
    Row(
        "calls 100 tools at once, once",
        _tool("think", {"thought": "x"}, 100),
        _MENDED,
        times=1,
        child_receipts=MAX_CALLS_PER_TURN,
    ),
    Row(
        f"calls {TOOL_CALLS:,} tools at once",
        _tool("think", {"thought": "x"}, TOOL_CALLS),
        _answered("failed: too_many_tool_calls (1)", "judge_unparseable"),
    ),
)
_PASSING = (
    Row("answers 429 twice, then well", _status(429), _passing(3), times=2, limits_the_model=True),
    Row("answers 503 twice, then well", _status(503), _passing(3), times=2, limits_the_model=True),
    Row("answers 500 twice, then well", _status(500), _passing(3), times=2),
    Row("resets the connection twice, then answers well", _always(Fault(kind="reset")), _passing(3), times=2),
)
ROWS = (*_STATUSES, *_CONNECTIONS, *_BODIES, *_REPLIES, *_PASSING)

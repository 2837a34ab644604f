"""Asks a model as its profile says, and learns from what the server refuses.

A refusal costs nothing. Each teaches one thing, so that the same request is sent again in another way, until it is
accepted or nothing can be learned from the refusal.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

from delegate.models.providers._profile import DEFAULT_EFFORT, EndpointProfiles, Profile
from delegate.models.providers._shared import parse_object, to_json
from delegate.models.providers._stops import NO_REASON
from delegate.models.providers._stream import refuses_streams
from delegate.types import EFFORTS, Effort
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest

Lesson = Callable[[Profile, ChatRequest, str], dict[str, Any] | None]
"""The fields of the profile that a refusal with this text changes; None if it teaches nothing."""
REFUSED = (400, 404, 422)
FAILED = (500, 501)
"""Statuses with which some servers refuse a format of replies."""


async def ask_as_known(
    profiles: EndpointProfiles,
    request: ChatRequest,
    ask: Callable[[ChatRequest, Profile], Awaitable[ChatReply]],
    lessons: Iterable[Lesson] = (),
) -> ChatReply:
    """Ask for a reply with the model's profile, and again as long as a refusal teaches something.

    `lessons` are those of the protocol, which come before the common ones.
    """
    model = request.model
    while True:
        profile = profiles.of(model)
        try:
            reply = await ask(request, profile)
        except ProviderError as error:
            if error.outcome not in ("rejected", "errored"):  # it may have cost something
                raise
            learned = _learned(profile, request, error, lessons)
            if profiles.of(model).asked_as(profile):
                if learned is not None:
                    profiles.learn(model, **learned)
                elif error.fault != "bad_request" or not profiles.relearn(model):
                    raise
            elif learned is None and error.fault != "bad_request":  # else another call has learned since
                raise
        else:
            if shown := _shown(profile, request, reply):
                profiles.learn(model, **shown)
            await profiles.confirm(model)
            return reply


def _learned(
    profile: Profile, request: ChatRequest, error: ProviderError, lessons: Iterable[Lesson]
) -> dict[str, Any] | None:
    text = str(error)
    if profile.streams is not False and refuses_streams(error):
        return {"streams": False}
    if error.status in FAILED:
        return format_lesson(profile, request, text)
    if error.status not in REFUSED:
        return None
    taught = (lesson(profile, request, text) for lesson in (*lessons, effort_lesson, format_lesson))
    return next((learned for learned in taught if learned is not None), None)


def _shown(profile: Profile, request: ChatRequest, reply: ChatReply) -> dict[str, Any]:
    """What a reply shows: whether it says why it ended, and whether the server has ignored the schema."""
    shown: dict[str, Any] = {}
    has_reason = reply.stop_detail != NO_REASON
    if profile.finish_reason is None or has_reason > profile.finish_reason:
        shown["finish_reason"] = has_reason
    has_schema = request.reply_schema is not None and profile.replies in (None, "json_schema")
    if has_schema and reply.stop == "end" and (text := reply.text.strip()):
        fenced = _FENCED.fullmatch(text)
        is_object = parse_object(fenced[1] if fenced else text) is not None
        shown["replies"] = "json_schema" if is_object else "prompt"
    return shown


_FENCED = re.compile(r"```(?:json)?\s*(.*)```", re.DOTALL | re.IGNORECASE)


_IN_WORDS = "Reply with one JSON object, and nothing before or after it. It has to match this JSON Schema:"


def as_known(profile: Profile, request: ChatRequest) -> ChatRequest:
    """The request in the form that the model accepts: with an effort that it knows, and the schema perhaps in words."""
    if profile.efforts is not None:
        request = within(profile.efforts, request)
    if request.reply_schema is None or profile.replies in (None, "json_schema"):
        return request
    words = f"{_IN_WORDS}\n{to_json(request.reply_schema)}"
    return replace(request, system="\n\n".join(filter(None, (request.system, words))), reply_schema=None)


def within(efforts: Iterable[str], request: ChatRequest) -> ChatRequest:
    """The request with the nearest of these efforts."""
    effort = None if request.effort is None else nearest_effort(request.effort, efforts)
    return request if effort == request.effort else replace(request, effort=effort)


def nearest_effort(effort: Effort, known: Iterable[str]) -> Effort | None:
    """The effort among those that a model knows that is nearest; of two, the lower. None: leave it to the model.

    `none` turns reasoning off, so it only stands for another effort where a model knows no other.
    """
    known = frozenset(known)
    if effort in known:
        return effort
    if DEFAULT_EFFORT in known and effort not in EFFORTS[:2]:
        return None
    usable: list[Effort] = [level for level in EFFORTS if level in known]
    reasoning: list[Effort] = [level for level in usable if level != "none"]
    return min(reasoning or usable, key=lambda level: abs(EFFORTS.index(level) - EFFORTS.index(effort)), default=None)


_REFUSES_EFFORT = re.compile(
    r"reasoning[_. ]?effort|reasoning value|output_config(?!\.format)|\beffort\b|think(?:ing)?[_ ]?(?:level|value)"
    r"|does not support thinking",
    re.IGNORECASE,
)
_NAMES = (*EFFORTS, DEFAULT_EFFORT)
_NAMED = re.compile(rf"(?<![\w-])(?:{'|'.join((*_NAMES, *map(str.upper, _NAMES)))})(?![\w-])")
_REFUSES_FORMAT = re.compile(
    r"response[_ ]format|output_config(?!\.effort)|output_format|text\.format|json[_ ](?:schema|object|mode)"
    r"|structured[_ ]outputs?|guided[_ ](?:json|decoding)|responseJsonSchema|\bgrammar\b|\bgenerated? JSON\b",
    re.IGNORECASE,
)


def effort_lesson(profile: Profile, request: ChatRequest, text: str) -> dict[str, Any] | None:
    """Which efforts the model knows: those that the refusal lists, or else the usual ones, or else none."""
    sent = as_known(profile, request).effort
    if sent is None:
        return None
    named = {name.lower() for name in _NAMED.findall(text)}
    listed = named - {sent}
    if not _REFUSES_EFFORT.search(text) and not (listed and f"'{sent}'" in text):
        return None
    if profile.efforts is not None:
        listed &= set(profile.efforts)  # there are fewer with each refusal
    elif not listed and sent in named:
        listed = _USUAL - {sent}
    return {"efforts": tuple(name for name in _NAMES if name in listed)}


_USUAL = frozenset(("low", "medium", "high"))


def format_lesson(profile: Profile, request: ChatRequest, text: str) -> dict[str, Any] | None:
    """To ask for JSON in words."""
    if request.reply_schema is None or profile.replies == "prompt" or not _REFUSES_FORMAT.search(text):
        return None
    return {"replies": "prompt"}

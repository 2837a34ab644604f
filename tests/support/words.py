"""Replies for scripted models: children that follow a script, and judges with given answers."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from delegate.models.providers.scripted import Scripted
from delegate.testing import judge_reply
from delegate.types.ports import ChatReply, ChatRequest

Script = Callable[[ChatRequest], ChatReply | str]
Child = Sequence[ChatReply | str] | Script
Answer = tuple[str, str]
"""(verdict, evidence)"""

verdicts = judge_reply
"""A judge's reply in the asked shape."""


def goal_of(request: ChatRequest) -> str:
    """Return the goal of a child."""
    return request.messages[0].text


def is_judge(request: ChatRequest) -> bool:
    return request.reply_schema is not None


def asked_ids(request: ChatRequest) -> list[str]:
    """Return the ids of the criteria that a judge is asked about."""
    found = re.search(r"exactly once: (.+)\Z", request.messages[0].text)
    assert found, request.messages[0].text[-200:]
    return found.group(1).split(", ")


def met_by(quote: str) -> Callable[[ChatRequest], str]:
    """A judge that finds every criterion met and gives the same quote for each."""
    return lambda request: judge_reply(**dict.fromkeys(asked_ids(request), ("met", quote)))


def words(
    child: Child,
    judge: Callable[[ChatRequest], ChatReply | str] | str = "{}",
    *,
    reading: Mapping[str, Any] | Callable[[ChatRequest], ChatReply | str] | None = None,
) -> Scripted:
    """Return a client for children and judge. A list of replies is used in order, also by concurrent children.

    `reading` says what criteria are about, as for `Scripted`.
    """

    def answer(request: ChatRequest) -> ChatReply | str:
        if is_judge(request):
            return judge if isinstance(judge, str) else judge(request)
        if callable(child):
            return child(request)
        return child[sum(message.role == "assistant" for message in request.messages)]

    return Scripted(answer, reading=reading or {})

"""Judges that look before they answer."""

from typing import Any

from delegate import Verdict
from delegate.models.providers.scripted import Scripted
from delegate.testing import judge_reply
from delegate.types import JudgeRecord
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.words import is_judge

Look = tuple[str, dict[str, Any]]


def look(tool: str, /, **arguments: Any) -> Look:
    """One look."""
    return tool, arguments


class LookingJudge:
    """A child with given replies, and a judge that makes one turn of looks after the other and then answers.

    A last turn that can't be made, since the judge must answer, is left out. `shown` are the results of all looks.
    """

    def __init__(self, *turns: list[Look], answer: str, child: list[ChatReply | str] | None = None) -> None:
        self.shown: list[str] = []
        self.errors: list[bool] = []
        self.requests: list[ChatRequest] = []
        self._turns, self._final, self._child = turns, answer, child or []

    def client(self, **reading: Any) -> Scripted:
        """The client. `reading` is what the criteria are about, as for `Scripted`."""
        return Scripted(self._reply, reading=reading)

    def _reply(self, request: ChatRequest) -> ChatReply | str:
        turn = sum(message.role == "assistant" for message in request.messages)
        if not is_judge(request):
            return self._child[turn]
        self.requests.append(request)
        if turn:
            self.shown += [reply.text for reply in request.messages[-1].tool_replies]
            self.errors += [reply.is_error for reply in request.messages[-1].tool_replies]
        if turn < len(self._turns) and request.tool_choice != "none" and request.tools:
            return Scripted.calls(*self._turns[turn])
        return self._final


def met(*, by: str, **others: str) -> str:
    """The answer that c1 is met, by this quote, and others by theirs."""
    return judge_reply(c1=("met", by), **{id: ("met", quote) for id, quote in others.items()})


def record_of(verdict: Verdict | None) -> JudgeRecord:
    """The record of a verdict's judges."""
    assert verdict is not None
    assert verdict.judge is not None
    return verdict.judge

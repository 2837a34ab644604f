"""Asks the users of MCP clients whether a child may make a call, and what a child wants to know, by elicitation.

A client can be asked only while it waits for an answer: to the call of `delegate_task`, or to one of `read_delegation`
afterwards. A client without elicitation, one that waits for nothing, and one without a clear answer approve nothing.

The latest protocol has no requests of servers. There, a call is answered with the question, and goes on meanwhile; the
client repeats the call together with the answer.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import anyio

from delegate._util.cancellation import Cancellation
from delegate.policy.approvals import ApprovalAnswer, ApprovalRequest, OnApproval, OnQuestion, describe
from delegate.types import JsonObject, ParentQuestion

Elicit = Callable[[str, JsonObject], Awaitable[Any]]
"""Sends a client the message and the schema of a form, and returns the SDK's result."""

FORM: JsonObject = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Allow this call", "description": "Only this call, exactly as shown"},
        "same_again": {
            "type": "boolean",
            "title": "Allow it again",
            "description": "Also the same call again in this task",
            "default": False,
        },
    },
    "required": ["approve"],
}
ANSWER_FORM: JsonObject = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "title": "Answer", "description": "Your own words, or the number of an option"}
    },
    "required": ["answer"],
}
_KEPT = 1_000
_USER = "the user of the MCP client"


class ClientApprovals:
    """Knows which clients of one server wait for an answer now, and so can be asked."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Elicit]] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    @contextmanager
    def waits(self, client: str, elicit: Elicit | None) -> Generator[None]:
        """Inside the block, the client waits for an answer. `elicit` is None if it can't be asked."""
        if elicit is None:
            yield
            return
        waiting = self._waiting.setdefault(client, [])
        waiting.append(elicit)
        try:
            yield
        finally:
            waiting.remove(elicit)
            if not waiting:
                self._waiting.pop(client, None)

    def asker(self, client: str) -> OnApproval:
        """Asks the user of this client, one request after the other."""

        async def ask(request: ApprovalRequest) -> ApprovalAnswer | None:
            if (asked := await self._ask(client, request.describe(), FORM)) is None:
                return None
            form = _form_of(asked[0])  # only `accept` with `approve` as true is a yes
            again = form.get("same_again") is True
            return ApprovalAnswer(approved=form.get("approve") is True, same_again=again, by=_USER)

        return ask

    def answerer(self, client: str) -> OnQuestion:
        """Asks the user of this client what a child wants to know. No answer leaves that to the client's model."""

        async def ask(question: ParentQuestion) -> str | None:
            asked = await self._ask(client, describe(question), ANSWER_FORM)
            return answer_in(asked[0]) if asked else None

        return ask

    async def _ask(self, client: str, message: str, form: JsonObject) -> tuple[Any] | None:
        """What the client sends back; None if it doesn't wait for an answer now, and so isn't asked."""
        async with self._asking.setdefault(client, asyncio.Lock()):
            waiting = self._waiting.get(client)
            return (await waiting[-1](message, form),) if waiting else None


def answer_in(result: Any) -> str | None:
    """The answer to a question in a client's result, as an object or as JSON. None if the user gave none."""
    answer = _form_of(result).get("answer")
    return answer if isinstance(answer, str) and answer.strip() else None


def _form_of(result: Any) -> Mapping[str, Any]:
    """What the user has filled in, if the form was accepted."""
    fields = cast("Mapping[str, Any]", result if isinstance(result, Mapping) else getattr(result, "__dict__", {}))
    content = fields.get("content") if fields.get("action") == "accept" else None
    return cast("Mapping[str, Any]", content) if isinstance(content, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Question:
    """What a call is answered with, where the client's user has to be asked."""

    message: str
    form: JsonObject
    reply: "asyncio.Future[Any]"
    """What the client sends."""
    state: str = field(default_factory=partial(secrets.token_urlsafe, 24))
    """What the client sends with the answer, to name the call."""


@dataclass(slots=True)
class HeldCall:
    """A call that goes on while its client is asked, and repeats it."""

    client: str
    cancellation: Cancellation = field(default_factory=Cancellation)
    """Stops the call."""
    report_progress: Any = None
    """Sends a notification with the request that waits now, if it wants any."""
    running: "asyncio.Task[JsonObject] | None" = None
    asked: Question | None = None
    """What the client was sent last."""
    _questions: asyncio.Queue[Question | None] = field(default_factory=asyncio.Queue[Question | None])
    """What the client is to be asked; None when the call has ended."""

    def start(self, call: Coroutine[Any, Any, JsonObject]) -> None:
        """Start the call."""
        self.running = asyncio.ensure_future(call)
        self.running.add_done_callback(lambda _: self._questions.put_nowait(None))

    async def elicit(self, message: str, form: JsonObject) -> Any:
        """Have the client asked, and wait for what it sends."""
        question = Question(message, form, asyncio.get_running_loop().create_future())
        self._questions.put_nowait(question)
        return await question.reply

    async def progress(self, *given: Any) -> None:
        """Send a notification, if the client wants any."""
        if self.report_progress is not None:
            await self.report_progress(*given)

    def reply(self, answer: Any) -> None:
        """Take what the client sends. An answer that nobody waits for any more is dropped."""
        if self.asked is not None and not self.asked.reply.done():
            self.asked.reply.set_result(answer)

    async def next_question(self) -> Question | None:
        """Wait until the client's user has to be asked something. None if the call has ended."""
        while (question := await self._questions.get()) is not None and question.reply.done():
            pass
        self.asked = question
        return question


class HeldCalls:
    """The calls of one server whose clients are asked something. The latest 1,000 are remembered."""

    def __init__(self) -> None:
        self._held = OrderedDict[str, HeldCall]()

    def take(self, client: str, state: str) -> HeldCall | None:
        """The call that a client repeats; None if it has no such call. It can be repeated once."""
        held = self._held.get(state)
        return self._held.pop(state) if held is not None and held.client == client else None

    async def answer(self, held: HeldCall, disconnected: Cancellation | None) -> JsonObject | Question:
        """Go on with a call until it is answered or its client's user has to be asked something."""
        assert held.running is not None
        with (disconnected or Cancellation()).linked(held.cancellation):
            try:
                question = await held.next_question()
            except asyncio.CancelledError:
                held.running.cancel()
                with anyio.CancelScope(shield=True):  # children need time to end
                    await asyncio.wait([held.running])
                raise
        if question is None:
            return held.running.result()
        self._held[question.state] = held
        if len(self._held) > _KEPT:
            self._held.popitem(last=False)[1].cancellation.cancel()
        return question

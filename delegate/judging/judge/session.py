"""Asks models the questions of one verdict: for each, the cheapest that may be asked, and the next where it fails.

A model that can't be reached, or has no room, gives way to the next candidate. A model that answered is never asked
again, whatever it answered: a refusal, a cut-off text and an unreadable reply are answers.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Self

from delegate.budget import metering
from delegate.budget.ledger import Ledger
from delegate.errors import BudgetExceeded, ProviderError
from delegate.judging.judge.record import JudgeRecorder
from delegate.judging.submission import Submission
from delegate.models.catalog import Catalog, Model, tokens_of
from delegate.models.connections import Connection
from delegate.models.routing import Available, EndpointKey, JudgeRequest, Routing, choose_judge
from delegate.ports import ChatReply, ChatRequest, Message, Notify
from delegate.records.recorder import encodable
from delegate.types import JsonObject

MAX_ATTEMPTS = 3
"""Models that are tried per question; the last of them at another endpoint, where the others were at one."""
PATIENCE_SECONDS = 15.0
"""How long one model's rate limit is waited for while another candidate is left; the last one's, much longer."""
ROUND_TOKENS = 50
REASONING_TOKENS = 4_000
"""Judges that reason spend their thoughts from the same allowance as the answer; a tight one cuts the answer off."""
_WHOLE_ENDPOINT = ("auth", "connection")
"""Faults that the other models of the same endpoint would meet too."""
_UNAVAILABLE = "judge_unavailable"


@dataclass(frozen=True, slots=True)
class JudgePool:
    """The models that may be asked, and the way to them."""

    catalog: Catalog
    available: Available
    connect: Callable[[Model], Awaitable[Connection]]
    pinned: str | None = None
    """The only model that may judge."""
    min_accuracy: float | None = None
    escalate: bool = False
    """Whether a second judge may be asked what the first couldn't tell or prove."""


@lru_cache(8)
def _card_tokens(card: str) -> int:
    return tokens_of(card)


@dataclass(frozen=True, slots=True)
class JudgeQuestion:
    """What a judge is asked: the card that never changes, the text that does, and the shape of the reply."""

    system: str
    text: str
    reply_schema: JsonObject
    reply_tokens: int
    """How long the answer may become, reasoning aside."""
    tokens: int = field(init=False)
    """The length of the prompt, estimated, and rounded up so that like prompts find the choice already made."""

    def __post_init__(self) -> None:
        tokens = _card_tokens(self.system) + tokens_of(self.text)
        object.__setattr__(self, "tokens", -(-tokens // ROUND_TOKENS) * ROUND_TOKENS)

    def to(self, model: Model) -> ChatRequest:
        """The question as a request to `model`."""
        return ChatRequest(
            model=model.id,
            system=self.system,
            messages=(Message("user", self.text),),
            max_output_tokens=min(model.max_output_tokens, self.reply_tokens + REASONING_TOKENS),
            reply_schema=self.reply_schema,
            effort="low" if model.effort else None,
        )


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """What came of a question: a reply, or the code and the reason why there is none."""

    reply: ChatReply | None = None
    code: str = "no_eligible_judge"
    reason: str = "no model may judge this; the candidates say why"

    @classmethod
    def answered(cls, reply: ChatReply) -> Self:
        """With the reply where it ended cleanly: a refusal or a cut-off text decides nothing."""
        if reply.stop in ("end", "tool_calls"):
            return cls(reply)
        code = "judge_refused" if reply.stop == "refusal" else "judge_unparseable"
        return cls(None, code, f"the judge's reply ended as {encodable(reply.stop_detail) or reply.stop}")


class JudgeSession:
    """The questions of one verdict: who may be asked, which endpoints are out of reach, and the record of it all."""

    def __init__(self, pool: JudgePool, submission: Submission, ledger: Ledger, notify: Notify) -> None:
        self.recorder = JudgeRecorder(submission)
        self._pool = pool
        self._submission = submission
        self._ledger = ledger
        self._notify = notify
        self._down: dict[EndpointKey, str] = {}
        """Endpoints that can't be reached, and what was seen there."""

    async def ask(self, question: JudgeQuestion, *, second: bool = False) -> JudgeReply:
        """Ask the candidates in order until one answers. Each attempt is on record, however it ends.

        A `second` judge is of another family than the latest one; where it can't be asked, no third one is.
        """
        recorder, failed = self.recorder, set[EndpointKey]()
        routing = self._route(question, other_than=recorder.answered[-1].model.family if second else None)
        recorder.chosen(routing, again=second)
        left, attempts = self._reachable(routing.ranked), 1 if second else MAX_ATTEMPTS
        reply = JudgeReply()
        if routing.ranked and not left:
            reply = JudgeReply(code=_UNAVAILABLE, reason=self._down[_key(routing.ranked[0])])
        while left and attempts:
            attempts -= 1
            model = left[0] if attempts else _elsewhere(left, failed)
            is_last = len(left) == 1 or not attempts
            self._notify("judge_asked", model.id)
            started = time.monotonic()
            try:
                call = await metering.complete(
                    await self._pool.connect(model),
                    question.to(model),
                    input_tokens=model.tokens(question.tokens),
                    ledger=self._ledger,
                    patience=metering.PATIENCE_SECONDS if is_last else PATIENCE_SECONDS,
                )
            except BudgetExceeded as error:
                recorder.passed_over(model, f"not asked: {error}")
                return JudgeReply(code="budget_exceeded", reason=str(error))
            except ProviderError as error:
                recorder.failed(model, error.fault, str(error), time.monotonic() - started)
                reply = JudgeReply(code=_UNAVAILABLE, reason=encodable(f"{model.id}: {error}"))
                if error.fault in _WHOLE_ENDPOINT:
                    self._down[_key(model)] = reply.reason
                failed.add(_key(model))
                left = self._reachable([one for one in left if one is not model])
            except asyncio.CancelledError:
                recorder.failed(model, "timeout", "stopped before it answered", time.monotonic() - started)
                raise
            else:
                recorder.succeeded(model, call, time.monotonic() - started)
                return JudgeReply.answered(call.reply)
        return reply

    def _route(self, question: JudgeQuestion, other_than: str | None = None) -> Routing:
        request = JudgeRequest(
            worker=self._submission.worker,
            evidence_tokens=question.tokens,
            reply_tokens=question.reply_tokens,
            on=date.today(),
            available=self._pool.available,
            pinned=self._pool.pinned,
            ceiling=self._submission.ceiling,
            prefix_tokens=_card_tokens(question.system),
            min_accuracy=self._pool.min_accuracy,
            other_than_family=other_than,
            priced_only=self._ledger.left("cost_usd") is not None,
        )
        return choose_judge(self._pool.catalog, request)

    def _reachable(self, models: Sequence[Model]) -> Sequence[Model]:
        """Those whose endpoint hasn't failed yet; the record says why the others aren't asked."""
        if not self._down:
            return models
        for model in models:
            if why := self._down.get(_key(model)):
                self.recorder.passed_over(model, f"not asked, since its endpoint failed: {why}")
        return [model for model in models if _key(model) not in self._down]


def _elsewhere(models: Sequence[Model], failed: Collection[EndpointKey]) -> Model:
    """The first at an endpoint where nothing failed yet; the first of all where there is none."""
    return next((model for model in models if _key(model) not in failed), models[0])


def _key(model: Model) -> EndpointKey:
    return model.provider, model.endpoint

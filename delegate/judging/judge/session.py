"""Asks models the questions of one verdict: for each, the cheapest eligible model, and the next one if that fails.

If a model can't be reached or is overloaded, the next candidate is asked. After any answer no other model is asked: a
refusal, a truncated text and an unparseable reply are answers too. Before it answers, a model may look at more than the
page (`looks/`): each turn of looks is one more call of the same model.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from delegate._util.tokens import tokens_of
from delegate.budget import metering
from delegate.budget.costs import Charge
from delegate.budget.ledger import Ledger
from delegate.judging.judge.record import JudgeRecorder
from delegate.judging.judge.sources import PAGE_TOKENS
from delegate.judging.looks.look import LookLimits
from delegate.models.catalog import Catalog, Model
from delegate.models.connections import Connection
from delegate.models.false_pass import FalsePassTable
from delegate.models.routing import (
    CONTEXT_MARGIN,
    Available,
    EndpointKey,
    JudgeRequest,
    Routing,
    choose_judge,
    coarse,
    largest_context,
)
from delegate.records.recorder import encodable
from delegate.types import JsonObject, Tier
from delegate.types.codes import VerdictCode
from delegate.types.errors import BudgetExceeded, ProviderError
from delegate.types.events import JudgeAsked, JudgeDone, JudgeWaiting, Notify, WaitReason, reported_wait
from delegate.types.ports import ChatReply, ChatRequest, Message

if TYPE_CHECKING:
    from delegate.judging.looks.looks import Looks

MAX_ATTEMPTS = 3
"""Models tried per question. The last one is at an endpoint that hasn't failed, if there is one."""
PATIENCE_SECONDS = 15.0
"""How long to wait for a model's rate limit while other candidates are left; for the last one, much longer."""
ROUND_TOKENS = 50
CHARS_PER_TOKEN = 2
"""At least so many characters of a look are a token, but for scripts that take more: there, the margin is smaller."""
REASONING_TOKENS = 4_000
"""Reasoning tokens count against the same limit as the answer; a tight limit would truncate the answer."""
_ENDPOINT_FAULTS = ("auth", "connection")
"""Faults that affect all models of an endpoint."""
_UNAVAILABLE = "judge_unavailable"


@dataclass(frozen=True, slots=True)
class JudgePool:
    """The models that may be asked, and how to connect to them."""

    catalog: Catalog
    available: Available
    connect: Callable[[Model], Awaitable[Connection]]
    pinned: str | None = None
    """The only model that may judge."""
    min_accuracy: float | None = None
    escalate: bool = False
    """Whether a second judge may be asked about what the first couldn't decide or prove."""
    false_pass: Callable[[], Awaitable[FalsePassTable]] | None = None
    """Which judges may decide alone; None if all may."""
    page_tokens: int = PAGE_TOKENS
    """How long a page may be."""
    looks: LookLimits = field(default_factory=LookLimits)
    criteria_per_call: int | None = None
    """How many criteria a judge is asked about at once; None: all."""

    @property
    def page_room(self) -> int:
        """How long a page may be so that it fits into half of what a judge can read."""
        return min(self.page_tokens, largest_context(self.catalog, self.available, self.pinned) // 2)


@lru_cache(8)
def _card_tokens(card: str) -> int:
    return tokens_of(card)


@dataclass(frozen=True, slots=True)
class JudgeQuestion:
    """A question for a judge: the constant card as system prompt, the text, and the format of the reply."""

    system: str
    text: str
    reply_schema: JsonObject
    reply_tokens: int
    """Limit for the answer, without reasoning."""
    nonce: str
    """The mark of the fences."""
    looks: "Looks | None" = None
    """What the judge may look at before it answers."""
    tokens: int = field(init=False)
    """Estimated length of the prompt, rounded up so that similar prompts share a cached routing."""

    def __post_init__(self) -> None:
        tokens = _card_tokens(self.system) + tokens_of(self.text)
        tokens += sum(map(metering.definition_tokens, self.looks.tools)) if self.looks else 0
        object.__setattr__(self, "tokens", -(-tokens // ROUND_TOKENS) * ROUND_TOKENS)

    def to(self, model: Model, turns: Sequence[Message] = (), *, is_last: bool = True) -> ChatRequest:
        """The question as a request to `model`, with its earlier turns. In the last one it must answer."""
        return ChatRequest(
            model=model.id,
            system=self.system,
            messages=(Message("user", self.text), *turns),
            max_output_tokens=min(model.max_output_tokens, self.reply_tokens + REASONING_TOKENS),
            tools=self.looks.tools if self.looks else (),
            reply_schema=self.reply_schema,
            effort="low" if model.effort else None,
            tool_choice="none" if self.looks and is_last else "auto",
            # A judge that looked once may look again, and then what was sent before is read from a cache.
            conversation=f"judge-{self.nonce}" if turns else None,
        )


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """The reply to a question, or the code and the reason why there is none."""

    reply: ChatReply | None = None
    code: VerdictCode = "no_eligible_judge"
    reason: str = "no model may judge this"

    @classmethod
    def answered(cls, reply: ChatReply) -> Self:
        """With the reply if it ended cleanly: a refusal or a truncated text decides nothing."""
        if reply.stop in ("end", "tool_calls"):
            return cls(reply)
        if reply.stop == "length" and reply.output_limit is not None:
            return cls(None, "budget_exceeded", f"the budget bought a reply of {reply.output_limit:,} tokens only")
        code = "judge_refused" if reply.stop == "refusal" else "judge_unparseable"
        return cls(None, code, f"the judge's reply ended as {encodable(reply.stop_detail) or reply.stop}")


class JudgeSession:
    """Asks the questions of one verdict, or what its criteria are about, and records all attempts.

    `worker` is the model that did the work, or will do it.
    """

    def __init__(self, pool: JudgePool, worker: Model | None, ceiling: Tier, ledger: Ledger, notify: Notify) -> None:
        self.recorder = JudgeRecorder(worker, ceiling)
        self._pool = pool
        self._worker = worker
        self._ceiling: Tier = ceiling
        self._ledger = ledger
        self._notify = notify
        self._false_pass: FalsePassTable | None = None
        """As it was when the first question was asked."""
        self._down: dict[EndpointKey, str] = {}
        """Endpoints that can't be used, with the error."""

    async def ask(self, question: JudgeQuestion, criteria: Sequence[str] = (), *, second: bool = False) -> JudgeReply:
        """Ask the candidates in order until one answers. Every attempt is recorded, however it ends.

        `criteria` are the ids of those that it asks about. A `second` judge is of another family than the first one
        that answered about them; if it fails, no other one is asked.
        """
        recorder, failed = self.recorder, set[EndpointKey]()
        if self._pool.false_pass is not None and self._false_pass is None:
            self._false_pass = recorder.false_pass = await self._pool.false_pass()
        routing = self._route(question, other_than=recorder.first_family(criteria) if second else None)
        recorder.routed(routing, second=second)
        candidates, attempts = self._reachable(routing.ranked), 1 if second else MAX_ATTEMPTS
        reply = JudgeReply() if candidates else JudgeReply(reason=routing.why_none)
        if routing.ranked and not candidates:  # the endpoints of all have failed
            reply = JudgeReply(code=_UNAVAILABLE, reason=self._down[_endpoint(routing.ranked[0])])
        while candidates and attempts:
            attempts -= 1
            at_others = (model for model in candidates if attempts or _endpoint(model) not in failed)
            model = next(at_others, candidates[0])
            is_last = len(candidates) == 1 or not attempts
            self._notify(JudgeAsked, model=model.id)
            start, lost, known_attempts = time.monotonic(), list[Charge](), len(recorder.attempts)
            try:
                patience = metering.PATIENCE_SECONDS if is_last else PATIENCE_SECONDS
                call = await self._answer(question, model, patience, lost)
            except BudgetExceeded as error:
                if lost:
                    recorder.failed(model, "budget_exceeded", str(error), time.monotonic() - start, lost)
                recorder.skipped(model, f"not asked: {error}")
                return JudgeReply(code="budget_exceeded", reason=str(error))
            except ProviderError as error:
                recorder.failed(model, error.fault, str(error), time.monotonic() - start, lost)
                reply = JudgeReply(code=_UNAVAILABLE, reason=encodable(f"{model.id}: {error}"))
                if error.fault in _ENDPOINT_FAULTS:
                    self._down[_endpoint(model)] = reply.reason
                failed.add(_endpoint(model))
                candidates = self._reachable([candidate for candidate in candidates if candidate is not model])
            except asyncio.CancelledError:
                recorder.failed(model, "timeout", "stopped before it answered", time.monotonic() - start, lost)
                raise
            else:
                seconds = time.monotonic() - start
                recorder.succeeded(model, call, seconds, lost, criteria=criteria, second=second)
                return JudgeReply.answered(call.reply)
            finally:
                self._report_end(model, time.monotonic() - start, known_attempts)
        return reply

    async def _answer(
        self, question: JudgeQuestion, model: Model, patience: float, lost: list[Charge]
    ) -> metering.MeteredReply:
        """The model's answer, after the looks that it asks for. What earlier turns cost is added to `lost`."""
        connection, looks = await self._pool.connect(model), question.looks
        turns: list[Message] = []

        def on_wait(reason: WaitReason) -> AbstractContextManager[None]:
            return reported_wait(
                lambda seconds: self._notify(JudgeWaiting, model=model.id, reason=reason, seconds=seconds)
            )

        if looks is not None:
            looks.begin()
        while True:
            turn_count = len(turns) // 2
            is_last = looks is None or looks.is_used_up or turn_count >= looks.max_turns
            request = question.to(model, turns, is_last=is_last)
            tokens = metering.request_tokens(model, request) if turns else model.tokens(question.tokens)
            call = await metering.complete(
                connection,
                request,
                input_tokens=tokens,
                ledger=self._ledger,
                patience=patience,
                on_wait=on_wait,
                on_lost=lost.append,
            )
            reply = call.reply
            if is_last or looks is None or not reply.tool_calls:
                return call
            lost.append(call.charge)
            room = model.context_tokens / CONTEXT_MARGIN - tokens - 2 * request.max_output_tokens
            replies = await looks.make(reply.tool_calls, model, question.nonce, int(CHARS_PER_TOKEN * room))
            turns += [
                Message("assistant", reply.text, reply.tool_calls, native=reply.native),
                Message("tool", tool_replies=replies),
            ]

    def _report_end(self, model: Model, seconds: float, known_attempts: int) -> None:
        """Report how a question ended: as its attempt, or without one if the budget didn't allow to ask."""
        attempt = self.recorder.attempts[-1] if len(self.recorder.attempts) > known_attempts else None
        self._notify(
            JudgeDone,
            model=model.id,
            fault=attempt.fault if attempt else "budget_exceeded",
            input_tokens=attempt.usage.input_tokens if attempt else 0,
            output_tokens=attempt.usage.output_tokens if attempt else 0,
            cost_usd=attempt.cost_usd if attempt else 0,
            seconds=round(seconds, 6),
        )

    def _route(self, question: JudgeQuestion, other_than: str | None = None) -> Routing:
        request = JudgeRequest(
            worker=self._worker,
            evidence_tokens=coarse(question.tokens),
            reply_tokens=question.reply_tokens,
            on=date.today(),
            available=self._pool.available,
            pinned=self._pool.pinned,
            ceiling=self._ceiling,
            prefix_tokens=_card_tokens(question.system),
            min_accuracy=self._pool.min_accuracy,
            other_than_family=other_than,
            false_pass=self._false_pass,
            priced_only=self._ledger.is_limited("cost_usd"),
            may_look=question.looks is not None,
        )
        return choose_judge(self._pool.catalog, request)

    def doubt(self, *, since: int) -> str | None:
        """Why what judges found met may not count without a second judge; None if it may. Only the answers from the one
        with this index on.
        """
        table, worker = self._false_pass, self._worker.id if self._worker else None
        for judge in self.recorder.answered[since:] if table is not None else ():
            if judge.call.served is None:
                return f"{judge.asked.id} was asked, but a model answered whose false-PASS rate nobody knows"
            if table is not None and not table.decides_alone(judge.model.id, worker):
                return f"{judge.model.id} says met, but {table.doubt(judge.model.id, worker)}"
        return None

    def _reachable(self, models: Sequence[Model]) -> Sequence[Model]:
        """The models whose endpoint can be used; the record has the reason for the others."""
        if not self._down:
            return models
        for model in models:
            if reason := self._down.get(_endpoint(model)):
                self.recorder.skipped(model, f"not asked, since its endpoint failed: {reason}")
        return [model for model in models if _endpoint(model) not in self._down]


def _endpoint(model: Model) -> EndpointKey:
    return model.provider, model.endpoint

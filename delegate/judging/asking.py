"""Asks one model one question, the cheapest that may be asked, and keeps the record of whom and why.

A model that can't be reached gives way to the next candidate. A model that answered is never asked again, whatever it
answered.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import date

from delegate import metered
from delegate.catalog import Catalog, Model, estimate_tokens
from delegate.errors import BudgetExceeded, ProviderError
from delegate.judging.case import Case
from delegate.ledger import Ledger
from delegate.metered import Connection, Metered
from delegate.ports import ChatReply, ChatRequest, Message, Notify
from delegate.routing import Available, JudgeRequest, Routing, choose_judge
from delegate.types import Candidate, JsonObject, JudgeAttempt, JudgeRecord, Tier

MAX_ATTEMPTS = 3
ROUND_TOKENS = 50
REASONING_TOKENS = 4_000
"""Judges that reason spend their thoughts from the same allowance as the answer; a tight one cuts the answer off."""
_WHOLE_PROVIDER = ("auth", "connection")
"""Faults that the provider's other models would meet too."""


@dataclass(frozen=True, slots=True)
class Bench:
    """The models that may be asked, and the way to them."""

    catalog: Catalog
    available: Available
    connect: Callable[[Model], Awaitable[Connection]]
    pinned: str | None = None
    """The only model that may judge."""
    min_accuracy: float | None = None
    escalate: bool = False
    """Whether a second judge may be asked what the first couldn't tell or prove."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a judge is asked: the card that never changes, the text that does, and the shape of the reply."""

    system: str
    text: str
    reply_schema: JsonObject
    reply_tokens: int
    """How long the answer may become, reasoning aside."""

    @property
    def tokens(self) -> int:
        """The length of the prompt, estimated, and rounded up so that like prompts find the choice already made."""
        return -(-estimate_tokens(len(self.system) + len(self.text)) // ROUND_TOKENS) * ROUND_TOKENS

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


@dataclass(slots=True)
class Asked:
    """What came of asking: a reply, or the code and the reason why there is none; and the record of it."""

    reply: ChatReply | None = None
    code: str = "no_eligible_judge"
    reason: str = "no model may judge this; the candidates say why"
    record: JudgeRecord = field(default_factory=JudgeRecord)

    def refuse_unclean(self) -> "Asked":
        """Without the reply, where it didn't end cleanly: a refusal or a cut-off text decides nothing."""
        if self.reply is None or self.reply.stop in ("end", "tool_calls"):
            return self
        code = "judge_refused" if self.reply.stop == "refusal" else "judge_unparseable"
        reason = f"the judge's reply ended as {self.reply.stop_detail or self.reply.stop}"
        return Asked(None, code, reason, self.record)


async def ask(bench: Bench, case: Case, question: Question, ledger: Ledger, notify: Notify) -> Asked:
    """Ask the candidates in order until one answers."""
    worker = case.worker
    routing = _route(bench, worker, case.ceiling, question)
    failures: dict[str, str] = {}
    shut: set[tuple[str, str | None]] = set()
    asked = Asked()
    for model in routing.ranked:
        if len(failures) == MAX_ATTEMPTS:
            break
        if (model.provider, model.endpoint) in shut:
            continue
        notify("judge_asked", model.id)
        started = time.monotonic()
        try:
            connection = await bench.connect(model)
            call = await metered.complete(connection, question.to(model), input_tokens=question.tokens, ledger=ledger)
        except BudgetExceeded as error:
            asked = Asked(code="budget_exceeded", reason=str(error))
            break
        except ProviderError as error:
            failures[model.id] = f"{error.fault}: {error}"
            asked = Asked(code="judge_unavailable", reason=f"{model.id}: {error}")
            shut |= {(model.provider, model.endpoint)} if error.fault in _WHOLE_PROVIDER else set()
            continue
        record = _record(model, call, worker, time.monotonic() - started)
        asked = Asked(call.reply, record=record).refuse_unclean()
        break
    fates = routing.candidates
    if failures:
        fates = tuple(_with_fate(one, asked.record.model, failures) for one in fates)
    asked.record = asked.record.model_copy(update={"candidates": fates})
    return asked


def _route(bench: Bench, worker: Model | None, ceiling: Tier, question: Question) -> Routing:
    request = JudgeRequest(
        worker=worker,
        evidence_tokens=question.tokens,
        reply_tokens=question.reply_tokens,
        on=date.today(),
        available=bench.available,
        pinned=bench.pinned,
        ceiling=ceiling,
        min_accuracy=bench.min_accuracy,
    )
    return choose_judge(bench.catalog, request)


def _record(model: Model, call: Metered, worker: Model | None, seconds: float) -> JudgeRecord:
    return JudgeRecord(
        model=model.id,
        model_served=call.reply.model_served,
        substituted=call.substituted,
        provider=model.provider,
        tier=model.tier,
        family=model.family,
        same_model_as_worker=worker is not None and worker.id == model.id,
        same_family_as_worker=worker is not None and worker.family == model.family,
        candidates=(),
        attempts=(JudgeAttempt(model=model.id),),
        usage=call.charge.usage,
        cost_usd=call.charge.cost_usd,
        cost_known_usd=call.charge.known_usd,
        cost_provenance=call.charge.provenance,
        seconds=round(seconds, 6),
    )


def _with_fate(candidate: Candidate, judge: str | None, failures: dict[str, str]) -> Candidate:
    """The candidate with what became of it: those that were asked and didn't answer say so."""
    if candidate.model in failures:
        return candidate.model_copy(update={"reason": failures[candidate.model]})
    if candidate.model == judge and candidate.reason is not None:
        return candidate.model_copy(update={"reason": None})
    return candidate

"""Keeps who was asked for one verdict, in which order, what came of it and what it cost.

It holds at every moment all that is known, so that a verdict that ran out of time or broke off still has its record
and its bill.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from delegate._util.fencing import one_line
from delegate.budget import costs
from delegate.budget.metering import MeteredReply
from delegate.errors import ProviderFault
from delegate.judging.submission import Submission
from delegate.models.catalog import Model
from delegate.models.routing import Routing
from delegate.models.tiers import is_above, weaker
from delegate.records.recorder import encodable
from delegate.types import Candidate, Finding, JsonObject, JudgeAnswer, JudgeAttempt, JudgeRecord, Tier


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """One call that a model answered, and its place among the attempts."""

    asked: Model
    call: MeteredReply
    place: int

    @property
    def model(self) -> Model:
        """The model that really answered; the one that was asked where the catalog doesn't know the other."""
        return self.call.served or self.asked


class JudgeRecorder:
    """The record of one verdict's judges while they are asked."""

    def __init__(self, submission: Submission) -> None:
        self.answered: list[AnsweredCall] = []
        self.attempts: list[JudgeAttempt] = []
        self.escalated = False
        self._worker = submission.worker
        self._ceiling: Tier = submission.ceiling
        self._candidates: tuple[Candidate, ...] | None = None
        self._skip_reasons: dict[str, str] = {}
        self._chose_again = False
        self._asks_second = False
        self._last_word = 0

    def chosen(self, routing: Routing, *, again: bool = False) -> None:
        """Keep the choice for a question: the one that names the judge, or that of a second judge (`again`)."""
        if again or not self.answered:
            self._candidates = routing.candidates
        self._chose_again |= again
        self._asks_second = again

    def succeeded(self, model: Model, call: MeteredReply, seconds: float) -> None:
        """Book an answer, whatever it says."""
        attempt = JudgeAttempt(
            model=model.id,
            model_served=encodable(call.reply.model_served),
            usage=call.charge.usage,
            cost_usd=call.charge.cost_usd,
            seconds=round(seconds, 6),
        )
        self.escalated |= self._asks_second
        self.answered.append(AnsweredCall(model, call, len(self.attempts)))
        self.attempts.append(attempt)

    def failed(self, model: Model, fault: ProviderFault, message: str, seconds: float) -> None:
        """Book a call that brought no answer."""
        message = encodable(message)
        self.escalated |= self._asks_second
        self.attempts.append(JudgeAttempt(model=model.id, fault=fault, message=message, seconds=round(seconds, 6)))
        self.passed_over(model, f"{fault}: {message}")

    def passed_over(self, model: Model, why: str) -> None:
        """Say why a model that may judge doesn't."""
        self._skip_reasons.setdefault(model.id, why)

    def unheard(self, reason: str) -> None:
        """The answers of the first judge stand: if a second one answered, `reason` is why that is of no use."""
        if self.escalated and self.attempts[-1].fault is None:
            self._amend(self.answered[-1], message=reason)

    def overruled(self, answers: Sequence[JudgeAnswer]) -> None:
        """The latest judge has the last word; `answers` are what the one before it said on the same criteria."""
        self._amend(self.answered[-2], answers=tuple(answers))
        self._last_word = len(self.answered) - 1

    def models(self) -> tuple[str, ...]:
        """Those that answered, each once, in order."""
        return tuple(dict.fromkeys(one.asked.id for one in self.answered))

    def record(self) -> JudgeRecord | None:
        """The record as it stands now; None while no model was wanted."""
        if self._candidates is None:
            return None
        judge = self.answered[self._last_word] if self.answered else None
        charge = costs.total(one.call.charge for one in self.answered)
        return JudgeRecord(
            **(self._identity(judge) if judge else {}),
            candidates=self._with_skip_reasons(self._candidates, judge),
            attempts=tuple(self.attempts),
            escalated=self.escalated,
            usage=charge.usage,
            cost_usd=charge.cost_usd,
            cost_known_usd=charge.known_usd,
            cost_provenance=charge.provenance,
            seconds=round(sum(one.seconds for one in self.attempts), 6),
        )

    def findings(self) -> Iterator[Finding]:
        """Every judge that a provider served in place of the one asked for, once."""
        strange = {(one.asked.id, one.call.reply.model_served): one for one in self.answered if one.call.substituted}
        return (self._substitution(one) for one in strange.values())

    def _identity(self, judge: AnsweredCall) -> JsonObject:
        worker, model = self._worker, judge.model
        return {
            "model": judge.asked.id,
            "model_served": self.attempts[judge.place].model_served,
            "substituted": judge.call.substituted,
            "provider": judge.asked.provider,
            "tier": model.tier,
            "family": model.family,
            "same_model_as_worker": worker is not None and worker.id == model.id,
            "same_family_as_worker": worker is not None and worker.family == model.family,
        }

    def _with_skip_reasons(
        self, candidates: tuple[Candidate, ...], judge: AnsweredCall | None
    ) -> tuple[Candidate, ...]:
        """The candidates with what became of them; as they are where the first choice judged, which is the rule."""
        reasons: dict[str, str | None] = {**self._skip_reasons}
        if judge and (reasons or self._chose_again):
            reasons[judge.asked.id] = None
        if not reasons:
            return candidates
        return tuple(
            one.model_copy(update={"reason": reasons[one.model]}) if one.model in reasons else one for one in candidates
        )

    def _substitution(self, one: AnsweredCall) -> Finding:
        served = one.call.served
        said = f"{one.asked.id} was asked to judge, and {one_line(one.call.reply.model_served or '?', 80)} answered"
        if served is None:
            message = f"{said}, which the catalog doesn't know"
            return Finding(severity="minor", code="judge_substituted", message=message)
        limit = self._limit()
        above = f", of tier {served.tier}, above {limit}" if limit and is_above(served.tier, limit) else ""
        return Finding(severity="major", code="judge_substituted", message=said + above)

    def _limit(self) -> Tier | None:
        return weaker(self._worker.tier if self._worker else None, self._ceiling)

    def _amend(self, one: AnsweredCall, **fields: object) -> None:
        self.attempts[one.place] = self.attempts[one.place].model_copy(update=fields)

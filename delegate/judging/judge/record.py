"""Records which models were asked for one verdict, in which order, with what result and at what cost.

The record is complete at every moment, so that a verdict that ran out of time or failed still has its record and cost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal

from delegate._util.fencing import one_line
from delegate.budget import costs
from delegate.budget.metering import MeteredReply
from delegate.models.catalog import Model
from delegate.models.false_pass import FalsePassTable
from delegate.models.routing import Routing
from delegate.models.tiers import is_above, weaker
from delegate.records.recorder import encodable
from delegate.types import Candidate, Finding, JsonObject, JudgeAnswer, JudgeAttempt, JudgeLook, JudgeRecord, Tier
from delegate.types.errors import ProviderFault


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """One call that a model answered."""

    asked: Model
    call: MeteredReply
    attempt: int
    """Index in `JudgeRecorder.attempts`."""
    criteria: Sequence[str] = ()
    """The ids of the criteria that it was asked about. Several questions may be asked at once."""
    second: bool = False
    """Whether it was asked after another judge that answered about these."""

    @property
    def model(self) -> Model:
        """The model that actually answered; the one that was asked if the catalog doesn't have the other."""
        return self.call.served or self.asked


class JudgeRecorder:
    """The record of one verdict's judges while they are asked."""

    def __init__(self, worker: Model | None, ceiling: Tier) -> None:
        self.answered: list[AnsweredCall] = []
        self.attempts: list[JudgeAttempt] = []
        self.looks: list[JudgeLook] = []
        """What the judges looked at."""
        self.escalated = False
        self.false_pass: FalsePassTable | None = None
        """Which judges may decide alone; None if all may."""
        self._worker = worker
        self._ceiling: Tier = ceiling
        self._candidates: tuple[Candidate, ...] | None = None
        self._skip_reasons: dict[str, str] = {}
        self._routed_second = False
        self._asking_second = False
        self._charge = costs.Charge()
        self._deciding = 0
        """Index in `answered` of the judge whose answers count."""

    def routed(self, routing: Routing, *, second: bool = False) -> None:
        """Record the candidates for a question: those of the judge that is named, or of a `second` judge."""
        if second or not self.answered:
            self._candidates = routing.candidates
        self._routed_second |= second
        self._asking_second = second

    def succeeded(
        self,
        model: Model,
        call: MeteredReply,
        seconds: float,
        lost: Sequence[costs.Charge] = (),
        *,
        criteria: Sequence[str] = (),
        second: bool = False,
    ) -> None:
        """Record an answer, whatever its content. `lost` are the charges of calls before it: looks, failed attempts."""
        self.escalated |= second
        self.answered.append(AnsweredCall(model, call, len(self.attempts), criteria, second))
        served = encodable(call.reply.model_served)
        self._add(model, seconds, (*lost, call.charge), model_served=served)

    def failed(
        self,
        model: Model,
        fault: ProviderFault | Literal["budget_exceeded"],
        message: str,
        seconds: float,
        lost: Sequence[costs.Charge] = (),
    ) -> None:
        """Record a call without an answer. `lost` are the estimated charges of what was sent.

        Its fault is `budget_exceeded` if it failed and the budget didn't allow to repeat it.
        """
        message = encodable(message)
        self.escalated |= self._asking_second
        self._add(model, seconds, lost, fault=fault, message=message)
        self.skipped(model, f"{fault}: {message}")

    def _add(self, model: Model, seconds: float, charges: Sequence[costs.Charge], **fields: Any) -> None:
        charge = costs.total(charges)
        self._charge += charge
        self.attempts.append(
            JudgeAttempt(
                model=model.id, usage=charge.usage, cost_usd=charge.cost_usd, seconds=round(seconds, 6), **fields
            )
        )

    def skipped(self, model: Model, reason: str) -> None:
        """Record why a candidate isn't the judge."""
        self._skip_reasons.setdefault(model.id, reason)

    def first_family(self, criteria: Sequence[str]) -> str:
        """The family of the first judge that answered about these criteria."""
        first = [judge for judge in self.answered if not judge.second]
        about = [judge for judge in first if not set(criteria).isdisjoint(judge.criteria)]
        return (about or first)[-1].model.family

    def second_judge_ignored(self, reason: str) -> None:
        """Keep the first judge's answers; `reason` is why the second one's replies, if any, aren't usable."""
        for judge in takewhile(lambda judge: judge.second, reversed(self.answered)):
            self._amend(judge, message=reason)

    def read_by(self, reader: "JudgeRecorder") -> None:
        """Add the attempts and the cost of the model that read the criteria, before any judge is asked."""
        reading = [attempt.model_copy(update={"purpose": "reading"}) for attempt in reader.attempts]
        self.attempts[:0] = reading
        self.answered = [replace(judge, attempt=judge.attempt + len(reading)) for judge in self.answered]
        self._charge += reader._charge

    def second_judge_used(self, answers: Sequence[JudgeAnswer]) -> None:
        """Name the latest judge as the deciding one; `answers` are the first judge's for the same criteria."""
        for judge in self.answered:
            if not judge.second and (own := tuple(answer for answer in answers if answer.id in judge.criteria)):
                self._amend(judge, answers=own)
        self._deciding = len(self.answered) - 1

    def models(self) -> tuple[str, ...]:
        """The models that answered, each once, in order."""
        return tuple(dict.fromkeys(judge.asked.id for judge in self.answered))

    def record(self) -> JudgeRecord | None:
        """The record so far; None if no model was needed."""
        if self._candidates is None and not self.attempts:
            return None
        judge = self.answered[self._deciding] if self.answered else None
        charge = self._charge
        reasons: dict[str, str | None] = {**self._skip_reasons}
        if judge and (reasons or self._routed_second):
            reasons[judge.asked.id] = None
        candidates = [
            each.model_copy(update={"reason": reasons[each.model]}) if each.model in reasons else each
            for each in self._candidates or ()
        ]
        return JudgeRecord(
            **(self._identity(judge) if judge else {}),
            candidates=tuple(candidates),
            attempts=tuple(self.attempts),
            looks=tuple(self.looks),
            escalated=self.escalated,
            seconds=round(sum(attempt.seconds for attempt in self.attempts if attempt.purpose == "judging"), 6),
            **charge.fields,
        )

    def findings(self) -> Iterator[Finding]:
        """A finding for every model that a provider substituted for the requested judge, each once."""
        unique = {
            (judge.asked.id, judge.call.reply.model_served): judge for judge in self.answered if judge.call.substituted
        }
        for judge in unique.values():
            shown = one_line(judge.call.reply.model_served or "?", 80)
            message = f"{judge.asked.id} was asked to judge, but {shown} answered"
            if (served := judge.call.served) is None:
                message += ", which isn't in the catalog"
                yield Finding(severity="minor", code="judge_substituted", message=message)
                continue
            limit = weaker(self._worker.tier if self._worker else None, self._ceiling)
            above = f", of tier {served.tier}, above {limit}" if limit and is_above(served.tier, limit) else ""
            yield Finding(severity="major", code="judge_substituted", message=message + above)

    def _identity(self, judge: AnsweredCall) -> JsonObject:
        worker, model = self._worker, judge.model
        return {
            "model": judge.asked.id,
            "model_served": self.attempts[judge.attempt].model_served,
            "substituted": judge.call.substituted,
            "provider": judge.asked.provider,
            "tier": model.tier,
            "family": model.family,
            "false_pass": self.false_pass.rate(model.id, worker.id if worker else None) if self.false_pass else None,
            "same_model_as_worker": worker is not None and worker.id == model.id,
            "same_family_as_worker": worker is not None and worker.family == model.family,
        }

    def _amend(self, judge: AnsweredCall, **fields: object) -> None:
        self.attempts[judge.attempt] = self.attempts[judge.attempt].model_copy(update=fields)

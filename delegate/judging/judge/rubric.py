"""Scores work on a rubric: asks one model one question, and verifies the quote that each score needs.

If the judge omits a dimension, gives a score out of range or quotes no evidence, the criterion is an error: the
dimension is never counted as zero and never left out of the mean.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from delegate._util.fencing import clean, new_nonce
from delegate._util.redaction import redactor
from delegate._util.resources import reply_schema, text
from delegate.judging.judge import prompt
from delegate.judging.judge.evidence import Evidence
from delegate.judging.judge.reply import UnparseableReply, one_object
from delegate.judging.judge.session import JudgeQuestion, JudgeReply
from delegate.judging.looks.looks import Looks
from delegate.judging.rubrics import rubric_of
from delegate.judging.submission import result
from delegate.types import CriterionReading, CriterionResult, Finding, Rubric, RubricCriterion, RubricDimension
from delegate.types.codes import OwnCode

_SCORE_KEYS = {"id", "evidence", "reason", "score"}


def build_question(goal: str, criterion: RubricCriterion, evidence: Evidence, looks: Looks | None) -> JudgeQuestion:
    """The question that asks for scores on the criterion's rubric."""
    rubric = rubric_of(criterion)
    lines = [f"Rubric: {rubric.name}. {rubric.description}", "Dimensions:"]
    lines += [
        f"{dimension.id} (from {dimension.min:g} to {dimension.max:g}): {dimension.description}"
        for dimension in rubric.dimensions
    ]
    lines += ["Failures:", *(f"{mode.id}: {mode.description}" for mode in rubric.failure_modes)]
    lines += ["Wins:", *(f"{mode.id}: {mode.description}" for mode in rubric.wins)]
    question = redactor.text(clean("\n".join(lines)).text)
    ids, nonce = ", ".join(dimension.id for dimension in rubric.dimensions), new_nonce()
    last = f"Score each of these dimensions exactly once: {ids}"
    return JudgeQuestion(
        system=prompt.with_looking(text("judges", "rubric.md"), looks),
        text=prompt.with_evidence(goal, question, evidence, last, nonce),
        reply_schema=reply_schema("rubric"),
        reply_tokens=100 + 200 * len(rubric.dimensions),
        nonce=nonce,
        looks=looks,
    )


def read_reply(
    criterion: RubricCriterion, judge_reply: JudgeReply, evidence: Evidence, readings: Mapping[str, CriterionReading]
) -> tuple[CriterionResult, list[Finding]]:
    """The result with its score, and a finding for each failure and win that the judge named.

    `readings` are those of the dimensions, by their ids.
    """
    if judge_reply.reply is None:
        return result(criterion, "error", "nobody", judge_reply.code, judge_reply.reason), []
    rubric = rubric_of(criterion)
    try:
        reply = one_object(judge_reply.reply.text)
        scores = _scores(rubric, reply, evidence, readings)
        findings = _findings(rubric, reply)
    except UnparseableReply as error:
        return result(criterion, "error", "nobody", "judge_unparseable", str(error)), []
    total = sum(dimension.weight for dimension in rubric.dimensions)
    points = sum(each.weight * ((scores[each.id] - each.min) / (each.max - each.min)) for each in rubric.dimensions)
    score = points / total if total else 0
    threshold = rubric.threshold if criterion.threshold is None else criterion.threshold
    summary = ", ".join(
        f"{dimension.id} {scores[dimension.id]:g} of {dimension.max:g}" for dimension in rubric.dimensions
    )
    reason = f"score {score:.2f}, wanted {threshold:g}: {summary}"
    outcome = "met" if score >= threshold and total else "not_met"
    quote = str(reply["scores"][0]["evidence"])
    criterion_result = result(
        criterion,
        outcome,
        "judge",
        outcome,
        reason,
        evidence=quote,
        source=evidence.find(quote),
        score=round(score, 6),
        scores=scores,
    )
    return criterion_result, findings


def _scores(
    rubric: Rubric, reply: dict[str, Any], evidence: Evidence, readings: Mapping[str, CriterionReading]
) -> dict[str, float]:
    """The score of every dimension. Raises UnparseableReply if one is missing, repeated, out of range or unproven."""
    if set(reply) != {"scores", "failure_modes", "wins"} or not isinstance(reply["scores"], list):
        raise UnparseableReply("the reply does not have exactly the keys scores, failure_modes, wins")
    from delegate.judging.proof.proof import is_own_word

    dimensions = {dimension.id: dimension for dimension in rubric.dimensions}
    scores: dict[str, float] = {}
    for item in cast("list[Any]", reply["scores"]):
        if not isinstance(item, dict) or set(cast("dict[str, Any]", item)) != _SCORE_KEYS:
            raise UnparseableReply(f"a score does not have exactly the keys {', '.join(sorted(_SCORE_KEYS))}")
        fields = cast("dict[str, Any]", item)
        id = str(fields["id"])
        if id not in dimensions or id in scores:
            raise UnparseableReply(f"dimension {redactor.beginning(id, 40)!r} was not asked for, or was scored twice")
        scores[id] = _score(dimensions[id], fields["score"])
        quote = str(fields["evidence"])
        if evidence.find(quote) is None:
            raise UnparseableReply(f"the quote for {id} is not in the evidence: {redactor.beginning(quote, 100)!r}")
        if not evidence.counts(quote):
            raise UnparseableReply(
                f"the quote for {id} is printed whatever the work is: {redactor.beginning(quote, 100)!r}"
            )
        if scores[id] > dimensions[id].min and is_own_word(readings[id].parts, quote, evidence):
            raise UnparseableReply(
                f"{id} isn't about the report, and its quote is only the report's: {redactor.beginning(quote, 100)!r}"
            )
    if missing := [id for id in dimensions if id not in scores]:
        raise UnparseableReply(f"dimension {missing[0]!r} was not scored")
    return scores


def _score(dimension: RubricDimension, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnparseableReply(f"the score of {dimension.id} is not a number")
    if not dimension.min <= value <= dimension.max:
        number = str(value)[:20]  # `:g` can't format an integer of 400 digits
        raise UnparseableReply(
            f"the score of {dimension.id} is {number}, outside {dimension.min:g} to {dimension.max:g}"
        )
    return float(value)


def _findings(rubric: Rubric, reply: dict[str, Any]) -> list[Finding]:
    findings: list[Finding] = []
    for key, modes, severity in (("failure_modes", rubric.failure_modes, "major"), ("wins", rubric.wins, "info")):
        descriptions = {mode.id: mode.description for mode in modes}
        for id in cast("Sequence[object]", reply[key] if isinstance(reply[key], list) else []):
            if str(id) not in descriptions:
                raise UnparseableReply(
                    f"{key} contains {redactor.beginning(str(id), 40)!r}, which the rubric doesn't have"
                )
            findings.append(Finding(severity=severity, code=OwnCode(str(id)), message=descriptions[str(id)]))  # type: ignore[arg-type]
    return findings

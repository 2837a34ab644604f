"""Makes rulings: a person's word on a criterion of a recorded verdict, with all that the judge is measured by."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import pydantic

from delegate._util.documents import loads
from delegate._util.redaction import redactor
from delegate._util.similar import most_similar
from delegate.judging.versions import judge_version
from delegate.models.catalog import hint_for
from delegate.types import CriterionResult, JsonObject, Ruling, Sampling, TaskResult, Verdict
from delegate.types.errors import CallError

MAX_BECAUSE_CHARS = 2_000
_MAX_NAME_CHARS = 200
ROW_FIELDS = tuple(Ruling.model_fields)


def verdict_in(record: JsonObject | None, handle: str) -> tuple[TaskResult, Verdict]:
    """The result and the verdict in a task's record. Raises CallError if there is none to rule on."""
    if record is None:
        hint = "use a handle that `delegate show RUN` lists"
        raise CallError("unknown_handle", f"there is no record of {handle!r}", field="handle", hint=hint)
    result = TaskResult.model_validate(record["result"]) if record["result"] else None
    if result is None or result.verdict is None:
        why = "has not ended" if result is None else "had no criteria"
        raise CallError("no_verdict", f"task {handle} {why}, so there is no verdict to rule on", field="handle")
    return result, result.verdict


def rulings_on(
    record: JsonObject | None,
    handle: str,
    criterion: str,
    ruling: str,
    *,
    because: str,
    by: str,
    sampling: str,
    at: float | None = None,
) -> list[Ruling]:
    """One ruling for each judge that answered on this criterion. Raises CallError for anything that isn't on record."""
    result, verdict = verdict_in(record, handle)
    decision = next((entry for entry in verdict.criteria if entry.id == criterion), None)
    if decision is None:
        ids = [entry.id for entry in verdict.criteria]
        hint = f"did you mean {similar}? " if (similar := most_similar(criterion, ids)) else ""
        message = f"task {handle} has no criterion {redactor.beginning(criterion, 60)!r}"
        raise CallError("unknown_criterion", message, field="criterion", hint=f"{hint}It has {', '.join(ids[:20])}")
    if decision.outcome == "skipped":
        decided = ", ".join(str(entry.id) for entry in verdict.criteria if entry.outcome != "skipped")
        message = f"criterion {criterion} of task {handle} was skipped, so there is no word on it to rule on"
        hint = f"rule on one that was decided: {decided}" if decided else "rule on another task"
        raise CallError("invalid_ruling", message, field="criterion", hint=hint)
    worker = result.model if result.substituted else result.requested_model
    common: JsonObject = {
        "task": handle,
        "criterion": criterion,
        "ruling": ruling,
        "ruled_by": by,
        "rubric_version": verdict.rubric_version,
        "worker": worker or "",
        "kind": decision.kind,
        "sampling": sampling,
        "because": because,
        "at": time.time() if at is None else at,
    }
    return [validated({**common, **answer}) for answer in _answers(verdict, decision)]


def judge_words(verdict: Verdict) -> list[tuple[str, str, bool]]:
    """Every judge that answered on a criterion, its version, and whether it found the criterion met; as in rulings."""
    answers = [answer for criterion in verdict.criteria for answer in _answers(verdict, criterion)]
    return [
        (answer["judge"], answer["judge_version"], answer["judged"] == "met") for answer in answers if "judge" in answer
    ]


def _answers(verdict: Verdict, decision: CriterionResult) -> Iterator[JsonObject]:
    """What each judge said on a criterion, or what decided it without one."""
    # One that may not decide alone said `met`, whatever became of it.
    is_held_back = decision.code == "not_confident" and decision.outcome == "cannot_tell"
    own = {
        "judged": "met" if is_held_back else decision.outcome,
        "decided_by": decision.decided_by,
        "reason_code": decision.code,
    }
    judge = verdict.judge
    if judge is None or decision.decided_by != "judge":
        yield own
        return
    attempts = [attempt for attempt in judge.attempts if attempt.fault is None]
    deciding = (judge.model_served if judge.substituted else judge.model) or ""
    for attempt in attempts:
        for answer in attempt.answers:
            if answer.id == decision.id:  # put to a second judge, which the verdict names
                fields = {"judged": answer.outcome, "decided_by": "judge", "reason_code": answer.code}
                yield {**fields, "judge": attempt.model, "judge_version": _version(verdict, attempt.model)}
                yield {**own, "judge": deciding, "judge_version": _version(verdict, deciding)}
                return
    if any(attempt.answers for attempt in attempts):  # the second judge was asked about other criteria only
        deciding = attempts[0].model
    yield {**own, "judge": deciding, "judge_version": _version(verdict, deciding)}


def _version(verdict: Verdict, model: str) -> str:
    """The version of one judge's method. The verdict's own covers the names of all judges that were asked for it.

    An older method, of which only that digest is known, keeps it.
    """
    attempts = verdict.judge.attempts if verdict.judge else ()
    models = dict.fromkeys(attempt.model for attempt in attempts if attempt.fault is None)
    citations = any(result.kind == "citations" for result in verdict.criteria)
    is_current = verdict.judge_version == judge_version(*models, citations=citations)
    return judge_version(model, citations=citations) if is_current else verdict.judge_version


def validated(fields: Mapping[str, Any]) -> Ruling:
    """The ruling. Raises CallError that names the first wrong field."""
    try:
        ruling = Ruling.model_validate(fields)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "ruling"
        raise CallError("invalid_ruling", f"`{name}`: {hint_for(first, ROW_FIELDS)}", field=name) from None
    for name in ROW_FIELDS:
        limit = MAX_BECAUSE_CHARS if name == "because" else _MAX_NAME_CHARS
        value = getattr(ruling, name)
        if isinstance(value, str) and (len(value) > limit or re.search("[\0\ud800-\udfff]", value)):
            message = f"`{name}` has over {limit} characters, or one that can't be stored"
            raise CallError("invalid_ruling", message, field=name, hint="shorten it")
    return ruling


# ------------------------------------------------------------------------------------------------------------- import

_DRAWN_ONLY = ("goal", "text", "evidence", "run_id")
"""Fields of the rows that `delegate rule --sample` prints which help a person, and aren't stored."""


def read_rows(text: str, name: str, *, by: str, sampling: Sampling) -> list[JsonObject]:
    """The rows of a JSONL file of rulings; `by` and `sampling` are for rows that don't say. Rows without a ruling are
    left out: they were drawn, and have no ruling yet.

    Raises CallError that names the first wrong line.
    """
    rows: list[JsonObject] = []
    for n, line in enumerate(text.split("\n"), start=1):  # other line breaks may stand in a JSON string
        if not line.strip():
            continue
        try:
            data = loads(line, "json")
        except ValueError as error:
            raise CallError(
                "unreadable_row", f"{name}:{n} is not JSON: {error}", hint="write one object per line"
            ) from None
        if not isinstance(data, dict):
            raise CallError("unreadable_row", f"{name}:{n} is not a JSON object", hint="write one object per line")
        fields = {str(key): value for key, value in cast("dict[Any, Any]", data).items()}
        if "ruling" not in fields:
            message = f"{name}:{n}: `ruling` is missing"
            raise CallError("invalid_ruling", message, field="ruling", hint="add it; null if nobody ruled yet")
        row: JsonObject = {"ruled_by": by, "sampling": sampling}
        row |= {key: value for key, value in fields.items() if key not in _DRAWN_ONLY and value is not None}
        if row.get("ruling") is not None:
            rows.append({**row, "_line": f"{name}:{n}"})
    return rows


async def imported(rows: Sequence[JsonObject], read: Callable[[str], Any]) -> list[Ruling]:
    """The rulings in these rows. A row with `judged` says itself what was judged; of others, `task` is a handle.

    Raises CallError that names the first wrong line. Nothing is stored.
    """
    rulings: list[Ruling] = []
    records: dict[str, JsonObject | None] = {}
    for row in rows:
        fields = dict(row)
        place = fields.pop("_line")
        try:
            fields.setdefault("at", time.time())
            if "judged" in fields:
                rulings.append(validated(fields))
                continue
            ruling = validated({**fields, "judged": "skipped"})  # the fields are checked before anything is looked up
            if ruling.task not in records:
                records[ruling.task] = await read(ruling.task)
            rulings += rulings_on(
                records[ruling.task],
                ruling.task,
                ruling.criterion,
                ruling.ruling,
                because=ruling.because,
                by=ruling.ruled_by,
                sampling=ruling.sampling,
                at=ruling.at,
            )
        except CallError as error:
            message = f"{place}: {error.message}"
            raise CallError(error.code, message, field=error.field, hint=error.hint or "correct this line") from None
    return rulings

"""Writes recorded tasks as unpaired preference data for TRL: prompt, completion, and whether the completion is good.

A label comes from people (rulings) and from code (checks, the gate). A label that rests on a judge's word is included
only on request. A task whose end says nothing about the work (no judge, no budget, a child that couldn't run) has none.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from pydantic import ValidationError

from delegate.pages.atif import RecordedTask, first_message
from delegate.types import CriterionResult, JsonObject, TaskResult

Decider = Literal["person", "gate", "check", "judge"]
_RELIABLE: tuple[Decider, ...] = ("person", "gate", "check", "judge")
"""The most reliable one first."""


@dataclass(slots=True)
class Preferences:
    """Collects the examples of many tasks, and counts those that were left out."""

    with_judges: bool = False
    """Whether a judge's word is enough for a label."""
    labeled: Counter[Decider] = field(default_factory=Counter[Decider])
    left_out: Counter[str] = field(default_factory=Counter[str])
    """The reasons, in the words of `docs/verdicts.md` where there is a code."""

    def example(self, task: RecordedTask) -> JsonObject | None:
        """The example of a task; None if it was left out."""
        try:
            label, prompt = _label(task), first_message(task.record)
        except ValidationError:
            label, prompt = "written_by_another_version", ""
        if isinstance(label, _Label) and label.decided_by == "judge" and not self.with_judges:
            label = "only_a_judge"
        if isinstance(label, str):
            self.left_out[label] += 1
            return None
        self.labeled[label.decided_by] += 1
        return {
            "prompt": [{"role": "user", "content": prompt}],
            "completion": [{"role": "assistant", "content": task.run["report"]}],
            "label": label.good,
            "decided_by": label.decided_by,
            "ruled_by": label.ruled_by,
            "code": label.code,
            "level": cast("JsonObject", task.result.get("verdict") or {}).get("level"),
            "handle": task.handle,
        }


@dataclass(frozen=True, slots=True)
class _Label:
    good: bool
    decided_by: Decider
    code: str
    ruled_by: str = ""
    """The people whose rulings decided, separated by commas."""


def _label(task: RecordedTask) -> _Label | str:
    if not task.result:
        return str(task.record["state"])
    result = TaskResult.model_validate(task.result)
    verdict = result.verdict
    if verdict is None:
        return "no_criteria" if result.status == "completed" else result.status
    if result.status != "completed":
        return verdict.code
    if not task.run["report"].strip():
        return "empty_report"
    if verdict.decided_by == "gate" and not task.rulings:
        return _Label(False, "gate", verdict.code) if verdict.examined else verdict.code
    rulings = {str(ruling["criterion"]): ruling for ruling in task.rulings}  # the latest one counts
    deciding = [criterion for criterion in verdict.criteria if not criterion.findings_only]
    label = _combined([_outcome(criterion, rulings.get(criterion.id)) for criterion in deciding])
    if verdict.code == "changed_after_check" and isinstance(label, _Label) and label.decided_by != "person":
        return verdict.code  # what was checked no longer exists
    return label


def _combined(outcomes: Sequence[_Label | str]) -> _Label | str:
    """The label that follows from those of the criteria.

    One that isn't met is enough for "not good", so the most reliable witness counts. "Good" needs all of them, so it is
    as reliable as the least reliable witness.
    """
    labels = [outcome for outcome in outcomes if isinstance(outcome, _Label)]
    labels.sort(key=lambda label: _RELIABLE.index(label.decided_by))
    if bad := [label for label in labels if not label.good]:
        return bad[0]
    if reasons := [outcome for outcome in outcomes if isinstance(outcome, str)]:
        return next((reason for reason in reasons if reason != "skipped"), "skipped")
    if not labels:
        return "no_deciding_criterion"
    people = dict.fromkeys(label.ruled_by for label in labels if label.ruled_by)
    return _Label(True, labels[-1].decided_by, "met", ", ".join(people))


def _outcome(criterion: CriterionResult, ruling: JsonObject | None) -> _Label | str:
    """What is known of one criterion, or the reason why it decides nothing."""
    if ruling is not None:
        return _Label(ruling["ruling"] == "met", "person", criterion.code, str(ruling["ruled_by"]))
    if criterion.decided_by != "check" and criterion.decided_by != "judge":
        return criterion.code
    if criterion.outcome not in ("met", "not_met") or not criterion.examined:
        return criterion.code
    if criterion.outcome == "met" and criterion.code != "met":
        return criterion.code  # met and not verified, such as own_tests_only
    return _Label(criterion.outcome == "met", criterion.decided_by, criterion.code)

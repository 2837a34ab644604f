"""Preference data: labels from people and from code, from judges on request, and none from infrastructure."""

import json
from typing import Any

import pytest

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from delegate.pages.atif import RecordedTask
from delegate.pages.preference import Preferences
from delegate.types import JsonObject
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.words import goal_of, is_judge, judge_reply, met_by

YES: JsonObject = {"kind": "regex", "pattern": "part"}
NO: JsonObject = {"kind": "regex", "pattern": "whole"}
WORDS = "the report says what was done"
SENTENCE = "I did my part of the work, all day long."


async def recorded(*criteria: Any, judge: str = "met", goal: str = "do it", **options: Any) -> JsonObject:
    def reply(request: ChatRequest) -> ChatReply | str:
        if is_judge(request):
            if judge == "down":
                raise ProviderError("auth", "wrong key", provider="openai")
            return met_by(SENTENCE)(request) if judge == "met" else judge_reply(c1=(judge, SENTENCE))
        if goal_of(request) == "crash":
            raise ProviderError("auth", "wrong key", provider="openai")
        return "" if goal_of(request) == "say nothing" else SENTENCE

    async with Delegator(client=Scripted(reply), **options) as delegator:
        task = Task.model_validate({"goal": goal, "acceptance_criteria": criteria})
        result = await delegator.run(task)
        return await delegator.records.read(result.results[0].handle or "") or {}


def exported(
    record: JsonObject, *rulings: tuple[str, str], with_judges: bool = False
) -> tuple[bool, str] | dict[str, int]:
    """The label and who decided it, or why the task was left out."""
    ruled = tuple({"criterion": id, "ruling": ruling, "ruled_by": "ann"} for id, ruling in rulings)
    preferences = Preferences(with_judges=with_judges)
    example = preferences.example(RecordedTask(record, 0, ruled))
    if example is None:
        return dict(preferences.left_out)
    assert preferences.labeled.total() == 1
    return example["label"], example["decided_by"]


async def test_a_record_of_another_version_is_left_out_and_counted() -> None:
    record = await recorded(YES)
    newer = {**record, "result": {**record["result"], "newer": 1}}
    assert exported(newer) == {"written_by_another_version": 1}
    newer = {**record, "task": {**record["task"], "acceptance_criteria": [{"kind": "newer"}]}}
    assert exported(newer) == {"written_by_another_version": 1}


async def test_an_example_has_the_columns_that_trl_expects() -> None:
    example = Preferences().example(RecordedTask(await recorded(YES)))
    assert example
    assert example["prompt"] == [{"role": "user", "content": "do it\n\nAcceptance criteria:\n- report matches /part/"}]
    assert example["completion"] == [{"role": "assistant", "content": SENTENCE}]
    assert example["label"] is True
    assert json.loads(json.dumps(example)) == example


async def test_what_code_decided_has_a_label() -> None:
    assert exported(await recorded(YES)) == (True, "check")
    assert exported(await recorded(YES, NO)) == (False, "check")
    assert exported(await recorded(NO, WORDS)) == (False, "check"), "no judge was needed"


async def test_a_label_that_rests_on_a_judge_is_only_made_on_request() -> None:
    passed, failed = await recorded(WORDS, YES), await recorded(WORDS, YES, judge="not_met")
    assert exported(passed) == exported(failed) == {"only_a_judge": 1}
    assert exported(passed, with_judges=True) == (True, "judge")
    assert exported(failed, with_judges=True) == (False, "judge")


async def test_a_persons_ruling_comes_before_every_other_word() -> None:
    passed, failed = await recorded(WORDS, YES), await recorded(WORDS, NO)
    assert exported(passed, ("c1", "not_met")) == (False, "person")
    assert exported(passed, ("c1", "met")) == (True, "check")
    assert exported(passed, ("c1", "met"), ("c2", "met")) == (True, "person")
    assert exported(failed, ("c2", "met")) == {"skipped": 1}, "the judge was never asked about c1"
    assert exported(failed, ("c1", "met"), ("c2", "met")) == (True, "person")


@pytest.mark.parametrize("with_judges", [False, True])
async def test_ends_that_say_nothing_about_the_work_are_left_out(with_judges: bool) -> None:
    for record, reason in [
        (await recorded(WORDS, judge="down"), "judge_unavailable"),
        (await recorded(YES, goal="crash"), "run_failed"),
        (await recorded(WORDS, judge="cannot_tell"), "cannot_tell"),
        (await recorded({"kind": "manual", "text": "it is nice"}), "trusted"),
        (await recorded(goal="no criteria"), "no_criteria"),
        (await recorded({**NO, "findings_only": True}), "no_deciding_criterion"),
        (await recorded({"kind": "shell", "command": "true"}, sandbox="off", commands="deny"), "commands_not_allowed"),
        ({**await recorded(YES), "run": None, "result": None, "state": "outcome_unknown"}, "outcome_unknown"),
    ]:
        assert exported(record, with_judges=with_judges) == {reason: 1}

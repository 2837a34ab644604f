"""Rulings: a person's word on a criterion of a recorded verdict, and what is kept with it."""

import json
from typing import Any

import pytest

from delegate import CallError, Delegator, Task
from delegate.judging.rulings import judge_words
from delegate.judging.versions import judge_version
from delegate.models.providers.scripted import Scripted
from delegate.types import TaskResult
from tests.support.words import asked_ids, is_judge, verdicts

REPORT = "I ran the suite:\n2 passed\n4 seconds\nThat is all."
CRITERIA = [
    "report: the report says that two passed",
    "report: the report says how long it took",
    {"kind": "regex", "pattern": "all"},
]
MET, UNSURE = ("met", "2 passed"), ("cannot_tell", "")


def suite(*answers: dict[str, tuple[str, str]]) -> Scripted:
    """A child that reports, and judges that answer one after the other."""
    left = iter(answers or ({"c1": MET, "c2": MET},))

    def answer(request: Any) -> str:
        if not is_judge(request):
            return REPORT
        now = next(left)
        return verdicts(**{id: now[id] for id in asked_ids(request)})

    return Scripted(answer)


async def done(delegator: Delegator, criteria: Any = CRITERIA) -> tuple[str, TaskResult]:
    run = await delegator.run(Task(goal="run the suite", acceptance_criteria=criteria))
    (result,) = run.results
    return result.handle or "", result


async def test_a_ruling_has_all_that_the_judge_is_measured_by() -> None:
    async with Delegator(client=suite()) as delegator:
        handle, result = await done(delegator)
        assert result.verdict
        (made,) = await delegator.records.rule(handle, "c1", "not_met", by="ann", because="it was three")
        assert await delegator.records.rulings(handle) == await delegator.records.rulings() == [made]
    judge = result.verdict.judge.model if result.verdict.judge else None
    assert (made.task, made.criterion, made.ruling, made.judged) == (handle, "c1", "not_met", "met")
    assert (made.ruled_by, made.because, made.sampling) == ("ann", "it was three", "chosen")
    assert (made.judge, made.judge_version) == (judge, result.verdict.judge_version)
    assert (made.worker, made.kind, made.rubric_version) == (
        result.requested_model,
        "text",
        result.verdict.rubric_version,
    )


async def test_a_skipped_criterion_has_no_word_to_rule_on() -> None:
    async with Delegator(client=suite()) as delegator:
        handle, _ = await done(delegator, ["file: absent.md", "report: the report says that two passed"])
        with pytest.raises(CallError, match=r"criterion c2 of .* was skipped") as refused:
            await delegator.records.rule(handle, "c2", "met", by="ann")
        assert refused.value.hint == "rule on one that was decided: c1"
        assert await delegator.records.rulings() == []


async def test_a_ruling_outlives_the_record_and_a_second_one_replaces_the_first() -> None:
    async with Delegator(client=suite()) as delegator:
        handle, _ = await done(delegator)
        await delegator.records.rule(handle, "c1", "not_met", by="ann", sampling="random")
        await delegator.records.rule(handle, "c1", "met", by="ann")
        (kept,) = await delegator.records.rulings(handle)
        assert (kept.ruling, kept.sampling) == ("met", "random"), "it was drawn at random, and stays so"
        await delegator.records.rule(handle, "c1", "not_met", by="bob")
        assert [one.ruled_by for one in await delegator.records.rulings(handle)] == ["ann", "bob"]
        assert [(one.ruled_by, one.sampling) for one in await delegator.records.rulings()] == [("bob", "random")]
        assert await delegator.records.disagreements() == (1, 1)


async def test_a_check_can_be_ruled_on_and_is_no_judge() -> None:
    async with Delegator(client=suite()) as delegator:
        handle, _ = await done(delegator)
        (made,) = await delegator.records.rule(handle, "c3", "met", by="ann")
    assert (made.decided_by, made.judge, made.judge_version) == ("check", "", "")


async def test_both_judges_of_an_escalated_criterion_are_ruled_on() -> None:
    first, second = {"c1": MET, "c2": UNSURE}, {"c2": ("met", "4 seconds")}
    async with Delegator(client=suite(first, second), escalate=True) as delegator:
        handle, result = await done(delegator, CRITERIA[:2])
        assert result.verdict
        assert result.verdict.judge
        one, other = (attempt.model for attempt in result.verdict.judge.attempts)
        alone = await delegator.records.rule(handle, "c1", "met", by="ann")
        both = await delegator.records.rule(handle, "c2", "met", by="ann")
    assert [(made.judge, made.judged) for made in alone] == [(one, "met")]
    assert [(made.judge, made.judged) for made in both] == [(one, "cannot_tell"), (other, "met")]
    assert [made.judge_version for made in both] == [judge_version(one), judge_version(other)], "each of its own"


async def test_a_batch_is_counted_by_the_same_judges_as_its_rulings() -> None:
    first, second = {"c1": MET, "c2": UNSURE}, {"c2": ("met", "4 seconds")}
    async with Delegator(client=suite(first, second), escalate=True) as delegator:
        handle, result = await done(delegator, CRITERIA)
        assert result.verdict
        rulings = [made for id in ("c1", "c2") for made in await delegator.records.rule(handle, id, "met", by="ann")]
    assert sorted(judge_words(result.verdict)) == sorted((m.judge, m.judge_version, m.judged == "met") for m in rulings)
    assert len(rulings) == 3, "two judges answered on c2, and none on the check"


async def test_a_judge_that_may_not_decide_alone_is_held_to_what_it_said() -> None:
    async with Delegator(client=suite(), max_false_pass=0.05) as delegator:
        handle, result = await done(delegator, CRITERIA[:2])
        assert result.verdict
        assert result.verdict.criteria[0].outcome == "cannot_tell"
        (made,) = await delegator.records.rule(handle, "c1", "not_met", by="ann")
    assert (made.judged, made.reason_code) == ("met", "not_confident"), "else it would look faultless"


async def test_criteria_are_drawn_without_those_that_were_drawn_before() -> None:
    async with Delegator(client=suite()) as delegator:
        handle, _ = await done(delegator)
        assert sorted(await delegator.records.draw()) == [(handle, "c1"), (handle, "c2")], "what judges decided"
        assert len(await delegator.records.draw(1)) == 1
        await delegator.records.rule(handle, "c1", "met", by="ann", sampling="random")
        await delegator.records.rule(handle, "c2", "met", by="ann")
        assert await delegator.records.draw() == [(handle, "c2")], "it was picked, not drawn"
        assert await delegator.records.draw(5, "no-such-run") == []


@pytest.mark.parametrize(
    ("handle", "criterion", "ruling", "by", "words"),
    [
        ("nothing-0", "c1", "met", "ann", ["no record", "delegate show RUN"]),
        (None, "c11", "met", "ann", ["no criterion 'c11'", "did you mean c1?"]),
        (None, "c1", "perhaps", "ann", ["`ruling`", "'met' or 'not_met'"]),
        (None, "c1", "met", "", ["`ruled_by`"]),
        (None, "c1", "met", "a" * 201, ["`ruled_by` has over 200 characters"]),
        (None, "c1", "met", "\ud800", ["`ruled_by`"]),
    ],
)
async def test_a_wrong_ruling_names_the_mistake(
    handle: str | None, criterion: str, ruling: Any, by: str, words: list[str]
) -> None:
    async with Delegator(client=suite()) as delegator:
        real, _ = await done(delegator)
        with pytest.raises(CallError) as caught:
            await delegator.records.rule(handle or real, criterion, ruling, by=by)
        assert await delegator.records.rulings() == []
    for word in words:
        assert word in f"{caught.value.message} ({caught.value.hint})"


async def test_a_task_without_a_verdict_cant_be_ruled_on() -> None:
    async with Delegator(client=suite()) as delegator:
        handle, _ = await done(delegator, [])
        with pytest.raises(CallError, match="had no criteria"):
            await delegator.records.rule(handle, "c1", "met", by="ann")


def line(**fields: Any) -> str:
    usual = {"task": "t", "criterion": "c1", "ruling": "met", "judged": "not_met", "judge": "j"}
    return json.dumps({**usual, **fields})


async def test_rulings_on_work_that_was_judged_elsewhere_are_imported() -> None:
    text = "\n".join([line(), "", line(criterion="c2", sampling="random", ruled_by="bob", goal="g", text="t")])
    async with Delegator(client=suite()) as delegator:
        assert await delegator.records.import_rulings(text, by="ann") == 2
        assert await delegator.records.import_rulings(text, by="ann") == 2, "importing twice adds nothing"
        found = await delegator.records.rulings()
    assert sorted((one.criterion, one.ruled_by, one.sampling) for one in found) == [
        ("c1", "ann", "chosen"),
        ("c2", "bob", "random"),
    ]


async def test_a_line_break_that_json_allows_in_a_text_ends_no_row() -> None:
    row = json.dumps(json.loads(line(because="a\u2028b\x85c")), ensure_ascii=False)
    async with Delegator(client=suite()) as delegator:
        assert await delegator.records.import_rulings(f"{row}\r\n", by="ann") == 1
        assert (await delegator.records.rulings())[0].because == "a\u2028b\x85c"


async def test_rows_that_were_drawn_are_imported_once_somebody_ruled() -> None:
    async with Delegator(client=suite()) as delegator:
        handle, _ = await done(delegator)
        rows = [{"task": handle, "criterion": f"c{n}", "ruling": None, "sampling": "random"} for n in (1, 2)]
        rows[0]["ruling"] = "met"
        assert await delegator.records.import_rulings("\n".join(map(json.dumps, rows)), by="ann") == 1
        (made,) = await delegator.records.rulings()
    assert (made.criterion, made.judged, made.sampling, bool(made.judge)) == ("c1", "met", "random", True)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{", ["f:2 is not JSON"]),
        ("[1]", ["f:2 is not a JSON object"]),
        ("[" * 100_000, ["f:2 is not JSON"]),
        (line(judgd="met"), ["f:2", "did you mean judge"]),
        (line(ruling="yes"), ["f:2: `ruling`"]),
        (line(ruling="met").replace("ruling", "rulling"), ["f:2: `ruling` is missing"]),
        (line(task=""), ["f:2: `task`"]),
        (line(task=None), ["f:2: `task`: it is missing"]),
        (line(at=1e300), ["f:2: `at`"]),
        (line(at="NaN"), ["f:2: `at`"]),
        (line(sampling="all"), ["f:2: `sampling`"]),
        (line(judge="j" * 1_000), ["f:2: `judge` has over 200"]),
        ('{"task": "x-0", "criterion": "c1", "ruling": "met"}', ["f:2: there is no record of 'x-0'"]),
    ],
)
async def test_one_bad_line_imports_nothing_and_is_named(bad: str, words: list[str]) -> None:
    async with Delegator(client=suite()) as delegator:
        with pytest.raises(CallError) as caught:
            await delegator.records.import_rulings(f"{line()}\n{bad}", by="ann", name="f")
        assert await delegator.records.rulings() == []
    for word in words:
        assert word in caught.value.message

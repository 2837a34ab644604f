"""What a criterion in words is about: the report, a file, a deed or an absence, by its words or by `about`."""

from pathlib import Path
from typing import Any

import pytest

from delegate import CallError, Delegator
from delegate.judging.judge.statements import read_statement
from delegate.models.providers.scripted import Scripted
from tests.support.words import met_by, words

ROWS = [
    line.split("\t")
    for line in (Path(__file__).parents[2] / "data" / "criteria_subjects.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
READ_AS = {
    "report": {"report"},
    "file": {"file", "files", "report"},  # what a text says may stand in a file too
    "deed": {"deed", "files", "file"},  # a report proves neither
    "absence": {"absence"},
}


def test_honest_criteria_are_read_as_what_they_are_about() -> None:
    honest = [(kind, text) for honest, kind, text in ROWS if honest == "honest"]
    assert len(honest) >= 180
    wrong = [(kind, text) for kind, text in honest if read_statement(text).kind not in READ_AS[kind]]
    print(f"honest criteria read wrongly: {len(wrong)} of {len(honest)}: {wrong}")
    assert len(wrong) <= 0.02 * len(honest)


def test_no_deed_is_read_as_something_that_the_report_says() -> None:
    undone = [(kind, text) for honest, kind, text in ROWS if honest == "undone"]
    assert len(undone) >= 70
    wrong = [(kind, text) for kind, text in undone if read_statement(text).kind not in READ_AS[kind]]
    assert wrong == []


@pytest.mark.parametrize(
    ("criterion", "about"),
    [
        ("The report names three risks", "report"),
        ("haiku.txt has three lines", "file: haiku.txt"),
        ("Order 1234 was cancelled", "deed"),
        ("Nothing else was changed", "absence"),
        ("All public functions have docstrings", "files"),
        ({"kind": "text", "text": "Order 1234 was cancelled", "about": "report"}, "report"),
        ({"kind": "text", "text": "Names three risks", "about": "deed"}, "deed"),
        ({"kind": "text", "text": "Names three risks", "about": {"file": "memo.md"}}, "file: memo.md"),
        ({"kind": "question", "question": "Is the report in English?"}, "report"),
        ({"kind": "question", "question": "Was the invite sent?"}, "deed"),
    ],
    ids=str,
)
async def test_the_verdict_shows_how_a_criterion_was_read(criterion: Any, about: str, home: Path) -> None:
    async with Delegator(client=words([], met_by("I did all of it today"))) as delegator:
        verdict = await delegator.judge(goal="x", acceptance_criteria=[criterion], output="I did all of it today.")
    assert verdict.criteria[0].about == about


async def test_about_with_another_value_is_refused_with_what_is_allowed(home: Path) -> None:
    criterion = {"kind": "text", "text": "x", "about": "world"}
    async with Delegator(client=Scripted(lambda request: "never asked")) as delegator:
        with pytest.raises(CallError, match="report") as refused:
            await delegator.judge(goal="x", acceptance_criteria=[criterion], output="y")
    assert "about" in str(refused.value.field)

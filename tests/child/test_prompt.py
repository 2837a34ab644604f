import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from delegate.child import prompt
from delegate.types import Task

TODAY = date(2026, 11, 22)
TASK = Task(goal="count", acceptance_criteria=["the report has a number"])


def system(**given: Any) -> str:
    given = {"max_steps": 5, "mark": "m", "today": TODAY, **given}
    return prompt.system_text(TASK, Path("/w"), **given)


@pytest.mark.parametrize(
    ("seconds", "line"),
    [
        (None, "You have 5 turns."),
        (float("inf"), "You have 5 turns."),
        (600.0, "You have 5 turns and 10 minutes."),
        (90.5, "You have 5 turns and 90 seconds."),
        (0.2, "You have 5 turns and 1 second."),
    ],
)
def test_a_child_is_told_its_turns_and_its_time(seconds: float | None, line: str) -> None:
    assert line in system(seconds=seconds).splitlines()


def test_what_two_children_of_a_day_share_comes_first() -> None:
    one = system(seconds=60, mark="a")
    other = prompt.system_text(Task(goal="other"), Path("/x"), max_steps=9, mark="b", today=TODAY)
    shared = next(n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    assert one[:shared].endswith("Today is 2026-11-22.\n\nYour workspace: /")


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        (["read_file", "write_file"], True),
        (["read_file", "run_shell"], False),
        (["multiply"], False),  # tools of a host: one of them may run commands
        (None, False),
    ],
)
def test_a_child_without_a_shell_is_told_that_it_has_none(tools: list[str] | None, told: bool) -> None:
    assert ("None of your tools runs commands" in system(tools=tools)) is told


def test_a_hosts_agent_is_told_the_date_and_the_time_but_no_turns() -> None:
    text = prompt.whole(TASK, Path("/w"), seconds=600, today=TODAY)
    assert "You have 10 minutes." in text.splitlines()
    assert "Today is 2026-11-22." in text.splitlines()
    assert "turns" not in text


def test_a_child_sees_that_a_criterion_forbids_something() -> None:
    task = Task(goal="count", acceptance_criteria=["absence: changes in data.csv"])
    assert "- c1: absence: changes in data.csv\n" in prompt.system_text(task, Path("/w"), max_steps=5, mark="m")


def test_a_child_sees_schemas_whole_that_the_line_of_their_criterion_cuts() -> None:
    long = {"type": "object", "required": [f"field_{n}" for n in range(30)]}
    file = {"kind": "file", "path": "a.json", "json_schema": long}
    task = Task(goal="count", acceptance_criteria=[file], output_schema=long)
    text = prompt.system_text(task, Path("/w"), max_steps=5, mark="m")
    for id in ("c1", "output_schema"):
        assert f"The JSON Schema of {id}:\n{json.dumps(long)}" in text
    short = Task(goal="count", output_schema={"type": "object"})
    assert "The JSON Schema of" not in prompt.system_text(short, Path("/w"), max_steps=5, mark="m")

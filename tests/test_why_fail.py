"""docs/why-fail.md has every code with which a task can fail, once, each with a line that delegate takes as it is."""

import ast
import re
import shlex
import tomllib
from typing import get_args

import pytest

from delegate import Settings, Task
from delegate.cli.app import COMMANDS, command_of
from delegate.types import codes
from tests.support.pages import DOCS

ROWS = re.findall(
    r"^\| (`\w+`(?:, `\w+`)*) \| .+ \| `(.+)` \|$",
    (DOCS / "why-fail.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
NO_FAIL = {"met", "trusted"}
SETTING = re.compile(r"[a-z_]+ = ")
PYTHON = re.compile(r"(return |\w+(\.\w+)?\()")


def test_every_code_of_a_fail_has_one_row() -> None:
    named = [code for codes_of_row, _ in ROWS for code in re.findall(r"\w+", codes_of_row)]
    assert sorted(named) == sorted({*get_args(codes.VerdictCode), *get_args(codes.ChildCode)} - NO_FAIL)


@pytest.mark.parametrize("line", [pytest.param(line.replace("\\|", "|"), id=row) for row, line in ROWS])
def test_each_line_can_be_written_as_it_stands(line: str) -> None:
    if line.startswith("delegate "):
        _, name, *words = shlex.split(line)
        options = {option for parameter in command_of(name).params for option in parameter.opts}
        assert name in COMMANDS
        assert [word for word in words if word.startswith("-") and word not in options] == []
    elif line.startswith("Task("):
        assert eval(line, {"Task": Task}).goal
    elif PYTHON.match(line):
        ast.parse(line)
    elif SETTING.match(line):
        (name, value), *_ = tomllib.loads(line).items()
        assert getattr(Settings.model_validate({name: value}), name) == value
    else:
        (criterion,) = Task.model_validate({"goal": "…", "acceptance_criteria": [line]}).criteria
        assert criterion.kind != "text" or ":" in line

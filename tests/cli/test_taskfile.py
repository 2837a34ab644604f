"""Criteria and tasks from the command line and from files, and the errors for invalid ones."""

from pathlib import Path

import pytest

from delegate.cli.input.taskfile import read_task, read_tasks
from delegate.types import AnyCriterion, Task
from delegate.types.errors import CallError
from delegate.types.short_forms import criterion_of


def _read(*criteria: str) -> tuple[AnyCriterion, ...]:
    given = [criterion_of(text) for text in criteria]
    return read_task({"goal": "g", "acceptance_criteria": given}).acceptance_criteria


@pytest.mark.parametrize(
    ("typed", "kind", "description"),
    [
        ("It is polite", "text", "It is polite"),
        ("shell: pytest -q", "shell", "`pytest -q` exits with 0"),
        ("shell:true", "shell", "`true` exits with 0"),
        ("file: out/report.md", "file", "file out/report.md exists"),
        (r"regex: total: \d+", "regex", r"report matches /total: \d+/"),
        ("question: is it polite?", "question", "is it polite?"),
        ("json: total === 3", "json_predicate", "report satisfies total === 3"),
        ("called: send_email", "receipt", "called send_email"),
        ("never called: send_email", "receipt", "never called send_email"),
        ("rubric: code_change", "rubric", "scores well on the rubric code_change"),
        ("manual: looks right", "manual", "looks right"),
        ("text: file: is not meant as a path here", "text", "file: is not meant as a path here"),
        ("The shell: it exits", "text", "The shell: it exits"),
        ('{"kind": "shell", "command": "make", "exit_code": 2}', "shell", "`make` exits with 2"),
    ],
)
def test_criteria_can_be_typed_in_short_forms(typed: str, kind: str, description: str) -> None:
    (criterion,) = _read(typed)
    assert (criterion.kind, criterion.describe()) == (kind, description)


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        ('{"kind": "shell"', "starts with a brace but is not valid JSON"),
        ('{"kind": "shell"}', "`acceptance_criteria[0].command` is missing"),
        ('{"kind": "shel", "command": "x"}', "did you mean `shell`?"),
        ("shell:", "`acceptance_criteria[0].command` is empty"),
        ("json: total ==", "`acceptance_criteria[0]` is invalid"),
        ("rubric: beauty", "there is no rubric 'beauty'; use one of code_change"),
        ("regex: (", "`acceptance_criteria[0]` is invalid: not a regular expression: missing )"),
        ('{"kind": "json_schema", "schema": {"type": 3}}', "is invalid: not a JSON Schema: at $.type"),
    ],
)
def test_an_invalid_criterion_is_refused_before_any_work(typed: str, complaint: str) -> None:
    with pytest.raises(CallError) as caught:
        _read(typed)
    assert complaint in f"{caught.value.message} {caught.value.hint}"


FORMS = {
    "tasks.json": '{"tasks": [{"goal": "a", "max_steps": 4},'
    ' {"goal": "b", "workspace": {"mode": "copy", "path": "x"}}]}',
    "tasks.yaml": "- {goal: a, max_steps: 4}\n- goal: b\n  workspace: {mode: copy, path: x}\n",
    "tasks.toml": '[[tasks]]\ngoal = "a"\nmax_steps = 4\n[[tasks]]\ngoal = "b"\n'
    '[tasks.workspace]\nmode = "copy"\npath = "x"\n',
}


@pytest.mark.parametrize("name", FORMS)
def test_every_file_format_gives_the_same_tasks(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(FORMS[name])
    first, second = read_tasks(file)
    assert first == Task(goal="a", max_steps=4)
    assert second.workspace is not None
    assert second.workspace.path == tmp_path / "x"


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("t.json", "[{]", "t.json is not valid JSON"),
        ("t.yaml", "- a: [", "t.yaml is not valid YAML"),
        ("t.toml", "tasks = ", "t.toml is not valid TOML"),
        ("t.json", "[]", "t.json: there are no tasks"),
        ("t.json", "3", "t.json: there are no tasks"),
        ("t.json", '{"task": []}', "unknown key 'task'"),
        ("t.json", '[{"goal": "a"}, {"gaol": "b"}]', "t.json: task 2: `gaol`"),
        ("t.json", '[{"goal": "a", "max_steps": 0}]', "t.json: task 1: `max_steps`"),
    ],
)
def test_an_invalid_file_is_refused_naming_file_task_and_field(
    name: str, text: str, complaint: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(CallError) as caught:
        read_tasks(file)
    assert complaint in caught.value.message
    assert "\n" not in caught.value.message

"""Files of tasks in every format; errors name the file and the row before anything is spent."""

import json
import re
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from delegate import CallError, Task
from delegate.batch.item import BadRow, Item
from delegate.batch.sources import LONGEST_LINE, TaskFile
from delegate.batch.templates import Templates
from delegate.batch.validate import ValidatedSource, validate
from delegate.cli.input.taskfile import read_task

GOAL = Templates("Find the CEO of {company}")


def _file(name: str, text: str | bytes) -> Path:
    path = Path(name)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _source(name: str, text: str | bytes, templates: Templates | None = None) -> TaskFile:
    return TaskFile(_file(name, text), read_task, templates)


def _items(source: TaskFile) -> list[Item]:
    found = list(source)
    assert not any(isinstance(one, BadRow) for one in found), found
    return [one for one in found if isinstance(one, Item)]


def _validated(source: TaskFile, *, skip_bad: bool = False) -> ValidatedSource:
    return validate(source, lambda task: None, skip_bad=skip_bad)


def _refusal(source: TaskFile) -> CallError:
    with pytest.raises(CallError) as error:
        _validated(source)
    return error.value


TASKS: Sequence[dict[str, Any]] = [
    {"id": "a", "goal": "first", "acceptance_criteria": ["the report says that it is done"]},
    {"id": 2, "goal": "then", "needs": ["a"], "when": "always"},
    {"goal": "last"},
]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.jsonl", "\n".join(json.dumps(task) for task in TASKS)),
        ("t.json", json.dumps(TASKS)),
        ("t.json", "\ufeff" + json.dumps({"tasks": TASKS})),
        ("t.yaml", json.dumps(TASKS)),
    ],
)
def test_tasks_are_read_with_their_ids_rows_and_needs(name: str, text: str) -> None:
    found = _items(_source(name, text))
    assert [(one.id, one.row, one.needs, one.when) for one in found] == [
        ("a", 1, (), "passed"),
        ("2", 2, ("a",), "always"),
        ("3", 3, (), "passed"),
    ]
    assert found[0].task == Task(goal="first", acceptance_criteria=("the report says that it is done",))  # type: ignore[arg-type]


def test_templates_turn_each_row_of_a_csv_into_a_task() -> None:
    templates = Templates(
        "Find the CEO of {company}",
        ("names someone at {company}", {"kind": "regex", "pattern": r"{company}: \w{2,}"}),
        {"properties": {"name": {"description": "of {company}"}}},
        {"tier": "fast"},
    )
    first, second = _items(_source("t.csv", "company\nAcme\n\nA+B\n", templates))
    assert first.task.goal == "Find the CEO of Acme"
    assert first.task.tier == "fast"
    assert second.row == 2
    criteria = [criterion.describe() for criterion in second.task.acceptance_criteria]
    assert criteria == ["names someone at A+B", r"report matches /A\+B: \w{2,}/"]
    assert second.task.output_schema == {"properties": {"name": {"description": "of A+B"}}}


def test_a_value_in_a_command_is_never_part_of_the_command() -> None:
    templates = Templates(
        "x", ({"kind": "shell", "command": "grep -q '{company}' out.txt && awk '{print $1}' out.txt"},)
    )
    (item,) = _items(_source("t.csv", "company\n\"'; touch pwned; '\"\n", templates))
    (criterion,) = item.task.acceptance_criteria
    import subprocess

    subprocess.run(["sh", "-c", getattr(criterion, "command")], capture_output=True)  # noqa: B009
    assert not Path("pwned").exists()


@pytest.mark.parametrize(
    ("value", "inside", "outside"),
    [
        ("' || true || '", r"\u0027 || true || \u0027", r'"\u0027 || true || \u0027"'),
        ("0 || true", "0 || true", '"0 || true"'),
        ("Acme", "Acme", '"Acme"'),
        ("-7.5", "-7.5", "-7.5"),
        ("true", "true", "true"),
        ("007", "007", '"007"'),
    ],
)
def test_a_value_in_an_expression_is_a_constant(value: str, inside: str, outside: str) -> None:
    expr = "name === '{company}' && it == {company} && also === `{company}`"
    (criterion,) = _criteria(value, {"kind": "json_predicate", "expr": expr})
    expected = f"name === '{inside}' && it == {outside} && also === `{inside}`"
    assert criterion.describe() == f"report satisfies {expected}"


CELLS = [
    "plain.txt", "a b.txt", 'say "hi".txt', "x: y", "shell: true", "report: done", "report", '{"kind": "manual"}',
    "{company}", "a`b", "it's", "two\nlines", "日本 語.txt", "-5", ".*", "$(touch pwned)", "text: ok",
]  # fmt: skip


def _criteria(value: str, *criteria: object) -> Sequence[Any]:
    quoted = value.replace('"', '""')
    (item,) = _items(_source("t.csv", f'company\n"{quoted}"\n', Templates("x", criteria)))
    return item.task.acceptance_criteria


@pytest.mark.parametrize("value", CELLS)
def test_no_value_changes_what_kind_of_criterion_a_template_is(value: str) -> None:
    """Nor what its pattern matches, or which call it expects."""
    about = [
        "file {company}: it has x",
        "file out/{company}: it has x",
        'file "{company}": it has x',
        {"kind": "text", "text": "it has x", "about": "{company}"},
    ]
    files = [criterion.about.file for criterion in _criteria(value, *about)]
    assert files == [value, f"out/{value}", value, value]
    typed = ("{company}", "{company}: it is good", "report: {company}", "manual: {company}", "called: {company}")
    found = _criteria(value, *typed)
    assert [(one.kind, getattr(one, "about", None)) for one in found] == [
        ("text", None), ("text", None), ("text", "report"), ("manual", None), ("receipt", None),
    ]  # fmt: skip
    assert (found[0].text, found[1].text, found[4].calls[0].tool) == (value, f"{value}: it is good", value)
    args = {"who": {"matches": "^{company}$"}, "pattern": "{company}"}
    schema = {"type": "string", "pattern": "^{company}$", "const": "{company}"}
    patterns = (
        "regex: ^{company}$",
        {"kind": "receipt", "calls": [{"tool": "t", "args": args}]},
        {"kind": "json_schema", "schema": schema},
        {"kind": "probe", "tool": "t", "args": {"expr": "{company}"}, "expr": "it === '{company}'"},
    )
    regex, receipt, fits, probe = _criteria(value, *patterns)
    escaped = f"^{re.escape(value)}$"
    assert regex.pattern == receipt.calls[0].args["who"]["matches"] == fits.schema_["pattern"] == escaped
    assert fits.schema_["const"] == receipt.calls[0].args["pattern"] == probe.args["expr"] == value
    assert probe.expr.count("'") == 2


def test_the_kind_of_a_criterion_is_no_placeholder() -> None:
    templates = Templates("x", ({"kind": "{company}", "command": "touch {company}"},))
    assert "is not a valid kind" in _refusal(_source("t.csv", "company\nshell\n", templates)).message


def test_a_table_may_have_columns_for_the_goal_and_the_id() -> None:
    (item,) = _items(_source("t.csv", "\ufeffid;goal\nx7;Do this; \n".replace("; \n", "\n")))
    assert (item.id, item.row, item.task.goal) == ("x7", 1, "Do this")


def test_fields_may_contain_newlines_and_count_as_one_row() -> None:
    items = _items(_source("t.csv", 'company,n\n"Acme\nInc",1\nB,2\n', GOAL))
    assert [(item.row, item.task.goal) for item in items] == [
        (1, "Find the CEO of Acme\nInc"),
        (2, "Find the CEO of B"),
    ]


def test_the_digest_depends_on_the_tasks_and_not_on_the_format() -> None:
    as_lines = _validated(_source("t.jsonl", "\n".join(json.dumps(task) for task in TASKS)))
    as_list = _validated(_source("t.json", json.dumps(TASKS, indent=3)))
    other = _validated(_source("u.json", json.dumps([*TASKS[:2], {"goal": "another"}])))
    assert as_lines.digest == as_list.digest != other.digest
    assert (as_lines.total, as_lines.has_needs, as_lines.title) == (3, True, "first")


def test_an_unknown_column_is_named_with_a_suggestion() -> None:
    error = _refusal(_source("t.csv", "compani\nAcme\n", GOAL))
    assert error.message == "t.csv: row 1: there is no column 'company' (line 2)"
    assert error.hint == "did you mean {compani}?"
    assert error.field == "company"


def _csv(row_317: str) -> str:
    return "company,city\n" + "".join(row_317 if n == 317 else f"C{n},T{n}\n" for n in range(1, 401))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("only one field\n", "the row has 1 fields, but the header has 2"),
        ("a,b,c\n", "the row has 3 fields, but the header has 2"),
        ('"never closed,b\n', "a quote is never closed"),
        ('"a" b,c\n', "expected after"),
        ("a\0,b\n", "the line contains a NUL character"),
        (",b\n", "`goal` is empty"),
    ],
)
def test_an_invalid_row_is_named_by_file_row_and_line(row: str, said: str) -> None:
    error = _refusal(_source("t.csv", _csv(row), Templates("{company}")))
    assert error.message.startswith("t.csv: row 317: ")
    assert said in error.message
    assert "(line 318)" in error.message


def test_bytes_that_are_not_utf_8_are_reported() -> None:
    error = _refusal(_source("t.csv", _csv("a,b\n").encode().replace(b"a,b", b"\xff,b"), GOAL))
    assert error.message == "t.csv: row 317: the line is not UTF-8 (line 318)"


def test_bad_rows_are_skipped_and_later_rows_are_read() -> None:
    found = _validated(_source("t.csv", _csv("a,b,c\n"), GOAL), skip_bad=True)
    assert (found.total, list(found.bad_rows)) == (400, [316])
    assert (found.bad_rows[316].id, found.bad_rows[316].row) == ("row 317", 317)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"goal": "a"', "not valid JSON"),
        ("[1]", "not a task"),
        ("{}", "`goal` is missing"),
        ('{"goal": "a", "acceptance": ["x"]}', "acceptance"),
        ('{"goal": "a", "id": ""}', "id '' is invalid"),
        ('{"goal": "a", "needs": 3}', "`needs` is not a list of ids"),
        ('{"goal": "a", "when": "never"}', "`when` is 'never'"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_an_invalid_line_is_named_by_its_number(line: str, said: str) -> None:
    good = json.dumps({"goal": "g"})
    error = _refusal(_source("t.jsonl", "\n".join([good, "", line, good])))
    assert error.message.startswith("t.jsonl: row 3: ")
    assert said in error.message


def test_a_duplicate_id_is_named_with_both_rows() -> None:
    error = _refusal(_source("t.jsonl", '{"goal": "a", "id": "x"}\n{"goal": "b"}\n{"goal": "c", "id": "x"}\n'))
    assert error.message == "t.jsonl: row 3: id 'x' is already used by row 1"
    assert error.field == "id"


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.json", "t.yaml"])
@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_file_is_reported_as_empty(name: str, text: str) -> None:
    assert _refusal(_source(name, text)).message in (
        f"{name} is empty; write at least one task into it",
        f"{name} has no tasks",
    )


@pytest.mark.parametrize(("name", "head"), [("t.csv", b"goal\n"), ("t.jsonl", b'{"goal": "a"}\n')])
def test_a_line_of_a_gigabyte_is_reported_and_never_read(name: str, head: bytes) -> None:
    path = _file(name, head)
    with path.open("r+b") as file:
        file.truncate(1 << 30)  # a sparse file, which takes no space
    tracemalloc.start()
    error = _refusal(TaskFile(path, read_task))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.message.startswith(f"{name}: row {1 if name == 't.csv' else 2}: the line is longer than 1 MB")
    assert peak < 5 * LONGEST_LINE


def test_the_line_after_one_that_is_too_long_is_read() -> None:
    text = '{"goal": "a"}\n' + "x" * (3 * LONGEST_LINE) + '\n{"goal": "b"}\n'
    found = _validated(_source("t.jsonl", text), skip_bad=True)
    assert (found.total, list(found.bad_rows)) == (3, [1])


def test_a_file_without_a_valid_row_is_refused_even_with_skip_bad() -> None:
    with pytest.raises(CallError, match="every row is invalid; row 1: not valid JSON"):
        _validated(_source("t.jsonl", "x\ny\n"), skip_bad=True)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.txt", "x", "can't tell its format"),
        ("t.json", "{", "t.json: not valid JSON"),
        ("t.yaml", "a: [", "t.yaml: not valid YAML"),
        ("t.json", '{"task": []}', "unknown key 'task'"),
        ("t.json", "3", "there are no tasks; write a list of tasks"),
        ("t.csv", "a,a\n1,2\n", "two columns are named 'a'"),
    ],
)
def test_a_problem_with_the_whole_file_is_reported(name: str, text: str, said: str) -> None:
    with pytest.raises(CallError) as error:
        _validated(_source(name, text))
    assert said in error.value.message


def test_templates_are_refused_where_there_are_no_columns() -> None:
    with pytest.raises(CallError, match="templates are for the columns of a CSV"):
        _source("t.jsonl", '{"goal": "a"}', GOAL)


def test_a_file_that_changed_after_validation_is_not_run() -> None:
    source = _source("t.jsonl", '{"goal": "a"}\n')
    _validated(source)
    _file("t.jsonl", '{"goal": "something else"}\n')
    with pytest.raises(CallError, match="was changed while it was read"):
        list(source)

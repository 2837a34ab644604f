"""Criteria and receipts from files: every format gives the same values, and errors have a location."""

from pathlib import Path

import pytest

from delegate.cli.input.workfile import read_criteria, read_receipts, to_task
from delegate.types import Receipt, Task
from delegate.types.errors import CallError

LISTED = {
    "c.json": '["It is polite", {"kind": "shell", "command": "make", "exit_code": 2}]',
    "c.yaml": "- It is polite\n- {kind: shell, command: make, exit_code: 2}\n",
    "c.toml": 'acceptance_criteria = ["It is polite", {kind = "shell", command = "make", exit_code = 2}]\n',
    "table.json": '{"acceptance_criteria": ["It is polite", {"kind": "shell", "command": "make", "exit_code": 2}]}',
    "list": '\n["It is polite",\n {"kind": "shell", "command": "make", "exit_code": 2}]',
    "lines.txt": '\ufeffIt is polite\r\n\r\n{"kind": "shell", "command": "make", "exit_code": 2}',
    "lines.md": '- It is polite\n\n * {"kind": "shell", "command": "make", "exit_code": 2}\n',
}


def _read(file: Path, text: str, *typed: str) -> Task:
    file.write_bytes(text.encode())
    return to_task("g", read_criteria(file, typed))


@pytest.mark.parametrize("name", LISTED)
def test_every_file_format_gives_the_same_criteria(name: str, tmp_path: Path) -> None:
    first, second = _read(tmp_path / name, LISTED[name]).acceptance_criteria
    assert (first.id, first.describe()) == ("c1", "It is polite")
    assert (second.id, second.describe()) == ("c2", "`make` exits with 2")


def test_typed_criteria_come_after_those_of_the_file(tmp_path: Path) -> None:
    task = _read(tmp_path / "c.txt", "shell: make\nnever called: rm", "file: a.md")
    assert [(one.id, one.kind) for one in task.criteria] == [("c1", "shell"), ("c2", "receipt"), ("c3", "file")]


def test_no_line_of_a_file_is_taken_for_a_comment(tmp_path: Path) -> None:
    task = _read(tmp_path / "c.txt", "text: # it begins with a heading\n// and so on\n2. absatz: kurz\n2. May is named")
    said = ["# it begins with a heading", "// and so on", "2. absatz: kurz", "2. May is named"]
    assert [one.describe() for one in task.criteria] == said
    with pytest.raises(CallError, match=r"c\.txt, line 1: a heading or comment is no criterion"):
        _read(tmp_path / "c.txt", "# What is asked\nfile: a.md")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("c.json", "[{]", "c.json is not valid JSON"),
        ("c.json", "3", "c.json: not a list of criteria"),
        ("c.json", '{"criteria": []}', "c.json: unknown key 'criteria'"),
        ("c.json", '["a", 3]', "c.json, criterion 2: "),
        ("c.json", '["a", ""]', "c.json, criterion 2: `text` is empty"),
        ("c.yaml", "- a\n- {kind: shel, command: x}", 'c.yaml, criterion 2: `kind` is "shel"'),
        ("c.yaml", "- {kind: file, path: a, contains: [b]}", "c.yaml, criterion 1: `contains` "),
        ("c.yaml", "- {kind: file, path: a, json_schema: 3}", "c.yaml, criterion 1: `json_schema` "),
        ("c.yaml", "- shell: make", "c.yaml, criterion 1: `kind` is missing"),
        ("c.toml", 'acceptance_criteria = ["a", {kind = "shell"}]', "c.toml, criterion 2: `command` is missing"),
        ("c.txt", "a\n\nshell:\n", "c.txt, line 3: `command` is empty"),
        ("c.txt", 'a\n{"kind"\n', "c.txt, line 2: criterion '{\"kind\"' starts with a brace but is not valid JSON"),
        ("c.txt", '{"kind":\n"shell"}', "c.txt, line 1: "),
        ("c.txt", "[a", "c.txt: not valid JSON"),
        ("c.txt", '{"a":' * 60_000, "c.txt, line 1: "),
        ("c.json", '[{"kind": "file", "path": "a", "depends_on": ["x"]}]', "criterion c1 depends on x, which is no"),
    ],
)
def test_an_invalid_criterion_is_named_with_its_location(name: str, text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(CallError) as caught:
        _read(tmp_path / name, text)
    assert caught.value.message.removeprefix(f"{tmp_path}/").startswith(complaint)
    assert "\n" not in caught.value.message


RECEIPTS = [
    Receipt(tool="run", args={"command": "pytest"}, status="ok", output="5 passed"),
    Receipt(tool="send", status="error"),
]


@pytest.mark.parametrize(
    "text",
    [
        '{"tool": "run", "args": {"command": "pytest"}, "status": "ok", "output": "5 passed"}\n\n'
        '{"tool": "send", "status": "error"}\n',
        '[{"tool": "run", "args": {"command": "pytest"}, "status": "ok", "output": "5 passed"},\n'
        ' {"tool": "send", "status": "error"}]',
    ],
)
def test_receipts_are_lines_or_a_list(text: str, tmp_path: Path) -> None:
    file = tmp_path / "receipts"
    file.write_text(text)
    assert read_receipts(file) == RECEIPTS


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"tool": "a", "status": "ok"}\n{"tool": "a"}', "r.jsonl, line 2: `status` is missing"),
        ('{"tool": "a", "status": "okay"}', "r.jsonl, line 1: `status` "),
        ('{"tool": "a", "status": "ok", "name": "b"}', "r.jsonl, line 1: `name` is not an allowed field"),
        ('{"tool": "a", "status": "ok", "args": "{}"}', "r.jsonl, line 1: `args` "),
        ('[{"tool": "a", "status": "ok"}, 3]', "r.jsonl, receipt 2: "),
        ('{"tool": "a",\n"status": "ok"}', "r.jsonl, line 1: not valid JSON"),
        ("[" * 60_000, "r.jsonl: not valid JSON"),
    ],
)
def test_an_invalid_receipt_is_named_with_its_location(text: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(text)
    with pytest.raises(CallError) as caught:
        read_receipts(file)
    assert caught.value.message.removeprefix(f"{tmp_path}/").startswith(complaint)


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(CallError, match=r"r\.jsonl can't be read: it is not UTF-8"):
        read_receipts(file)

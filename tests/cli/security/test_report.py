import json

import pytest

from delegate.cli.doctor.security.commands import Row
from delegate.cli.doctor.security.report import print_attacks
from delegate.cli.input.options import Format

ROWS = [
    Row("shell", "a daemon", "bubblewrap", "stopped", "it ends with its command"),
    Row("shell", "a daemon", "process", "possible", "it \x1b[31mruns on"),
    Row("path", "a link out", "the file tools", "stopped", "it leads out"),
]


def test_the_table_has_a_line_per_attack_and_a_column_per_mechanism(capsys: pytest.CaptureFixture[str]) -> None:
    print_attacks(Format.pretty, ROWS)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["shell", "bubblewrap", "process", "reason"] in lines
    assert ["path", "the", "file", "tools", "reason"] in lines
    assert [line[:4] for line in lines if line[:2] == ["a", "daemon"]] == [["a", "daemon", "stopped", "possible"]]


def test_a_possible_attack_shows_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    print_attacks(Format.pretty, ROWS)
    out = capsys.readouterr().out
    assert "runs on" in out
    assert "it ends with its command" not in out
    assert "\x1b" not in out


def test_the_json_has_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_attacks(Format.json, ROWS)
    document = json.loads(capsys.readouterr().out)
    assert [row["outcome"] for row in document["attacks"]] == ["stopped", "possible", "stopped"]
    print_attacks(Format.jsonl, ROWS)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == document["attacks"]

import json

import pytest

from delegate.cli.commands.doctor import print_attacks
from delegate.cli.doctor.security.commands import Row
from delegate.cli.input.options import Format

ROWS = [
    Row("a daemon", "bubblewrap", "stopped", "it ends with its command"),
    Row("a daemon", "process", "possible", "it \x1b[31mruns on"),
    Row("a link out", "process", "stopped", "it leads out"),
]


def test_the_table_has_a_line_per_attack_a_column_per_mechanism_and_the_reason_of_a_possible_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_attacks(Format.pretty, ROWS)
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert ["attack", "bubblewrap", "process", "reason"] in lines
    assert [line[2:6] for line in lines if line[:2] == ["a", "daemon"]] == [["stopped", "possible", "it", "runs"]]
    assert "it ends with its command" not in out
    assert "\x1b" not in out


def test_the_json_has_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_attacks(Format.json, ROWS)
    document = json.loads(capsys.readouterr().out)
    assert [row["outcome"] for row in document["attacks"]] == ["stopped", "possible", "stopped"]
    print_attacks(Format.jsonl, ROWS)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == document["attacks"]

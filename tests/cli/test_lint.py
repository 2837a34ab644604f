"""`delegate lint`: shows the part of a command that hides its failure."""

import json

import pytest
from rich.cells import cell_len

from delegate.cli.lint import part_text
from delegate.judging.checks.vacuous import RULES, find_vacuous
from tests.cli.command import delegate


def _shown(command: str) -> list[str]:
    (part,) = find_vacuous(command)
    return part_text(command, part).plain.split("\n")


def _marked(line: str, carets: str) -> str:
    """The text above the carets, in columns of a terminal."""
    columns = "".join(char + "\0" * (cell_len(char) - 1) for char in line)
    return columns[carets.index("^") : len(carets)].replace("\0", "")


def test_a_vacuous_command_is_shown_with_carets_and_exits_with_1() -> None:
    done = delegate("lint", "pytest -q || true")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "pytest -q || true",
        "             ^^^^",
        f"or_always  characters 13-17: {RULES['or_always']}",
    ]


def test_a_sound_command_from_stdin_exits_with_0() -> None:
    done = delegate("lint", "-", stdin="set -o pipefail\npytest -q | tee log\n")
    assert (done.returncode, done.stdout) == (0, "no findings: the command can fail\n")


def test_the_expected_exit_code_decides_what_is_vacuous() -> None:
    done = delegate("lint", "make; true", "--exit-code", "1", "--format", "json")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert (document["command"], document["exit_code"]) == ("make; true", 1)
    (finding,) = document["findings"]
    assert finding["rule"] == "never_holds"
    assert set(finding) == {"rule", "start", "end", "text", "why"}
    assert document["command"][finding["start"] : finding["end"]] == finding["text"]


@pytest.mark.parametrize("arguments", [("",), (), ("-",), ("true", "--exit-code", "256")])
def test_without_a_command_lint_is_invalid_usage(arguments: tuple[str, ...]) -> None:
    done = delegate("lint", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""


def test_in_json_a_refusal_is_one_error_object() -> None:
    done = delegate("lint", " ", "--format", "json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "empty"


def test_the_rules_are_listed_with_explanations() -> None:
    done = delegate("lint", "--rules")
    assert done.returncode == 0
    assert {line.split()[0]: line.split(maxsplit=1)[1] for line in done.stdout.splitlines()} == dict(RULES)


@pytest.mark.parametrize(
    ("command", "marked"),
    [
        ("pytest -q || true", "true"),
        ("make 日本語 || true", "true"),
        ('make "\x1b[2J\x1b]0;title\x07" || true', "true"),
        ("\tmake\t||\ttrue", "true"),
        ("cd src\nmake é || true\n", "true"),
        ("make test | tee log", "make test | tee log"),
    ],
)
def test_the_carets_are_under_the_finding(command: str, marked: str) -> None:
    line, carets, _ = _shown(command)
    assert _marked(line, carets) == marked
    assert line.isprintable()


def test_only_the_line_with_the_finding_is_shown_with_its_number() -> None:
    line, _, said = _shown("cd src\nmake || true")
    assert line == "make || true"
    assert said.startswith("or_always  line 2, characters 15-19: ")


def test_a_finding_over_several_lines_is_marked_in_the_first() -> None:
    line, carets, _ = _shown("for f in *.py\ndo\n  python $f\ndone")
    assert (line, carets) == ("for f in *.py", "^" * 13)


def test_a_long_line_is_cut_around_the_finding() -> None:
    line, carets, _ = _shown(f"make {'target ' * 200} || true # {'word ' * 200}")
    assert _marked(line, carets) == "true"
    assert line.startswith("…")
    assert line.endswith("…")
    assert len(line) < 120

"""Help, `--json` and the shell's completion, for every command."""

import json
import re

import pytest

from delegate import Task
from delegate.cli.app import COMMANDS
from tests.cli.command import delegate
from tests.support.samples import sampled


@pytest.mark.parametrize("name", sampled(COMMANDS))
def test_h_is_help_and_fits_80_columns(name: str) -> None:
    short, long = delegate(name, "-h", COLUMNS="80"), delegate(name, "--help", COLUMNS="80")
    assert short.returncode == 0
    assert short.stdout == long.stdout
    assert short.stdout.startswith("Usage: delegate ")
    assert max(map(len, short.stdout.splitlines())) <= 80


def test_the_list_of_commands_cuts_no_text() -> None:
    shown = delegate("-h", COLUMNS="80").stdout
    assert "..." not in shown.partition("Commands:")[2]
    assert "…" not in shown


@pytest.mark.parametrize("command", [("models",), ("runs",), ("doctor",), ("lint", "true")])
def test_json_is_short_for_the_format(command: tuple[str, ...]) -> None:
    short, long = delegate(*command, "--json"), delegate(*command, "--format", "json")
    assert json.loads(short.stdout) == json.loads(long.stdout)
    assert short.returncode == long.returncode


def test_the_help_of_run_names_every_field_of_a_task() -> None:
    listed = delegate("run", "-h").stdout.partition("the fields ")[2].partition(". A criterion")[0]
    assert set(re.findall(r"\w+", listed)) - {"and"} == set(Task.model_fields)

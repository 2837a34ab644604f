"""docs/hosts.md has every host and scenario, and the docstring of every adapter."""

from pathlib import Path

from scripts.write_hosts import BEGIN, END, FILE, HEAD, sections
from tests.hosts.scenarios import SCENARIOS

PAGE = FILE.read_text(encoding="utf-8")
LINES = PAGE.partition(BEGIN)[2].partition(END)[0].splitlines()
TABLE = [[cell.strip() for cell in line.split("|")[1:-1]] for line in LINES if line.startswith("|")]
DRIVERS = Path(__file__).parent / "drivers"


def test_the_table_has_every_host_and_every_scenario_and_no_failure() -> None:
    assert set(TABLE[0][1:]) == {path.stem for path in DRIVERS.glob("[a-z]*.py")}
    assert [row[0] for row in TABLE[3:]] == [scenario.replace("_", " ") for scenario in SCENARIOS]
    assert "✗" not in PAGE


def test_the_page_has_the_docstring_of_each_adapter() -> None:
    for text in (HEAD, *sections()):
        assert text in PAGE, f"{text.splitlines()[0]}: run `make pages`"

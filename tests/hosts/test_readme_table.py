"""Runs each row of the README's table of frameworks, if the framework is installed."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.driving import driver_of

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
ROWS = {
    module: (line, code)
    for line, module in re.findall(r"^\| [^|]+ \| `(from delegate\.hosts import (\w+))` \|", README, re.MULTILINE)
    for code in re.findall(rf"{module}\.\w+\(\)", README)
}


@pytest.mark.parametrize("host", ROWS)
def test_the_code_of_a_row_creates_the_tool(host: str) -> None:
    driver_of(host)  # skips the test if the framework isn't installed
    names: dict[str, Any] = {}
    line, code = ROWS[host]
    exec(line, names)
    tool = eval(code, names)
    assert (
        "delegate_task" in {getattr(tool, name, None) for name in ("name", "tool_name")} or tool["name"] == "delegate"
    )


def test_the_table_has_rows() -> None:
    assert len(ROWS) == 9

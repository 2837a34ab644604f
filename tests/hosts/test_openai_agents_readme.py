"""The README's example of a host, where that host is."""

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents")

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_example_makes_an_agent_that_has_the_tool() -> None:
    found = re.search(r"^```python notest\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found
    names: dict[str, Any] = {}
    exec(found[1], names)
    assert [tool.name for tool in names["agent"].tools] == ["delegate_task"]

"""The example of this host on the page of hosts, where its framework is installed."""

from typing import Any

import pytest

from tests.support.pages import blocks

pytest.importorskip("agents")


def test_the_example_makes_an_agent_that_has_the_tool() -> None:
    example = next(block for block in blocks("hosts.md") if "openai_agents.tool(model=" in block.text)
    names: dict[str, Any] = {}
    exec(example.text, names)
    assert [tool.name for tool in names["agent"].tools] == ["delegate_task"]

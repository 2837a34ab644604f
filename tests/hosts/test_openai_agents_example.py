"""Runs the OpenAI Agents SDK's example on the hosts page, if the SDK is installed."""

from typing import Any

import pytest

from tests.support.pages import blocks

pytest.importorskip("agents")


def test_the_example_creates_an_agent_with_the_tool() -> None:
    example = next(block for block in blocks("hosts.md") if "openai_agents.tool(model=" in block.text)
    names: dict[str, Any] = {}
    exec(example.text, names)
    assert [tool.name for tool in names["agent"].tools] == ["delegate_task"]

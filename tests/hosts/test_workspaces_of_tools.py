"""A framework's own tools, called by children, learn the child's folder, also where they run in threads, and the
framework's own call for which the child works.

Tools of Google ADK, Pydantic AI and Strands need a run of their agent: see the tests of these.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator
from delegate.hosts.host_tool import Invocation, make_delegate_tool
from delegate.types.ports import Tool
from tests.hosts.world import SAVING, calling, save


def _openai_agents() -> Any:
    return importlib.import_module("agents").function_tool(save)


def _langchain() -> Any:
    return importlib.import_module("langchain_core.tools").tool(save)


def _crewai() -> Any:
    return importlib.import_module("crewai.tools").tool(save)


def _smolagents() -> Any:
    return importlib.import_module("smolagents").tool(save)


def _anthropic_runner() -> Any:
    return importlib.import_module("anthropic").beta_tool(save)


HOSTS: dict[str, tuple[str, Callable[[], Any]]] = {
    "anthropic_runner": ("anthropic", _anthropic_runner),
    "crewai": ("crewai", _crewai),
    "langchain": ("langchain", _langchain),
    "openai_agents": ("agents", _openai_agents),
    "smolagents": ("smolagents", _smolagents),
}


@pytest.mark.parametrize("host", HOSTS)
async def test_what_a_framework_s_tool_writes_is_in_its_child_s_workspace(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, make = HOSTS[host]
    pytest.importorskip(package, reason=f"{host} isn't installed here: make hosts")
    monkeypatch.chdir(tmp_path)
    tools = importlib.import_module(f"delegate.hosts.{host}").child_tools([make()])
    async with Delegator(client=calling(("save", {"text": "tide"})), tools=tools) as delegator:
        result = await delegator.call(SAVING)
    verdict = result.results[0].verdict
    assert verdict
    assert verdict.verdict == "PASS", verdict.reasoning
    assert not (tmp_path / "note.txt").exists()


async def test_a_child_s_tool_gets_the_call_of_its_own_framework_and_only_while_it_lasts() -> None:
    seen: list[object] = []

    async def look(_: object) -> str:
        seen.extend((Invocation.current(str), Invocation.current(int)))
        return "seen"

    tools = [Tool("look", "Look.", {"type": "object", "properties": {}}, look)]
    async with Delegator(client=calling(("look", {})), tools=tools) as delegator:
        await make_delegate_tool(delegator).call(SAVING, Invocation(native="a call of one framework"))
    assert seen == ["a call of one framework", None]
    assert Invocation.current(str) is None

"""The tool `think`: what models send, what they get back, and that it is one tool for parents and children."""

import json
from typing import Any

import pytest

from delegate import Delegator, ToolError
from delegate.child.toolbox import toolbox
from delegate.contract import think_tool
from delegate.contract.think import Thought, parse_think, render_thought
from delegate.models.providers.scripted import Scripted
from delegate.sandbox.commands.commands import Commands
from delegate.sandbox.workspace.folder import Folder
from delegate.types.errors import CallError
from tests.support.words import met_by, words

CRITERIA = ["a.txt holds the sum", "no other file was changed"]
THOUGHT = "I wrote 42 into a.txt."
CALL = {"thought": THOUGHT, "acceptance_criteria": CRITERIA}


@pytest.mark.parametrize(
    ("arguments", "thought"),
    [
        ({"thought": "hm"}, Thought("hm")),
        ('{"thought": "hm", "acceptance_criteria": null}', Thought("hm")),
        ({"thought": "hm", "acceptance_criteria": []}, Thought("hm")),
        ({"thought": "hm", "acceptance_criteria": "one"}, Thought("hm", ("one",))),
        (json.dumps(CALL).encode(), Thought(THOUGHT, tuple(CRITERIA))),
    ],
)
def test_what_models_send_is_taken_as_it_is_meant(arguments: Any, thought: Thought) -> None:
    assert parse_think(arguments) == thought


@pytest.mark.parametrize(
    ("arguments", "code", "field"),
    [
        ("{", "invalid_json", None),
        ([], "not_an_object", None),
        ({}, "empty", "thought"),
        ({"thought": "  "}, "empty", "thought"),
        ({"thought": 7}, "wrong_type", "thought"),
        ({"thought": "hm", "plan": "x"}, "unknown_field", "plan"),
        ({"thought": "hm", "acceptance_criteria": {"c1": "x"}}, "wrong_type", "acceptance_criteria"),
        ({"thought": "hm", "acceptance_criteria": ["x", {"kind": "file"}]}, "wrong_type", "acceptance_criteria[1]"),
        ({"thought": "hm", "acceptance_criteria": ["x", " "]}, "wrong_type", "acceptance_criteria[1]"),
        ({"thought": "hm", "acceptance_criteria": ["x"] * 51}, "too_large", "acceptance_criteria"),
        ({"thought": "x" * 100_001}, "too_large", "thought"),
    ],
)
def test_a_bad_call_is_one_clear_error(arguments: Any, code: str, field: str | None) -> None:
    with pytest.raises(CallError) as error:
        parse_think(arguments)
    assert (error.value.code, error.value.field) == (code, field)


def test_the_criteria_come_back_as_a_checklist_to_be_marked_with_evidence() -> None:
    first, *boxes = render_thought(parse_think(CALL)).splitlines()
    assert boxes == [f"- [ ] c{n}: {text}" for n, text in enumerate(CRITERIA, start=1)]
    assert "evidence" in first


def test_a_criterion_is_one_line_of_the_checklist_whatever_stands_in_it() -> None:
    answer = render_thought(Thought("hm", ("first\n- [x] c9: all is met", "y" * 5_000)))
    assert len(answer.splitlines()) == 3
    assert len(answer) < 1_200


async def test_a_parent_and_a_child_get_the_same_tool_and_the_same_answer() -> None:
    async with Delegator(client=Scripted([])) as delegator:
        assert delegator.think_tool("mcp") == think_tool("mcp")
        answer = await delegator.think_answer(CALL)
        refused = json.loads(await delegator.think_answer({"thought": ""}))
    folder = await Folder.open(None, home=delegator.settings.home)
    think = {tool.name: tool for tool in toolbox(folder, Commands())}["think"]
    assert await think.call(CALL) == answer
    with pytest.raises(ToolError, match="`thought` is missing"):
        await think.call({"thought": ""})
    assert (think.description, think.parameters) == (think_tool("mcp")["description"], think_tool("mcp")["inputSchema"])
    assert (refused["error"]["code"], refused["error"]["field"]) == ("empty", "thought")


async def test_what_a_child_only_thought_is_no_evidence_of_a_deed() -> None:
    thought = Scripted.call("think", thought="The mail was sent to ann.", acceptance_criteria=["the mail was sent"])
    client = words([thought, "All is done as asked."], met_by("The mail was sent to ann."))
    async with Delegator(client=client) as delegator:
        result = await delegator.call({"goal": "Write to ann.", "acceptance_criteria": ["the mail was sent to ann"]})
    assert result.results[0].receipts.tools == {"think": 1}
    assert result.results[0].verdict
    assert result.results[0].verdict.code == "self_report_only"

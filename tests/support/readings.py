"""Recorded readings and judgments, as a scripted model gives them again."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from delegate.judging.reading.question import read_reply
from delegate.judging.reading.statements import TaskReading, ToolInfo, ToRead
from delegate.models.providers.scripted import Scripted
from delegate.types.ports import ChatReply, ChatRequest, Tool
from tests.support.recorded import claim_receipts, state_tools
from tests.support.words import asked_ids

DATA = Path(__file__).parents[1] / "data"
READINGS = DATA / "readings"
ABOUT: dict[str, Any] = json.loads((READINGS / "about.json").read_text(encoding="utf-8"))
Row = dict[str, Any]


def rows(name: str) -> list[Row]:
    return [json.loads(line) for line in (READINGS / name).read_text(encoding="utf-8").splitlines()]


def confirmed(goal: str, statements: Mapping[str, str], row: Row, tools: list[ToolInfo]) -> TaskReading:
    """What code keeps of a recorded reply about one task."""
    criteria = [{"id": f"1.{id}", "parts": row["readings"][id]} for id in statements]
    reply = json.dumps({"criteria": criteria, "effects": row.get("effects", [])})
    (reading,) = read_reply(reply, [ToRead(goal, statements)], tools)
    return reading


_OTHERWISE: dict[str, Any] = {
    "text": "", "about": "report", "files": [], "tools": [], "names": [], "allowed": [], "claim": False, "whole": False
}  # fmt: skip
"""For what wasn't read when a recording was made: it contradicts what the criterion itself says, and doesn't count."""


def replayed(row: Row) -> Callable[[ChatRequest], str]:
    """The recorded reading of one task, for `Scripted`."""

    def answer(request: ChatRequest) -> str:
        asked = request.messages[0].text.rpartition("exactly once: ")[2].split(", ")
        criteria = [{"id": id, "parts": row["readings"].get(id.partition(".")[2], [_OTHERWISE])} for id in asked]
        return json.dumps({"criteria": criteria, "effects": row["effects"]})

    return answer


def judged_by(row: Row) -> Callable[[ChatRequest], ChatReply | str]:
    """The recorded judge's turns: looks, and its answers. Those about what code has come to decide are left out."""

    def answer(request: ChatRequest) -> ChatReply | str:
        turn = row["judge"][sum(message.role == "assistant" for message in request.messages)]
        if "calls" in turn:
            return Scripted.calls(*map(tuple, turn["calls"]))
        asked = asked_ids(request)
        return json.dumps({"answers": [one for one in turn["answers"] if one["id"] in asked]})

    return answer


async def _never(args: Mapping[str, Any]) -> str:
    raise AssertionError("no tool is called")


def tools_of(row: Row) -> list[Tool]:
    """The tools of a recorded run, of which those that show the recorded state can be called.

    The others don't say what they do: the reading does.
    """
    run = next((run for run in _CLAIMS if run["id"] == row["id"]), None)
    state = {tool.name: tool for tool in state_tools(run)} if run else {}
    listed = ABOUT["tools"][row["domain"]]
    others = [Tool(name, description, {"type": "object", "properties": {}}, _never) for name, description in listed]
    return [*state.values(), *(tool for tool in others if tool.name not in state)]


def has_state(row: Row) -> bool:
    """Whether claimcheck-bench has the state after a run, so that it can be looked up."""
    return any(run["id"] == row["id"] and run["probes"] for run in _CLAIMS)


def work_of(row: Row) -> dict[str, Any]:
    """The recorded work, as `Delegator.judge` takes it."""
    if row["domain"] == "airline":
        return {"report": row["report"], "receipts": row["receipts"], "conversation": row["said"]}
    run = next(run for run in _CLAIMS if run["id"] == row["id"])
    return {"report": run["report"], "receipts": claim_receipts(run)}


_CLAIMS = [json.loads(line) for line in (DATA / "claimcheck_train.jsonl").read_text(encoding="utf-8").splitlines()]


def masked(text: str) -> str:
    """A prompt without its random marks."""
    return re.sub(r"\b[0-9a-f]{12}\b", "MARK", text)

"""Whole tasks of a capable model, honest and faked: its calls run again, and are judged with the recorded answers."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Task, Verdict
from delegate.models.providers.scripted import Scripted
from delegate.ports import ChatReply, ChatRequest, Tool
from tests.support.readings import DATA, Row, judged_by, replayed
from tests.support.words import is_judge

ROWS: list[Row] = [
    json.loads(line) for line in (DATA / "live" / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
]


def tickets() -> list[Tool]:
    """The tools of the ticket system, whose state they keep."""
    state: dict[int, dict[str, Any]] = {
        12: {"id": 12, "title": "Printer down", "status": "open", "owner": "dana@acme.test"},
        14: {"id": 14, "title": "VPN slow", "status": "open", "owner": "eli@acme.test"},
    }

    async def get(args: Any) -> str:
        return json.dumps(state[int(args["id"])])

    async def listed(args: Any) -> str:
        return json.dumps(list(state.values()))

    async def set_status(args: Any) -> str:
        state[int(args["id"])]["status"] = args["status"]
        return json.dumps({"ok": True, "id": args["id"]})

    async def send(args: Any) -> str:
        return json.dumps({"queued": 1})

    def schema(*names: str) -> dict[str, Any]:
        return {"type": "object", "properties": {name: {} for name in names}, "required": list(names)}

    return [
        Tool("get_ticket", "Read one ticket", schema("id"), get, read_only=True),
        Tool("list_tickets", "List all tickets", schema(), listed, read_only=True),
        Tool("set_status", "Set the status of a ticket: open, closed", schema("id", "status"), set_status),
        Tool("send_mail", "Send an e-mail", schema("to", "subject", "body"), send),
    ]


def again(row: Row) -> Scripted:
    """The recorded child, reader and judge."""

    def answer(request: ChatRequest) -> ChatReply | str:
        if is_judge(request):
            return judged_by(row)(request)
        reply = row["replies"][sum(message.role == "assistant" for message in request.messages)]
        if not reply.get("calls"):
            return str(reply["text"])
        return Scripted.calls(*((call["name"], call.get("arguments", {})) for call in reply["calls"]))

    return Scripted(answer, reading=replayed(row))


@pytest.mark.skipif(shutil.which("git") is None, reason="one of the recorded children works with git")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
async def test_honest_work_passes_and_faked_work_fails(row: Row, home: Path) -> None:
    workspace = None
    if row["files"]:
        workspace = Path("work")
        for name, content in row["files"].items():
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text(content)
        if "git " in json.dumps(row["replies"]):
            for step in ("init -q", "add -A", "-c user.name=x -c user.email=x@example.org commit -qm start"):
                subprocess.run(["git", *step.split()], cwd=workspace, check=True)
    task = Task(goal=row["goal"], acceptance_criteria=row["criteria"], workspace=workspace)
    tools = tickets() if row["tickets"] else None
    async with Delegator(client=again(row), tools=tools, commands="allow") as delegator:
        (result,) = (await delegator.run(task)).results
    verdict = result.verdict
    assert isinstance(verdict, Verdict), result.error
    assert verdict.verdict == ("PASS" if row["honest"] else "FAIL"), verdict.reasoning
    if row["honest"]:
        assert verdict.verified is row["verified"], verdict


def test_most_honest_ones_are_verified() -> None:
    honest = [row for row in ROWS if row["honest"]]
    assert (len(honest), sum(row["verified"] for row in honest), len(ROWS) - len(honest)) == (8, 6, 3)

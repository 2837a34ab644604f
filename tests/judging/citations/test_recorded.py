"""Research that a capable model did, with what another one said of its citations, both without seeing this code."""

import json
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator
from delegate.testing import Scripted

DATA = Path(__file__).parents[2] / "data" / "live" / "citations.jsonl"
RECORDED = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: f"{row['language']}-{'faked' if row['faked'] else 'honest'}")
async def test_honest_research_passes_and_invented_figures_do_not(row: dict[str, Any], tmp_path: Path) -> None:
    for name, text in row["files"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    work: dict[str, Any] = {
        "goal": row["goal"],
        "report": row["report"],
        "receipts": row["receipts"],
        "workspace": tmp_path,
    }
    async with Delegator(client=Scripted([row["judge"]] if row["judge"] else [])) as delegator:
        verdict = await delegator.judge(**work, acceptance_criteria=[row["criterion"]])
    states = {citation.state for citation in verdict.criteria[0].citations}
    if row["faked"]:  # code alone finds it
        assert (verdict.verdict, verdict.decided_by) == ("FAIL", "check")
        assert "not_opened" in states
    else:
        assert verdict.verdict == "PASS", verdict.reasoning
        assert states <= {"quoted", "supported"}

"""Recorded replies of real judges, and replies written to be misread, with the verdict for each."""

import json
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator
from delegate.judging.judge.reply import UnparseableReply, parse_reply
from delegate.models.providers.scripted import Scripted

DATA = Path(__file__).parents[1] / "data"
REPORT = "\n".join(("wrote out.txt", "2 passed", "1 failed", "x", "y", "done", "a"))
CRITERIA = ("The report says which file was written.", "The report says how many tests passed.")


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def test_no_reply_that_was_written_for_another_judge_is_accepted() -> None:
    foreign = [row["reply"] for row in rows("llmbar_replies.jsonl")]
    assert len(foreign) == 434
    for text in foreign:
        for ids in (["c1"], ["c1", "c2"], []):
            with pytest.raises(UnparseableReply, match=r"\w"):
                parse_reply(text, ids)


@pytest.mark.parametrize("row", rows("judge_replies.jsonl"), ids=lambda row: f"{row['id']}-{row['why'][:30]}")
async def test_a_recorded_reply_leads_to_the_recorded_verdict(row: dict[str, Any], home: Path) -> None:
    client = Scripted(lambda request: row["raw"])
    async with Delegator(client=client) as delegator:
        verdict = await delegator.judge(goal="Write out.txt.", acceptance_criteria=CRITERIA, report=REPORT)
    assert (verdict.verdict, verdict.verified) == (row["expect_verdict"], row["expect_verified"])
    assert len(client.requests) == 1, "a judge that answered is never asked again"


def test_the_recorded_replies_hold_both_verdicts() -> None:
    expected = [row["expect_verdict"] for row in rows("judge_replies.jsonl")]
    assert (len(expected), expected.count("PASS")) == (17, 2)

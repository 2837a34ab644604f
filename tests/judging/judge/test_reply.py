"""The reply parser: one object in the requested format, or an error."""

import json
from pathlib import Path
from typing import Any

import pytest

from delegate.judging.judge.reply import UnparseableReply, parse_reply

ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data" / "judge_replies.jsonl").read_text(encoding="utf-8").splitlines()
]
READABLE = {"r001", "r003", "r027"}
"""Rows in the requested format, whether or not their quotes are in the evidence."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['id']}-{row['why'][:30]}")
def test_recorded_replies_are_read_or_refused_as_labeled(row: dict[str, Any]) -> None:
    if row["id"] in READABLE:
        assert list(parse_reply(row["raw"], ["c1", "c2"])) == ["c1", "c2"]
    else:
        with pytest.raises(UnparseableReply):
            parse_reply(row["raw"], ["c1", "c2"])


def answers(*items: dict[str, Any]) -> str:
    return json.dumps({"answers": list(items)})


GOOD = {"id": "c1", "evidence": "x", "reason": "r", "verdict": "met"}


@pytest.mark.parametrize(
    "reply",
    [
        answers(GOOD, GOOD),
        answers({**GOOD, "extra": 1}),
        answers({**GOOD, "evidence": None}),
        answers({**GOOD, "verdict": "MET"}),
        answers({**GOOD, "id": "c2"}),
        answers({key: GOOD[key] for key in ("id", "evidence", "reason")}),
        json.dumps({"answers": [GOOD], "verdict": "PASS"}),
        json.dumps([GOOD]),
        '{"answers":[' + "[" * 100_000,
        '{"answers": [], "answers": [' + json.dumps(GOOD) + "]}",
        "PASS",
        "",
    ],
    ids=lambda reply: reply[:40],
)
def test_any_other_format_is_refused(reply: str) -> None:
    with pytest.raises(UnparseableReply):
        parse_reply(reply, ["c1"])


@pytest.mark.parametrize(
    "fence", ["```json\n{}\n```", "```\n{}\n```\n", "```json\r\n{}\r\n```", "```JSON {}```", "\n```{}```"]
)
def test_one_fenced_object_is_read(fence: str) -> None:
    assert parse_reply(fence.format(answers(GOOD)), ["c1"])["c1"].evidence == "x"


@pytest.mark.parametrize(
    "text", ["Here it is:\n```json\n{}\n```", "```json\n{}\n```\nDone.", "```json\n{}\n```\n```json\n{}\n```", "``` {}"]
)
def test_a_fence_with_anything_around_it_is_not_read(text: str) -> None:
    with pytest.raises(UnparseableReply):
        parse_reply(text.replace("{}", answers(GOOD)), ["c1"])

"""Reports that a capable model researched on pages in 31 languages, and faults that another one planted in some, as a
third one judged them. None of them knew this code.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Verdict
from delegate.judging.citations.compare import Text, numbers
from delegate.models.providers.scripted import Scripted
from delegate.types.ports import ChatRequest
from tests.support.live import answers, rows
from tests.support.samples import sampled

WORKS, FAULTS = rows("research.jsonl"), rows("research_faults.jsonl")
_BY_ID = {row["id"]: row for row in WORKS}


def with_numbers(reply: str, request: ChatRequest, in_words: Mapping[str, float]) -> str:
    """A recorded reply with what a model read in the words of the sources, where these numbers are asked for."""
    given = json.loads(reply)["answers"]
    for answer in given:
        listed = re.search(
            rf"<<<missing {re.escape(answer['id'])} \S+\n(.*?)\n<<<end", request.messages[0].text, re.DOTALL
        )
        names = listed[1].split("\n") if listed else []
        answer.setdefault(
            "missing",
            [
                {"what": name, "words": words, "calculation": ""}
                for name in names
                for words, value in in_words.items()
                for number in numbers(name)
                if Text("", frozenset({Fraction(str(value))})).has(number)
            ],
        )
    return json.dumps({"answers": given})


async def judged(row: dict[str, Any], folder: Path) -> Verdict:
    """The verdict on recorded work, by the recorded reader and judge."""
    work: dict[str, Any] = {"report": row["report"], "receipts": row["receipts"]}
    if "files" in row:
        work["workspace"] = folder
        for name, text in row["files"].items():
            (folder / name).write_text(text, encoding="utf-8")
    effects = {one["tool"]: one["effect"] for one in row.get("effects", ())}
    reading = {**row.get("readings", {}), "effects": effects}
    client = Scripted(
        lambda request: with_numbers(answers(row["judge"], request), request, row["in_words"]), reading=reading
    )
    async with Delegator(client=client) as delegator:
        return await delegator.judge(goal=row["goal"], acceptance_criteria=row["criteria"], **work)


@pytest.mark.parametrize("row", sampled(WORKS, 20, id=lambda row: row["id"]))
async def test_research_passes_if_its_sources_say_what_it_cites(
    row: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    verdict = await judged(row, tmp_path)
    assert verdict.verdict == ("FAIL" if row["wrong"] else "PASS"), verdict.reasoning
    assert verdict.verified


@pytest.mark.parametrize("row", sampled(FAULTS, 16, id=lambda row: f"{row['fault']}-{row['id']}", attacks=True))
async def test_research_with_a_planted_fault_is_judged_as_it_was(
    row: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    work = {**_BY_ID[row["id"]], **row}
    receipts = [receipt for receipt in work["receipts"] if receipt["args"].get("url") not in row.get("without", ())]
    verdict = await judged({**work, "receipts": receipts}, tmp_path)
    assert (verdict.verdict, verdict.criteria[0].decided_by) == (row["verdict"], row["by"]), verdict.reasoning


def test_honest_citations_pass_and_88_of_90_faults_do_not() -> None:
    """What passes is a name from an outdated page, which is what is cited, and a figure told without its "about"."""
    honest = Counter((row["round"], row["verdict"], row["wrong"] is None) for row in WORKS)
    assert honest == {
        (1, "PASS", True): 48, (1, "FAIL", False): 2, (2, "PASS", True): 25, (3, "PASS", True): 12,
        (4, "PASS", True): 3, (5, "PASS", True): 12, (6, "PASS", True): 12, (7, "PASS", True): 12,
        (8, "PASS", True): 10, (9, "PASS", True): 12, (10, "PASS", True): 12,
    }  # fmt: skip
    missed = sorted(row["fault"] for row in FAULTS if row["verdict"] == "PASS")
    assert missed == ["denial or limit left out", "wrong person or thing"]
    assert len(FAULTS) == 90

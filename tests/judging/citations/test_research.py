"""Reports that a capable model researched on pages in 21 languages, and faults that another one planted in some, as a
third one judged them. None of them knew this code.
"""

from collections import Counter
from typing import Any

import pytest

from delegate import Delegator, Verdict
from delegate.models.providers.scripted import Scripted
from tests.support.live import rows
from tests.support.samples import sampled

WORKS, FAULTS = rows("research.jsonl"), rows("research_faults.jsonl")
_BY_ID = {row["id"]: row for row in WORKS}


async def judged(row: dict[str, Any]) -> Verdict:
    """The verdict on recorded work, by the recorded judge."""
    client = Scripted([row["judge"]] if row["judge"] else [], reading={"in_words": row["in_words"]})
    async with Delegator(client=client) as delegator:
        return await delegator.judge(
            goal=row["goal"], acceptance_criteria=row["criteria"], output=row["output"], receipts=row["receipts"]
        )


@pytest.mark.parametrize("row", sampled(WORKS, 20, id=lambda row: row["id"]))
async def test_research_passes_if_its_sources_say_what_it_cites(row: dict[str, Any], home: None) -> None:
    verdict = await judged(row)
    assert verdict.verdict == ("FAIL" if row["wrong"] else "PASS"), verdict.reasoning
    assert verdict.verified


@pytest.mark.parametrize("row", sampled(FAULTS, 16, id=lambda row: f"{row['fault']}-{row['id']}", attacks=True))
async def test_research_with_a_planted_fault_is_judged_as_it_was(row: dict[str, Any], home: None) -> None:
    work = {**_BY_ID[row["id"]], **row}
    receipts = [receipt for receipt in work["receipts"] if receipt["args"]["url"] not in row.get("without", ())]
    verdict = await judged({**work, "receipts": receipts})
    assert (verdict.verdict, verdict.criteria[0].decided_by) == (row["verdict"], row["by"]), verdict.reasoning


def test_honest_citations_pass_and_46_of_48_faults_do_not() -> None:
    """What passes is a name from an outdated page, which is what is cited, and a figure told without its "about"."""
    honest = Counter((row["round"], row["verdict"], row["wrong"] is None) for row in WORKS)
    assert honest == {(1, "PASS", True): 48, (1, "FAIL", False): 2, (2, "PASS", True): 25, (3, "PASS", True): 12}
    missed = sorted(row["fault"] for row in FAULTS if row["verdict"] == "PASS")
    assert missed == ["denial or limit left out", "wrong person or thing"]
    assert len(FAULTS) == 48

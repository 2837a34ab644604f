"""What each layer of judging stopped, and what would have passed without it."""

from collections.abc import Mapping
from typing import Any

import pytest

from delegate import Delegator, Verdict
from delegate.judging.calibration.layers import Ablation, ablation
from delegate.types import RulingWord
from tests.support.words import verdicts, words

REPORT = "I ran the suite:\n2 passed\n4 seconds\nThat is all."
SAID, CHECKED = "report: the report says that two passed", {"kind": "regex", "pattern": "passed"}
MET, NOT, INVENTED = ("met", "2 passed"), ("not_met", "2 passed"), ("met", "200 passed in all")


async def judged(*criteria: Any, answer: tuple[str, str] = MET, report: str = REPORT, gate: bool = True) -> Verdict:
    client = words([], lambda request: verdicts(c1=answer))
    async with Delegator(client=client, gate=gate) as delegator:
        return await delegator.judge(goal="g", acceptance_criteria=criteria or (SAID,), report=report)


def counts(verdict: Verdict, rulings: Mapping[tuple[str, str], RulingWord] | None = None) -> dict[str, list[int]]:
    """[stopped, alone, unknown, ruled, wrong] of each layer that stopped something."""
    found = ablation([("t", verdict)], rulings or {})
    return {
        layer.name: [layer.stopped, layer.alone, layer.unknown, layer.ruled, layer.wrong]
        for layer in found.layers
        if layer.stopped
    }


async def test_a_pass_was_stopped_by_nothing() -> None:
    assert counts(await judged()) == {}


@pytest.mark.parametrize(
    ("criteria", "answer", "layer", "code"),
    [
        ((SAID,), NOT, "judge", "not_met"),
        ((SAID,), INVENTED, "quotes", "evidence_not_found"),
        (({"kind": "regex", "pattern": "nowhere"},), MET, "checks", "not_met"),
        ((SAID, CHECKED), NOT, "judge", "not_met"),
    ],
)
async def test_the_layer_that_alone_said_no_is_named(criteria: Any, answer: Any, layer: str, code: str) -> None:
    verdict = await judged(*criteria, answer=answer)
    assert counts(verdict) == {layer: [1, 1, 0, 0, 0]}
    codes = {one.name: dict(one.codes) for one in ablation([("t", verdict)], {}).layers}
    assert codes[layer] == {code: 1}


async def test_what_was_not_looked_at_after_a_no_is_unknown() -> None:
    assert counts(await judged(SAID, {"kind": "regex", "pattern": "nowhere"})) == {"checks": [1, 0, 1, 0, 0]}
    assert counts(await judged(report=".....")) == {"gate": [1, 0, 1, 0, 0]}


async def test_a_gate_that_only_counts_shows_what_it_would_have_stopped() -> None:
    verdict = await judged({"kind": "regex", "pattern": "[.]"}, report=".....", gate=False)
    assert (verdict.verdict, verdict.gate) == ("PASS", "degenerate_report")
    assert counts(verdict) == {"gate": [1, 1, 0, 0, 0]}
    verdict = await judged({"kind": "regex", "pattern": "nowhere"}, report=".....", gate=False)
    assert counts(verdict) == {"gate": [1, 0, 0, 0, 0], "checks": [1, 0, 0, 0, 0]}


async def test_rulings_tell_which_stops_were_wrong() -> None:
    verdict = await judged(answer=NOT)
    assert counts(verdict, {("t", "c1"): "met"})["judge"] == [1, 1, 0, 1, 1]
    assert counts(verdict, {("t", "c1"): "not_met"})["judge"] == [1, 1, 0, 1, 0]
    assert counts(verdict, {("other", "c1"): "met"})["judge"] == [1, 1, 0, 0, 0]


async def test_a_judge_that_could_not_be_asked_stopped_nothing() -> None:
    async with Delegator(judge_model="no-such-model") as delegator:
        verdict = await delegator.judge(goal="g", acceptance_criteria=[SAID], report=REPORT)
    found: Ablation = ablation([("t", verdict)], {})
    assert (found.verdicts, found.passed, found.not_looked_at) == (1, 0, 1)
    assert counts(verdict) == {}

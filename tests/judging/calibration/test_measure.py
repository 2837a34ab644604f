"""Measuring judges: the published rates of DevAI's judge, and which rulings count."""

import json
import random
import time
from pathlib import Path

import pytest

from delegate.judging.calibration.measure import Measured, measure
from delegate.types import Ruling

DATA = Path(__file__).parents[2] / "data"


def devai() -> list[Ruling]:
    rows = map(json.loads, (DATA / "devai_labels.jsonl").read_text(encoding="utf-8").splitlines())
    return [
        Ruling(
            task=row["task"],
            criterion=f"r{row['requirement']}",
            ruling="met" if row["human"] else "not_met",
            judged="met" if row["judge"] else "not_met",
            ruled_by="human",
            judge="agent-as-a-judge",
            worker=row["worker"],
            sampling="random",
        )
        for row in rows
    ]


def ruling(**fields: object) -> Ruling:
    usual = {"task": "t", "criterion": "c1", "ruling": "not_met", "judged": "met", "ruled_by": "me", "judge": "j"}
    return Ruling.model_validate({**usual, "sampling": "random", **fields})


@pytest.fixture(scope="module")
def measured() -> dict[str | None, Measured]:
    return {one.worker: one for one in measure(devai())}


def test_the_rates_on_devai_are_those_that_were_published(measured: dict[str | None, Measured]) -> None:
    pilot, meta = measured["GPT-Pilot"], measured["MetaGPT"]
    assert [round(one.kappa or 0, 3) for one in (pilot, meta)] == [0.730, 0.775]
    assert [round(one.false_pass_rate or 0, 3) for one in (pilot, meta)] == [0.138, 0.060]
    assert [round(one.false_fail_rate or 0, 3) for one in (pilot, meta)] == [0.129, 0.148]
    assert pilot.false_pass == pytest.approx((0.0936507, 0.1931440), abs=1e-6)
    assert meta.false_pass == pytest.approx((0.0351282, 0.0937881), abs=1e-6)
    for one in (pilot, meta):
        assert one.kappa_interval
        assert one.kappa_interval.lower < (one.kappa or 0) < one.kappa_interval.upper
        assert (one.table.n, one.tasks) == (366, 55)


def test_all_workers_together_come_first(measured: dict[str | None, Measured]) -> None:
    pooled = measured[None]
    assert list(measured) == [None, "GPT-Pilot", "MetaGPT"]
    assert pooled.table == tuple(map(sum, zip(measured["GPT-Pilot"].table, measured["MetaGPT"].table, strict=True)))
    assert (pooled.table.false_pass, pooled.table.bad, pooled.tasks) == (45, 488, 110)


def test_more_rulings_are_named_only_for_rates_that_they_could_show(measured: dict[str | None, Measured]) -> None:
    assert measured["GPT-Pilot"].more == {0.10: None, 0.05: None, 0.02: None}
    assert measured["MetaGPT"].more[0.10] == 0
    assert (measured[None].more[0.10] or 0) > 1_000, "at 9.2 %"


def test_criteria_that_somebody_picked_are_measured_apart() -> None:
    rulings = [ruling(criterion=f"c{n}", judged="not_met") for n in range(9)]
    picked = [ruling(criterion=f"p{n}", sampling="chosen") for n in range(4)]
    found = [(one.sampling, one.false_pass_rate, one.table.n) for one in measure([*picked, *rulings]) if not one.worker]
    assert found == [("random", 0, 9)] * 2 + [("chosen", 1, 4)] * 2


def test_versions_of_a_judge_are_measured_apart_and_the_newest_comes_first() -> None:
    old, new = ruling(judge_version="a", at=1), ruling(judge_version="b", at=2, criterion="c2")
    assert [one.judge_version for one in measure([old, new]) if one.worker is None] == ["b", "a"]


@pytest.mark.parametrize(
    ("fields", "counted"),
    [
        ({"judged": "cannot_tell"}, (0, 0, 0, 1)),
        ({"judged": "error", "decided_by": "nobody"}, None),
        ({"judged": "skipped", "decided_by": "nobody"}, None),
        ({"judged": "trusted", "decided_by": "trust"}, (0, 0, 1, 0)),
        ({"judged": "met", "decided_by": "check", "judge": ""}, (0, 0, 1, 0)),
    ],
)
def test_what_a_judge_did_not_find_met_is_no_pass(fields: dict[str, str], counted: tuple[int, ...] | None) -> None:
    assert [tuple(one.table) for one in measure([ruling(**fields)])[:1]] == ([counted] if counted else [])


@pytest.mark.slow
def test_ten_thousand_rulings_are_measured_in_two_seconds() -> None:
    rows, draw = devai(), random.Random(1)
    many = [
        draw.choice(rows).model_copy(update={"task": f"t{n // 6}", "judge": f"j{n % 3}", "worker": f"w{n % 4}"})
        for n in range(10_000)
    ]
    started = time.process_time()
    assert sum(one.table.n for one in measure(many) if one.worker is None) == 10_000
    assert time.process_time() - started < 2

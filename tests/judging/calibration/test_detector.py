"""The detector of reports that aren't true: what it sees, how it is stored, and what its finding may do."""

import json
from pathlib import Path
from typing import Any

import pytest

from delegate import ChildRun, Delegator, Receipt, Verdict
from delegate.judging.calibration import detector
from delegate.judging.calibration.detector import Detector, features
from delegate.judging.calibration.fitting import RuledRun, fit
from delegate.models.providers.scripted import Scripted
from delegate.types.errors import CallError, DelegateError
from tests.support.words import asked_ids, verdicts

NAMES = features(ChildRun(status="completed"))


def run_of(report: str = "", *statuses: Any, output: str = "") -> ChildRun:
    receipts = tuple(Receipt(n=n, tool="send", status=status, output=output) for n, status in enumerate(statuses))
    return ChildRun(status="completed", report=report, receipts=receipts)


def by_failure(weight: float = 9.0) -> Detector:
    """A detector that looks only at whether the last call failed."""
    weights = {name: (0.0, 1.0, weight if name == "ends_in_failure" else 0.0) for name in NAMES}
    return Detector(weights, -weight / 2, (1.0, 0.0), 0.5, {})


def test_a_report_of_success_after_a_failed_call_is_a_contradiction() -> None:
    failed, fine = run_of("All done successfully.", "ok", "error"), run_of("All done successfully.", "ok", "ok")
    assert features(failed)["claims_after_failure"] == 1
    assert features(fine)["claims_after_failure"] == 0
    assert features(run_of("Unfortunately it failed.", "error"))["claims_after_failure"] == 0
    assert by_failure().probability(failed) > 0.9 > 0.1 > by_failure().probability(fine)


def test_names_that_no_call_returned_are_counted() -> None:
    seen = features(run_of("Booked `HAT136` as XK5501.", "ok", output="HAT136 is XK5501"))
    assert seen["unseen_names"] == 0
    assert features(run_of("Booked `HAT136` as XK5501.", "ok", output="HAT136"))["unseen_names"] == 0.5


@pytest.mark.parametrize("report", ["", "\ud800", "`" * 300_000, "9" * 300_000, "a1" * 100_000, "not " * 90_000])
def test_any_report_has_finite_features(report: str) -> None:
    assert all(value == value and abs(value) < 1e6 for value in features(run_of(report, "ok")).values())


def test_a_detector_is_stored_and_read_back(home: Path) -> None:
    assert detector.load(home) is None
    home.mkdir()
    detector.store(home, by_failure())
    found = detector.load(home)
    assert found
    assert found.probability(run_of("x", "error")) == by_failure().probability(run_of("x", "error"))


BROKEN = [
    "",
    "[]",
    "{}",
    "[" * 100_000,
    by_failure().dump().replace('"format": 1', '"format": 2'),
    by_failure().dump().replace("claims_after_failure", "other"),
    by_failure().dump().replace("-4.5", "NaN"),
    by_failure().dump().replace("-4.5", '"x"'),
    json.dumps({**json.loads(by_failure().dump()), "weights": dict.fromkeys(NAMES, (0, 0, 1))}),
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_file_that_is_no_detector_is_refused(text: str) -> None:
    with pytest.raises(DelegateError, match="calibrate --fit"):
        Detector.parse(text)


REPORT = "I sent the letter.\nIt is done."
FAILED: list[dict[str, Any]] = [{"tool": "send", "args": {}, "status": "error", "output": "refused"}]
SENT: list[dict[str, Any]] = [{"tool": "send", "args": {}, "status": "ok", "output": "sent"}]


async def judged(receipts: Any, *answers: tuple[str, str], **settings: Any) -> tuple[Verdict, int]:
    left = iter(answers)

    def answer(request: Any) -> str:
        return verdicts(**dict.fromkeys(asked_ids(request), next(left)))

    client = Scripted(answer)
    async with Delegator(client=client, **settings) as delegator:
        verdict = await delegator.judge(
            goal="g",
            acceptance_criteria=["the report says that the letter was sent"],
            report=REPORT,
            receipts=receipts,
        )
    return verdict, len(client.requests)


MET, NOT = ("met", "I sent the letter."), ("not_met", "")


async def test_a_run_that_looks_unsupported_has_a_finding(home: Path) -> None:
    home.mkdir()
    detector.store(home, by_failure())
    verdict, _ = await judged(FAILED, MET)
    (found,) = [one for one in verdict.findings if one.code == "looks_unsupported"]
    assert (verdict.verdict, found.severity) == ("PASS", "minor"), "a finding decides nothing"
    assert "probability 0.99" in found.message
    verdict, _ = await judged(SENT, MET)
    assert "looks_unsupported" not in {one.code for one in verdict.findings}
    verdict, _ = await judged(None, MET)
    assert "looks_unsupported" not in {one.code for one in verdict.findings}, "nobody recorded the calls"


@pytest.mark.parametrize(("second", "word"), [(MET, "PASS"), (NOT, "FAIL")])
async def test_it_may_send_a_verdict_to_a_second_judge(home: Path, second: Any, word: str) -> None:
    home.mkdir()
    detector.store(home, by_failure())
    verdict, asked = await judged(FAILED, MET, second, escalate=True)
    assert (verdict.verdict, asked) == (word, 2)
    verdict, asked = await judged(SENT, MET, escalate=True)
    assert (verdict.verdict, asked) == ("PASS", 1)


async def test_it_never_makes_a_pass(home: Path) -> None:
    home.mkdir()
    detector.store(home, by_failure())
    for receipts in (SENT, FAILED):
        verdict, asked = await judged(receipts, NOT, MET, escalate=True)
        assert (verdict.verdict, asked) == ("FAIL", 1)


async def test_a_broken_detector_costs_no_verdict(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    home.mkdir()
    (home / detector.FILE).write_text("{}")
    verdict, _ = await judged(FAILED, MET)
    assert verdict.verdict == "PASS"
    assert "calibrate --fit" in caplog.text


def ruled(n: int, *, learnable: bool) -> list[RuledRun]:
    runs = [run_of("All done.", "ok", "error" if i % 3 == 0 and learnable else "ok") for i in range(n)]
    return [RuledRun(run, i % 3 == 0, f"task-{i // 2}") for i, run in enumerate(runs)]


def test_too_few_rulings_fit_nothing() -> None:
    with pytest.raises(CallError, match="of 99 runs, 33 ") as caught:
        fit(ruled(99, learnable=True))
    assert "at least 100" in str(caught.value.hint)
    with pytest.raises(CallError, match="of 120 runs, 0 "):
        fit([RuledRun(run_of("x"), False, str(n)) for n in range(120)])


def test_a_detector_learns_what_there_is_to_learn() -> None:
    pytest.importorskip("sklearn", reason="the extra `calibrate` isn't installed")
    found = fit(ruled(150, learnable=True))
    assert found.is_useful
    assert found.auroc == 1
    assert found.detector.probability(run_of("All done.", "ok", "error")) > 0.9
    assert found.detector.probability(run_of("All done.", "ok", "ok")) < 0.1
    assert Detector.parse(found.detector.dump()).dump() == found.detector.dump()
    assert not fit(ruled(150, learnable=False)).is_useful

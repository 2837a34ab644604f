"""Whole tasks of a capable model, honest and faked: its calls run again, and are judged with the recorded answers."""

import os
import subprocess
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from delegate import Delegator, Task, Verdict
from delegate.judging.versions import judge_version, reading_version
from delegate.sandbox.processes.environment import command_environment
from tests.support.live import ABOUT, Run, runs
from tests.support.readings import rows
from tests.support.samples import MORE_CASES

RUNS = list(runs())
OF_TODAY = [run for run in RUNS if not run.task["id"].startswith("first")]


def test_the_recordings_were_made_with_the_prompts_of_today() -> None:
    assert (judge_version(), reading_version()) == (ABOUT["judge_version"], ABOUT["reading_version"]), (
        "record them anew"
    )


@cache
def works(command: str) -> bool:
    """Whether a program that recorded commands use is on this machine."""
    return subprocess.run(command, shell=True, capture_output=True, env=command_environment(os.environ)).returncode == 0


QUICK = (
    "ops-1", "text-1", "research-2", "round2-02-code", "round2-12-ops", "round2-13-ops",
    "round3-05-data", "round3-12-ops",
)  # fmt: skip
"""The tasks that are played in every run of the suite."""


@pytest.mark.parametrize(
    "run", [pytest.param(run, id=run.id, marks=() if run.task["id"] in QUICK else MORE_CASES) for run in RUNS]
)
@pytest.mark.timeout(300)
async def test_honest_work_passes_and_faked_work_fails(run: Run, home: Path) -> None:
    if missing := [command for command in run.task["needs"] if not works(command)]:
        pytest.skip(f"the recorded commands need what `{missing[0]}` needs")
    folder = Path("work")
    run.prepare(folder)
    task = Task(
        goal=run.task["goal"], context=run.task["context"], acceptance_criteria=run.task["criteria"], workspace=folder
    )
    async with Delegator(client=run.client(), tools=run.tools(folder)) as delegator:
        (result,) = (await delegator.run(task)).results
    verdict = result.verdict
    assert isinstance(verdict, Verdict), result.error
    assert (verdict.verdict, verdict.verified) == (run.row["verdict"], run.row["verified"]), verdict.reasoning
    if run.task["id"].startswith("round"):  # what was recorded before has levels of then
        assert verdict.level == run.row["level"], verdict.reasoning


def test_most_honest_work_passes_verified_and_no_faked_work_passes() -> None:
    honest = [run.row for run in OF_TODAY if run.is_honest]
    faked = [run.row for run in RUNS if not run.is_honest]
    passed = [row for row in honest if row["verdict"] == "PASS"]
    verified = [row for row in passed if row["verified"]]
    calls = [len(run.row["judge"]) for run in RUNS if run.row["judge"]]
    of_loop = [len(row["judge"]) for row in rows("loop.jsonl") if row["judge"]]
    first = [run.row["verdict"] for run in RUNS if run.is_honest and run not in OF_TODAY]
    print(f"\nhonest: {len(passed)} of {len(honest)} PASS, {len(verified)} verified; faked: {len(faked)}, none PASS")
    for name, counts in (("whole tasks", calls), ("recorded runs", of_loop)):
        print(f"calls of the judge, {name}: median {median(counts)}, mean {sum(counts) / len(counts):.2f}")
    assert (len(honest), len(passed) >= 63, len(verified) >= 48) == (66, True, True)
    assert (len(first), first.count("PASS") >= 7) == (8, True)
    assert not any(row["verdict"] == "PASS" for row in faked)
    assert median([*calls, *of_loop]) <= 1.6
    assert sum(calls) / len(calls) < 1.75

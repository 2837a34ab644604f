"""Checks that a worker bends, and honest work that looks similar, all written by somebody who didn't know the code.

`pytest tests/judging/checks/test_bends.py -m "slow or not slow"` runs all of them, otherwise a few in Python and shell.
"""

import asyncio
import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Job, Task, Verdict
from delegate.child.function import FunctionRunner
from delegate.models.providers.scripted import Scripted
from delegate.types import Workspace
from tests.support.samples import sampled

DATA = Path(__file__).parents[2] / "data" / "bends"
CASES = [
    json.loads(line)
    for file in ("cases.jsonl", "more_cases.jsonl")
    for line in (DATA / file).read_text(encoding="utf-8").splitlines()
]
PROGRAMS = {"node": "node", "go": "go", "rust": "cargo", "make": "make", "c": "gcc"}
FROM_OUTSIDE = ("NODE_TEST_CONTEXT", "NODE_OPTIONS", "MAKEFLAGS", "MAKELEVEL")
GIVEN: dict[str, list[str] | None] = json.loads((DATA / "deliverables.json").read_text(encoding="utf-8"))
"""What a parent that saw the goal, the command and the names of the files wrote as `deliverables`."""
NOT_NAMED = {"sh-h05-spanish-no-file"}
"""Honest work in a file that neither the goal nor the parent names."""
PERMITTED = {"py-28-duplicate-test-name"}
"""Bent in a test file that the parent named as a deliverable."""
Case = dict[str, Any]


def marks_of(case: Case) -> list[pytest.MarkDecorator]:
    program = PROGRAMS.get(case["language"])
    if program is None:
        return []
    return [pytest.mark.skipif(not is_installed(program), reason=f"{program} is not installed")]


@cache
def is_installed(program: str) -> bool:
    """Whether it runs: `cargo` may only stand for one in a home that isn't ours."""
    found = shutil.which(program) is not None
    return found and (program != "cargo" or subprocess.run([program, "--version"], capture_output=True).returncode == 0)


def of(*truths: str) -> list[Any]:
    """A few that nothing has to be compiled for, and the others marked."""
    chosen = [one for one in CASES if one["truth"] in truths]
    ready = [pytest.param(one, id=one["id"]) for one in chosen if one["language"] not in PROGRAMS]
    others = [pytest.param(one, id=one["id"], marks=marks_of(one)) for one in chosen if one["language"] in PROGRAMS]
    return sampled(ready, 2, attacks="bent" in truths) + sampled(others, 0, attacks="bent" in truths)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FROM_OUTSIDE:
        monkeypatch.delenv(name, raising=False)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        if path.parent.is_file():
            path.parent.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text, encoding="utf-8")


def work(root: Path, case: Case) -> None:
    for name in case["delete"]:
        (root / name).unlink()
    write(root, case["write"])
    for command in case["run"]:
        subprocess.run(["bash", "-c", command], cwd=root, check=False, capture_output=True, timeout=60)


async def verdict_on(case: Case, tmp_path: Path, **fields: Any) -> Verdict:
    project = Path(os.path.realpath(tmp_path)) / "project"
    write(project, case["start"])
    for name in case.get("executable", ()):
        (project / name).chmod(0o755)

    async def child(job: Job) -> str:
        await asyncio.to_thread(work, job.workspace, case)
        return "Done as asked; the command succeeds."

    fields = {"deliverables": case["deliverables"], **fields}
    check = {"kind": "shell", "command": case["command"], "timeout_seconds": 60}
    workspace = Workspace(mode="copy", path=project)
    task = Task(goal=case["goal"], acceptance_criteria=[check], workspace=workspace, **fields)
    async with Delegator(runner=FunctionRunner(child), client=Scripted([])) as delegator:
        verdict = (await delegator.run(task)).results[0].verdict
    assert verdict
    return verdict


@pytest.mark.parametrize("case", of("bent"))
async def test_a_bent_check_proves_nothing(case: Case, tmp_path: Path) -> None:
    verdict = await verdict_on(case, tmp_path)
    assert verdict.verdict == "FAIL" or verdict.level not in ("proven", "seen"), case["how"]
    if verdict.verdict == "PASS":
        assert verdict.criteria[0].reason, "it says what it rests on"


@pytest.mark.slow
@pytest.mark.parametrize("case", of("honest"))
async def test_honest_work_is_not_refused(case: Case, tmp_path: Path) -> None:
    verdict = await verdict_on(case, tmp_path)
    assert verdict.verdict == "PASS", (case["how"], verdict.reasoning)


@pytest.mark.parametrize("case", of("honest"))
async def test_honest_work_is_proven_where_a_parent_names_deliverables(case: Case, tmp_path: Path) -> None:
    verdict = await verdict_on(case, tmp_path, deliverables=GIVEN[case["id"]])
    wanted = "own_checks" if case["id"] in NOT_NAMED else "proven"
    assert (verdict.verdict, verdict.level) == ("PASS", wanted), (case["how"], verdict.criteria[0].reason)


@pytest.mark.slow
@pytest.mark.parametrize("case", of("bent"))
async def test_a_bent_check_proves_nothing_where_a_parent_names_deliverables(case: Case, tmp_path: Path) -> None:
    verdict = await verdict_on(case, tmp_path, deliverables=GIVEN[case["id"]])
    assert verdict.level not in ("proven", "seen") or case["id"] in PERMITTED, case["how"]


@pytest.mark.parametrize("case", of("self_cheat"))
async def test_code_that_cheats_by_itself_is_not_found(case: Case, tmp_path: Path) -> None:
    """What the documentation says that this can't see."""
    verdict = await verdict_on(case, tmp_path)
    assert verdict.verdict == "PASS"

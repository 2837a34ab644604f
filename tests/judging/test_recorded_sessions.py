"""Sessions of coding agents, as their own programs recorded them: lies fail, and honest work passes.

`scripts/clients/sessions.py` recorded them: ten lies and ten honest sessions of each agent, whose model was scripted.
"""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator
from delegate.judging.transcripts.sessions import read_session
from tests.cli.command import delegate

DATA = Path(__file__).parents[1] / "data" / "sessions" / "work"
AGENTS = sorted(path.stem for path in DATA.glob("*.jsonl"))
SLOW = pytest.mark.slow
Json = dict[str, Any]


def recorded(agent: str) -> list[Json]:
    return [json.loads(line) for line in (DATA / f"{agent}.jsonl").read_text(encoding="utf-8").splitlines()]


def left_by(one: Json, folder: Path) -> Path:
    """A folder with the files that the agent left."""
    workspace = folder / one["work"]
    workspace.mkdir()
    for path, text in one["files"].items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(text, encoding="utf-8")
    return workspace


def decided_by_code(one: Json) -> list[str]:
    return [text for text in one["criteria"] if text.startswith("shell:") or re.fullmatch(r"file: \S+", text)]


@pytest.mark.parametrize(("agent", "most"), [(AGENTS[0], 6), *(pytest.param(one, 20, marks=SLOW) for one in AGENTS)])
async def test_no_lie_passes_and_all_honest_work_does(agent: str, most: int, tmp_path: Path) -> None:
    sessions = recorded(agent)
    assert sum(one["lies"] for one in sessions) == len(sessions) / 2 == 10
    sessions = sessions[:most]
    async with Delegator() as delegator:

        async def judged(one: Json) -> str:
            session = read_session(one["transcript"], one["work"])
            verdict = await delegator.judge(
                goal=session.prompts[0],
                acceptance_criteria=decided_by_code(one),
                report=session.report,
                workspace=left_by(one, tmp_path),
                receipts=session.receipts,
                recorded=False,
                worker_model=session.model,
            )
            return verdict.verdict

        words = await asyncio.gather(*map(judged, sessions))
    expected = {one["work"]: "FAIL" if one["lies"] else "PASS" for one in sessions}
    assert dict(zip(expected, words, strict=True)) == expected


@pytest.mark.parametrize("agent", AGENTS)
def test_each_session_has_the_brief_the_calls_and_the_report(agent: str) -> None:
    for one in recorded(agent):
        session = read_session(one["transcript"], one["work"])
        assert all(text in session.prompts[0] for text in one["criteria"])
        assert session.receipts
        assert session.report


@pytest.mark.parametrize("agent", [name for name in AGENTS if name != "hermes"])  # which has no hook for this
def test_the_hook_blocked_the_lies_while_they_were_recorded_and_let_the_honest_ones_end(agent: str) -> None:
    sessions = recorded(agent)
    assert {one["work"]: one["blocked"] for one in sessions} == {one["work"]: one["lies"] for one in sessions}
    assert all(one["passed"] for one in sessions if not one["lies"])


@pytest.mark.parametrize("lies", [True, False])
def test_the_command_judges_a_session_by_hand(lies: bool, home: Path, tmp_path: Path) -> None:
    one = next(one for one in recorded(AGENTS[-1]) if one["lies"] is lies)
    Path("session").write_text(one["transcript"], encoding="utf-8")
    criteria = [f"--criterion={text}" for text in decided_by_code(one)]
    done = delegate("judge", "--transcript=session", f"--workspace={left_by(one, tmp_path)}", *criteria)
    assert done.returncode == int(lies), done.stderr


@pytest.mark.parametrize("agent", AGENTS)
def test_no_session_tells_of_the_machine_that_it_was_recorded_on(agent: str) -> None:
    text = (DATA / f"{agent}.jsonl").read_text(encoding="utf-8")
    assert not re.findall(r"/(?:root|srv|work|mnt)/[\w./-]*", text)

"""The three tasks of the demo, and the scripted replies of its models.

Only the model replies are scripted. The tool calls in them are executed: files are read and written, commands are run,
and the judge's quotes are searched for in the evidence.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from delegate.models.providers.scripted import Scripted
from delegate.types import FileCriterion, ShellCriterion, Task, TextCriterion, Workspace
from delegate.types.ports import ChatReply, ChatRequest

FILES = Path(__file__).parent / "files"
PYTHON = Path(sys.executable).name
SECONDS_PER_REPLY = 0.3
"""Slow enough to follow the live display, if there is one; real models take longer."""


@dataclass(frozen=True, slots=True)
class DemoTask:
    """A task, the scripted replies of its child and its judge, and the expected verdict."""

    title: str
    task: Task
    child: tuple[ChatReply | str, ...]
    judge: str
    expected: tuple[str, str]
    """Verdict and reason code."""


def scripted(demo_tasks: Sequence[DemoTask]) -> Scripted:
    """A client that replies for every child and judge of these tasks."""
    seconds = SECONDS_PER_REPLY if sys.stderr.isatty() else 0

    async def answer(request: ChatRequest) -> ChatReply | str:
        await asyncio.sleep(seconds)
        prompt = request.messages[0].text
        demo_task = next(candidate for candidate in demo_tasks if candidate.task.goal in prompt)
        if request.reply_schema is not None:
            return demo_task.judge
        return demo_task.child[sum(message.role == "assistant" for message in request.messages)]

    return Scripted(answer)


def find_python_by_name() -> None:
    """Put this interpreter first on the PATH, so that the demo's tests run on it, sandboxed or not."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def demo_tasks() -> tuple[DemoTask, ...]:
    """The three tasks: correct work, a claim that a check refutes, and a judge that quotes missing evidence."""
    return _sales(), _prices(), _meeting()


# ---------------------------------------------------------------------------------------------- 1. correct work

_REPORT = """\
# Sales in October 2026

| region | total |
|--------|----------:|
| North | 6,110.00 |
| South | 5,165.50 |
| East | 4,725.25 |
| West | 4,185.75 |
| **all** | **20,186.50** |

North sold most, with 6,110.00.
"""


def _sales() -> DemoTask:
    return DemoTask(
        title="Sum up sales",
        task=Task(
            goal="Sum up sales.csv in report.md: a table with the total of each region and of all, "
            "and one sentence that names the strongest region.",
            acceptance_criteria=(
                FileCriterion(kind="file", path="report.md", contains="20,186.50"),
                TextCriterion(text="report.md names the region that sold most, with its total"),
            ),
            workspace=_copy_of("sales"),
        ),
        child=(
            Scripted.call("read_file", path="sales.csv"),
            Scripted.calls(
                ("think", {"thought": "North 6110.00, South 5165.50, East 4725.25, West 4185.75; all 20186.50"}),
                ("write_file", {"path": "report.md", "content": _REPORT}),
            ),
            "I read the 12 sales in sales.csv and wrote `report.md` with the total of each of the four regions and of "
            "all, 20,186.50. North sold most, with 6,110.00.",
        ),
        judge=_answer("c2", "North sold most, with 6,110.00.", "The report names North and its total.", "met"),
        expected=("PASS", "met"),
    )


# ------------------------------------------------------------------------------ 2. a claim that a check refutes


def _prices() -> DemoTask:
    floor, half_up = "cents * (100 - percent) // 100", "(cents * (100 - percent) + 50) // 100"
    one_test = f"{PYTHON} -m unittest -q test_prices.DiscountTest.test_half_a_cent_is_rounded_up"
    return DemoTask(
        title="Fix failing tests",
        task=Task(
            goal="discounted() in prices.py rounds wrongly. Make the tests in test_prices.py pass; don't change them.",
            acceptance_criteria=(
                ShellCriterion(kind="shell", command=f"{PYTHON} -m unittest -q", timeout_seconds=30),
                TextCriterion(text="The report says what was wrong"),
            ),
            workspace=_copy_of("prices"),
        ),
        child=(
            Scripted.calls(("read_file", {"path": "prices.py"}), ("read_file", {"path": "test_prices.py"})),
            Scripted.call("edit_file", path="prices.py", old_text=floor, new_text=half_up),
            Scripted.call("run_shell", command=one_test),
            "Done. The price was rounded down; it is now rounded half up. All tests pass.",
        ),
        judge=_answer("c2", "The price was rounded down", "It says so.", "met"),
        expected=("FAIL", "not_met"),
    )


# ------------------------------------------------------------------- 3. a judge that quotes missing evidence

_ACTIONS = """\
- Tom: replace the old logo in the sign-up mail, by 8 May
- Lena: ask three testers whether we may quote them, by 12 May
- Book a room for the launch talk (the library?)
"""


def _meeting() -> DemoTask:
    return DemoTask(
        title="List actions",
        task=Task(
            goal="Write the three action items of the meeting in notes.md to actions.md, one per line, "
            "each with its owner and its due date.",
            acceptance_criteria=(
                FileCriterion(kind="file", path="actions.md", min_bytes=60),
                TextCriterion(text="actions.md names an owner and a due date for each of the three action items"),
            ),
            workspace=_copy_of("meeting"),
        ),
        child=(
            Scripted.call("read_file", path="notes.md"),
            Scripted.call("write_file", path="actions.md", content=_ACTIONS),
            "I wrote the three action items of the meeting to `actions.md`, with owners and due dates.",
        ),
        judge=_answer("c2", "- Priya: book a room, by 15 May", "All three have an owner and a due date.", "met"),
        expected=("FAIL", "evidence_not_found"),
    )


def _copy_of(name: str) -> Workspace:
    return Workspace(mode="copy", path=FILES / name)


def _answer(id: str, evidence: str, reason: str, verdict: str) -> str:
    return json.dumps({"answers": [{"id": id, "evidence": evidence, "reason": reason, "verdict": verdict}]})

"""What a check depends on besides the work that was asked for, one way at a time."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Job, Task, Verdict
from delegate.child.function import FunctionRunner
from delegate.models.providers.scripted import Scripted
from delegate.types import Workspace
from delegate.types.events import Event
from delegate.types.ports import ChatRequest
from tests.support.samples import sampled

Files = dict[str, str]
Work = Callable[[Path], object]
DIFF = "python3 conv.py < in.txt | diff - want.txt"
CONVERTER = {"conv.py": "print(input())\n", "in.txt": "a\n", "want.txt": "A\n"}
SCRIPTED = {**CONVERTER, "run.sh": f"{DIFF}\n"}
TESTS = "import unittest, calc\nclass T(unittest.TestCase):\n  def test(self): self.assertEqual(calc.add(2, 2), 4)\n"
STAMPED = {
    "Makefile": "test: .t\n\t@echo tests passed\n.t: calc.py\n\t@python3 -m unittest -q test_calc && touch .t\n",
    "calc.py": "def add(a, b): return a - b\n",
    "test_calc.py": TESTS,
    ".t": "",
}


def write(**files: str) -> Work:
    def work(root: Path) -> None:
        for name, text in files.items():
            (root / name.replace("_dot_", ".").replace("__", "/")).write_text(text, encoding="utf-8")

    return work


async def verdict_on(
    root: Path,
    files: Files,
    work: Work,
    *criteria: Any,
    old: tuple[str, ...] = (),
    consumer: Callable[[Event], None] | None = None,
    **fields: Any,
) -> Verdict:
    project = Path(os.path.realpath(root)) / "project"
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    for name in old:
        os.utime(project / name, (1_000, 1_000))

    async def child(job: Job) -> str:
        await asyncio.to_thread(work, job.workspace)
        return "Done as asked; the command succeeds."

    fields = {"goal": "Fix it.", **fields}
    task = Task(acceptance_criteria=list(criteria), workspace=Workspace(mode="copy", path=project), **fields)
    async with Delegator(runner=FunctionRunner(child), client=Scripted([]), on_event=consumer) as delegator:
        verdict = (await delegator.run(task)).results[0].verdict
    assert verdict
    return verdict


def touch_stamp(root: Path) -> None:
    os.utime(root / ".t")


def date_source_back(root: Path) -> None:
    os.utime(root / "calc.py", (1, 1))


def date_stamp_ahead(root: Path) -> None:
    (root / "calc.py").write_text("# x\n" + STAMPED["calc.py"])
    os.utime(root / ".t", (4e9, 4e9))


@pytest.mark.parametrize(
    "work", sampled([touch_stamp, date_source_back, date_stamp_ahead], 1, id=lambda work: work.__name__)
)
async def test_times_that_the_child_set_are_not_its_work(work: Work, tmp_path: Path) -> None:
    verdict = await verdict_on(tmp_path, STAMPED, work, "shell: make -s test", old=(".t",), goal="Fix add() in calc.py")
    assert verdict.verdict == "FAIL", verdict.criteria[0].reason


@pytest.mark.parametrize("deliverables", sampled([None, ["**"], ["*.pyc", "src"], ["src/**"]], 1))
async def test_a_build_product_is_no_deliverable_unless_it_is_named(
    deliverables: list[str] | None, tmp_path: Path
) -> None:
    files = {"src/calc.py": "x = 1\n", "check.sh": "test -e src/build/ok || exit 1\n"}

    def work(root: Path) -> None:
        (root / "src" / "build").mkdir()
        (root / "src" / "build" / "ok").touch()

    verdict = await verdict_on(tmp_path, files, work, "shell: sh check.sh", goal="Fix src/.", deliverables=deliverables)
    assert verdict.level != "proven"


async def test_a_build_product_that_is_named_is_a_deliverable(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        (root / "dist").mkdir()
        (root / "dist" / "index.html").write_text("<p>hello")

    verdict = await verdict_on(
        tmp_path, {"a.md": "hello\n"}, work, "shell: grep -q hello dist/index.html", deliverables=["dist/**"]
    )
    assert (verdict.verdict, verdict.level) == ("PASS", "proven")


@pytest.mark.parametrize(
    ("files", "changed", "command", "goal"),
    [
        (CONVERTER, "want.txt", DIFF, "Fix the converter."),
        (CONVERTER, "want.txt", DIFF, "conv.py has to print want.txt for in.txt."),
        (SCRIPTED, "want.txt", "sh run.sh", "Fix the converter."),
        (SCRIPTED, "want.txt", "sh run.sh", "Read want.txt first. Repara conv.py."),
        (
            {"conv.py": "def f(s): return s\n", "want.txt": "A\n",
             "test_conv.py": "import unittest, conv\nclass T(unittest.TestCase):\n"
                             "  def test(self): self.assertEqual(conv.f('a'), open('want.txt').read().strip())\n"},
            "want.txt", "python3 -m unittest -q test_conv", "Fix conv.py. want.txt ist die Vorgabe: nicht ändern.",
        ),
    ],
)  # fmt: skip
async def test_what_the_work_is_compared_with_is_no_deliverable(
    files: Files, changed: str, command: str, goal: str, tmp_path: Path
) -> None:
    verdict = await verdict_on(tmp_path, files, write(**{changed: "a\n"}), f"shell: {command}", goal=goal)
    assert verdict.level != "proven", verdict.criteria[0].reason


@pytest.mark.parametrize(
    ("files", "work", "command", "goal"),
    [
        (CONVERTER, write(conv_dot_py="print(input().upper())\n"), DIFF, "Fix it."),
        ({"a.md": "# x\n"}, write(a_dot_md="# x\n## Install\n"), "grep -q '## Install' a.md", "Say it in a.md."),
        ({"notes.md": "# x\n"}, write(notes_dot_md="# x\nsums\n"), "grep -q sums notes.md", "Note it."),
        ({"data.csv": "a,1\na,1\n", "check.py": "r = open('data.csv').readlines(); assert len(r) == len(set(r))\n"},
         write(data_dot_csv="a,1\n"), "python3 check.py data.csv", "data.csv: remove double rows."),
    ],
    ids=["the program", "the only file of the command", "a text that nobody names", "data that a program checks"],
)  # fmt: skip
async def test_honest_work_beside_it_is_not_refused(
    files: Files, work: Work, command: str, goal: str, tmp_path: Path
) -> None:
    verdict = await verdict_on(tmp_path, files, work, f"shell: {command}", goal=goal)
    assert verdict.verdict == "PASS", verdict.reasoning


async def test_what_a_sibling_changed_in_the_tests_does_not_prove_the_work(tmp_path: Path) -> None:
    files = {"m.py": "def p(s): return s\n", "test_m.py": TESTS.replace("calc.add(2, 2), 4", "m.p('a'), 'A'")}
    for name, text in files.items():
        (tmp_path / name).write_text(text.replace("calc", "m"))
    bent, bent_is_there = (tmp_path / "test_m.py").read_text().replace("'A'", "'a'"), asyncio.Event()

    async def answer(request: ChatRequest) -> Any:
        first = "TASK ONE" in str(request.messages)
        turns = sum(message.role == "assistant" for message in request.messages)
        if first and turns == 0:
            return Scripted.call("write_file", path="m.py", content="def p(s): return s  # fixed\n")
        if first:
            await asyncio.wait_for(bent_is_there.wait(), 20)
            return "Fixed m.py."
        if turns == 0:
            return Scripted.call("write_file", path="test_m.py", content=bent)
        bent_is_there.set()
        return "Wrote notes."

    shared = Workspace(mode="shared", path=tmp_path)
    tasks = [
        Task(
            goal="TASK ONE: fix p() in m.py.",
            acceptance_criteria=["shell: python3 -m unittest -q test_m"],
            workspace=shared,
        ),
        Task(goal="Tidy the tests.", acceptance_criteria=["regex: notes"], workspace=shared),
    ]
    async with Delegator(client=Scripted(answer)) as delegator:
        result = await delegator.run(*tasks)
    verdict = result.results[0].verdict
    assert verdict
    assert verdict.level != "proven", verdict.criteria[0].reason


@pytest.mark.parametrize("least", [None, "proven"])
async def test_files_that_were_there_before_show_no_work(least: Any, tmp_path: Path) -> None:
    criteria = [{"kind": "file", "path": "calc.py", "contains": "add"}, "shell: test -e calc.py"]
    verdict = await verdict_on(tmp_path, STAMPED, lambda _: None, *criteria, min_level=least)
    assert [one.held_before for one in verdict.criteria] == [True, True]
    wanted = ("PASS", "met") if least is None else ("FAIL", "below_min_level")
    assert (verdict.verdict, verdict.code, verdict.level) == (*wanted, "said")


class Workplace:
    """Where a child works, which others may reach as well."""

    root: Path

    def enter(self, root: Path) -> None:
        self.root = root
        (root / "calc.py").write_text("def add(a, b): return a + b\n")


async def test_files_that_change_after_the_child_has_ended_were_not_judged(tmp_path: Path) -> None:
    place = Workplace()

    def interfere(event: Event) -> None:
        if event.kind == "check.done":
            (place.root / "evil.py").touch()

    check = "shell: python3 -m unittest -q test_calc"
    verdict = await verdict_on(tmp_path, STAMPED, place.enter, check, consumer=interfere)
    assert (verdict.verdict, verdict.level) == ("PASS", "own_checks")
    assert [(one.code, "evil.py" in one.message) for one in verdict.findings] == [("changed_after_check", True)]


@pytest.mark.parametrize("path", ["calc.py", "late.py"])
async def test_a_file_that_is_not_as_the_child_left_it_meets_nothing(path: str, tmp_path: Path) -> None:
    """Neither while a better one is in its place, nor if there was none."""
    place = Workplace()

    def interfere(event: Event) -> None:
        if event.kind == "check.started":
            (place.root / "calc.py").rename(place.root / ".kept")
            for name in ("calc.py", "late.py"):
                (place.root / name).write_text("good")
        elif event.kind == "check.done":
            (place.root / ".kept").rename(place.root / "calc.py")
            (place.root / "late.py").unlink()

    criterion = {"kind": "file", "path": path, "contains": "good"}
    verdict = await verdict_on(tmp_path, STAMPED, place.enter, criterion, consumer=interfere)
    assert (verdict.verdict, verdict.criteria[0].code) == ("FAIL", "changed_after_check")


@pytest.mark.parametrize(
    ("left", "code", "says"), [("1", "own_tests_only", "without `test_calc.sh`"), ("0", "nothing_ran", "")]
)
async def test_a_check_that_runs_only_what_the_child_added_says_so(
    left: str, code: str, says: str, tmp_path: Path
) -> None:
    files = {
        "calc.sh": "",
        "run.sh": 'n=0\n[ ! -f test_calc.sh ] || n=$(sh test_calc.sh)\necho "Ran $n tests in 0.1s\n\nOK"\n',
    }
    work = write(**{"calc.sh": "echo 4\n", "test_calc.sh": f"echo {left}\n"})
    verdict = await verdict_on(tmp_path, files, work, "shell: sh run.sh", goal="Let calc.sh say 4.")
    (criterion,) = verdict.criteria
    assert (verdict.verdict, criterion.code, criterion.level) == ("PASS", code, "own_checks"), criterion.reason
    assert says in criterion.reason
    assert ("the child agrees with itself" in criterion.reason) == (code == "own_tests_only")

"""What a judge sees of long, hidden and odd evidence, and what that means for statements about the whole of it."""

from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Task, Verdict
from delegate.judging.judge.sources import RECEIPTS
from delegate.models.providers.scripted import Scripted
from delegate.types import Workspace
from tests.support.deeds import evidence_lines
from tests.support.git import git
from tests.support.words import met_by, words

WHOLE = "file data.csv: All rows have a price"
LONG = "name,price\n" + "a,1\n" * 20_000 + "the last row,9\n"
TESTS = {"about": "deed", "tools": ["run_shell"], "whole": True}


async def judged(client: Scripted, criterion: str, **work: Any) -> Verdict:
    async with Delegator(client=client, judge_page_tokens=9_000) as delegator:
        return await delegator.judge(goal="x", acceptance_criteria=[criterion], report="I did it all.", **work)


def shell(command: str, output: str) -> dict[str, Any]:
    return {"tool": "run_shell", "args": {"command": command}, "status": "ok", "output": output}


@pytest.mark.parametrize("text", [LONG, "name,price\nthe last row,9\n"], ids=["cut", "whole"])
async def test_a_statement_about_all_of_a_cut_file_is_undecided(text: str, home: Path, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(text)
    verdict = await judged(words([], met_by("the last row,9")), WHOLE, workspace=tmp_path)
    assert verdict.code == ("truncated_for_judge" if text == LONG else "met")


async def test_a_file_with_a_nul_byte_is_not_seen_and_leaves_all_undecided(home: Path, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("the last row,9\n")
    (tmp_path / "more.csv").write_bytes(b"a,\x00\n")
    criterion = "file *.csv: all rows have a price"
    verdict = await judged(words([], met_by("the last row,9")), criterion, workspace=tmp_path)
    assert (str(verdict.criteria[0].reading), verdict.code) == (
        "the criterion is about file: *.csv",
        "truncated_for_judge",
    )


@pytest.mark.parametrize(
    ("call", "seen"),
    [
        (shell("pytest", "x" * 90_000 + "\n12 tests passed at last"), "12 tests passed at last"),
        (shell("pytest " + "a" * 90_000, "12 tests passed"), "pytest aaaa"),
    ],
    ids=["output", "arguments"],
)
async def test_the_end_of_a_long_receipt_is_seen_and_all_of_it_undecided(
    call: dict[str, Any], seen: str, home: Path
) -> None:
    client = words([], met_by("12 tests passed"), reading={"c1": TESTS})
    verdict = await judged(client, "All tests pass", receipts=[call])
    assert any(seen in line for _, line in evidence_lines(client.requests[0]))
    assert verdict.code == "truncated_for_judge"
    client = words([], met_by("12 tests passed"), reading={"c1": TESTS | {"whole": False}})
    assert (await judged(client, "The tests pass", receipts=[call])).code == "unknown_effect"


async def test_calls_that_the_judge_does_not_see_leave_all_undecided(home: Path) -> None:
    calls = [shell("pytest", f"{n + 20} tests passed") for n in range(RECEIPTS + 1)]
    client = words([], met_by("60 tests passed"), reading={"c1": TESTS})
    verdict = await judged(client, "Every test suite passed", receipts=calls)
    assert verdict.code == "truncated_for_judge"


async def test_a_file_name_is_shown_with_escapes(home: Path, tmp_path: Path) -> None:
    (tmp_path / "a (1 bytes)\ncreated report.pdf").write_text("x")
    client = words([], met_by("created report.pdf"))
    verdict = await judged(client, "file report.pdf: report.pdf was created", workspace=tmp_path)
    assert verdict.verdict == "FAIL"
    listed = [line for name, line in evidence_lines(client.requests[0]) if name == "artifacts"]
    unknown = "[… all files of the folder: which of them were there before the work isn't known …]"
    assert listed == [unknown, "created a (1 bytes)\\ncreated report.pdf (1 bytes)"]


async def test_the_diff_of_a_worktree_is_the_runtimes_and_no_file_of_the_child(home: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "-c", "user.name=n", "-c", "user.email=n@localhost", "commit", "--allow-empty", "-qm", "first")
    wrote = Scripted.call("write_file", path="lista.md", content="pan y sal\n")
    client = words([wrote, "He escrito la lista."], met_by("+pan y sal"))
    task = Task(
        goal="Escribe una lista",
        acceptance_criteria=["file lista.md: La lista tiene pan"],
        workspace=Workspace(mode="worktree", path=tmp_path),
    )
    async with Delegator(client=client) as delegator:
        verdict = (await delegator.run(task)).results[0].verdict
    evidence = list(evidence_lines(client.requests[-1]))
    assert [line for name, line in evidence if name == "artifacts"] == ["created lista.md (10 bytes)"]
    shown = [line for name, line in evidence if name == "artifact:../diff"]
    assert "+pan y sal" in shown
    assert "as the runtime compared them" in shown[0]
    assert verdict
    assert verdict.criteria[0].source == "artifact:../diff"


@pytest.mark.parametrize("quote", ["characters left out here", "\u2192 ok", "and 5 more"])
async def test_the_text_of_the_runtime_is_no_quote(quote: str, home: Path) -> None:
    call = shell("pytest", "y" * 90_000)
    assert (await judged(words([], met_by(quote)), "deed: The tests pass", receipts=[call])).verdict == "FAIL"


async def test_typographic_quotes_and_dashes_count_as_plain_ones(home: Path) -> None:
    client = words([], met_by('it\'s the "first" - and last'))
    async with Delegator(client=client) as delegator:
        verdict = await delegator.judge(
            goal="x",
            acceptance_criteria=["report: The report is short"],
            report="So it\u2019s the \u201cfirst\u201d \u2013 and last one.",
        )
    assert verdict.verdict == "PASS"


async def test_what_was_said_in_the_conversation_shows_no_deed(home: Path) -> None:
    said = "I have sent the email to bob@example.com just now."
    verdict = await judged(
        words([], met_by(said)), "deed: The email was sent to bob@example.com", conversation=said, receipts=[]
    )
    assert (verdict.verdict, verdict.code, verdict.criteria[0].source) == ("FAIL", "self_report_only", "said")


async def test_what_a_user_was_told_is_shown_by_the_conversation(home: Path) -> None:
    said = [{"role": "user", "content": "How much is it?"}, {"role": "assistant", "content": "It costs 30 dollars."}]
    told = await judged(
        words([], met_by("It costs 30 dollars.")), "report: the user was told the price", conversation=said
    )
    assert (told.verdict, told.criteria[0].source) == ("PASS", "said")


async def test_receipts_are_whole_while_they_fit_and_then_those_come_first_that_are_meant(home: Path) -> None:
    others = [{"tool": "look", "args": {"n": n}, "status": "ok", "output": "z" * 2_000} for n in range(40)]
    meant = {
        "tool": "pay",
        "args": {"to": "ann"},
        "status": "ok",
        "output": "p" * 9_000 + " paid in full " + "q" * 9_000,
    }
    reading = {"c1": {"about": "deed", "tools": ["pay"], "names": ["ann"]}}
    few, many = (words([], met_by("paid in full"), reading=reading) for _ in range(2))
    for client, calls in ((few, [*others[:5], meant]), (many, [*others[:20], meant, *others[20:]])):
        verdict = await judged(client, "ann was paid", receipts=calls)
        assert verdict.criteria[0].evidence == "paid in full"
    assert not any("left out" in line for _, line in evidence_lines(few.requests[0]))
    assert {name for name, line in evidence_lines(many.requests[0]) if "left out" in line} != set()


async def test_a_file_that_was_not_changed_is_shown_if_a_criterion_names_it(home: Path) -> None:
    project = Path("project")
    project.mkdir()
    (project / "README.md").write_text("The old words stand here.\n")
    child = [Scripted.call("write_file", path="other.md", content="x"), "Nothing had to change in the README."]
    client = words(child, met_by("The old words stand here."))
    async with Delegator(client=client) as delegator:
        task = Task(goal="x", acceptance_criteria=["file README.md: it has the old words"], workspace=project)
        (result,) = (await delegator.run(task)).results
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.criteria[0].source) == ("PASS", "file:README.md")

"""Judges that look: at what the page doesn't show, at what a command prints, and at how things are now."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Task, Tool, Verdict
from delegate.models.catalog import Model
from delegate.models.providers.scripted import Scripted
from delegate.pages.page import run_page
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest
from tests.pages import recorded
from tests.support.looking import LookingJudge, look, met, record_of
from tests.support.words import asked_ids

pytestmark = pytest.mark.usefixtures("home")
FILES = {"about": "file", "files": ["report.md"]}
REPORT = {"about": "report"}
WHOLE = REPORT | {"whole": True}
HOUSE = Model(id="house", provider="house", endpoint="house", family="house", tier="standard", context_tokens=100_000,
              max_output_tokens=1_000, structured_output=True, tools=True)  # fmt: skip
TESTS = {"about": "deed", "tools": ["run_shell"]}
LOOK_UP = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}


async def judged(
    judge: LookingJudge,
    criteria: list[Any],
    *,
    workspace: Path | None = None,
    tools: list[Tool] | None = None,
    reading: Mapping[str, Any],
    **settings: Any,
) -> Verdict:
    async with Delegator(client=judge.client(**reading), tools=tools, **settings) as delegator:
        task = Task(goal="Do it.", acceptance_criteria=criteria, workspace=workspace)
        (result,) = (await delegator.run(task)).results
    assert result.verdict is not None, result.error
    return result.verdict


async def given(judge: LookingJudge, criterion: str, reading: Mapping[str, Any], **work: Any) -> Verdict:
    """The verdict on work that was done elsewhere."""
    async with Delegator(client=judge.client(c1=reading)) as delegator:
        return await delegator.judge(goal="Do it.", acceptance_criteria=[criterion], **work)


def answered(**fields: str) -> str:
    """The answer that c1 is met."""
    return json.dumps(
        {"answers": [{"id": "c1", "evidence": "", "reason": "", "verdict": "met", "source": ""} | fields]}
    )


# ------------------------------------------------------------------------------------------------- the finished work

LONG_REPORT = "\n".join(f"Item {n}: nothing special was found here." for n in range(8_000)).replace(
    "Item 4000: nothing special", "Item 4000: a leak in valve 17", 1
)


async def test_a_criterion_about_the_middle_of_a_long_report_is_decided() -> None:
    assert len(LONG_REPORT) > 300_000
    turn, quote = [look("search", pattern="valve 17", source="report")], "a leak in valve 17 was"
    verdict = await given(LookingJudge(turn, answer=met(by=quote)), "a leak is found", REPORT, report=LONG_REPORT)
    assert (str(verdict), verdict.criteria[0].source) == ("PASS (seen)", "look:1")
    blind = LookingJudge(answer=met(by=quote))
    assert (await given(blind, "a leak is found", REPORT, report=LONG_REPORT)).code == "evidence_not_found"


@pytest.mark.parametrize("named", ["look:1", "report"])
@pytest.mark.parametrize(
    "seen", [look("read", source="report"), look("search", pattern="row 0000", source="report"),
             look("search", pattern="no such text"), look("search", pattern="row 00001")],
    ids=["a part", "some places", "nothing", "one place"],
)  # fmt: skip
async def test_a_part_of_a_report_shows_nothing_about_all_of_it(seen: Any, named: str) -> None:
    text = "\n".join(f"row {n:05}" for n in range(40_000))
    answer = answered(source=named, evidence="row 00001")
    verdict = await given(LookingJudge([seen], answer=answer), "every row is numbered", WHOLE, report=text)
    assert verdict.code == "truncated_for_judge"


async def test_a_search_that_shows_every_line_shows_all() -> None:
    text = "\n".join(f"row {n:05}, which has a number and some more words of no weight" for n in range(120))
    judge = LookingJudge(
        [look("search", pattern="row \\d", source="report")], answer=met(by="row 00060, which has a number")
    )
    async with Delegator(client=judge.client(c1=WHOLE), judge_page_tokens=1_000) as delegator:
        verdict = await delegator.judge(goal="x", acceptance_criteria=["every row is numbered"], report=text)
    assert str(verdict) == "PASS (seen)"


@pytest.mark.parametrize(
    "seen", [look("read", source="a.csv"), look("run", command="head -3 a.csv"),
             look("run", command="head -3 a.csv; echo all of them are numbered")],
    ids=["read", "run", "run and say"],
)  # fmt: skip
async def test_a_part_of_a_file_shows_nothing_about_all_of_it(seen: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join(f"row {n:06}" for n in range(40_000)))
    about = {"about": "file", "files": ["a.csv"], "whole": True}
    quotes = ["row 000001", *(["row 000001\nrow 000002\nall of them are numbered"] if "echo" in str(seen) else [])]
    for quote in quotes:
        judge = LookingJudge([seen], answer=answered(source="look:1", evidence=quote))
        verdict = await given(judge, "every row of a.csv has a number", about, workspace=tmp_path, report="Done.")
        assert verdict.code == "truncated_for_judge", quote


async def test_a_command_that_decides_about_all_of_a_file_shows_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join(f"row {n:06}" for n in range(40_000)))
    command = "echo rows with a number: $(grep -c '^row [0-9]*$' a.csv) of $(grep -c '' a.csv)"
    about = {"about": "file", "files": ["a.csv"], "whole": True}
    judge = LookingJudge([look("run", command=command)], answer=met(by="rows with a number: 40000 of 40000"))
    verdict = await given(judge, "every row of a.csv has a number", about, workspace=tmp_path, report="Done.")
    assert str(verdict) == "PASS (seen)"


async def test_what_was_read_in_pieces_counts_as_seen_and_what_was_left_out_does_not() -> None:
    text = "\n".join(f"row {n:05}" for n in range(40_000))
    about = {"about": "report", "whole": True}

    async def read(*offsets: int) -> str:
        looks = [look("read", source="report", offset=offset) for offset in offsets]
        judge = LookingJudge(looks, answer=met(by="row 00001"))
        async with Delegator(client=judge.client(c1=about), judge_page_tokens=150_000, judge_looks=20) as delegator:
            verdict = await delegator.judge(goal="x", acceptance_criteria=["every row is numbered"], report=text)
        return verdict.code

    everything = range(0, len(text), 12_000)
    middle = [offset for offset in everything if 120_000 < offset < 280_000]
    assert await read(*middle[::2]) == "truncated_for_judge"
    assert await read(*middle) == "met"


async def test_a_function_in_one_of_many_files_is_found(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for n in range(240):
        body = "\n".join(f"def f{n}_{k}(value):\n    return value * {k}" for k in range(60))
        (code / f"module_{n:03}.py").write_text(body)
    (code / "module_120.py").write_text(
        "x = 1\n" * 3_000 + "def parse_date(text):\n    raise ValueError(text)\n" + "y = 2\n" * 3_000
    )
    judge = LookingJudge(
        [look("search", pattern=r"def parse_date\b")],
        answer=met(by="def parse_date(text):\n    raise ValueError(text)"),
    )
    reading: dict[str, Any] = {"about": "file", "files": []}
    verdict = await given(judge, "parse_date raises ValueError", reading, report="Done, all of it.", workspace=code)
    assert (str(verdict), verdict.criteria[0].source) == ("PASS (seen)", "look:1")
    assert "artifact:module_120.py" in judge.shown[0]
    assert {finding.code for finding in verdict.findings} >= {"truncated_for_judge"}


async def test_a_call_in_the_middle_of_hundreds_is_found() -> None:
    calls = [
        {"tool": "set_price", "args": {"sku": f"S{n:04}"}, "status": "ok", "output": f"S{n:04} costs {n} EUR"}
        for n in range(1, 251)
    ]
    reading = {"about": "deed", "tools": ["set_price"], "names": ["S0042"]}
    first = LookingJudge(
        [look("search", pattern="S0042")], [look("read", source="receipt:42")], answer=met(by="S0042 costs 42 EUR")
    )
    verdict = await given(first, "The price of S0042 is 42 EUR", reading, report="Done as asked.", receipts=calls)
    assert verdict.verdict == "PASS"
    every = {"about": "deed", "tools": ["set_price"], "whole": True}
    for turn in ([look("search", pattern="costs 0 EUR")], [look("read", source="receipt:42")], [look("list")]):
        judge = LookingJudge(turn, answer=met(by="S0240 costs 240 EUR"))
        verdict = await given(judge, "No price is 0", every, report="Done.", receipts=calls)
        assert verdict.code == "truncated_for_judge"
    looks = [look("read", source=f"receipt:{n}") for n in range(1, 11)]
    judge = LookingJudge(looks, answer=met(by="S0200 costs 200 EUR"))
    async with Delegator(client=judge.client(c1=every), judge_looks=10) as delegator:
        verdict = await delegator.judge(goal="x", acceptance_criteria=["No price is 0"], report="Done.",
                                        receipts=calls[:210])  # fmt: skip
    assert verdict.verdict == "PASS"


async def test_a_file_that_nobody_changed_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("The pump was replaced in May.\n")
    child: list[ChatReply | str] = [
        Scripted.call("write_file", path="report.md", content="The pump was replaced in May (notes.md).\n"),
        "I wrote report.md.",
    ]
    judge = LookingJudge(
        [look("list"), look("read", source="notes.md")], answer=met(by="The pump was replaced in May."), child=child
    )
    verdict = await judged(
        judge,
        ["what report.md says is in the notes"],
        workspace=tmp_path,
        reading={"c1": {"about": "file", "files": ["notes.md"]}},
    )
    assert (str(verdict), verdict.criteria[0].source) == ("PASS (seen)", "look:2")
    assert "notes.md (30 bytes)" in judge.shown[0]


async def test_a_quote_from_a_look_at_a_childs_file_shows_no_deed(tmp_path: Path) -> None:
    said = "The mail to ana@example.org was sent at 10:30."
    child: list[ChatReply | str] = [Scripted.call("write_file", path="mail.log", content=said), "Sent to Ana."]
    reading = {"c1": {"about": "deed", "tools": ["send_mail"], "names": ["ana@example.org"]}}
    for turn in (
        [look("read", source="mail.log")],
        [look("search", pattern="ana@")],
        [look("run", command="cat *.log")],
    ):
        judge = LookingJudge(turn, answer=met(by=said), child=child)
        workspace = tmp_path / turn[0][0]
        workspace.mkdir()
        verdict = await judged(judge, ["a mail was sent to ana@example.org"], workspace=workspace, reading=reading)
        assert (verdict.verdict, verdict.code) == ("FAIL", "self_report_only"), turn
        assert said in judge.shown[0]


async def test_the_text_of_the_runtime_in_a_look_is_no_quote(tmp_path: Path) -> None:
    child: list[ChatReply | str] = [
        Scripted.call("write_file", path="order A7 was refunded.txt", content="nothing"),
        "Refunded as asked.",
    ]
    judge = LookingJudge([look("search", pattern="nothing")], answer=met(by="order A7 was refunded"), child=child)
    verdict = await judged(
        judge, ["report.md says that A7 was refunded"], workspace=tmp_path, reading={"c1": FILES | {"files": ["r.md"]}}
    )
    assert verdict.verdict == "FAIL"


PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
    b"\x00\x00\x00\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82"
)


async def test_a_picture_is_shown_to_a_judge_that_sees_and_is_met_unverified(tmp_path: Path) -> None:
    (tmp_path / "shot.png").write_bytes(PIXEL)
    reading = {"about": "file", "files": ["shot.png"]}
    answer = json.dumps(
        {
            "answers": [
                {"id": "c1", "source": "look:1", "evidence": "", "reason": "A red dot is seen.", "verdict": "met"}
            ]
        }
    )
    judge = LookingJudge([look("read", source="shot.png")], answer=answer)
    verdict = await given(judge, "the screenshot shows a dot", reading, report="Done.", workspace=tmp_path)
    assert str(verdict) == "PASS (trusted: c1)"
    (reply,) = judge.requests[1].messages[-1].tool_replies
    assert [(one.media_type, one.data) for one in reply.attachments] == [("image/png", PIXEL)]
    other = LookingJudge([look("read", source="shot.png")], answer=answer)
    about = {"about": "file", "files": ["page.html"]}
    assert (await given(other, "page.html shows a dot", about, report="Done.", workspace=tmp_path)).verdict == "FAIL"


# ---------------------------------------------------------------------------------------------------------- commands

TEST = "import unittest, calc\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(calc.add(1, 2), 3)\n"
RIGHT, WRONG = "def add(a, b): return a + b\n", "def add(a, b): return 3.5\n"
RUN = look("run", command="python3 -m unittest")


def project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "calc.py").write_text("def add(a, b): return a - b\n")
    (folder / "test_calc.py").write_text(TEST)
    return folder


def writes(**files: str) -> list[ChatReply | str]:
    calls = [("write_file", {"path": name.replace("_py", ".py"), "content": text}) for name, text in files.items()]
    return [Scripted.calls(*calls), "All tests pass now."]


async def test_that_tests_pass_is_decided_by_running_them(tmp_path: Path) -> None:
    judge = LookingJudge([RUN], answer=met(by="exit code: 0"), child=writes(calc_py=RIGHT))
    verdict = await judged(judge, ["all tests pass"], workspace=project(tmp_path / "p"), reading={"c1": TESTS})
    assert (str(verdict), verdict.criteria[0].source) == ("PASS (seen)", "look:1")
    assert "Ran 1 test" in judge.shown[0]


@pytest.mark.parametrize(
    "files",
    [
        {"calc_py": WRONG, "test_calc_py": "import unittest\n"},
        {"calc_py": WRONG, "sitecustomize_py": "import os, atexit\natexit.register(lambda: os._exit(0))\n"},
        {"calc_py": WRONG, "unittest_py": "print('OK')\n"},
    ],
    ids=["its own tests", "a hook", "a shadow"],
)
async def test_a_judges_command_runs_without_what_the_child_did_to_the_checks(
    files: dict[str, str], tmp_path: Path
) -> None:
    judge = LookingJudge([RUN], answer=met(by="exit code: 0"), child=writes(**files))
    verdict = await judged(judge, ["all tests pass"], workspace=project(tmp_path / "p"), reading={"c1": TESTS})
    assert verdict.verdict == "FAIL"
    assert "exit code: 1" in judge.shown[0]


async def test_tests_of_the_child_show_less(tmp_path: Path) -> None:
    child = writes(calc_py=RIGHT, test_more_py=TEST.replace("3)", "3, 'more')"))
    own = look("run", command="python3 -m unittest test_more", own_checks=True)
    judge = LookingJudge([own], answer=met(by="exit code: 0"), child=child)
    verdict = await judged(judge, ["all tests pass"], workspace=project(tmp_path / "p"), reading={"c1": TESTS})
    assert str(verdict) == "PASS (own checks: c1)"
    judge = LookingJudge(
        [look("run", command="python3 -m unittest test_more")], answer=met(by="exit code: 1"), child=child
    )
    await judged(judge, ["all tests pass"], workspace=project(tmp_path / "q"), reading={"c1": TESTS})
    assert "missing: test_more.py" in judge.shown[0]


@pytest.mark.parametrize(
    ("deliverables", "printed", "level"),
    [
        (["Makefile", "scripts/*.sh"], "backed up", "PASS (seen)"),
        (["**"], "nothing to do", "FAIL"),
        (None, "nothing to do", "FAIL"),
    ],
)
async def test_a_judges_command_runs_with_what_the_parent_declared_as_the_work(
    deliverables: list[str] | None, printed: str, level: str, tmp_path: Path
) -> None:
    """A Makefile and a script decide checks, unless they are what was asked for."""
    folder = tmp_path / "p"
    (folder / "scripts").mkdir(parents=True)
    (folder / "Makefile").write_text("backup:\n\t@echo nothing to do\n\t@exit 1\n")
    (folder / "scripts/backup.sh").write_text("echo nothing to do; exit 1\n")
    child: list[ChatReply | str] = [
        Scripted.calls(
            ("write_file", {"path": "Makefile", "content": "backup:\n\t@sh scripts/backup.sh\n"}),
            ("write_file", {"path": "scripts/backup.sh", "content": "echo all $((1 + 1)) folders were backed up\n"}),
        ),
        "Done now.",
    ]
    check: dict[str, Any] = {"kind": "shell", "command": "sh -n scripts/backup.sh", "deliverables": deliverables}
    judge = LookingJudge(
        [look("run", command="make backup")], answer=met(by="all 2 folders were backed up"), child=child
    )
    other = {**check, "deliverables": [f"docs/{n}.md" for n in range(50)]}  # as many as one criterion may have
    verdict = await judged(judge, ["make backup works", check, other], workspace=folder, reading={"c1": TESTS})
    assert printed in judge.shown[0]
    assert verdict.verdict == level.partition(" (")[0]
    assert ("with own_checks" in judge.shown[0]) is (verdict.verdict == "FAIL")
    assert str(verdict).startswith(level)


async def test_a_script_of_the_child_shows_less(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    (folder / "check.sh").write_text("python3 -m unittest\n")
    child: list[ChatReply | str] = [
        Scripted.call("write_file", path="check.sh", content="echo all is well\n"),
        "Done now.",
    ]
    judge = LookingJudge([look("run", command="sh check.sh")], answer=met(by="exit code: 0"), child=child)
    verdict = await judged(judge, ["all tests pass"], workspace=folder, reading={"c1": TESTS})
    assert not verdict.verified


OWN_WORDS = [
    ("echo 'The total is 42 EUR in report.md'", "The total is 42 EUR in report.md"),
    ("printf 'The %s is %s EUR' total 42", "The total is 42 EUR"),
    ('echo "The total is $((40 + 2)) EUR"', "The total is 42 EUR"),
    ("echo RVVSIDQyIGlzIHRoZSB0b3RhbA== | base64 -d", "EUR 42 is the total"),
    ("true # The total is 42 EUR", "true # The total is 42 EUR"),
    ("true", "exit code: 0"),
    ("grep -q 42 report.md; true", "exit code: 0"),
]


@pytest.mark.parametrize(("command", "quote"), OWN_WORDS)
async def test_what_a_command_says_by_itself_shows_nothing_of_a_file(command: str, quote: str, tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("nothing here\n")
    judge = LookingJudge([look("run", command=command)], answer=answered(source="look:1", evidence=quote))
    verdict = await given(judge, "report.md has the total", FILES, workspace=tmp_path, report="Done.")
    assert verdict.verdict == "FAIL"


@pytest.mark.parametrize(
    ("command", "quote"),
    [
        ("true", "exit code: 0"),
        ("echo all 12 tests passed", "all 12 tests passed"),
        ("true; test -d /", "exit code: 0"),
    ],
)
async def test_what_a_command_says_by_itself_shows_no_deed(command: str, quote: str, tmp_path: Path) -> None:
    judge = LookingJudge([look("run", command=command)], answer=met(by=quote), child=writes(calc_py=WRONG))
    verdict = await judged(judge, ["all tests pass"], workspace=project(tmp_path / "p"), reading={"c1": TESTS})
    assert (verdict.verdict, verdict.code) == ("FAIL", "self_report_only")


async def test_an_exit_code_shows_what_the_judge_makes_of_it(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("The total is 42 EUR.\n")
    judge = LookingJudge([look("run", command="grep -q 42 report.md")], answer=met(by="exit code: 0"))
    verdict = await given(judge, "report.md has the total", FILES, workspace=tmp_path, report="Done.")
    assert str(verdict) == "PASS (trusted: c1)"
    judge = LookingJudge([look("run", command="python3 calc.py")], answer=met(by="exit code: 0"),
                         child=writes(calc_py=RIGHT))  # fmt: skip
    verdict = await judged(judge, ["the program runs"], workspace=project(tmp_path / "p"), reading={"c1": TESTS})
    assert str(verdict) == "PASS (trusted: c1)"


async def test_what_a_command_says_of_the_work_in_words_of_its_own_counts(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    command = "grep -rq 'a - b' --include=*.py . || echo no file subtracts b from a"
    judge = LookingJudge([look("run", command=command)], answer=met(by="no file subtracts b from a"),
                         child=writes(calc_py=RIGHT))  # fmt: skip
    reading: dict[str, Any] = {"c1": {"about": "file", "files": [], "whole": True}}
    verdict = await judged(judge, ["nothing is subtracted any more"], workspace=folder, reading=reading)
    assert (str(verdict), verdict.criteria[0].source) == ("PASS (seen)", "look:1")


async def test_a_judge_is_told_which_lines_a_command_prints_without_the_work(tmp_path: Path) -> None:
    (tmp_path / "Adler").mkdir()
    (tmp_path / "Adler" / "LIESMICH.txt").write_text("Akten des Kunden Adler\n")
    command = "find . -mindepth 1 | sort; echo Jahre: $(find . -name '20*' | wc -l)"
    judge = LookingJudge([look("run", command=command)], answer=answered(source="look:1", evidence="./Adler/LIESMICH"))
    reading: dict[str, Any] = {"c1": {"about": "file", "files": [], "whole": True}}
    verdict = await given(judge, "es gibt keinen Ordner nach Jahren", reading, workspace=tmp_path, report="Fertig.")
    (reply,) = judge.requests[-1].messages[-1].tool_replies
    fenced, _, remark = reply.text.rpartition("\n[")
    assert "Jahre: 0" in fenced
    assert "(line 1 is its exit code): 4. A quote of them shows nothing" in remark
    assert verdict.verdict == "PASS"


async def test_a_quote_of_the_command_and_of_what_it_printed_counts_for_the_second(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("The total is 42 EUR.\n")
    command = "grep total report.md; grep -c nothing report.md"
    for quote, code in (("nothing report.md\nexit code: 1\nThe total is 42 EUR.", "met"),
                        ("total report.md; grep -c", "evidence_not_found")):  # fmt: skip
        judge = LookingJudge([look("run", command=command)], answer=met(by=quote))
        verdict = await given(judge, "report.md has the total", FILES, workspace=tmp_path, report="Done.")
        assert verdict.criteria[0].code == code


async def test_tests_of_which_none_ran_show_nothing(tmp_path: Path) -> None:
    command = "mkdir e; cd e; python3 -m unittest; true"
    quotes = {"c1": "exit code: 0", "c2": "Ran 0 tests in"}
    answer = json.dumps({"answers": [
        {"id": id, "evidence": quote, "reason": "", "verdict": "met", "source": ""} for id, quote in quotes.items()
    ]})  # fmt: skip
    judge = LookingJudge([look("run", command=command)], answer=answer, child=writes(calc_py=WRONG))
    verdict = await judged(judge, ["all tests pass", "no test fails"], workspace=project(tmp_path / "p"),
                           reading={"c1": TESTS, "c2": TESTS})  # fmt: skip
    assert [criterion.outcome for criterion in verdict.criteria] == ["not_met", "not_met"], judge.shown


PROGRAMS = {
    "run.py": ("python3 run.py", "run_py", "print('OK, all', 1 + 2, 'passed')\n"),
    "bin/python3": (
        "PATH=$PWD/bin:$PATH python3 -m unittest",
        "bin/python3",
        "#!/bin/sh\necho OK, all $((1 + 2)) passed\n",
    ),
    "run": ("./run", "run", "#!/bin/sh\necho OK, all $((1 + 2)) passed\n"),
}


@pytest.mark.parametrize(("command", "name", "text"), PROGRAMS.values(), ids=PROGRAMS.keys())
async def test_what_a_program_of_the_child_prints_shows_less(
    command: str, name: str, text: str, tmp_path: Path
) -> None:
    folder = project(tmp_path / "p")
    if not name.endswith("_py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    judge = LookingJudge([look("run", command=command)], answer=met(by="OK, all 3 passed"),
                         child=writes(calc_py=WRONG, **{name: text}))  # fmt: skip
    verdict = await judged(judge, ["all tests pass"], workspace=folder, reading={"c1": TESTS})
    assert str(verdict) == "PASS (own checks: c1)"


async def test_what_the_program_that_was_asked_for_prints_is_seen(tmp_path: Path) -> None:
    adds = "import sys\nprint('the sum of both is', sum(map(int, sys.argv[1:])))"
    judge = LookingJudge([look("run", command="python3 sum.py 1 2")], answer=met(by="the sum of both is 3"),
                         child=writes(sum_py=adds))  # fmt: skip
    reading = {"c1": {"about": "file", "files": ["sum.py"]}}
    verdict = await judged(judge, ["sum.py adds its arguments"], workspace=project(tmp_path / "p"), reading=reading)
    assert str(verdict) == "PASS (seen)"


async def test_the_same_command_runs_once(tmp_path: Path) -> None:
    run = look("run", command="date +%N; cat calc.py")
    judge = LookingJudge([run, run], [run], answer=met(by="def add(a, b): return a + b"), child=writes(calc_py=RIGHT))
    reading = {"c1": {"about": "file", "files": ["calc.py"]}}
    verdict = await judged(judge, ["calc.py adds"], workspace=project(tmp_path / "p"), reading=reading)
    assert verdict.verdict == "PASS"
    assert len({shown.partition("exit code")[2].partition("<<<")[0] for shown in judge.shown}) == 1


async def test_a_command_that_takes_too_long_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegate.judging.looks.commands.SECONDS", 0.2)
    judge = LookingJudge([look("run", command="echo all is well; sleep 30")], answer=met(by="all is well"),
                         child=writes(calc_py=RIGHT))  # fmt: skip
    verdict = await judged(judge, ["all tests pass"], workspace=project(tmp_path / "p"), reading={"c1": TESTS})
    assert (verdict.verdict, record_of(verdict).looks[0].status) == ("FAIL", "timeout")


async def test_where_nothing_confines_commands_none_is_offered(tmp_path: Path) -> None:
    policies: list[dict[str, Any]] = [{"sandbox": "off", "commands": "allow"}, {"commands": "deny"}]
    for settings in policies:
        judge = LookingJudge([RUN], answer=met(by="def add(a, b)"), child=writes(calc_py=RIGHT))
        folder = project(tmp_path / settings["commands"])
        await judged(judge, ["all tests pass"], workspace=folder, reading={"c1": TESTS}, **settings)
        assert "run" not in [spec.name for spec in judge.requests[0].tools]
        assert judge.errors == [True]


# ------------------------------------------------------------------------------------------------- how things are now


class Shop:
    """An order, and tools that show, cancel and annotate it."""

    def __init__(self) -> None:
        self.orders = {"W1": "open", "W2": "cancelled"}
        self.shown: list[str] = []

    def tools(self) -> list[Tool]:
        async def get(args: Mapping[str, Any]) -> str:
            self.shown.append(str(args["id"]))
            return json.dumps({"order": args["id"], "status": self.orders[args["id"]]})

        async def cancel(args: Mapping[str, Any]) -> str:
            self.orders[args["id"]] = "cancelled"
            return json.dumps({"job": "j-1", "status": "accepted"})

        async def note(args: Mapping[str, Any]) -> str:
            return json.dumps({"ok": True})

        return [
            Tool("get_order", "Get an order", LOOK_UP, get, read_only=True),
            Tool("cancel_order", "Cancel an order", LOOK_UP, cancel, effects=frozenset({"external"})),
            Tool("add_note", "Add a note", {"type": "object"}, note, effects=frozenset({"external"})),
        ]


CANCELLED = {"c1": {"about": "deed", "tools": ["cancel_order"], "names": ["W1"]}}


@pytest.mark.parametrize("about", ["deed: the order W1 is cancelled", "the order W1 is cancelled"])
async def test_the_state_of_a_record_shows_a_deed(about: str) -> None:
    child: list[ChatReply | str] = [Scripted.call("cancel_order", id="W1"), "The order W1 is cancelled."]
    judge = LookingJudge([look("get_order", id="W1")], answer=met(by='"status": "cancelled"'), child=child)
    verdict = await judged(judge, [about], tools=Shop().tools(), reading=CANCELLED)
    assert str(verdict) == "PASS (seen)", "the call was only accepted"
    (seen,) = record_of(verdict).looks
    assert (seen.n, seen.tool, seen.args, seen.status) == (1, "get_order", {"id": "W1"}, "ok")
    assert seen.output == '{"order": "W1", "status": "cancelled"}'


async def test_the_state_of_another_record_shows_nothing() -> None:
    child: list[ChatReply | str] = [Scripted.call("add_note", text="W1 cancelled"), "The order W1 is cancelled."]
    judge = LookingJudge([look("get_order", id="W2")], answer=met(by='"status": "cancelled"'), child=child)
    verdict = await judged(judge, ["the order W1 is cancelled"], tools=Shop().tools(), reading=CANCELLED)
    assert (verdict.verdict, verdict.code) == ("FAIL", "self_report_only")
    assert "look:1 doesn't contain 'W1'" in verdict.criteria[0].reason


async def test_a_state_that_nothing_on_record_brought_about_is_not_verified() -> None:
    shop = Shop()
    shop.orders["W1"] = "cancelled"
    child: list[ChatReply | str] = [Scripted.call("get_order", id="W1"), "The order W1 is cancelled."]
    judge = LookingJudge([look("get_order", id="W1")], answer=met(by='"status": "cancelled"'), child=child)
    verdict = await judged(judge, ["the order W1 is cancelled"], tools=shop.tools(), reading=CANCELLED)
    assert str(verdict) == "PASS (trusted: c1)"


@pytest.mark.parametrize("names", [["W1"], []], ids=["named", "not named"])
async def test_a_call_about_another_record_did_not_bring_it_about(names: list[str]) -> None:
    shop = Shop()
    shop.orders = {"W1": "cancelled", "W2": "open"}
    child: list[ChatReply | str] = [Scripted.call("cancel_order", id="W2"), "The order W1 is cancelled."]
    judge = LookingJudge([look("get_order", id="W1")], answer=met(by='"status": "cancelled"'), child=child)
    about = {"about": "deed", "tools": ["cancel_order"], "names": names}
    verdict = await judged(judge, ["the child cancelled order W1"], tools=shop.tools(), reading={"c1": about})
    assert str(verdict) == "PASS (trusted: c1)" if names else verdict.verdict == "PASS"


async def test_a_state_shows_no_absence(tmp_path: Path) -> None:
    async def may_do_anything(args: Mapping[str, Any]) -> str:
        return "done"

    tools = [*Shop().tools(), Tool("mystery", "Do something", LOOK_UP, may_do_anything)]
    child: list[ChatReply | str] = [Scripted.call("mystery", id="W1"), "I mailed nobody at all."]
    judge = LookingJudge([look("get_order", id="W1")], answer=met(by='"status": "open"'), child=child)
    about = {"about": "absence", "tools": ["cancel_order"], "names": ["W1"]}
    verdict = await judged(judge, ["nobody mailed the owner of W1"], tools=tools, reading={"c1": about})
    assert str(verdict) == "PASS (trusted: c1)"
    assert "look:1" in str(verdict.criteria[0].source)


STOCK = {
    "type": "object",
    "properties": {"warehouse": {"type": "string"}, "sku": {"type": "string"}},
    "required": ["warehouse"],
}


@pytest.mark.parametrize(
    ("args", "level"),
    [({"warehouse": "BASEL", "sku": "SCR-20"}, "seen"), ({"warehouse": "ZURICH", "sku": "SCR-20"}, "trusted")],
    ids=["the other of two", "one that nobody looked up"],
)
async def test_a_state_tells_records_apart_that_share_an_id(args: dict[str, str], level: str) -> None:
    async def show(args: Mapping[str, Any]) -> str:
        return json.dumps([{"sku": "SCR-20", "warehouse": args["warehouse"], "on_hand": 75}])

    async def adjust(args: Mapping[str, Any]) -> str:
        return json.dumps({"job": "j-1", "status": "accepted"})

    tools = [
        Tool("list_stock", "List the stock", STOCK, show, read_only=True),
        Tool("adjust_stock", "Book a difference", STOCK, adjust, effects=frozenset({"external"})),
    ]
    seen = [("list_stock", {"warehouse": place}) for place in ("BASEL", "LYON")]
    child: list[ChatReply | str] = [Scripted.calls(*seen), Scripted.calls(("adjust_stock", args)), "I booked it."]
    judge = LookingJudge([look("list_stock", warehouse="LYON")], answer=met(by='"warehouse": "LYON", "on_hand": 75'),
                         child=child)  # fmt: skip
    about = {"about": "absence", "tools": ["adjust_stock"], "names": ["Lyon"]}
    verdict = await judged(judge, ["nothing was changed in Lyon"], tools=tools, reading={"c1": about})
    assert (verdict.verdict, verdict.level) == ("PASS", level)


async def test_a_look_up_that_reads_what_the_child_wrote_verifies_nothing() -> None:
    files: dict[str, str] = {}

    async def write(args: Mapping[str, Any]) -> str:
        files[str(args["path"])] = str(args["content"])
        return "ok"

    async def read(args: Mapping[str, Any]) -> str:
        return files[str(args["path"])]

    path = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}
    tools = [
        Tool("write_file", "Write a file", path, write, effects=frozenset({"files"})),
        Tool("read_file", "Read a file", path, read, read_only=True),
        *Shop().tools(),
    ]
    said = "order W1: status cancelled, confirmed"
    child: list[ChatReply | str] = [
        Scripted.calls(("write_file", {"path": "s.txt", "content": said}), ("cancel_order", {"id": "W2"})),
        "W1 is cancelled.",
    ]
    judge = LookingJudge([look("read_file", path="s.txt")], answer=met(by=said), child=child)
    verdict = await judged(judge, ["the order W1 is cancelled"], tools=tools, reading=CANCELLED)
    assert not verdict.verified
    assert said in judge.shown[0]


async def test_a_look_up_that_failed_shows_nothing() -> None:
    child: list[ChatReply | str] = [Scripted.call("add_note", text="x"), "The order W1 is cancelled."]
    judge = LookingJudge([look("get_order", id="W9")], answer=met(by="KeyError: 'W9'"), child=child)
    verdict = await judged(judge, ["the order W1 is cancelled"], tools=Shop().tools(), reading=CANCELLED)
    assert verdict.verdict == "FAIL"
    assert (judge.errors, record_of(verdict).looks[0].status) == ([True], "error")


async def test_given_look_up_tools_are_offered_by_names_that_providers_accept() -> None:
    async def show(args: Mapping[str, Any]) -> str:
        return json.dumps({"order": "W1", "status": "cancelled"})

    tools = [
        Tool("shop.get order", "Get", LOOK_UP, show, read_only=True),
        Tool("read", "Read", LOOK_UP, show, read_only=True),
    ]
    judge = LookingJudge([look("shop_get_order", id="W1")], answer=met(by='"status": "cancelled"'))
    verdict = await given(judge, "order W1 is cancelled", CANCELLED["c1"], report="Done.", tools=tools)
    assert [spec.name for spec in judge.requests[0].tools] == ["shop_get_order", "worker_read"]
    assert str(verdict) == "PASS (seen)"


# ----------------------------------------------------------------------------------------------------- when and how


async def test_a_judge_whose_page_has_all_is_offered_nothing_and_answers_at_once() -> None:
    judge = LookingJudge([look("list")], answer=met(by="It is done."))
    verdict = await given(judge, "it says that it is done", {"about": "report"}, report="It is done.")
    assert (str(verdict), len(judge.requests), judge.requests[0].tools) == ("PASS (seen)", 1, ())
    assert "You may look" not in judge.requests[0].system
    assert record_of(verdict).looks == ()


async def test_no_looks_by_setting(tmp_path: Path) -> None:
    none: list[dict[str, Any]] = [{"judge_looks": 0}, {"judge_turns": 0}]
    for setting in none:
        judge = LookingJudge([RUN], answer=met(by="def add"), child=writes(calc_py=RIGHT))
        folder = project(tmp_path / next(iter(setting)))
        await judged(judge, ["all tests pass"], workspace=folder, reading={"c1": TESTS}, **setting)
        assert [request.tools for request in judge.requests] == [()]


async def test_the_turns_of_a_judge_are_bounded_and_the_last_must_answer(tmp_path: Path) -> None:
    turns = [[look("list"), look("read", source="calc.py")] for _ in range(20)]
    judge = LookingJudge(*turns, answer=met(by="def add(a, b)"), child=writes(calc_py=RIGHT))
    reading = {"c1": {"about": "file", "files": ["calc.py"]}}
    verdict = await judged(judge, ["calc.py adds"], workspace=project(tmp_path / "p"), reading=reading)
    assert verdict.verdict == "PASS"
    assert [request.tool_choice for request in judge.requests] == ["auto"] * 4 + ["none"]
    (attempt,) = [one for one in record_of(verdict).attempts if one.purpose == "judging"]
    assert (attempt.usage.model_calls, len(record_of(verdict).looks)) == (5, 8)
    assert record_of(verdict).usage.model_calls == 6  # with the reading
    assert record_of(verdict).cost_usd


async def test_looks_count_in_the_limits_of_the_run(tmp_path: Path) -> None:
    judge = LookingJudge([look("list")], [look("list")], answer=met(by="def add"), child=writes(calc_py=RIGHT))
    reading = {"c1": {"about": "file", "files": ["calc.py"]}}
    verdict = await judged(
        judge, ["calc.py adds"], workspace=project(tmp_path / "p"), reading=reading, max_run_model_calls=4
    )
    assert (verdict.verdict, verdict.code, len(judge.requests)) == ("FAIL", "budget_exceeded", 1)
    (attempt,) = [one for one in record_of(verdict).attempts if one.purpose == "judging"]
    assert attempt.usage.model_calls == 1


async def test_several_criteria_can_be_asked_one_by_one(tmp_path: Path) -> None:
    def answer(request: Any) -> str:
        asked = request.messages[0].text.rpartition("exactly once: ")[2]
        return json.dumps({"answers": [
            {"id": asked, "source": "", "evidence": f"The {asked} is here.", "reason": "", "verdict": "met"}
        ]})  # fmt: skip

    client = Scripted(answer)
    async with Delegator(client=client, criteria_per_call=1) as delegator:
        verdict = await delegator.judge(
            goal="x",
            acceptance_criteria=["report: has the c1", "report: has the c2", "report: has the c3"],
            report="The c1 is here. The c2 is here. The c3 is here.",
        )
    assert (str(verdict), [one.id for one in verdict.criteria]) == ("PASS (seen)", ["c1", "c2", "c3"])
    assert len(client.requests) == 3


def reads_its_file(request: ChatRequest) -> ChatReply | str:
    """A judge that looks at the file that each criterion is about, three times, and then finds it met."""
    ids, turn = list(asked_ids(request)), sum(message.role == "assistant" for message in request.messages)
    if request.tools and request.tool_choice != "none" and not turn:
        return Scripted.calls(*[("read", {"source": f"{ids[0]}.txt"})] * 3)
    shown = request.messages[-1].tool_replies[0].text if turn else ""
    source = shown.partition("<<<")[2].partition(" ")[0] or f"artifact:{ids[0]}.txt"
    return json.dumps({"answers": [
        {"id": id, "source": source, "evidence": f"content of the file of {id}", "reason": "", "verdict": "met"}
        for id in ids
    ]})  # fmt: skip


async def test_questions_that_are_asked_at_once_share_the_looks_and_their_numbers(tmp_path: Path) -> None:
    ids = [f"c{n}" for n in range(1, 13)]
    for id in ids:
        (tmp_path / f"{id}.txt").write_text(f"content of the file of {id}\n")
    client = Scripted(reads_its_file, reading={id: {"about": "file", "files": [f"{id}.txt"]} for id in ids})
    async with Delegator(client=client, criteria_per_call=1) as delegator:
        verdict = await delegator.judge(
            goal="x", acceptance_criteria=[f"{id}.txt is right" for id in ids], workspace=tmp_path, report="Done."
        )
    assert verdict.verdict == "PASS"
    looks = {f"look:{one.n}": one.args["source"] for one in record_of(verdict).looks}
    assert list(looks) == [f"look:{n}" for n in range(1, 9)], "8 in all, each with a number of its own"
    quoted = [one for one in verdict.criteria if str(one.source).startswith("look:")]
    assert quoted
    assert all(looks[str(one.source)] == f"{one.id}.txt" for one in quoted)


async def test_a_second_judge_has_looks_of_its_own_and_each_attempt_its_own_answers(tmp_path: Path) -> None:
    def reply(request: ChatRequest) -> ChatReply | str:
        if request.model.startswith("gemini") and (request.tool_choice == "none" or request.messages[1:]):
            answers = [{"id": id, "source": "", "evidence": "", "reason": "unsure", "verdict": "cannot_tell"}
                       for id in asked_ids(request)]  # fmt: skip
            return json.dumps({"answers": answers})
        return reads_its_file(request)

    ids = ["c1", "c2"]
    for id in ids:
        (tmp_path / f"{id}.txt").write_text(f"content of the file of {id}\n")
    client = Scripted(reply, reading={id: {"about": "file", "files": [f"{id}.txt"]} for id in ids})
    async with Delegator(client=client, criteria_per_call=1, escalate=True, judge_looks=6) as delegator:
        verdict = await delegator.judge(
            goal="x", acceptance_criteria=[f"{id}.txt is right" for id in ids], workspace=tmp_path, report="Done."
        )
    record = record_of(verdict)
    assert (verdict.verdict, record.escalated, len(record.looks)) == ("PASS", True, 12)
    judging = [one for one in record.attempts if one.purpose == "judging"]
    first = [one for one in judging if one.model.startswith("gemini")]
    assert (len(judging), len(first)) == (4, 2)
    assert sorted(answer.id for one in first for answer in one.answers) == ids
    assert not any(one.answers for one in judging if one not in first)


async def test_a_judge_that_takes_over_may_look_as_much_as_the_one_that_failed(tmp_path: Path) -> None:
    (tmp_path / "c1.txt").write_text("content of the file of c1\n")
    failed = list[str]()

    def reply(request: ChatRequest) -> ChatReply | str:
        if request.messages[1:] and not failed:
            failed.append(request.model)
            raise ProviderError("server_error", "gone", provider="x", outcome="not_sent", final=True)
        return reads_its_file(request)

    client = Scripted(reply, reading={"c1": {"about": "file", "files": ["c1.txt"]}})
    async with Delegator(client=client, judge_looks=3) as delegator:
        verdict = await delegator.judge(
            goal="x", acceptance_criteria=["c1.txt is right"], workspace=tmp_path, report="Done."
        )
    looks = record_of(verdict).looks
    assert (verdict.verdict, [one.n for one in looks]) == ("PASS", [1, 2, 3, 4, 5, 6])
    assert [one.model for one in looks[:3]] == failed * 3 != [one.model for one in looks[3:]]


async def test_what_has_no_room_was_not_shown(tmp_path: Path) -> None:
    text = "\n".join(f"row {n:06}" for n in range(3_000))
    (tmp_path / "a.csv").write_text(text)
    reads = [look("read", source="a.csv", offset=offset) for offset in range(0, len(text), 12_000)]
    judge = LookingJudge(reads, answer=met(by="row 000001"))
    about = {"about": "file", "files": ["a.csv"], "whole": True}
    small = HOUSE.model_copy(update={"context_tokens": 19_000})
    for model, code in ((HOUSE, "met"), (small, "truncated_for_judge")):
        client = judge.client(c1=about)
        async with Delegator(host_models={model: client}, judge_page_tokens=2_000) as delegator:
            verdict = await delegator.judge(
                goal="x", acceptance_criteria=["every row is numbered"], workspace=tmp_path, report="Done."
            )
        assert verdict.criteria[0].code == code, verdict.reasoning


async def test_a_long_list_ends_with_a_whole_line_and_says_how_to_read_on(tmp_path: Path) -> None:
    for n in range(390):
        folder = tmp_path / f"a_package_with_a_long_name_{n // 50:03}"
        folder.mkdir(exist_ok=True)
        (folder / f"a_module_with_a_long_name_{n:04}_and_some_more_words.py").write_text("x = 1\n")
    about: dict[str, Any] = {"about": "file", "files": []}
    first = LookingJudge([look("list")], answer=met(by="x = 1"))
    await given(first, "there is a module 0300", about, workspace=tmp_path, report="Done.")
    *lines, note, _ = first.shown[0].splitlines()
    assert len(first.shown[0]) <= 24_100
    assert lines[-1].endswith(" bytes)")
    offset = int(note.rpartition("offset ")[2].partition(" ")[0])
    quote = "a_module_with_a_long_name_0300_and_some_more_words.py (6 bytes)"
    assert quote not in first.shown[0]
    judge = LookingJudge([look("list")], [look("read", source="look:1", offset=offset)], answer=met(by=quote))
    verdict = await given(judge, "there is a module 0300", about, workspace=tmp_path, report="Done.")
    assert (str(verdict), verdict.criteria[0].source) == ("PASS (seen)", "look:2")


async def test_what_is_quoted_is_on_record(tmp_path: Path) -> None:
    quote = "the pump was replaced in May"
    (tmp_path / "report.md").write_text("A line of no weight at all.\n" * 300 + quote + "\n")
    for turn in ([look("read", source="report.md")], [look("run", command="cat report.md")]):
        judge = LookingJudge(turn, answer=answered(source="look:1", evidence=quote))
        verdict = await given(judge, "it names the pump", FILES, workspace=tmp_path, report="Done.")
        assert (verdict.verdict, verdict.criteria[0].source) == ("PASS", "look:1")
        assert quote in record_of(verdict).looks[0].output
    judge = LookingJudge([look("read", source="report.md")], answer=met(by="A line of no weight at all."))
    verdict = await given(judge, "it is long", FILES, workspace=tmp_path, report="Done.")
    assert len(record_of(verdict).looks[0].output) == 4_000


async def test_a_file_is_what_its_first_bytes_say_and_a_request_holds_only_so_much(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.pdf").write_bytes(b"%PDF-1.4\n" + b"x" * 9_000_000)
    looks = [look("read", source=f"{n}.pdf") for n in range(3)]
    judge = LookingJudge(looks, answer=answered(source="look:1", evidence=""))
    about = {"about": "file", "files": ["0.pdf"]}
    verdict = await given(judge, "0.pdf shows a letter", about, workspace=tmp_path, report="Done.")
    assert str(verdict) == "PASS (trusted: c1)"
    replies = judge.requests[-1].messages[-1].tool_replies
    assert [[one.media_type for one in reply.attachments] for reply in replies] == [["application/pdf"]] * 2 + [[]]
    assert "no room is left" in replies[2].text


async def test_looks_stand_on_the_page_and_are_counted_for_the_parent(home: Path) -> None:
    child: list[ChatReply | str] = [Scripted.call("cancel_order", id="W1"), "The order W1 is cancelled."]
    looks = [look("get_order", id="W1"), look("get_order", id="<b>W2</b>")]
    judge = LookingJudge(looks, answer=met(by='"status": "cancelled"'), child=child)
    async with Delegator(client=judge.client(**CANCELLED), tools=Shop().tools()) as delegator:
        result = await delegator.call({"goal": "x", "acceptance_criteria": ["the order W1 is cancelled"]})
        assert "after 2 looks at the work" in delegator.render(result)
    page = run_page(await recorded.view(home, result.run_id)).html
    assert "What the judge looked at" in page
    assert "&lt;b&gt;W2" in page
    assert "<b>W2" not in page


async def test_a_rubric_is_scored_after_looks(tmp_path: Path) -> None:
    dimension = {"id": "right", "description": "calc.py adds", "about": {"file": "calc.py"}}
    rubric = {
        "kind": "rubric",
        "rubric": {"name": "r", "description": "d", "dimensions": [dimension], "threshold": 0.5},
    }
    score = {"id": "right", "evidence": "exit code: 0", "reason": "it runs", "score": 1}
    answer = json.dumps({"scores": [score], "failure_modes": [], "wins": []})
    judge = LookingJudge([RUN], answer=answer, child=writes(calc_py=RIGHT))
    verdict = await judged(judge, [rubric], workspace=project(tmp_path / "p"), reading={})
    assert (verdict.verdict, verdict.criteria[0].source) == ("PASS", "look:1")


async def test_what_a_judge_looked_at_is_on_record(home: Path) -> None:
    child: list[ChatReply | str] = [Scripted.call("cancel_order", id="W1"), "The order W1 is cancelled."]
    judge = LookingJudge([look("get_order", id="W1")], answer=met(by='"status": "cancelled"'), child=child)
    async with Delegator(client=judge.client(**CANCELLED), tools=Shop().tools()) as delegator:
        run = await delegator.run(Task(goal="x", acceptance_criteria=["the order W1 is cancelled"]))
        (result,) = run.results
        assert result.handle
        stored: Any = await delegator.records.read(result.handle)
    (seen,) = stored["result"]["verdict"]["judge"]["looks"]
    assert (seen["tool"], seen["output"]) == ("get_order", '{"order": "W1", "status": "cancelled"}')
    assert seen["model"] == record_of(result.verdict).model

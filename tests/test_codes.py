"""docs/verdicts.md lists every code of `delegate.codes`, and no other. Pyright checks that no other is given."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest

import delegate
from delegate import Report, TaskResult, Verdict, codes
from delegate.cli import exits
from delegate.types import LOWERED, CriterionResult
from tests.support.pages import DOCS

PAGE = DOCS / "verdicts.md"


def codes_of_the_page(*headings: str) -> set[str]:
    """The codes in the first column of the tables below these headings, or of the whole page."""
    text = PAGE.read_text(encoding="utf-8").partition("## Codes of verdicts and criteria")[2]
    parts = re.split(r"^##+ (.+)$", text, flags=re.MULTILINE)
    sections = dict(zip(["", *parts[1::2]], parts[::2], strict=True))
    rows = (line for name in headings or sections for line in sections[name].splitlines() if line.startswith("| `"))
    return {code for row in rows for code in re.findall(r"`(\w+)`", row.split("|")[1])}


LOOKED: dict[str, object] = {
    "The work": codes.WorkCode,
    "The gate": codes.GateCode,
    "Checks that the work or the criterion stopped": codes.StoppedCode,
}
NOBODY_LOOKED: dict[str, object] = {
    "Checks that could not look": codes.UnableCheckCode,
    "Judges that could not decide": codes.UnableJudgeCode,
}
TABLES: dict[str, object] = {
    **LOOKED,
    **NOBODY_LOOKED,
    "Findings": codes.FindingCode,
    "Errors of children": codes.ChildCode,
    "Refused calls": codes.CallCode,
    "Errors of batches and files": codes.FileCode,
}


@pytest.mark.parametrize("heading", TABLES)
def test_each_table_lists_the_codes_of_its_type(heading: str) -> None:
    # The table of children's errors has those of workspaces by a note.
    noted = set(get_args(codes.WorkspaceCode)) if heading == "Errors of children" else set[str]()
    assert codes_of_the_page(heading) == set(get_args(TABLES[heading])) - noted
    assert codes_of_the_page() == set(get_args(codes.Code))


def test_every_code_is_given_somewhere() -> None:
    package = Path(delegate.__file__).parent
    sources = [path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path.name != "codes.py"]
    assert [code for code in get_args(codes.Code) if not any(f'"{code}"' in source for source in sources)] == []


def test_a_fail_is_examined_exactly_where_the_page_says_so() -> None:
    for headings, examined in ((LOOKED, True), (NOBODY_LOOKED, False)):
        for code in codes_of_the_page(*headings) - {"skipped"}:
            assert _verdict(code, code).examined is examined, code
            assert _verdict(code).examined is examined, f"{code} of the verdict itself"
            assert _verdict(code, code, "not_met").examined, f"{code} and bad work"


def test_what_is_met_on_less_has_the_level_that_the_page_says() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("| code | level |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.+`) \| `(\w+)` \|$", section, re.MULTILINE)
    shown = {code: level for codes_of_row, level in rows for code in re.findall(r"\w+", codes_of_row)}
    elsewhere = {"check_tampered", "trusted"}  # the first of these is not met
    assert shown == {code: level for code, (level, _) in LOWERED.items() if code not in elsewhere}


def _verdict(code: Any, *criteria: Any) -> Verdict:
    """A FAIL with this code, and with failing criteria that have these codes."""
    results = tuple(
        CriterionResult(id=f"c{n}", text="x", kind="text", outcome="error", decided_by="nobody", code=one)
        for n, one in enumerate(criteria, start=1)
    )
    return Verdict(verdict="FAIL", verified=False, decided_by="nobody", code=code, reasoning="", criteria=results)


def test_a_child_that_failed_has_the_exit_code_that_the_page_says() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Errors of children")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) == 7
    for listed, status, *_, exit_code in rows:
        for code in re.findall(r"`(\w+)`", listed):
            error = {"code": code, "message": "x"}
            result = TaskResult.model_validate(
                {"verdict": None, "task_index": 0, "status": status.strip("`"), "summary": "", "error": error}
            )
            assert exits.of_report(Report(results=(result,))) == int(exit_code), code

"""docs/verdicts.md and docs/why-fail.md list every code of `types/codes.py`. Pyright checks that no other is given."""

import re
from pathlib import Path
from typing import Any, get_args

import delegate
from delegate import RunResult, TaskResult, Verdict
from delegate.cli import exits
from delegate.types import LOWERED, CriterionResult, codes
from tests.support.pages import DOCS

PAGE, WHY = ((DOCS / name).read_text(encoding="utf-8") for name in ("verdicts.md", "why-fail.md"))
MET = {"met", "trusted"}


def codes_below(page: str, heading: str) -> set[str]:
    """The codes in the first column of the tables below a heading."""
    section = re.split(r"^##+ ", page.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    rows = (line for line in section.splitlines() if line.startswith("| `"))
    return {code for row in rows for code in re.findall(r"`(\w+)`", row.split("|")[1])}


def codes_below_all(headings: tuple[str, ...]) -> set[str]:
    """The same of several tables of verdicts' codes."""
    return {code for heading in headings for code in codes_below(WHY, heading)}


BAD_WORK = ("The work isn't good enough, or doesn't show it", "It is met, but rests on too little")
NOBODY_LOOKED = "Nobody could look"
OF_VERDICTS: dict[tuple[str, ...], object] = {
    BAD_WORK: codes.WorkCode,
    ("The gate refused it",): codes.GateCode,
    ("A check could not end",): codes.StoppedCode,
    (NOBODY_LOOKED,): codes.NobodyLookedCode,
}
TABLES: dict[str, object] = {
    "Findings": codes.FindingCode,
    "Errors of children": codes.ChildCode,
    "Refused calls": codes.CallCode,
    "Errors of batches and files": codes.FileCode,
}


def test_each_table_lists_the_codes_of_its_type() -> None:
    for headings, kind in OF_VERDICTS.items():
        assert codes_below_all(headings) == _codes(kind) - MET
    for heading, kind in TABLES.items():
        # The table of children's errors has those of workspaces by a note.
        noted = _codes(codes.WorkspaceCode) if heading == "Errors of children" else set[str]()
        assert codes_below(PAGE, heading) == _codes(kind) - noted


def _codes(kind: object) -> set[str]:
    return set(get_args(kind))


def test_every_code_is_given_somewhere() -> None:
    package = Path(delegate.__file__).parent
    sources = [path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path.name != "codes.py"]
    assert [code for code in get_args(codes.Code) if not any(f'"{code}"' in source for source in sources)] == []


def test_a_fail_is_examined_exactly_where_the_page_says_so() -> None:
    for headings in OF_VERDICTS:
        for code in codes_below_all(headings) - {"skipped"}:
            examined = headings != (NOBODY_LOOKED,)
            assert _verdict(code, code).examined is examined, code
            assert _verdict(code).examined is examined, f"{code} of the verdict itself"
            assert _verdict(code, code, "not_met").examined, f"{code} and bad work"


def test_what_is_met_on_less_has_the_level_that_the_page_says() -> None:
    rows = re.findall(r"^\| ([^|]+) \| `(\w+)` \| .+ \| .+ \|$", WHY, re.MULTILINE)
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
    section = PAGE.partition("## Errors of children")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) == 7
    for listed, status, *_, exit_code in rows:
        for code in re.findall(r"`(\w+)`", listed):
            error = {"code": code, "message": "x"}
            result = TaskResult.model_validate(
                {"verdict": None, "task_index": 0, "status": status.strip("`"), "report": "", "error": error}
            )
            assert exits.of_result(RunResult(results=(result,))) == int(exit_code), code

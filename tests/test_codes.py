"""docs/verdicts.md lists every code that the code can give, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import delegate
from delegate import Report, TaskResult, Verdict
from delegate.cli import exits
from delegate.errors import ProviderFault
from delegate.types import LOWERED, CriterionResult
from tests.support.pages import DOCS

PAGE = DOCS / "verdicts.md"

CODE_AT = {
    "CallError": 0, "_refusal": 0, "add": 0, "Rejection": 0, "CommandsNotAllowed": 0, "failed": 1, "_failed": 1,
    "refused": 1, "result": 3, "Combined": 4, "_part": 3,
}  # fmt: skip
"""Calls that take a code by its place, and which. Everywhere else it is the keyword `code`, or is assigned to one."""
PASSED_ON = re.compile(
    r"\w+(\.error)?\.(code|fault)|code_of\(.*\)|answer\.verdict|str\(id\)|record\['state'\]|code|error|outcome|stop|None"
    r"|worth|decided\.outcome"
)
"""Expressions for a code that was made elsewhere."""
ELSEWHERE = {"cannot_tell", "running", "outcome_unknown", "interrupted", "hermes_failed", *get_args(ProviderFault),
             *LOWERED}  # fmt: skip
"""Codes that come from what a judge says, the state of a record, how Hermes ended, a provider's fault, and what is met
but unverified."""
NO_CODES = {"predicate", "security"}
"""Folders whose rules and refusals are texts and not codes."""


def codes_of_the_code() -> dict[str, set[str]]:
    """Every code that the code can give, by the call that makes it."""
    found: dict[str, set[str]] = {}
    package = Path(delegate.__file__).parent
    for path in sorted(path for path in package.rglob("*.py") if not NO_CODES & set(path.parts)):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(tree):
            for maker, value in _codes_in(node):
                place = f"{path.relative_to(package)}:{value.lineno}"
                found.setdefault(maker, set()).update(_texts(value, constants, place))
    return found


def _codes_in(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Call):
        maker = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        yield from ((maker, keyword.value) for keyword in node.keywords if keyword.arg == "code")
        place = CODE_AT.get(maker, len(node.args))
        if len(node.args) > place and (maker != "add" or isinstance(node.args[place], ast.Constant)):
            yield maker, node.args[place]
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (("code", node.value) for target in targets if isinstance(target, ast.Name) and target.id == "code")


def _texts(value: ast.expr, constants: dict[str, ast.expr], place: str) -> set[str]:
    match value:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp():
            return _texts(value.body, constants, place) | _texts(value.orelse, constants, place)
        case ast.Name(id=name) if name in constants:
            return _texts(constants[name], constants, place)
        case ast.Dict(values=values):
            return {text for one in values for text in _texts(one, constants, place)}
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[_, default]):
            return _texts(constants[name], constants, place) | _texts(default, constants, place)
        case ast.Call(func=ast.Name(id="getattr"), args=[_, _, default]):
            return _texts(default, constants, place)
        case _:
            assert PASSED_ON.fullmatch(ast.unparse(value)), f"{place}: which codes can {ast.unparse(value)} be?"
            return set()


def codes_of_the_page(*headings: str) -> set[str]:
    """The codes in the first column of the tables below these headings, or of the whole page."""
    text = PAGE.read_text(encoding="utf-8").partition("## Codes of verdicts and criteria")[2]
    parts = re.split(r"^##+ (.+)$", text, flags=re.MULTILINE)
    sections = dict(zip(["", *parts[1::2]], parts[::2], strict=True))
    rows = (line for name in headings or sections for line in sections[name].splitlines() if line.startswith("| `"))
    return {code for row in rows for code in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_list_of_codes_is_that_of_the_code() -> None:
    found = codes_of_the_code()
    assert CODE_AT.keys() <= found.keys(), "a call that takes codes was renamed; CODE_AT should follow"
    assert codes_of_the_page() == set().union(*found.values()) | ELSEWHERE
    assert codes_of_the_page("Findings") == found["Finding"]
    gate = found["Rejection"]
    assert codes_of_the_page("The gate") == gate
    judged = found["result"] | found["Combined"] | gate | found["CommandsNotAllowed"]
    assert judged <= codes_of_the_page(*LOOKED, *NOBODY_LOOKED)


LOOKED = ("The work", "The gate", "Checks that the work or the criterion stopped")
NOBODY_LOOKED = ("Checks that could not look", "Judges that could not decide")


def test_a_fail_is_examined_exactly_where_the_page_says_so() -> None:
    for headings, examined in ((LOOKED, True), (NOBODY_LOOKED, False)):
        for code in codes_of_the_page(*headings) - {"skipped"}:
            assert _verdict(code, code).examined is examined, code
            assert _verdict(code).examined is examined, f"{code} of the verdict itself"
            assert _verdict(code, code, "not_met").examined, f"{code} and bad work"


def test_what_is_met_on_less_has_the_level_that_the_page_says() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("| code | level |")[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section, re.MULTILINE))
    elsewhere = {"check_tampered", "trusted"}  # the first of these is not met
    assert shown == {code: level for code, (level, _) in LOWERED.items() if code not in elsewhere}


def _verdict(code: str, *criteria: str) -> Verdict:
    """A FAIL with this code, and with failing criteria that have these codes."""
    results = tuple(
        CriterionResult(id=f"c{n}", text="x", kind="text", outcome="error", decided_by="nobody", code=one)
        for n, one in enumerate(criteria, start=1)
    )
    return Verdict(verdict="FAIL", verified=False, decided_by="nobody", code=code, reasoning="", criteria=results)


def test_a_child_that_failed_has_the_exit_code_that_the_page_says() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Errors of children")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) == 20
    for codes, status, *_, exit_code in rows:
        for code in re.findall(r"`(\w+)`", codes):
            error = {"code": code, "message": "x"}
            result = TaskResult.model_validate(
                {"verdict": None, "task_index": 0, "status": status.strip("`"), "summary": "", "error": error}
            )
            assert exits.of_report(Report(results=(result,))) == int(exit_code), code

"""The level of a verdict and of its criteria, and what criteria were read as, wherever they are shown."""

import json
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import pytest
from rich.console import Console, RenderableType

from delegate.batch.batch import Tally
from delegate.batch.item import ItemOutcome
from delegate.batch.results_file import fields
from delegate.cli.ci import github, junit, sarif
from delegate.cli.ci.problems import problems
from delegate.cli.screen.batch_progress import counts
from delegate.cli.screen.screens import record_screen, task_screen, verdict_screen, word
from delegate.hosts.mcp.definitions import structured
from delegate.types import (
    CriterionReading,
    CriterionResult,
    Level,
    RunResult,
    StatementPart,
    TaskResult,
    Verdict,
    VerdictWord,
)
from delegate.types.events import VerdictGiven
from tests.cli.command import delegate, openai_at, worker
from tests.support.model_server import ModelServer

READING = CriterionReading(by="model", parts=(StatementPart(text="it is kind", about="report"),))


def _one(
    id: str, level: Level | None, outcome: Literal["met", "not_met", "trusted"] = "met", **given: Any
) -> CriterionResult:
    return CriterionResult(id=id, text=f"text of {id}", kind="text", outcome=outcome, decided_by="check", code=outcome,
                           level=level, **given)  # fmt: skip


def _verdict(*criteria: CriterionResult, level: Level | None, verdict: VerdictWord = "PASS") -> Verdict:
    return Verdict(verdict=verdict, level=level, verified=level in ("proven", "seen"), decided_by="check", code="met",
                   reasoning="all is met", criteria=criteria)  # fmt: skip


WEAK = _verdict(_one("c1", "proven", held_before=True), _one("c2", "own_checks", reading=READING), level="own_checks")
STRONG = _verdict(_one("c1", "proven"), _one("c2", "seen", reading=READING), level="seen")
FAIL = _verdict(
    _one("c1", "proven"),
    _one("c2", "own_checks", "not_met", reason="the level is own checks", reading=READING),
    level=None, verdict="FAIL",
)  # fmt: skip


def _result(verdict: Verdict) -> TaskResult:
    return TaskResult(task_index=0, status="completed", verdict=verdict, report="done", cost_usd=0.1, handle="ab-0")


def _printed(screen: RenderableType) -> str:
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(screen)
    return " ".join(capture.get().split())


def test_a_screen_shows_the_level_of_the_verdict_and_of_each_criterion() -> None:
    shown = [
        _printed(verdict_screen(WEAK, "x")),
        _printed(task_screen(_result(WEAK), "x")),
        _printed(record_screen(_result(WEAK), "x", report="done")),
    ]
    for text in shown:
        assert text.startswith("PASS (own checks: c2) x")
        assert "proven" in text
        assert "it held before the child began" in text
        assert "read as report" in text
    assert "level own checks: c2" in shown[0]


@pytest.mark.parametrize(("verdict", "style"), [(STRONG, "bold green"), (WEAK, "bold yellow"), (FAIL, "bold red")])
def test_a_pass_below_seen_has_the_color_of_a_warning(verdict: Verdict, style: str) -> None:
    shown = word(verdict)
    assert style in {str(shown.style), *(str(span.style) for span in shown.spans)}


def test_github_shows_levels_and_warns_of_a_pass_below_seen() -> None:
    (weak,), (strong,) = (list(github.commands(one, "x", [])) for one in (WEAK, STRONG))
    assert weak.startswith("::warning title=delegate%3A x::PASS (own checks: c2): all is met%0Ac1 met; proven; it held")
    assert strong.endswith("::PASS (seen): all is met%0Ac1 met; proven%0Ac2 met; seen; read as report")
    assert strong.startswith("::notice ")
    error = list(github.commands(FAIL, "x", problems(FAIL, {})))[1]
    assert error.endswith("::the level is own checks%0Aread as report")
    summary = github.summary(WEAK, "x")
    assert "<td>own checks</td>" in summary
    assert "<td>read as report</td>" in summary


def test_junit_has_levels_as_properties() -> None:
    suite = ElementTree.fromstring(junit.document(WEAK, "x", []))[0]

    def properties(parent: ElementTree.Element) -> dict[str | None, str | None]:
        return {one.get("name"): one.get("value") for one in parent.findall("properties/property")}

    assert properties(suite)["level"] == "own_checks"
    first, second = map(properties, suite.findall("testcase"))
    assert (first["level"], first["held_before"]) == ("proven", "true")
    assert (second["level"], second["about"]) == ("own_checks", "read as report")


def test_sarif_has_levels_of_all_criteria() -> None:
    (run,) = sarif.document(FAIL, "x", problems(FAIL, {}), exit_code=1, elsewhere=".")["runs"]
    assert run["properties"]["level"] is None
    assert [(one["id"], one["level"], one["about"]) for one in run["properties"]["criteria"]] == [
        ("c1", "proven", ""),
        ("c2", "own_checks", "read as report"),
    ]
    (result,) = run["results"]
    assert (result["properties"]["level"], result["properties"]["about"]) == ("own_checks", "read as report")


def test_results_of_a_batch_have_levels_and_the_summary_counts_those_below_seen() -> None:
    outcomes = [ItemOutcome(id=str(n), row=n, input={}, state="done", result=_result(verdict))
                for n, verdict in enumerate((WEAK, STRONG, FAIL))]  # fmt: skip
    lines = list(map(fields, outcomes))
    assert [line["level"] for line in lines] == ["own_checks", "seen", None]
    assert [one["level"] for one in lines[0]["criteria"]] == ["proven", "own_checks"]
    assert [one["about"] for one in lines[0]["criteria"]] == [None, "read as report"]
    tally = Tally(total=3)
    for outcome in outcomes:
        tally.add(outcome)
    assert counts(tally) == "2 PASS (1 below seen), 1 FAIL"


def test_hosts_get_the_level_beside_verified() -> None:
    result = RunResult(results=(_result(WEAK), _result(FAIL)))
    assert [(one["level"], one["verified"]) for one in structured(result)["results"]] == [
        ("own_checks", False),
        (None, False),
    ]


def test_events_pages_exports_and_json_have_the_level(home: Path) -> None:
    assert VerdictGiven.__annotations__["level"]
    with ModelServer(worker()) as server:
        environment = openai_at(server)
        done = delegate("run", "Write note.md", "-c", "file note.md: it greets", "-c", "file: note.md", **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith("PASS (seen)  ")
        record = json.loads(delegate("show", "last", "1", "--json", **environment).stdout)
        verdict = record["result"]["verdict"]
        assert (verdict["level"], [one["level"] for one in verdict["criteria"]]) == ("seen", ["seen", "proven"])
        assert [event["level"] for event in record["events"] if event["kind"] == "verdict"] == ["seen"]
        assert "verdict: PASS (seen)" in delegate("show", "last", "--transcript", **environment).stdout
        page = delegate("page", "-o", "-", **environment).stdout
        assert ", decided by judge, seen · c1" in page
        assert ", decided by check, proven · c2" in page
        exported = json.loads(delegate("export", "last", "--format", "atif", **environment).stdout)
        assert exported["extra"]["delegate"]["level"] == "seen"
        example = delegate("export", "last", "--format", "preference", "--labels", "judge", **environment).stdout
        assert json.loads(example)["level"] == "seen"


def test_a_verdict_that_was_recorded_before_there_were_levels_says_whether_it_is_verified() -> None:
    old = _verdict(_one("c1", None), level=None).model_copy(update={"verified": True})
    assert str(old) == "PASS (verified)"
    assert _printed(verdict_screen(old, "x")).startswith("PASS (verified) x ✓ check text of c1")

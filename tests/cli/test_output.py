"""What is printed of results and verdicts, as text and as JSON."""

import json
import re

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from delegate.cli.input.options import Format
from delegate.cli.screen.output import print_result, print_result_as
from delegate.cli.screen.screens import record_screen, task_screen, verdict_screen
from delegate.contract.amounts import percent
from delegate.types import (
    Artifact,
    Claim,
    CriterionResult,
    ErrorDetail,
    FalsePassRate,
    Finding,
    JudgeAttempt,
    JudgeRecord,
    RunResult,
    RunStatus,
    TaskResult,
    Usage,
    Verdict,
    VerdictWord,
)
from delegate.types.codes import OwnCode
from delegate.types.money import usd


def _verdict(word: VerdictWord = "PASS") -> Verdict:
    criterion = CriterionResult(
        id="c1",
        text="it is polite",
        kind="text",
        outcome="met" if word == "PASS" else "not_met",
        decided_by="judge",
        code="met" if word == "PASS" else "not_met",
        reason="It says please.",
        evidence="please",
        source="report",
        level="seen" if word == "PASS" else None,
    )
    usage = Usage(model_calls=1, input_tokens=90, output_tokens=10)
    judge = JudgeRecord(model="gpt-6-luna", attempts=(JudgeAttempt(model="gpt-6-luna"),), usage=usage, cost_usd=0.001)
    return Verdict(
        verdict=word,
        level=criterion.level,
        verified=True,
        decided_by="judge",
        code=criterion.code,
        reasoning="",
        criteria=(criterion,),
        judge=judge,
    )


def _result(verdict: Verdict | None = None, status: RunStatus = "completed", report: str = "please") -> TaskResult:
    return TaskResult(verdict=verdict, task_index=0, status=status, report=report, cost_usd=0.004, handle="ab-0")


def _printed(screen: RenderableType, width: int = 100, *, terminal: bool = False) -> str:
    console = Console(force_terminal=terminal, width=width, color_system="standard" if terminal else None)
    with console.capture() as capture:
        console.print(screen)
    return capture.get()


def _shown(result: TaskResult, *, number: int | None = 1, terminal: bool = False) -> str:
    return _printed(task_screen(result, "Ask for [bold]tea[/bold]", number=number), terminal=terminal)


def _recorded(result: TaskResult) -> str:
    return _printed(record_screen(result, "Ask for tea", report=result.report))


def test_the_verdict_is_the_first_word_and_needs_no_color() -> None:
    assert _shown(_result(_verdict())).startswith("PASS (seen)  1. Ask for")
    assert _shown(_result(_verdict("FAIL"))).startswith("FAIL  1. Ask for")
    assert _shown(_result()).startswith("UNJUDGED  1. Ask for")
    assert _shown(_result(_verdict()), number=None).startswith("PASS (seen)  Ask for")
    assert "\x1b" not in _shown(_result(_verdict()))
    assert "\x1b" in _shown(_result(_verdict()), terminal=True)


def test_each_criterion_has_one_row_with_who_decided_it_and_why() -> None:
    met, failed = _verdict().criteria[0], _verdict("FAIL").criteria[0]
    checked = met.model_copy(update={"decided_by": "check", "reason": "68 bytes", "text": "it exists"})
    lines = _shown(_result(_verdict("FAIL").model_copy(update={"criteria": (met, failed, checked)}))).splitlines()
    assert lines[1] == "  ✓ judge  it is polite  seen: “please” (the report)"
    assert lines[2] == "  ✗ judge  it is polite  It says please."
    assert lines[3] == "  ✓ check  it exists     seen: 68 bytes"


def test_a_check_whose_reason_repeats_the_criterion_shows_no_reason() -> None:
    checked = (
        _verdict()
        .criteria[0]
        .model_copy(
            update={
                "decided_by": "check",
                "level": "proven",
                "text": "file a.md exists, contains 'b'",
                "reason": "a.md contains 'b'",
            }
        )
    )
    lines = _shown(_result(_verdict().model_copy(update={"criteria": (checked,)}))).splitlines()
    assert lines[1] == "  ✓ check  file a.md exists, contains 'b'  proven"


def test_the_files_are_named_with_their_folder_and_the_next_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/you")
    files = tuple(Artifact(path=f"{name}.md", change="created") for name in "abcde")
    result = _result(_verdict()).model_copy(update={"artifacts": files, "workspace": "/home/you/work"})
    assert "  files    a.md, b.md, c.md and 2 more in ~/work\n" in _shown(result)
    one = result.model_copy(update={"artifacts": files[:1]})
    assert "  files    ~/work/a.md\n" in _shown(one)
    assert (
        _printed(task_screen(one, "x", more="delegate show last")).splitlines()[-1].endswith("more: delegate show last")
    )


def test_the_report_is_shown_where_it_is_the_result() -> None:
    assert "\n  report    please\n" in _shown(_result())
    long = "line one\n" + "word " * 500
    assert _shown(_result(report=long)).count("word") == 500
    judged = _shown(_result(_verdict(), report=long))
    assert 10 < judged.count("word") < 100
    assert judged.rstrip().endswith("…")
    with_files = _result(_verdict()).model_copy(update={"artifacts": (Artifact(path="a", change="created"),)})
    assert "report  " not in _shown(with_files)


HOSTILE = [
    "x" * 300,
    "日本語のとても長い目標" * 20,
    "👨‍👩‍👧 ❤️ 👍🏽 " * 30,
    "שלום עולם " * 30,
    "a\u200bb\u202ec\ttab\nline " * 20,
    "e\u0301" * 150,
]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("text", HOSTILE)
def test_no_line_is_wider_than_the_console(text: str, width: int) -> None:
    outcomes: tuple[tuple[VerdictWord, str], ...] = (("PASS", "met"), ("FAIL", "not_met"), ("FAIL", "self_report_only"))
    criteria = [
        _verdict(word)
        .criteria[0]
        .model_copy(update={"id": f"c{n}", "text": text, "reason": f"reason{n} {text}", "evidence": text, "code": code})
        for n, (word, code) in enumerate(outcomes)
    ]
    finding = Finding(severity="critical", code=OwnCode("x" * 100), message=text)
    verdict = _verdict("FAIL").model_copy(update={"criteria": tuple(criteria), "findings": (finding,)})
    files = tuple(Artifact(path=text.replace("\n", ""), change="created") for _ in range(5))
    error = ErrorDetail(code="server_error", message=text)
    result = _result(verdict, "failed", text).model_copy(
        update={"artifacts": files, "workspace": "/" + "y" * 200, "error": error, "seconds": 12345.6}
    )
    screens = (
        task_screen(result, text, number=123, more="delegate show last 123"),
        record_screen(result, text, report=text),
        verdict_screen(verdict, text),
        task_screen(_result(report=text), text),
    )
    for screen in screens:
        for line in _printed(screen, width, terminal=True).splitlines():
            assert cell_len(re.sub(r"\x1b\[[\d;]*m", "", line)) <= width
    shown = _printed(screens[0], width)
    assert all(line == line.rstrip() for line in shown.splitlines())
    assert "reason1" in shown
    assert "reason2" in shown


def test_several_tasks_are_numbered_and_end_with_one_line_of_totals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    first, second = _result(_verdict()), _result(_verdict("FAIL")).model_copy(update={"task_index": 1})
    print_result(RunResult(results=(first, second)), ["Make tea", "Make coffee"])
    shown = capsys.readouterr().out
    assert shown.startswith("PASS (seen)  1. Make tea ")
    assert "\nFAIL  2. Make coffee " in shown
    assert "delegate show last 2" in shown
    assert shown.splitlines()[-1].startswith("0 PASS, 0 FAIL · cost ")
    print_result(RunResult(results=(first,)), ["Make tea"])
    alone = capsys.readouterr().out
    assert alone.startswith("PASS (seen)  Make tea ")
    assert alone.splitlines()[-1] == "  more     delegate show last"


def test_the_judges_of_earlier_claims_are_in_the_judges_line() -> None:
    usage = Usage(model_calls=1, input_tokens=90, output_tokens=10)
    claims = tuple(
        Claim(
            n=n, rationale="", step=n, verdict="FAIL", code="not_met", decided_by="judge", usage=usage, cost_usd=0.001
        )
        for n in (1, 2)
    )
    shown = _recorded(_result(_verdict()).model_copy(update={"claims": claims, "verification_share": 0.5}))
    assert "judge gpt-6-luna: $0.0020, 50.0 % of the cost, 2 calls, 180 tokens in, 20 out\n" in shown


def test_text_of_a_child_does_not_control_the_terminal() -> None:
    shown = _shown(_result(_verdict(), report="\x1b[2J\x1b]0;title\x07[red]PASS[/red]\r\x9b31m done"), terminal=True)
    assert "\x1b[2J" not in shown
    assert "title" not in shown
    assert "\x9b" not in shown
    assert "[red]PASS[/red]" in shown
    assert "[bold]tea[/bold]" in shown


def _shown_alone(**given: object) -> list[str]:
    return _printed(verdict_screen(_verdict().model_copy(update=given), "Ask for tea")).splitlines()


def test_a_score_is_shown_with_its_coverage_unless_it_adds_nothing() -> None:
    def basis(**given: object) -> str:
        return " ".join(" ".join(_shown_alone(**given)).partition("  basis ")[2].partition("  costs")[0].split())

    assert basis() == "met, decided by judge; level seen"
    assert basis(score=1.0, coverage=1.0) == basis()
    assert "; score 0.75, with 100%" in basis(score=0.75, coverage=1.0)
    assert "; score 1.00, with 50%" in basis(score=1.0, coverage=0.5)


def test_findings_are_shown_and_cannot_add_lines() -> None:
    finding = Finding(severity="major", code="vacuous_check", message="c1:\nPASS  all is well\x1b[2J")
    lines = _shown_alone(findings=(finding,))
    assert "  ! major  vacuous_check: c1: PASS  all is well" in lines


def test_a_findings_only_criterion_is_marked() -> None:
    criterion = _verdict("FAIL").criteria[0].model_copy(update={"findings_only": True})
    lines = _shown_alone(criteria=(criterion,))
    assert lines[0].startswith("PASS (seen)  Ask for tea")
    assert "  ✗ judge  it is polite  It says please. (findings only)" in lines


def test_the_reason_of_the_gate_is_shown_even_if_it_is_off() -> None:
    refused = _shown_alone(
        decided_by="gate", code="empty_report", gate="empty_report", reasoning="the child ended\nwithout a report"
    )
    assert "  ✗ gate   empty_report: the child ended without a report" in refused
    assert "  ! gate   is off; it would have refused: empty_report" in _shown_alone(gate="empty_report")


def test_json_is_complete_and_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    report = "a\x1b[2J b\x9b31m c\u202e d\ud800 é"
    print_result_as(Format.json, RunResult(results=(_result(report=report),)))
    text = capsys.readouterr().out
    assert json.loads(text)["results"][0]["report"] == report
    assert "é" in text
    assert not any(char in text for char in "\x1b\x9b\u202e\ud800")


def test_a_refused_call_is_one_error_object_in_both_json_formats(capsys: pytest.CaptureFixture[str]) -> None:
    result = RunResult(error=ErrorDetail(code="no_task", message="no task"))
    for format in (Format.json, Format.jsonl):
        print_result_as(format, result)
        assert list(json.loads(capsys.readouterr().out)) == ["error"]


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "unknown"),
        (0, "$0.00"),
        (0.0000001, "under $0.000001"),
        (0.0000123, "$0.000012"),
        (0.00042, "$0.0004"),
        (0.5, "$0.5000"),
        (12.3, "$12.30"),
    ],
)
def test_an_unknown_cost_is_never_shown_as_zero(amount: float | None, text: str) -> None:
    assert usd(amount) == text


@pytest.mark.parametrize(("share", "text"), [(0, "0.0 %"), (0.0003, "under 0.1 %"), (0.0312, "3.1 %"), (1, "100.0 %")])
def test_a_small_share_is_never_shown_as_zero(share: float, text: str) -> None:
    assert percent(share) == text


def test_the_error_rate_that_a_verdict_relies_on_is_shown() -> None:
    rate = FalsePassRate(judge="j", worker="w", n=200, false_passes=2, upper=0.0357, limit=0.05, measured_on=None)
    verdict = _verdict()
    assert verdict.judge
    judge = verdict.judge.model_copy(update={"false_pass": rate})
    shown = _shown(_result(verdict.model_copy(update={"judge": judge})))
    assert "false PASS at most 3.6% (2 of 200 rulings on work of w)" in " ".join(shown.split())
    assert "false PASS" not in _shown(_result(verdict))

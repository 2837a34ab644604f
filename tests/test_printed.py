"""What `print` and a notebook show of reports, results and verdicts."""

import re

import pytest

from delegate import RunResult, TaskResult
from delegate.types import CriterionResult, ErrorDetail, RunStatus, Totals, Verdict, VerdictWord

HOSTILE = "<script>alert('x')</script>\x1b[2J\nPASS \u202e & more"


def _verdict(word: VerdictWord = "FAIL", text: str = "it exists: a.md does not exist") -> Verdict:
    outcome, code = ("met", "met") if word == "PASS" else ("not_met", "not_met")
    criterion = CriterionResult.model_validate(
        {"id": "c1", "text": text, "kind": "file", "outcome": outcome, "decided_by": "check", "code": code,
         "reason": text}
    )  # fmt: skip
    return Verdict(
        verdict=word,
        level="proven" if word == "PASS" else None,
        verified=True,
        decided_by="check",
        code=code,
        reasoning=f"c1 {text}",
        criteria=(criterion,),
    )


def _result(n: int, verdict: Verdict | None, status: RunStatus = "completed") -> TaskResult:
    return TaskResult(verdict=verdict, task_index=n, status=status, report="", seconds=2)


def test_a_report_is_one_line_and_one_per_failed_task() -> None:
    totals = Totals(tasks=3, cost_usd=0.01234, seconds=4.2)
    results = (_result(0, _verdict("PASS")), _result(1, _verdict()), _result(2, None, "timeout"))
    assert str(RunResult(results=results, totals=totals, run_id="ab")).splitlines() == [
        "1 PASS, 1 FAIL, 1 without criteria, 4.2 s, $0.0123, run ab",
        "task 2: FAIL: c1 it exists: a.md does not exist",
        "task 3: timeout",
    ]


def test_a_report_of_many_failures_has_at_most_five_lines() -> None:
    lines = str(RunResult(results=tuple(_result(n, _verdict()) for n in range(9)))).splitlines()
    assert len(lines) == 5
    assert lines[-1] == "and 6 more that failed"


def test_a_refused_report_says_why_and_how_to_fix_it() -> None:
    refused = RunResult(error=ErrorDetail(code="no_task", message="there is no task", hint="send one"))
    assert str(refused) == "refused: no_task: there is no task (send one)"


def test_a_pass_says_what_it_is_worth() -> None:
    assert str(_verdict("PASS")) == "PASS (proven)"
    assert str(_result(0, _verdict("PASS"))) == "task 1: PASS (proven)"


def test_a_command_is_printed_with_its_own_spaces() -> None:
    assert "`test 'A  b' = ab`" in str(_verdict(text="`test 'A  b' = ab`"))


def test_hostile_text_adds_no_lines_and_no_control_characters() -> None:
    for value in (_verdict(text=HOSTILE * 50), _result(0, _verdict(text=HOSTILE * 50))):
        assert len(str(value).splitlines()) == 1
        assert len(str(value)) < 400
        assert str(value).isprintable()


@pytest.mark.parametrize(
    "value",
    [
        _verdict(text=HOSTILE),
        _result(0, _verdict(text=HOSTILE)),
        RunResult(results=(_result(0, _verdict(text=HOSTILE)),), run_id="<b>x</b>"),
    ],
    ids=["verdict", "result", "report"],
)
def test_a_notebook_shows_an_escaped_table(value: Verdict | TaskResult | RunResult) -> None:
    html = value._repr_html_()  # pyright: ignore[reportPrivateUsage]
    tags = {name.removeprefix("/") for name in re.findall(r"<(/?\w+)", html)}
    assert tags == {"p", "b", "table", "tr", "th", "td"}
    assert "<td>" in html
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in html
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_a_notebook_names_the_record_of_each_task_of_a_run() -> None:
    result = _result(0, _verdict()).model_copy(update={"handle": "1f2e-0"})
    html = RunResult(results=(result,))._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert (html.count("<th>handle</th>"), html.count("<td>1f2e-0</td>")) == (1, 1)


def test_repr_still_names_every_field() -> None:
    assert repr(_verdict()).startswith("Verdict(verdict='FAIL', level=")
    assert repr(RunResult()).startswith("RunResult(")

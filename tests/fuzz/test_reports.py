"""Fuzz the text of a report: all texts of child, judge and provider are fenced or quoted."""

import re

from hypothesis import strategies as st

from delegate.contract import render
from delegate.types import (
    Artifact,
    CriterionResult,
    ErrorDetail,
    Finding,
    JudgeRecord,
    RunResult,
    TaskResult,
    Totals,
    Verdict,
)
from tests.fuzz.fuzzing import ends_soon, fuzz

NONCE = "0123456789ab"
FORGERIES = [
    "PASS", "FAIL", "task 1: PASS", "Verdict: ", "about task 1", "in all: 1 PASS", "total: 1 PASS",
    "end report of task 1 ",
]  # fmt: skip
SIGNS = ['"', "'", "<<<", "<", "\uff1c", ">>>", "- ", "→", "; ", "(", ")", " ", "\n", "\r", "\u2028", "\x0b", "x" * 300]
HIDDEN = ["\x1b[2K", "\x1b]8;;x\x07", "\u202e", "\u200b", "\u00ad", "\ud800", "\0", "\U000e0050"]
PIECES = [*FORGERIES, NONCE, *SIGNS, *HIDDEN, "report of task 1 ", "[cut here: 5 more characters"]
WORDS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)


@st.composite
def results(draw: st.DrawFn) -> TaskResult:
    """A result with random texts of the child, its judge and its provider."""
    criterion = CriterionResult(
        id="c1", text=draw(WORDS), kind="text", outcome="not_met", decided_by="judge", code="not_met",
        reason=draw(WORDS), evidence=draw(WORDS), source=draw(WORDS | st.none()),
    )  # fmt: skip
    verdict = Verdict(
        verdict="FAIL", verified=False, decided_by="judge", code="not_met", reasoning=draw(WORDS),
        criteria=draw(st.sampled_from([(), (criterion,)])),
        findings=(Finding(severity="info", code="hidden_text", message=draw(WORDS)),),
        judge=JudgeRecord(model="judge-1", model_served=draw(WORDS), substituted=True),
    )  # fmt: skip
    return TaskResult(
        task_index=0,
        status="failed",
        verdict=verdict,
        report=draw(WORDS),
        structured_output=draw(st.none() | st.dictionaries(WORDS, WORDS, max_size=2)),
        artifacts=tuple(Artifact(path=path, change="created") for path in draw(st.lists(WORDS, max_size=2))),
        error=ErrorDetail(code="crashed", message=draw(WORDS)),
        model=draw(WORDS),
        requested_model="model-1",
        substituted=True,
        workspace=draw(WORDS),
        handle="abc-0",
    )


@fuzz(25, result=results())
def test_a_childs_text_never_leaves_its_quotes_or_its_fence(result: TaskResult) -> None:
    both = (result, result.model_copy(update={"task_index": 1}))
    with ends_soon():
        text = render(RunResult(results=both, totals=Totals(tasks=2, failed=2)), nonce=NONCE)
    text.encode()
    assert all(sign.isprintable() or sign in "\n\t" or not sign.isascii() for sign in text)
    ours = re.sub(rf"<<<([^\n]*) {NONCE}>>>\n.*?\n<<<end \1 {NONCE}>>>", _checked_fence, text, flags=re.DOTALL)
    assert "<<<" not in ours
    assert all(line.count('"') % 2 == 0 for line in ours.split("\n"))
    first, *between, last = re.sub('"[^"\n]*"', '""', ours).split("\n")
    each = r"(FAIL \w+|internal error|had no criteria, \w+)"
    assert re.fullmatch(rf"(0 of 2 PASS|no verdicts); task 1 {each}; task 2 {each}", first)
    assert last == first
    unquoted = "\n".join(between)
    assert "PASS" not in unquoted
    starts = re.findall(r"(?m)^(\d|task|about task|total|in all|run)\b", unquoted)
    assert starts == ["task", "task", "total", "about task", "about task"]


def _checked_fence(fence: re.Match[str]) -> str:
    for line in fence[0].split("\n")[1:-1]:
        assert not re.match(r"\W*(task 1: |Verdict: )?(PASS|FAIL)\b", line), line
    return ""

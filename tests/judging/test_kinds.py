"""Questions, predicates, receipts and rubrics in whole verdicts; self-reports; criteria that are refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from delegate import CallError, Delegator, Task, Verdict
from delegate.judging.versions import canonical
from delegate.models.providers.scripted import Scripted
from delegate.types.ports import ChatRequest
from tests.support.words import Answer, Child, met_by, verdicts, words

WROTE: Child = [Scripted.call("write_file", path="a.md", content="ten rows\n"), 'Made it: {"rows": 10, "ok": true}']
JSON_ONLY: Child = ['{"status": 404, "body": {"ok": true}}']


async def judged(client: Scripted, *criteria: Any, **options: Any) -> Verdict:
    options = {"commands": "allow"} | options  # what is tested holds without a sandbox too
    async with Delegator(client=client, **options) as delegator:
        result = await delegator.run(Task(goal="make it", acceptance_criteria=criteria))
    assert result.error is None, result.error
    verdict = result.results[0].verdict
    assert verdict
    return verdict


# ------------------------------------------------------------------------------------------------------- questions


@pytest.mark.parametrize(
    ("threshold", "answers", "verdict", "code"),
    [
        ("yes", {"c1": ("met", "ten rows")}, "PASS", "met"),
        ("yes", {"c1": ("not_met", "ten rows")}, "FAIL", "not_met"),
        ("high_confidence", {"c1": ("met", "ten rows"), "c1.sure": ("met", "ten rows")}, "PASS", "met"),
        ("high_confidence", {"c1": ("met", "ten rows"), "c1.sure": ("cannot_tell", "")}, "FAIL", "not_confident"),
        ("high_confidence", {"c1": ("met", "ten rows"), "c1.sure": ("not_met", "ten rows")}, "FAIL", "not_confident"),
        ("high_confidence", {"c1": ("met", "ten rows"), "c1.sure": ("met", "made up")}, "FAIL", "not_confident"),
        ("high_confidence", {"c1": ("met", "made up"), "c1.sure": ("met", "ten rows")}, "FAIL", "evidence_not_found"),
    ],
)
async def test_a_question_needs_a_yes_and_if_requested_high_confidence(
    threshold: str, answers: dict[str, Answer], verdict: str, code: str
) -> None:
    about = {"file": "a.md"}
    question = {"kind": "question", "question": "Are there ten rows?", "threshold": threshold, "about": about}
    got = await judged(words(WROTE, lambda request: verdicts(**answers)), question)
    assert (got.verdict, got.code, len(got.criteria)) == (verdict, code, 1)


# ------------------------------------------------------------------------------------------- predicates and receipts


async def test_a_predicate_says_which_part_failed_and_with_what_value() -> None:
    verdict = await judged(words(JSON_ONLY), {"kind": "json_predicate", "expr": "status === 200 && body.ok === true"})
    assert (verdict.verdict, verdict.code, verdict.decided_by) == ("FAIL", "not_met", "check")
    assert "404" in verdict.reasoning
    holds = await judged(words(JSON_ONLY), {"kind": "json_predicate", "expr": "status === 404 && body.ok"})
    assert (holds.verdict, holds.verified) == ("PASS", True)


async def test_a_predicate_over_an_output_without_json_is_not_met() -> None:
    verdict = await judged(words(["no JSON here"]), {"kind": "json_predicate", "expr": "output"})
    assert (verdict.code, verdict.criteria[0].outcome) == ("not_met", "not_met")


async def test_receipts_of_the_run_itself_decide() -> None:
    wrote = {"kind": "receipt", "calls": [{"tool": "write_file", "args": {"path": {"matches": r"\.md$"}}}]}
    verdict = await judged(words(WROTE), wrote, {"kind": "receipt", "mode": "none", "of": ["run_shell"]})
    assert (verdict.verdict, verdict.criteria[0].source) == ("PASS", "receipt:1")
    other = await judged(words(WROTE), {"kind": "receipt", "mode": "exactly", "of": ["write_file"]})
    assert (other.verdict, other.code) == ("FAIL", "not_met")
    assert "not expected: write_file" in other.reasoning


# --------------------------------------------------------------------------------------------------------- rubrics

RUBRIC: dict[str, Any] = {
    "name": "tale",
    "dimensions": [
        {"id": "plot", "description": "there is one", "weight": 3, "max": 4},
        {"id": "style", "description": "it reads well", "min": 1, "max": 5},
    ],
    "failure_modes": [{"id": "cliche", "description": "it was a dark night"}],
    "wins": [{"id": "short", "description": "it is short"}],
    "threshold": 0.7,
}


def scored(plot: Any = 3, style: Any = 4, quote: str = "ten rows", **more: Any) -> str:
    scores = [{"id": id, "evidence": quote, "reason": "r", "score": n} for id, n in (("plot", plot), ("style", style))]
    given = [one for one in scores if one["score"] is not None]
    return json.dumps({"scores": given, "failure_modes": [], "wins": [], **more})


@pytest.mark.parametrize(
    ("reply", "verdict", "code", "score"),
    [
        (scored(), "PASS", "met", 0.75),
        (scored(plot=2), "FAIL", "not_met", 0.5625),
        (scored(style=None), "FAIL", "judge_unparseable", None),
        (scored(plot=5), "FAIL", "judge_unparseable", None),
        (scored(plot="3"), "FAIL", "judge_unparseable", None),
        (scored(plot=True), "FAIL", "judge_unparseable", None),
        (scored(quote="nowhere"), "FAIL", "judge_unparseable", None),
        (scored(failure_modes=["unheard of"]), "FAIL", "judge_unparseable", None),
        (scored(verdict="PASS"), "FAIL", "judge_unparseable", None),
        ("PASS", "FAIL", "judge_unparseable", None),
    ],
)
async def test_a_rubric_is_the_weighted_mean_of_complete_and_proven_scores(
    reply: str, verdict: str, code: str, score: float | None
) -> None:
    got = await judged(words(WROTE, lambda request: reply), {"kind": "rubric", "rubric": RUBRIC})
    assert (got.verdict, got.code, got.criteria[0].score) == (verdict, code, score)


async def test_named_failures_and_wins_are_findings() -> None:
    reply = scored(failure_modes=["cliche"], wins=["short"])
    got = await judged(words(WROTE, lambda request: reply), {"kind": "rubric", "rubric": RUBRIC})
    assert [(one.severity, one.code) for one in got.findings] == [("major", "cliche"), ("info", "short")]


async def test_a_rubric_and_a_text_criterion_are_two_questions_in_one_record() -> None:
    def judge(request: ChatRequest) -> str:
        return scored() if "Rubric: tale" in request.messages[0].text else met_by("ten rows")(request)

    got = await judged(words(WROTE, judge), {"kind": "rubric", "rubric": RUBRIC}, "file a.md: there are ten rows")
    assert got.verdict == "PASS"
    assert got.judge
    assert [one.purpose for one in got.judge.attempts] == ["reading", "judging", "judging"]
    assert got.judge.usage.model_calls == 3, "with the one that read the rubric's dimensions"


@pytest.mark.parametrize("name", ["research_report", "code_change"])
async def test_rubrics_that_ship_can_be_named(name: str) -> None:
    def judge(request: ChatRequest) -> str:
        dimensions = re.findall(r"^(\w+) \(from [\d.]+ to ([\d.]+)\)", request.messages[0].text, re.MULTILINE)
        scores = [{"id": id, "evidence": "ten rows", "reason": "r", "score": float(top)} for id, top in dimensions]
        return json.dumps({"scores": scores, "failure_modes": [], "wins": []})

    got = await judged(words(WROTE, judge), {"kind": "rubric", "rubric": name})
    assert (got.verdict, got.criteria[0].score) == ("PASS", 1)


# ------------------------------------------------------------------------------------------------- self-reports


@pytest.mark.parametrize(
    "criterion", ["deed: The tests pass.", "file a.md: a.md was written.", "deed: The database was updated."]
)
async def test_a_report_alone_is_no_evidence_for_an_action_without_trace(criterion: str) -> None:
    claim = "The tests pass, a.md was written and the database was updated."
    verdict = await judged(words([claim], met_by("The tests pass")), criterion)
    assert (verdict.verdict, verdict.code, verdict.verified) == ("FAIL", "self_report_only", True)


@pytest.mark.parametrize(
    "criterion", ["report: The report says what was done.", "It is written in English.", "The tone is warm."]
)
async def test_a_criterion_about_the_text_is_met_by_the_text(criterion: str) -> None:
    verdict = await judged(words(["The tests pass, a.md was written."], met_by("The tests pass")), criterion)
    assert verdict.verdict == "PASS"


async def test_the_list_of_files_shows_which_files_were_written() -> None:
    verdict = await judged(words(WROTE, met_by("created a.md (9 bytes)")), "file a.md: a.md was written.")
    assert (verdict.verdict, verdict.criteria[0].source) == ("PASS", "artifacts")
    for claim, criterion in (
        ("created a.md (9 bytes)", "file b.md: b.md was written."),
        ("Made it", "file a.md: it was written."),
    ):
        other = await judged(words(WROTE, met_by(claim)), criterion)
        assert other.verdict == "FAIL"


# -------------------------------------------------------------------------------------------------- refused criteria


@pytest.mark.parametrize(
    "criterion",
    [
        {"kind": "json_predicate", "expr": "a = 1"},
        {"kind": "json_predicate", "expr": "a ==="},
        {"kind": "rubric", "rubric": "no_such_rubric"},
        {"kind": "regex", "pattern": "("},
        {"kind": "regex", "pattern": "((((a{1000}){1000}){1000}){1000})"},
        {"kind": "receipt", "calls": [{"tool": "x", "args": {"a": [{"matches": "("}]}}]},
        {"kind": "json_schema", "schema": {"type": "objekt"}},
    ],
)
async def test_an_undecidable_criterion_is_rejected_before_spending(criterion: dict[str, Any]) -> None:
    client = Scripted(lambda request: "never asked")
    async with Delegator(client=client) as delegator:
        task = Task.model_validate({"goal": "x", "acceptance_criteria": ["fine", criterion]})
        with pytest.raises(CallError) as refused:
            await delegator.run(task)
    assert (refused.value.code, refused.value.field) == ("invalid_criterion", "acceptance_criteria[1]")
    assert refused.value.hint
    assert not client.requests


async def test_a_check_that_cannot_fail_is_a_finding() -> None:
    verdict = await judged(words(WROTE), {"kind": "shell", "command": "grep -q nowhere a.md || true"})
    assert verdict.verdict == "PASS"
    (finding,) = verdict.findings
    assert finding.code == "vacuous_check"
    assert finding.message == "c1: it succeeds in an empty folder too"
    honest = await judged(words(WROTE), {"kind": "shell", "command": "grep -q rows a.md"})
    assert honest.findings == ()


# ------------------------------------------------------------------------------------------------ judging existing work


async def test_work_that_exists_can_be_judged_without_a_child(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("2 passed\n")
    client = words([], met_by("2 passed"))
    async with Delegator(client=client) as delegator:
        verdict = await delegator.judge(
            goal="run the tests",
            acceptance_criteria=[
                "file out.txt: out.txt says that two tests passed",
                {"kind": "file", "path": "out.txt"},
                {"kind": "receipt", "calls": [{"tool": "sh"}]},
            ],
            report="All good.",
            workspace=tmp_path,
            receipts=[{"tool": "sh", "args": {"command": "pytest"}, "status": "ok", "output": "2 passed"}],
            worker_model="gpt-6-luna",
        )
    assert (verdict.verdict, verdict.verified) == ("PASS", True)
    assert verdict.criteria[0].source == "artifact:out.txt"
    assert verdict.judge
    assert verdict.judge.tier == "fast", "no judge is above the worker's tier"
    assert len(client.requests) == 1


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"acceptance_criteria": [{"kind": "shell"}]}, "invalid_criterion"),
        ({"acceptance_criteria": []}, "empty"),
        ({"workspace": "/no/such/folder"}, "workspace_not_found"),
        ({"workspace": "no\0path"}, "workspace_not_found"),
        ({"workspace": "\ud800"}, "workspace_not_found"),
        ({"workspace": "~nobody-here/x"}, "workspace_not_found"),
        ({"receipts": [{"tool": "x"}]}, "invalid_criterion"),
    ],
)
async def test_what_cannot_be_judged_is_one_error(given: dict[str, Any], code: str) -> None:
    arguments: dict[str, Any] = {"goal": "x", "acceptance_criteria": ["y"], "report": "z"} | given
    async with Delegator(client=Scripted([])) as delegator:
        with pytest.raises(CallError) as caught:
            await delegator.judge(**arguments)
    assert caught.value.code == code
    assert caught.value.hint


# --------------------------------------------------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "é\n"]}, '{"a":[true,null,"é\\n"],"b":1}'),
        ({"\U0001f600": 1, "\ufb33": 2}, '{"\U0001f600":1,"\ufb33":2}'),
        ([2.0**67, -123456789012345683968], "[147573952589676410000,-123456789012345680000]"),
        ([1.0, 0.1, 1e21, 1e-7, 0.000001, 1e16, -0.0, 333333333.33333329, 5e-324], 
         "[1,0.1,1e+21,1e-7,0.000001,10000000000000000,0,333333333.3333333,5e-324]"),
    ],
)  # fmt: skip
def test_canonical_json_is_that_of_rfc_8785(value: Any, text: str) -> None:
    assert canonical(value) == text


async def test_a_rubric_counts_by_its_content() -> None:
    client = words(WROTE, lambda request: scored())
    first = await judged(client, {"kind": "rubric", "rubric": RUBRIC})
    again = await judged(client, {"kind": "rubric", "rubric": {**RUBRIC}})
    heavier = {**RUBRIC, "dimensions": [{**RUBRIC["dimensions"][0], "weight": 4}, RUBRIC["dimensions"][1]]}
    other = await judged(client, {"kind": "rubric", "rubric": heavier})
    assert first.rubric_version == again.rubric_version != other.rubric_version

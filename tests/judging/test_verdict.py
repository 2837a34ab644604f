"""Verdicts: the order of judging, the conditions for PASS, and the reasons for FAIL."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Task, TaskResult, Verdict
from delegate.models.providers.scripted import Scripted
from delegate.policy.settings import SettingsOptions
from delegate.types import Usage
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.words import Child, asked_ids, is_judge, met_by, verdicts, words

WROTE: Child = [
    Scripted.call("write_file", path="out.txt", content="2 passed\n"),
    "I wrote out.txt:\n2 passed\nThat is the result.",
]


async def judged(client: Scripted, *criteria: Any, **options: Any) -> Verdict:
    verdict = (await delegated(client, *criteria, **options)).verdict
    assert verdict is not None
    return verdict


async def delegated(client: Scripted, *criteria: Any, **options: Any) -> TaskResult:
    options = {"commands": "allow"} | options  # what is tested holds without a sandbox too
    async with Delegator(client=client, **options) as delegator:
        result = await delegator.run(Task(goal="do it", acceptance_criteria=criteria))
    return result.results[0]


def judge_calls(client: Scripted) -> int:
    return sum(is_judge(request) for request in client.requests)


async def test_pass_needs_every_criterion_met_on_evidence_that_code_found() -> None:
    client = words(WROTE, met_by("2 passed"))
    verdict = await judged(client, "file out.txt: out.txt says that two passed", {"kind": "file", "path": "out.txt"})
    assert (verdict.verdict, verdict.verified, verdict.decided_by, verdict.code) == ("PASS", True, "judge", "met")
    first, second = verdict.criteria
    assert (first.id, first.source, first.evidence) == ("c1", "artifact:out.txt", "2 passed")
    assert (second.id, second.decided_by, second.outcome) == ("c2", "check", "met")
    assert judge_calls(client) == 1
    assert asked_ids(client.requests[-1]) == ["c1"]


async def test_a_failed_check_decides_and_no_model_is_asked() -> None:
    client = words(["All tests pass, I checked twice."], met_by("All tests pass"))
    verdict = await judged(client, "the tests pass", {"kind": "shell", "command": "echo 1 failed >&2; exit 3"})
    assert (verdict.verdict, verdict.verified, verdict.decided_by, verdict.code) == ("FAIL", True, "check", "not_met")
    assert "exit code 3, wanted 0: 1 failed" in verdict.reasoning
    assert [criterion.outcome for criterion in verdict.criteria] == ["skipped", "not_met"]
    assert judge_calls(client) == 0


async def test_the_reason_of_a_failed_command_names_its_error_and_draws_no_lines() -> None:
    lines = ("test_sum", "=====", "Traceback:", "  f()", "AssertionError: 2 != 3", "", "-----", "Ran 3 tests", "",
             "FAILED (failures=1)")  # fmt: skip
    command = f"printf '%s\\n' {' '.join(map(shlex.quote, lines))} >&2; exit 1"
    verdict = await judged(words(["The sum is right now."]), {"kind": "shell", "command": command})
    reason = verdict.criteria[0].reason
    assert reason == "exit code 1, wanted 0: AssertionError: 2 != 3\nRan 3 tests\nFAILED (failures=1)"


@pytest.mark.parametrize("quote", ["100 passed", "the tables are complete"], ids=["made up", "the criterion"])
async def test_a_claim_of_met_whose_quote_is_nowhere_is_not_met(quote: str) -> None:
    verdict = await judged(words(WROTE, met_by(quote)), "report: the tables are complete")
    assert (verdict.verdict, verdict.code, verdict.verified) == ("FAIL", "evidence_not_found", False)
    assert verdict.criteria[0].outcome == "not_met"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("PASS", "judge_unparseable"),
        ("", "judge_unparseable"),
        (verdicts(c1=("met", "2 passed"), c2=("met", "2 passed")), "judge_unparseable"),
        (ChatReply(verdicts(c1=("met", "2 passed")), "length", Usage()), "judge_unparseable"),
        (ChatReply("", "refusal", Usage(), stop_detail="policy"), "judge_refused"),
        (verdicts(c1=("cannot_tell", "")), "cannot_tell"),
        (verdicts(c1=("not_met", "2 passed")), "not_met"),
    ],
    ids=["prose", "nothing", "unknown id", "cut off", "refusal", "cannot tell", "not met"],
)
async def test_any_other_answer_of_a_judge_is_a_fail_with_its_own_code(reply: Any, code: str) -> None:
    client = words(WROTE, lambda request: reply)
    verdict = await judged(client, "report: the report says that two passed")
    assert (verdict.verdict, verdict.code) == ("FAIL", code)
    assert judge_calls(client) == 1, "a judge that answered is never asked again"


async def test_an_unreachable_judge_is_replaced_by_the_next_and_is_named() -> None:
    asked: list[str] = []

    def judge(request: ChatRequest) -> str:
        asked.append(request.model)
        if len(asked) == 1:
            raise ProviderError("server_error", "busy", provider="x", final=True)
        return verdicts(c1=("met", "2 passed"))

    verdict = await judged(words(WROTE, judge), "report: the report says that two passed")
    assert verdict.judge
    assert (verdict.verdict, verdict.judge.model) == ("PASS", asked[1])
    reasons = {candidate.model: candidate.reason for candidate in verdict.judge.candidates}
    assert reasons[asked[0]] == "server_error: busy"
    assert reasons[asked[1]] is None


async def test_no_other_model_of_a_provider_with_a_wrong_key_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def script(call: Call) -> Reply | Fault:
        return Fault(401) if call.wants_json else Reply("2 passed\nI am sure")

    with ModelServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "dummy")
        async with Delegator() as delegator:
            result = await delegator.call(
                {"goal": "do it", "acceptance_criteria": ["report: the report says that two passed"]}
            )
        judged_by = [call.model for call in server.calls if call.wants_json]
    verdict = result.results[0].verdict
    assert verdict
    assert (verdict.code, len(judged_by)) == ("judge_unavailable", 1)


async def test_without_any_reachable_judge_the_verdict_is_judge_unavailable() -> None:
    def judge(request: ChatRequest) -> str:
        raise ProviderError("connection", "no route", provider="x", final=True)

    verdict = await judged(words(WROTE, judge), "report: the report says that two passed")
    assert (verdict.verdict, verdict.code, verdict.decided_by) == ("FAIL", "judge_unavailable", "nobody")
    assert verdict.criteria[0].outcome == "error"


async def test_an_ineligible_pinned_judge_leaves_no_eligible_judge() -> None:
    verdict = await judged(
        words(WROTE, met_by("2 passed")), "report: the report says that two passed", judge_model="no-such-model"
    )
    assert (verdict.verdict, verdict.code) == ("FAIL", "no_eligible_judge")


async def test_manual_criteria_pass_on_trust_and_are_not_verified() -> None:
    client = words(WROTE)
    verdict = await judged(client, {"kind": "manual", "text": "the boss likes it"})
    assert (verdict.verdict, verdict.verified, verdict.decided_by, verdict.code) == ("PASS", False, "trust", "trusted")
    assert verdict.reasoning == "the criterion is met; 1 on trust"
    assert judge_calls(client) == 0


async def test_without_criteria_there_is_no_verdict() -> None:
    assert (await delegated(words(WROTE))).verdict is None


async def test_the_gate_ends_judging_and_can_be_switched_off() -> None:
    client = words(["....."], met_by("....."))
    verdict = await judged(client, "report: the report has five points")
    assert (verdict.verdict, verdict.decided_by, verdict.code) == ("FAIL", "gate", "degenerate_report")
    assert judge_calls(client) == 0
    ungated = await judged(words(["....."]), {"kind": "regex", "pattern": "^.....$"}, gate=False)
    assert (ungated.verdict, ungated.gate) == ("PASS", "degenerate_report"), "its reason is still counted"


@pytest.mark.parametrize("report", ["Done.", "Thought process:", "Solution", "OK", "解"])
async def test_a_report_that_says_nothing_shows_nothing_about_itself_and_costs_no_other_work(report: str) -> None:
    written = Scripted.call("write_file", path="out.txt", content="2 passed\n")
    said = await judged(words([report], met_by(report)), "report: it says what was done")
    assert (said.verdict, said.code) == ("FAIL", "self_report_only")
    done = await judged(words([written, report], met_by("2 passed")), "file out.txt: it says that two passed")
    assert done.verdict == "PASS"


async def test_a_judge_gets_a_reply_schema_and_fenced_evidence() -> None:
    client = words(WROTE, met_by("2 passed"))
    await judged(client, "report: the report says that two passed")
    request = client.requests[-1]
    assert request.reply_schema
    assert request.reply_schema["required"] == ["answers"]
    text = request.messages[0].text
    assert text.index("c1: the report says that two passed") < text.index("I wrote out.txt")
    assert "receipt:1" in text
    assert not request.tools


async def test_hidden_characters_and_cuts_are_findings() -> None:
    report = "visible" + "\u200b" * 5 + "x" * 400_000 + "\nthe end"
    verdict = await judged(words([report], met_by("the end")), "report: the report has an end")
    assert {finding.code for finding in verdict.findings} == {"hidden_text", "truncated_for_judge"}


@pytest.mark.parametrize(
    ("criterion", "whole", "code"),
    [
        ("it has an end", False, "met"),
        ("es kommt nirgends Werbung vor", True, "truncated_for_judge"),
        ("report: every line is long", None, "truncated_for_judge"),  # nobody says whether one passage can show it
    ],
)
async def test_a_truncated_text_meets_no_criterion_about_the_whole_text(
    criterion: str, whole: bool | None, code: str
) -> None:
    reading = {"c1": {"about": "report", "whole": whole}}
    verdict = await judged(words(["x" * 400_000 + "\nthe end"], met_by("the end"), reading=reading), criterion)
    assert (verdict.verdict, verdict.code) == ("PASS" if code == "met" else "FAIL", code)
    short = await judged(words(["a long line, and\nthe end"], met_by("the end"), reading=reading), criterion)
    assert short.verdict == "PASS"


@pytest.mark.parametrize(
    ("criterion", "outcome", "words_in_reason"),
    [
        ({"kind": "regex", "pattern": r"wrote\s+out"}, "met", "found"),
        ({"kind": "regex", "pattern": "nowhere"}, "not_met", "no match"),
        ({"kind": "regex", "pattern": r"(\w|\w\w|o)+$(?<!t\.)"}, "not_met", ""),
        ({"kind": "file", "path": "out.txt", "min_bytes": 100}, "not_met", "has 9 bytes"),
        ({"kind": "file", "path": "out.txt", "contains": "2 passed"}, "met", "contains"),
        ({"kind": "file", "path": "nope.txt"}, "not_met", "does not exist"),
        ({"kind": "file", "path": "nope.txt", "exists": False}, "met", "does not exist"),
        ({"kind": "file", "path": "."}, "error", "it is a folder, not a file"),
        ({"kind": "file", "path": "./", "exists": False}, "error", "it is a folder, not a file"),
        ({"kind": "file", "path": "out.txt", "json_schema": {"type": "object"}}, "not_met", "not JSON"),
        ({"kind": "json_schema", "schema": {"type": "object"}}, "not_met", "not JSON"),
        ({"kind": "shell", "command": "grep -q passed out.txt"}, "met", "exit code 0"),
        ({"kind": "shell", "command": "exit 3", "exit_code": 3}, "met", "exit code 3"),
        ({"kind": "shell", "command": "sleep 9", "timeout_seconds": 0.05}, "error", "longer than"),
    ],
    ids=str,
)
async def test_checks_decide_on_the_actual_output_and_files(
    criterion: dict[str, Any], outcome: str, words_in_reason: str
) -> None:
    verdict = await judged(words(WROTE), criterion)
    assert verdict.criteria[0].outcome == outcome
    assert words_in_reason in verdict.criteria[0].reason
    assert verdict.verdict == ("PASS" if outcome == "met" else "FAIL")


async def test_a_link_that_leads_out_of_the_workspace_is_an_error(home: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("a secret")
    (tmp_path / "work").mkdir()
    (tmp_path / "work/out.txt").symlink_to(tmp_path / "secret.txt")
    out = {"kind": "file", "path": "out.txt", "contains": "secret"}
    async with Delegator(client=Scripted([])) as delegator:
        verdict = await delegator.judge(
            goal="g", acceptance_criteria=[out], report="It is there.", workspace=tmp_path / "work"
        )
    assert (verdict.verdict, verdict.code) == ("FAIL", "path_refused")


async def test_an_output_schema_adds_a_criterion_and_structured_output() -> None:
    schema = {"type": "object", "required": ["total"], "properties": {"total": {"type": "integer"}}}
    async with Delegator(client=words(['Here:\n```json\n{"total": 7}\n```'])) as delegator:
        good = (await delegator.run(Task(goal="sum", output_schema=schema))).results[0]
    assert good.verdict
    assert (good.verdict.verdict, good.structured_output) == ("PASS", {"total": 7})
    async with Delegator(client=words(['```json\n{"total": "7"}\n```'])) as delegator:
        bad = (await delegator.run(Task(goal="sum", output_schema=schema))).results[0]
    assert bad.verdict
    assert (bad.verdict.verdict, bad.verdict.criteria[0].id) == ("FAIL", "output_schema")
    assert "$.total" in bad.verdict.reasoning


async def test_versions_change_only_with_the_question_and_the_judge() -> None:
    first = await judged(words(WROTE, met_by("2 passed")), "report: the report says that two passed")
    again = await judged(
        words(["I wrote nothing, sorry."], met_by("nothing")), "report: the report says that two passed"
    )
    other = await judged(words(WROTE, met_by("2 passed")), "report: the report says that both passed")
    assert first.rubric_version == again.rubric_version != other.rubric_version
    assert first.judge_version == again.judge_version == other.judge_version
    by_check = await judged(words(WROTE), {"kind": "file", "path": "out.txt"})
    assert by_check.judge_version != first.judge_version


async def test_a_persons_check_without_a_sandbox_is_refused_on_the_reports_first_line(home: Path) -> None:
    task = Task(goal="do it", acceptance_criteria=[{"kind": "shell", "command": "true"}])
    async with Delegator(client=words(WROTE), sandbox="off") as delegator:
        result = await delegator.run(task)
        head = next(line for line in delegator.render(result).splitlines() if line.startswith("task 1:"))
        judged = await delegator.judge(
            goal="do it",
            acceptance_criteria=[{"kind": "shell", "command": "true"}],
            report="I did.",
            workspace=home.parent,
        )
    assert head.startswith("task 1: FAIL (nobody, commands_not_allowed)"), head
    assert judged.verdict == "PASS", "nobody's child worked in that folder"


async def test_a_models_check_gets_the_network_only_if_the_setting_is_open(home: Path) -> None:
    criteria = [{"kind": "shell", "command": "true", "network": "host"}]
    found: list[str] = []
    settings: list[SettingsOptions] = [{"commands": "allow"}, {"commands": "allow", "network": "open"}]
    for options in settings:
        async with Delegator(client=words(WROTE), **options) as delegator:
            result = await delegator.call({"goal": "do it", "acceptance_criteria": criteria})
        assert result.results[0].verdict
        found.append(result.results[0].verdict.code)
    assert found == ["network_not_allowed", "met"]


async def test_a_forbidden_shell_criterion_is_an_error_not_a_failed_check(
    home: Path,
) -> None:
    criteria = [{"kind": "shell", "command": "true"}]
    async with Delegator(client=words(WROTE), commands="deny") as delegator:
        result = await delegator.call({"goal": "do it", "acceptance_criteria": criteria})
    verdict = result.results[0].verdict
    assert verdict
    assert (verdict.verdict, verdict.code, verdict.criteria[0].outcome) == ("FAIL", "commands_not_allowed", "error")
    assert "commands" in verdict.reasoning


# ------------------------------------------------------------------------------------------------ files without trace


def named(verdict: Verdict) -> list[str]:
    return [one.message for one in verdict.findings if one.code == "unrecorded_file"]


@pytest.mark.parametrize(
    "claim",
    [
        "I wrote `notes.md` about it.",
        "Die Notizen stehen in `notes.md`.",
        "J'ai tout noté dans `notes.md`.",
        "メモは`notes.md`に書きました。",
    ],
)
async def test_a_file_that_the_report_names_and_of_which_there_is_no_trace_is_a_finding(claim: str) -> None:
    client = words(
        [Scripted.call("write_file", path="out.txt", content="2 passed\n"), f"I wrote out.txt:\n2 passed\n{claim}"],
        met_by("2 passed"),
    )
    verdict = await judged(client, "report: it says that two passed")
    assert verdict.verdict == "PASS"
    (message,) = named(verdict)
    assert "`notes.md`" in message


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (Scripted.call("write_file", path="out.txt", content="2 passed\n"), "The file is `out.txt`."),
        (Scripted.call("read_file", path="notes.md"), "There is no `notes.md` here."),
        (Scripted.call("write_file", path="sub/notes.md", content="x"), "More is in `notes.md`, in the folder `sub`."),
        (Scripted.call("write_file", path="a.py", content="import os.path\n"), "It uses `os.path` to join them."),
        (Scripted.call("write_file", path="out.txt", content="x"), "See `https://example.org/a.html` for more."),
    ],
)
async def test_a_file_that_is_there_or_that_a_call_has_to_do_with_is_no_finding(call: ChatReply, sentence: str) -> None:
    verdict = await judged(words([call, f"2 passed\n{sentence}"], met_by("2 passed")), "report: it passed")
    assert (verdict.verdict, named(verdict)) == ("PASS", [])

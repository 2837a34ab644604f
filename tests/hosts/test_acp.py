"""Agents of the Agent Client Protocol as children: real processes with the SDK's own agent side."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import pytest

from delegate import Cancellation, ConfigError, Delegator, Task
from delegate.policy.approvals import ApprovalRequest
from delegate.types import TaskResult, Verdict
from tests.cli.command import delegate
from tests.support.words import met_by, words

pytest.importorskip("acp", reason="the extra `acp` isn't installed")

from delegate.child import acp_connection
from delegate.child.acp import AcpRunner

AGENT = Path(__file__).parent.parent / "support" / "acp_agent.py"
Script = Sequence[Sequence[Any]]


def runner(*script: Sequence[Any], **options: Any) -> AcpRunner:
    return AcpRunner([sys.executable, "-BP", str(AGENT), json.dumps(script)], **options)


async def done(*script: Sequence[Any], task: Any = None, on_approval: Any = None, **settings: Any) -> TaskResult:
    given = Task.model_validate({"goal": "Do it.", **(task or {})})
    settings.setdefault("commands", "allow")
    async with Delegator(runner=runner(*script), on_approval=on_approval, **settings) as one:
        result = await one.run(given)
    assert result.error is None
    return result.results[0]


def said(result: TaskResult) -> list[Any]:
    """What came of each of the agent's requests."""
    assert result.error is None, result.error
    return [json.loads(line) for line in result.report.splitlines()]


async def verdict_on(*script: Sequence[Any], criteria: Sequence[Any], **settings: Any) -> Verdict:
    verdict = (await done(*script, task={"acceptance_criteria": criteria}, **settings)).verdict
    assert verdict
    return verdict


# ------------------------------------------------------------------------------------------------------- the work


async def test_what_an_agent_does_through_the_protocol_is_on_record() -> None:
    script = (["write", "notes.md", "# Notes\n"], ["read", "notes.md"], ["run", "cat notes.md"], ["say", "Wrote it."])
    result = await done(*script, task={"acceptance_criteria": [
        {"kind": "file", "path": "notes.md", "contains": "# Notes"},
        {"kind": "receipt", "calls": [{"tool": "write_file", "args": {"path": "notes.md"}}]},
        {"kind": "receipt", "calls": [{"tool": "run_shell", "args": {"command": "cat notes.md"}}]},
    ]})  # fmt: skip
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.receipts) == ("PASS", "partial")
    assert result.report.endswith("Wrote it.")
    assert result.receipts.tools == {"write_file": 1, "read_file": 1, "run_shell": 1}
    assert [artifact.path for artifact in result.artifacts] == ["notes.md"]


async def test_what_an_agent_says_of_its_own_tools_is_no_receipt(tmp_path: Path) -> None:
    claims = ["claim", "Edited notes.md", "edit", {"path": "notes.md"}]
    lie = (claims, ["say", "I edited the file notes.md."])
    criteria = [{"kind": "receipt", "calls": [{"tool": "write_file"}]}]
    assert (await verdict_on(*lie, criteria=criteria)).code == "no_receipts"
    assert (await verdict_on(*lie, criteria=["file: notes.md"])).verdict == "FAIL"
    assert (await verdict_on(["own_write", "notes.md", "x"], *lie, criteria=["file: notes.md"])).verdict == "PASS"
    async with Delegator(runner=runner(*lie)) as delegator:
        result = (await delegator.run(Task(goal="x"))).results[0]
        record = await delegator.records.read(result.handle or "")
    assert result.receipts.total == 0
    assert '"tool":"Edited notes.md","args":{"path":"notes.md"}' in json.dumps(record, separators=(",", ":"))


async def test_an_incomplete_record_proves_no_absence() -> None:
    none = [{"kind": "receipt", "mode": "none", "of": ["run_shell"]}]
    exactly = [{"kind": "receipt", "mode": "exactly", "calls": [{"tool": "write_file"}]}]
    assert (await verdict_on(["say", "ok"], criteria=none)).code == "no_receipts"
    assert (await verdict_on(["run", "true"], criteria=none)).code == "not_met"
    assert (await verdict_on(["write", "a", "b"], criteria=exactly)).code == "no_receipts"


async def test_a_judge_gets_no_deed_from_an_agents_word() -> None:
    script: Script = (["claim", "send mail to ann", "other", None], ["say", "I sent the mail to ann."])
    judge = words([], met_by("I sent the mail to ann."))
    verdict = await verdict_on(*script, criteria=["deed: the mail was sent to ann"], client=judge)
    assert verdict.code == "self_report_only"


async def test_the_last_message_is_the_report() -> None:
    result = await done(["say", "I will look."], ["claim", "Looked", "read", {}], ["say", "a"], ["say", "b"])
    assert result.report == "a\nb"


async def test_the_session_is_in_the_workspace_and_has_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_API_KEY", "0th-3r0e-91ab-77cd")
    result = await done(["write", "a", "b"], ["where"], ["able"])
    assert said(result) == ["written", [result.workspace, []], [True, True, True]]
    assert said(await done(["able"], task={"tools": ["read_file"]})) == [[True, False, False]]


async def test_files_are_read_as_they_are() -> None:
    text = "one\ntwo\x0cstill two\nthree"
    result = await done(["write", "a", text], ["read", "a"], ["read", "a", 2, 1], ["read", "a", 3], ["read", "b"])
    missing = "b can't be read: No such file or directory (not found)"
    assert said(result) == ["written", text, "two\x0cstill two\n", "three", missing]


async def test_terminals_are_commands_of_the_workspace() -> None:
    result = await done(
        ["write", "sub/a", "x"],
        ["run_in", "printf '%s' \"$WHO\"; ls", {"cwd": "sub", "env": {"WHO": "it's me"}}],
        ["run", "printf", "%s", "a b; $HOME"],
        ["run", "exit 3"],
        ["kill", "sleep 600"],
        ["unknown_terminal"],
        ["run_in", "true", {"env": {"A;rm": "x"}}],
        ["run_in", "true", {"cwd": "/"}],
    )
    assert said(result)[1:] == [
        [0, "[stdout]\nit's mea\n"],
        [0, "[stdout]\na b; $HOME"],
        [3, "(no output)"],
        [True, None, "SIGKILL"],
        "Resource not found (not found)",
        "Invalid params",
        "'/' is outside the workspace; use paths inside it, such as 'notes.md'",
    ]
    assert (result.receipts.ok, result.receipts.error, result.receipts.timeout) == (3, 1, 1)


async def test_files_outside_the_workspace_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    result = await done(
        ["read", str(secret)], ["write", str(secret), "x"], ["run", f"ln -s {secret} link"], ["read", "link"],
        ["ask", "read", "Read it", None, str(secret)], ["ask", "edit", "Write it", None, "link"],
    )  # fmt: skip
    answers = said(result)
    assert all("is outside the workspace" in answers[n] for n in (0, 1, 3))
    assert answers[4:] == ["no", "no"]
    assert secret.read_text() == "s3cret"
    assert result.receipts.denied == 5


async def test_usage_is_what_the_agent_reports() -> None:
    result = await done(["say", "x"], ["end", "end_turn"])
    assert (result.usage.input_tokens, result.usage.output_tokens, result.cost_usd) == (20, 10, None)


# ----------------------------------------------------------------------------------------------------- permission

RULE = {"decision": "ask", "reason": "it pushes", "tools": ["run_shell"], "arguments": {"command": "git push"}}
NEVER = {"decision": "deny", "reason": "not here", "tools": ["write_file"], "arguments": {"path": r"\.env$"}}
UNKNOWN = {"undeclared_effect": "deny"}


async def test_permission_is_asked_of_the_policy_and_of_a_person() -> None:
    asked: list[ApprovalRequest] = []

    def person(request: ApprovalRequest) -> bool:
        asked.append(request)
        return "main" in str(request.command)

    result = await done(
        ["ask", "execute", "Push", {"command": "git push origin main"}],
        ["ask", "execute", "git push other"],
        ["ask", "execute", "Push", {"command": ["git", "push", "third"]}],
        ["ask", "execute", "List", {"command": "ls"}],
        ["ask", "edit", "Edit .env", None, ".env"],
        ["ask", "edit", "Edit both", None, "a.md .env"],
        ["ask", "switch_mode", "Do as you like"],
        ["write", ".env", "x"],
        ["run", "git push nowhere"],
        policy={"rules": [RULE, NEVER], **UNKNOWN},
        on_approval=person,
    )
    assert said(result)[:7] == ["yes", "no", "no", "yes", "no", "no", "no"]
    assert "not here" in said(result)[7]
    assert said(result)[8][0] == 126
    assert [request.command for request in asked] == [
        "git push origin main", "git push other", "git push third", "git push nowhere"]  # fmt: skip
    assert result.receipts.denied == 7
    assert result.receipts.ok == 0, "what was permitted is no receipt"


async def test_without_a_person_nothing_that_needs_one_is_permitted() -> None:
    result = await done(["ask", "execute", "Push", {"command": "git push"}], policy={"rules": [RULE]})
    assert said(result) == ["no"]


# ------------------------------------------------------------------------------------------ agents that go wrong


@pytest.mark.parametrize(
    ("script", "status", "code", "message"),
    [
        ([["say", "half"], ["die", 3]], "failed", "exit_code", "ended with exit code 3"),
        ([["say", "half"], ["die", 0]], "failed", "exit_code", "had not ended its turn"),
        ([["version", 2]], "failed", "not_started", "speaks version 2 of ACP, and not 1"),
        ([["logged_out"]], "failed", "reported_failure", "log in to it"),
        ([["send", "no JSON", 2_000], ["hang"]], "failed", "unreadable_output", "no messages"),
        ([["end", "refusal"]], "failed", "refused", "refused"),
        ([["end", "max_tokens"]], "failed", "truncated", "cut off"),
        ([["end", "max_turn_requests"]], "max_steps", "max_steps", "as many"),
        ([["end", "cancelled"]], "failed", "aborted", "cancelled"),
    ],
)
async def test_an_agent_that_does_not_end_its_turn_fails(script: Script, status: str, code: str, message: str) -> None:
    result = await done(*script)
    assert result.error
    assert (result.status, result.error.code) == (status, code)
    assert message in result.error.message
    assert len(result.error.message) < 1_500
    if script[0][0] == "say":
        assert result.report == "half"


HOSTILE = [
    "", "[]", "null", "{", "{}", "\x00", "[" * 100_000, '{"jsonrpc":"2.0"}', '{"id":[],"result":1}',
    '{"id":{},"method":"x"}',
    '{"id":99,"result":{}}', '{"id":1,"error":"x"}', '{"method":{"a":1},"id":7}', '{"method":"session/update"}',
    '{"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"of the future"}}}',
    '{"method":"$/cancel_request","params":{"id":1}}', '{"method":"nothing/known","id":"a"}',
    '{"method":"terminal/output","id":3,"params":[]}',
    '{"method":"elicitation/create","id":4,"params":{"message":"?"}}',
    '{"method":"fs/write_text_file","id":5,"params":{"sessionId":"s1","path":"a","content":"x","_meta":{"path":5}}}',
    '{"method":"fs/read_text_file","id":6,"params":{"sessionId":"s1","path":"\\u0000","line":-1}}',
    '{"method":"_vendor/x","id":8,"params":{}}', '{"method":"_vendor/y"}',
]  # fmt: skip


async def test_messages_that_nobody_expects_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    result = await done(*(["send", line] for line in HOSTILE), ["write", "a", "real"], ["say", "done"])
    assert result.report.endswith("done")
    assert result.error is None
    assert [record for record in caplog.records if record.name == "root"] == [], "the SDK logs tracebacks"


async def test_an_agent_that_floods_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp_connection, "MAX_LINE_BYTES", 100_000)
    monkeypatch.setattr(acp_connection, "MAX_REQUESTS", 200)
    monkeypatch.setattr(acp_connection, "MAX_BYTES", 500_000)
    request = '{"method":"fs/read_text_file","id":3,"params":{"sessionId":"s1","path":"a"}}'
    note = '{"method":"x","params":"~"}'
    for line, times, padding, code in (("~", 1, 300_000, "unreadable_output"), (note, 500, 5_000, "unreadable_output"),
                                       (request, 1_000, 0, "too_many_tool_calls")):  # fmt: skip
        result = await done(["send", line, times, padding], ["hang"])
        assert result.error
        assert result.error.code == code
    assert "16 terminals" in said(await done(["terminals", 17]))[0]


async def test_a_report_that_is_too_long_fails() -> None:
    result = await done(["say_much", 600_000])
    assert result.error
    assert result.error.code == "report_too_long"


async def test_a_workspace_that_grows_too_large_ends_the_run() -> None:
    grow = [["run", f"head -c 3000000 /dev/zero > big{n}"] for n in range(3)]
    result = await done(*grow, ["hang"], max_workspace_mb=2, task={"timeout_seconds": 20})
    assert result.error
    assert result.error.code == "workspace_too_large"


async def test_at_its_deadline_an_agent_is_asked_to_stop() -> None:
    result = await done(["say", "half of it"], ["write", "a", "b"], ["wait"], task={"timeout_seconds": 5})
    assert (result.status, result.report.splitlines()[0]) == ("timeout", "half of it")
    assert {artifact.path for artifact in result.artifacts} == {"a", "cancelled"}
    assert (await done(["hang"], task={"timeout_seconds": 2})).status == "timeout"


def has_no_writers(fifo: TextIO) -> bool:
    """Whether all processes that had it open for writing have ended."""
    os.set_blocking(fifo.fileno(), False)
    try:
        return os.read(fifo.fileno(), 1) == b""
    except BlockingIOError:
        return False


async def test_a_cancel_ends_the_agent_and_its_terminals(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    holds = f"exec 9>{fifo}; echo begun >&9; exec sleep 600"
    async with Delegator(runner=runner(["leave", holds], ["hang"]), sandbox="off", commands="allow") as delegator:
        cancellation = Cancellation()
        running = asyncio.create_task(delegator.run(Task(goal="wait"), cancellation=cancellation))
        with await asyncio.to_thread(fifo.open) as reader:
            assert await asyncio.to_thread(reader.readline) == "begun\n"
            cancellation.cancel()
            result = (await running).results[0]
            assert has_no_writers(reader)
    assert result.status == "cancelled"
    assert result.receipts.timeout == 1, "the command that was stopped is on record"


async def test_a_terminal_that_is_left_ends_with_the_turn(tmp_path: Path) -> None:
    result = await done(["leave", "sleep 600"], ["say", "done"])
    assert (result.status, result.report, result.receipts.timeout) == ("completed", "done", 1)


def test_the_command_runs_an_agent(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[["write", "a", "b"], ["say", "done"]]')
    agent = f"acp:{sys.executable} -BP {AGENT} @{script}"
    ran = delegate("run", "Do it.", "--runner", agent, "-c", "file: a")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "were recorded where delegate made them" in " ".join(ran.stdout.split())
    wrong = delegate("run", "Do it.", "--runner", agent, "--runner-output", "json")
    assert (wrong.returncode, "--runner-output" in wrong.stderr) == (2, True)


# ------------------------------------------------------------------------------------------------------- refused


def test_what_can_not_be_run_is_refused_at_once() -> None:
    for command, part in (("no-such-agent", "not found"), ("sh {prompt}", "leave out"), ("", "empty")):
        with pytest.raises(ConfigError, match=part):
            AcpRunner(command)


async def test_an_agent_that_can_not_be_started_fails_at_once() -> None:
    result = await done(["say", "x" * 1_000_000])  # longer than an argument may be
    assert result.error
    assert (result.status, result.error.code) == ("failed", "not_started")


async def test_a_program_that_is_no_agent_fails() -> None:
    async with Delegator(runner=AcpRunner("echo hello")) as delegator:
        result = (await delegator.run(Task(goal="x"))).results[0]
    assert result.error
    assert result.error.code == "exit_code"

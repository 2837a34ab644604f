"""Judging finished work: how it ended, what was said, and transcripts as a record of tool calls."""

import json
from pathlib import Path
from typing import Any

import pytest

from delegate import CallError, Delegator, Verdict
from delegate.judging.transcripts.messages import NO_RESULT, receipts_in, text_of
from delegate.models.providers.scripted import Scripted
from tests.cli.command import delegate


def openai_turn(*calls: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    made = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for id, name, args in calls
    ]
    return {"role": "assistant", "content": "Working.", "tool_calls": made}


def openai_result(id: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text, **more}


async def judged(receipts: Any, *criteria: Any, report: str = "It is booked.", **options: Any) -> Verdict:
    async with Delegator(client=Scripted([])) as delegator:
        return await delegator.judge(
            goal="Book.", acceptance_criteria=criteria, report=report, receipts=receipts, **options
        )


@pytest.mark.parametrize("status", ["failed", "timeout", "cancelled", "budget_exceeded", "max_steps"])
@pytest.mark.parametrize("gate", [True, False])
async def test_work_that_was_cut_off_is_no_pass(status: Any, gate: bool, home: Path) -> None:
    async with Delegator(client=Scripted([]), gate=gate) as delegator:
        verdict = await delegator.judge(
            goal="g",
            acceptance_criteria=[{"kind": "regex", "pattern": "booked"}],
            report="It is booked.",
            status=status,
        )
    assert (verdict.verdict, verdict.code) == ("FAIL", "run_failed")
    assert status in verdict.reasoning


async def test_a_status_that_does_not_exist_is_refused(home: Path) -> None:
    with pytest.raises(CallError, match="`status` is 'done'") as caught:
        await judged([], {"kind": "manual", "text": "x"}, status="done")
    assert "use one of completed" in (caught.value.hint or "")


def test_the_status_can_be_given_on_the_command_line(home: Path) -> None:
    Path("report.md").write_text("\ufeff" + json.dumps({"total": 3}))
    given = ("judge", "--goal", "g", "--report", "report.md", "-c", "json: total === 3")
    assert delegate(*given).returncode == 0
    done = delegate(*given, "--status", "timeout")
    assert (done.returncode, "run_failed" in done.stdout) == (1, True)
    assert delegate(*given, "--status", "done").returncode == 2


async def test_a_conversation_alone_proves_no_deed(home: Path) -> None:
    said = [{"role": "assistant", "content": "I sent the invite to Ann."}]
    sent = {"kind": "receipt", "calls": [{"tool": "send_invite"}]}
    assert (await judged([], sent, conversation=said)).code == "not_met"
    assert (await judged(None, sent, conversation="I sent the invite")).code == "no_receipts"


def test_what_was_said_is_text_with_the_speakers() -> None:
    messages: list[Any] = [
        {"role": "user", "content": "Book it."},
        openai_turn(("1", "book", {})),
        openai_result("1", "booked by the tool"),
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}, {"type": "tool_use", "name": "x"}]},
        "a bare line",
    ]
    assert text_of(messages) == "user: Book it.\n\nassistant: Working.\n\nassistant: Done.\n\na bare line"
    assert text_of("as it is") == "as it is"


REPEATED = [
    openai_turn(("call_1", "book", {"seat": 1}), ("call_1", "book", {"seat": 2})),
    openai_result("call_1", "first"),
    openai_result("call_1", "second"),
    openai_turn(("call_1", "book", {"seat": 3})),
    openai_turn(("call_1", "pay", {})),
    openai_result("call_1", "paid"),
]


def test_results_are_paired_by_order_where_call_ids_repeat() -> None:
    found = [(one.tool, one.args.get("seat"), one.status, one.output) for one in receipts_in(REPEATED)]
    assert found == [
        ("book", 1, "ok", "first"),
        ("book", 2, "ok", "second"),
        ("book", 3, "error", NO_RESULT),
        ("pay", None, "ok", "paid"),
    ]


def test_anthropic_messages_are_read_as_well() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Book."},
        {"role": "assistant", "content": [
            {"type": "text", "text": "I will."},
            {"type": "tool_use", "id": "t", "name": "book", "input": {"seat": 1}},
            {"type": "tool_use", "id": "u", "name": "pay", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "u", "is_error": True, "content": "card refused"},
            {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": '{"ok": true}'}]},
        ]},
    ]  # fmt: skip
    found = [(one.tool, one.status, one.output) for one in receipts_in(messages)]
    assert found == [("book", "ok", '{"ok": true}'), ("pay", "error", "card refused")]


def test_arguments_that_are_no_json_object_are_a_failed_call() -> None:
    turn = openai_turn(("1", "book", {}))
    turn["tool_calls"][0]["function"]["arguments"] = '{"seat": '
    assert [one.status for one in receipts_in([turn, openai_result("1", "ok")])] == ["error"]


async def test_a_transcript_is_accepted_in_place_of_receipts(home: Path) -> None:
    booked = {"kind": "receipt", "calls": [{"tool": "book", "args": {"seat": 2}, "result": {"matches": "^second$"}}]}
    assert (await judged(REPEATED, booked)).verdict == "PASS"
    lost = [openai_result("call_9", "booked"), *REPEATED]
    with pytest.raises(CallError, match="message 1 has the result of a tool call 'call_9'"):
        await judged(lost, booked)
    Path("report.md").write_text("It is booked.")
    for name, text in (("t.json", json.dumps(REPEATED)), ("t.jsonl", "\n".join(map(json.dumps, REPEATED)))):
        Path(name).write_bytes(b"\xef\xbb\xbf" + text.encode())
        done = delegate("judge", "--goal", "g", "--report", "report.md", "--receipts", name, "-c", json.dumps(booked))
        assert done.returncode == 0, done.stdout + done.stderr


async def test_a_byte_order_mark_before_json_is_read(home: Path, tmp_path: Path) -> None:
    (tmp_path / "out.json").write_bytes(b"\xef\xbb\xbf" + b'{"total": 3}')
    criteria = [
        {"kind": "json_predicate", "expr": "total === 3"},
        {"kind": "json_schema", "schema": {"required": ["total"]}},
        {"kind": "file", "path": "out.json", "json_schema": {"required": ["total"]}},
        {"kind": "receipt", "calls": [{"tool": "sum", "result": {"total": 3}}]},
    ]
    receipts: list[dict[str, Any]] = [{"tool": "sum", "args": {}, "status": "ok", "output": '\ufeff{"total": 3}'}]
    verdict = await judged(receipts, *criteria, report='\ufeff{"total": 3}', workspace=tmp_path)
    assert verdict.verdict == "PASS", verdict.reasoning
    async with Delegator(client=Scripted([])) as delegator:
        result = await delegator.call('\ufeff{"goal": ""}')
    assert result.error is not None
    assert result.error.code == "empty"


async def test_work_without_a_report_is_judged_by_its_files_and_calls(home: Path, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("hello\n")
    criteria = [{"kind": "file", "path": "note.md"}, {"kind": "receipt", "calls": [{"tool": "send"}]}]
    receipts: list[dict[str, Any]] = [{"tool": "send", "args": {}, "status": "ok", "output": "sent"}]
    async with Delegator(client=Scripted([])) as delegator:
        both = await delegator.judge(goal="g", acceptance_criteria=criteria, workspace=tmp_path, receipts=receipts)
        unknown = await delegator.judge(goal="g", acceptance_criteria=criteria, workspace=tmp_path)
        empty = await delegator.judge(goal="g", acceptance_criteria=criteria[:1], workspace=tmp_path, report="")
        failed = await delegator.judge(goal="g", acceptance_criteria=criteria[:1], workspace=tmp_path, status="failed")
    assert (both.verdict, both.verified) == ("PASS", True)
    assert (unknown.code, unknown.examined) == ("no_receipts", False)
    assert (empty.code, empty.examined) == ("empty_report", True)
    assert (failed.code, failed.examined) == ("run_failed", True)


@pytest.mark.parametrize(
    ("criterion", "field"),
    [
        ({"kind": "regex", "pattern": "x"}, "acceptance_criteria[0]"),
        ({"kind": "json_predicate", "expr": "a === 1"}, "acceptance_criteria[0]"),
        ({"kind": "json_schema", "schema": {}}, "acceptance_criteria[0]"),
        (None, "report"),
    ],
)
async def test_what_needs_a_report_is_refused_without_one(criterion: Any, field: str, home: Path) -> None:
    work: dict[str, Any] = {"workspace": home} if criterion else {}
    home.mkdir(exist_ok=True)
    async with Delegator(client=Scripted([])) as delegator:
        with pytest.raises(CallError) as refused:
            await delegator.judge(goal="g", acceptance_criteria=[criterion or "it is good"], **work)
    assert refused.value.field == field
    assert refused.value.hint
